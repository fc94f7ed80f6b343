"""Guesses what a column means, from its type, its name and, if they may be looked at, its values."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fcac.tables.column import Column
from fcac.tables.gap_words import ALWAYS, GAP_WORDS
from fcac.tables.kind import is_numeric, kind_in_words, whole_array
from fcac.tables.kinds.boolean import _NO, _YES

# Different values that are remembered of a column.
_MOST_VALUES = 2000
# From so many rows on, a column all of whose values differ names records.
_ENOUGH_ROWS = 20

_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|mrn|pid|nr|no|number)$|^(id|pid|uuid|record|patient|person)", re.I
)
_INDEX_NAME = re.compile(r"^(unnamed.*|index|rownames?|row|column0?|x0|\s*)$", re.I)
_DATE_NAME = re.compile(r"date|datum|admitted|admission|discharge|birth|time(stamp)?$|_at$|day$", re.I)
_CODE_NAME = re.compile(r"code|icd|zip|postal|plz|type|class|category|sex|gender|ward|region|country|state$", re.I)
# Ways of writing a day beside ISO 8601; of two that fit, the one that fits more values is taken, then the first.
_DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d")
_DAY = re.compile(r"\d\d([./-])\d\d\1\d{4}|\d{4}/\d\d/\d\d")
_CODE_VALUE = re.compile(r"[A-Za-z]\d\d.*")


@dataclass
class Seen:
    """What was seen of one column, batch by batch; only a summary of it is ever written down."""

    n: int = 0
    gaps: int = 0
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    rising: bool = True
    values: set[Any] = field(default_factory=set)
    many: bool = False
    dates: int = 0
    written: Counter[str] = field(default_factory=Counter)
    frequent: Counter[str] = field(default_factory=Counter)
    words: int = 0
    longest: int = 0
    moments: Any = field(default_factory=lambda: np.zeros(4))
    logs: Any = field(default_factory=lambda: np.zeros(4))
    _last: float = -math.inf

    def add(self, values: Any) -> None:
        """See some values of the column, as an Arrow array."""
        values = whole_array(values)
        self.n += len(values)
        if is_numeric(values.type):
            self._add_numbers(values)
        else:
            self._add_texts(values)

    def _add_numbers(self, values: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        finite = numbers[np.isfinite(numbers)]
        self.gaps += len(numbers) - len(finite)
        if not len(finite):
            return
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        self.whole = self.whole and bool((np.rint(finite) == finite).all())
        self.rising = self.rising and bool((np.diff(finite) > 0).all()) and finite[0] > self._last
        self._last = float(finite[-1])
        self._remember(np.unique(finite[: 10 * _MOST_VALUES]).tolist())
        self.moments = self.moments + _powers(finite)
        if finite.min() > 0:
            self.logs = self.logs + _powers(np.log(finite))

    def _add_texts(self, values: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_temporal(values.type):
            self.gaps += values.null_count
            self.dates += len(values) - values.null_count
            return
        if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
            return
        found = pc.utf8_trim_whitespace(values.cast(pa.string())).value_counts()
        for one in found.to_pylist():
            text, count = one["values"], one["counts"]
            if text is None or text in ALWAYS:
                self.gaps += count
                continue
            self.longest = max(self.longest, len(text))
            self.words += count if " " in text else 0
            self.dates += count if _is_date(text) or text in GAP_WORDS else 0
            self.written.update({form: count for form in _DATE_FORMATS if _fits(text, form)})
            self._remember([text])
            if not self.many:
                self.frequent[text] += count

    def _remember(self, values: list[Any]) -> None:
        if not self.many:
            self.values.update(values)
            self.many = len(self.values) > _MOST_VALUES

    @property
    def present(self) -> int:
        """Values that are not missing."""
        return self.n - self.gaps


class Guess(NamedTuple):
    """A column of a schema, and why it is thought to be that."""

    column: Column
    reason: str


def guess_column(name: str, kind: Any, seen: Seen | None) -> Guess:
    """Return what a column most likely means; `seen` is None if its values were not looked at."""
    import pyarrow as pa

    def column(**settings: Any) -> Column:
        return Column(name, missing="native", **settings)

    distinct = 0 if seen is None else len(seen.values)
    all_differ = seen is not None and seen.present >= _ENOUGH_ROWS and (seen.many or distinct == seen.present)
    if is_numeric(kind):
        if pa.types.is_boolean(kind):
            return Guess(column(kind="boolean"), "true and false")
        if seen is not None and seen.n and not seen.present:
            return Guess(Column(name, kind="ignore"), "no values")
        if _INDEX_NAME.match(name) and (seen is None or seen.rising):
            return Guess(Column(name, kind="ignore"), "an index of rows")
        if _ID_NAME.search(name) and (seen is None or (seen.whole and all_differ)):
            return Guess(Column(name, kind="id"), "a number that names records, by its name")
        if seen is not None and seen.values <= {0.0, 1.0} and distinct == 2:
            return Guess(column(kind="boolean"), "0 and 1 only")
        if _CODE_NAME.search(name) and (seen is None or (seen.whole and distinct <= 200)):
            return Guess(column(kind="category"), "whole numbers that are codes, by the name")
        if seen is not None and _is_skewed(seen):
            return Guess(column(scaling="log"), "positive numbers, a few of them very large")
        return Guess(column(), "numbers")
    if pa.types.is_temporal(kind) or (seen is not None and seen.present and seen.dates >= 0.95 * seen.present):
        return Guess(column(kind="date"), "dates")
    if seen is not None and seen.written and seen.written.most_common(1)[0][1] >= 0.95 * seen.present:
        form = seen.written.most_common(1)[0][0]
        return Guess(column(kind="date", format=form), f"dates, written as {form}")
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return Guess(Column(name, kind="ignore"), kind_in_words(kind))
    if seen is None:
        looks = "date" if _DATE_NAME.search(name) else "id" if _ID_NAME.search(name) else "category"
        made = Column(name, kind="id") if looks == "id" else column(kind=looks)
        return Guess(made, "text; a guess by the name, values were not read")
    if not seen.present:
        return Guess(Column(name, kind="ignore"), "no values")
    if distinct == 2 and all(str(word).lower() in (*_YES, *_NO) for word in seen.values):
        return Guess(column(kind="boolean"), "yes and no")
    if all_differ and seen.words < 0.5 * seen.present:
        return Guess(Column(name, kind="id"), "text, every value different: it names records")
    if seen.words > 0.5 * seen.present and (seen.many or distinct > 0.5 * seen.present):
        return Guess(Column(name, kind="ignore"), 'free text; write kind = "text" to use it (extra "text")')
    if distinct == 1:
        return Guess(Column(name, kind="ignore"), "one value only")
    return Guess(column(kind="category"), "text with few values" if distinct <= 50 else "text; many levels")


def _powers(values: Any) -> Any:
    return np.array([len(values), values.sum(), (values**2).sum(), (values**3).sum()])


def _skewness(sums: Any) -> float:
    n, mean = sums[0], sums[1] / max(sums[0], 1)
    variance = sums[2] / max(n, 1) - mean**2
    third = sums[3] / max(n, 1) - 3 * mean * sums[2] / max(n, 1) + 2 * mean**3
    return float(third / variance**1.5) if n and variance > 1e-12 * max(mean**2, 1e-300) else 0.0


def _is_skewed(seen: Seen) -> bool:
    positive = seen.low > 0 and seen.logs[0] == seen.moments[0] >= _ENOUGH_ROWS
    return bool(positive and _skewness(seen.moments) > 1.5 and abs(_skewness(seen.logs)) < 0.75)


def _fits(text: str, form: str) -> bool:
    """Whether a text is a day written in this form."""
    if not _DAY.fullmatch(text):
        return False
    try:
        datetime.datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    return bool(re.match(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$", text))
