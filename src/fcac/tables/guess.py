"""Guesses what columns mean, from their types, their names and, if they may be looked at, their values.

The shell and Python guess by the same code: `fcac schema`, `fcac fit` without a schema, `Schema.guess` and `FCAC.fit`.
Ids, dates, constants and free text are left out, and said to be: none of them makes clusters that mean something.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fcac._text import listed
from fcac.exceptions import DataError, RequestError
from fcac.tables.column import Column
from fcac.tables.kind import is_numeric, kind_in_words, whole_array
from fcac.tables.kinds.levels import NO, YES
from fcac.tables.read_options import ALWAYS, GAP_WORDS
from fcac.tables.schema import Schema

# From so many rows on, a column all of whose values differ names records.
_ENOUGH_ROWS = 20
# Whole numbers that fill their range as densely as this, without a repetition, count the rows in some order.
_DENSE = 1.1
# A column of ids may name a record in several rows; a code has fewer levels than this.
_CODES = 50
# Levels are listed if at least so many rows have them, and if there are at most so many.
_LEAST_ROWS, _MOST_LEVELS = 5, 50
# Columns named in a line.
_MOST_LISTED = 12
# Columns named alike, such as pixel_1, pixel_2 and so on, are of one kind from this many on.
_FAMILY = 5

# Why a column is left out, where something else may be done with it.
_ONE_VALUE, _COUNTS = "one value only", "whole numbers, every one once: they count the rows"

_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|mrn|pid|nr|no|number)$|^(id|pid|uuid|record|patient|person)", re.I
)
_SURE_ID_NAME = re.compile(r"(^|[_\W])(?i:id|ids|uuid|guid|mrn|pid)$|[a-z](Id|ID)$")
_INDEX_NAME = re.compile(r"^(unnamed.*|index|rownames?|row|column0?|x0|\s*)$", re.I)
_SURE_INDEX_NAME = re.compile(r"^(unnamed: ?\d+|index|rownames?)$", re.I)
_DATE_NAME = re.compile(r"date|datum|admitted|admission|discharge|birth|time(stamp)?$|_at$|day$", re.I)
_YEAR_NAME = re.compile(r"(^|[_\W])(year|yr|jahr|annee)$|[a-z]Year$", re.I)
_CODE_NAME = re.compile(r"code|icd|zip|postal|plz|type|class|category|sex|gender|ward|region|country|state$", re.I)


class Guess(NamedTuple):
    """A column of a schema, and why it is thought to be that."""

    column: Column
    reason: str


def guess_columns(
    types: Mapping[str, Any],
    seen: Mapping[str, Seen],
    *,
    levels: bool = True,
    told: Mapping[str, Any] | None = None,
    where: str = "the table",
) -> list[Guess]:
    """Return what the columns of a table most likely mean.

    A column that is not in `seen` was not looked at. `told` says what is known of some (a kind, settings, or a Column)
    and replaces the guess; with `levels`, levels that at least five rows have are listed. Errors name `where`.
    """
    told = told or {}
    strange = [name for name in told if name not in types]
    if strange:
        raise RequestError(f"columns: {where} has no column {', '.join(map(repr, strange))}")
    guesses = [guess_column(name, kind, seen.get(name)) for name, kind in types.items()]
    guesses = _alike(guesses, types)
    if not any(_is_used(guess) for guess in guesses) and not told:
        # what only looks useless is better than nothing: a table of one value has one cluster, not none
        guesses = [
            Guess(Column(guess.column.name, missing="native"), guess.reason)
            if guess.reason in (_ONE_VALUE, _COUNTS) and is_numeric(types[guess.column.name])
            else guess
            for guess in guesses
        ]
    guesses = [
        Guess(_as_told(guess.column, told[name], seen.get(name)), "as told")
        if (name := guess.column.name) in told
        else guess
        for guess in guesses
    ]
    if levels:
        guesses = [_with_levels(guess, seen.get(guess.column.name)) for guess in guesses]
    if not any(_is_used(guess) for guess in guesses):
        said = "; ".join(f"{guess.column.name}: {guess.reason}" for guess in guesses[:8])
        raise DataError(
            f"{where} has no column that can be clustered ({said}): say what columns are in a schema, or with columns="
        )
    return guesses


def is_plain(guesses: Sequence[Guess], seen: Mapping[str, Seen]) -> bool:
    """Tell whether every column is a number as it is and without gaps: such a table needs no schema."""
    return all(
        guess.column == Column(guess.column.name, missing="native") and not seen[guess.column.name].gaps
        for guess in guesses
    )


def taken_for(schema: Schema, reasons: Mapping[str, str]) -> list[str]:
    """Return in a few lines what guessed columns were taken for.

    >>> schema = Schema(["age", Column("sex", kind="category", categories=("f", "m")), Column("nr", kind="id")])
    >>> taken_for(schema, {"age": "numbers", "sex": "text with few values", "nr": "it names records"})
    ['Taken as numbers: age', 'Taken as categories: sex (2 levels)', 'Left out: nr (it names records)']
    """
    lines: dict[str, list[str]] = {}
    for column in schema.fields:
        kind = column.how.name
        if column.how.reads == "nothing":
            lines.setdefault("Left out", []).append(f"{column.name} ({reasons.get(column.name, kind)})")
            continue
        about = ""
        if column.categories:
            about = f" ({len(column.categories)} levels)"
        elif column.scaling == "log":
            about = " (as logarithm)"
        plural = {"category": "categories", "boolean": "yes or no", "text": "texts"}.get(kind, f"{kind}s")
        lines.setdefault(f"Taken as {plural}", []).append(column.name + about)
    last = sorted(lines, key=lambda what: what == "Left out")
    return [f"{what}: {listed(lines[what], _MOST_LISTED)}" for what in last]


def guess_column(name: str, kind: Any, seen: Seen | None) -> Guess:
    """Return what a column most likely means; `seen` is None if its values were not looked at."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind) and seen is not None:
        return _category(name, seen, "categories")
    if is_numeric(kind):
        return _guess_numbers(name, kind, seen)
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return _left_out(name, "times or durations; turn them into a number, such as hours, to use them")
    if pa.types.is_temporal(kind) or (seen is not None and seen.present and seen.dates >= 0.95 * seen.present):
        return _left_out(name, 'dates; write kind = "date" to use them')
    if seen is not None and seen.written and seen.written.most_common(1)[0][1] >= 0.95 * seen.present:
        form = seen.written.most_common(1)[0][0]
        return _left_out(name, f'dates; write kind = "date", format = "{form}" to use them')
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return _left_out(name, kind_in_words(kind))
    if seen is None:
        if _DATE_NAME.search(name):
            return _left_out(name, 'dates, by the name; write kind = "date" to use them')
        if _ID_NAME.search(name):
            return Guess(Column(name, kind="id"), "text that names records, by its name")
        return Guess(Column(name, kind="category", missing="native"), "text; a guess by the name, values were not read")
    return _guess_texts(name, seen)


def _guess_numbers(name: str, kind: Any, seen: Seen | None) -> Guess:
    import pyarrow as pa

    if seen is not None and not seen.present:
        return _left_out(name, "no values")
    if seen is not None and seen.constant and seen.present > 1:
        return _left_out(name, _ONE_VALUE)
    if pa.types.is_boolean(kind):
        return Guess(Column(name, kind="boolean", missing="native"), "true and false")
    if _INDEX_NAME.match(name) and (seen is None or seen.rising or (seen.whole and _SURE_INDEX_NAME.match(name))):
        return _left_out(name, "an index of rows")
    why = _names_records(name, seen)
    if why:
        return Guess(Column(name, kind="id"), why)
    if _YEAR_NAME.search(name) and (seen is None or (seen.whole and seen.low >= 1000 and seen.high <= 2999)):
        return _left_out(name, 'years; write kind = "number" to use them')
    if seen is not None and seen.whole and (seen.low, seen.high) == (0.0, 1.0):
        return Guess(Column(name, kind="boolean", missing="native"), "0 and 1 only")
    if _SURE_ID_NAME.search(name) and seen is not None and seen.whole:
        return Guess(Column(name, kind="category", missing="native"), "whole numbers that name a few things")
    if _CODE_NAME.search(name) and (seen is None or (seen.whole and seen.distinct <= 200)):
        return Guess(Column(name, kind="category", missing="native"), "whole numbers that are codes, by the name")
    if seen is not None and _is_skewed(seen):
        return Guess(Column(name, scaling="log", missing="native"), "positive numbers, a few of them very large")
    return Guess(Column(name, missing="native"), "numbers")


def _names_records(name: str, seen: Seen | None) -> str:
    """Why whole numbers name records; empty if they do not."""
    if seen is None:
        return "a number that names records, by its name" if _ID_NAME.search(name) else ""
    if not seen.whole:
        return ""
    if _SURE_ID_NAME.search(name) and (seen.distinct > _CODES or seen.distinct == seen.present):
        return "whole numbers that name records, by the name"
    if not _all_differ(seen):
        return ""
    if _ID_NAME.search(name):
        return "whole numbers that name records, by the name"
    if seen.rising or seen.present <= seen.high - seen.low + 1 < _DENSE * seen.present:
        return _COUNTS
    return ""


def _guess_texts(name: str, seen: Seen) -> Guess:
    if not seen.present:
        return _left_out(name, "no values")
    if seen.distinct == 2 and all(str(word).lower() in (*YES, *NO) for word in seen.values):
        return Guess(Column(name, kind="boolean", missing="native"), "yes and no")
    if seen.as_numbers == seen.present and not seen.whole:
        return Guess(Column(name, missing="native"), "numbers, written as text")
    if _all_differ(seen) and seen.words < 0.5 * seen.present:
        return Guess(Column(name, kind="id"), "text, every value different: it names records")
    if _SURE_ID_NAME.search(name) and seen.distinct > _CODES:
        return Guess(Column(name, kind="id"), "text that names records, by the name")
    if seen.words > 0.5 * seen.present and (seen.many or seen.distinct > 0.5 * seen.present):
        return _left_out(name, 'free text; write kind = "text" to use it (extra "text")')
    if seen.many:
        return _left_out(name, f'text of over {_MOST_VALUES:,} values; write kind = "category" to use it')
    return _category(name, seen, "text with few values" if seen.distinct <= _MOST_LEVELS else "text; many levels")


def _category(name: str, seen: Seen, reason: str) -> Guess:
    if seen.constant and seen.present > 1:
        return _left_out(name, _ONE_VALUE)
    return Guess(Column(name, kind="category", missing="native"), reason)


def _left_out(name: str, reason: str) -> Guess:
    return Guess(Column(name, kind="ignore"), reason)


def _is_used(guess: Guess) -> bool:
    return guess.column.how.reads != "nothing"


def _all_differ(seen: Seen) -> bool:
    return seen.present >= _ENOUGH_ROWS and not seen.repeated


def _is_skewed(seen: Seen) -> bool:
    positive = seen.low > 0 and seen.logs[0] == seen.moments[0] >= _ENOUGH_ROWS
    return bool(positive and skewness(seen.moments) > 1.5 and abs(skewness(seen.logs)) < 0.75)


def _alike(guesses: list[Guess], types: Mapping[str, Any]) -> list[Guess]:
    """Give columns that are named alike one kind: a pixel that is 0 or 1, or always 0, is a pixel like the others."""
    families: dict[str, list[int]] = {}
    for number, (column, reason) in enumerate(guesses):
        if is_numeric(types[column.name]) and (column.how.name in ("number", "boolean") or reason == _ONE_VALUE):
            families.setdefault(re.sub(r"[\W\d_]+", "", column.name), []).append(number)
    result = list(guesses)
    for members in families.values():
        forms = Counter((guesses[n].column.kind, guesses[n].column.scaling) for n in members)
        # zeros have no logarithm, so that a few of a family cannot make logarithms of all
        if len(members) >= _FAMILY and len(forms) > 1 and forms.most_common(1)[0][0] == ("number", "none"):
            for n in members:
                result[n] = Guess(Column(guesses[n].column.name, missing="native"), "numbers, as its neighbours")
    return result


def _with_levels(guess: Guess, seen: Seen | None) -> Guess:
    """List the frequent levels of a category; the others count as "other"."""
    if guess.column.how.name != "category" or guess.column.categories or seen is None or seen.many:
        return guess
    found = sorted(level for level, count in seen.frequent.items() if count >= _LEAST_ROWS)
    if not 1 < len(found) <= _MOST_LEVELS:
        return guess
    return Guess(replace(guess.column, categories=tuple(found)), guess.reason)


def _as_told(guess: Column, told: Any, seen: Seen | None) -> Column:
    """A column as a user describes it: by its kind, by settings, or whole."""
    if isinstance(told, Column):
        return replace(told, name=guess.name)
    settings: dict[str, Any] = {"kind": told} if isinstance(told, str) else dict(told)
    if "kind" not in settings:
        settings = {**guess.settings(), **settings}
    if settings.get("kind") == "date" and seen is not None and seen.written:
        settings.setdefault("format", seen.written.most_common(1)[0][0])
    column = Column(guess.name, **settings)
    return column if "missing" in settings or column.how.reads == "nothing" else replace(column, missing="native")


# Different values that are remembered of a column, and of numbers how often each was seen while they are so few.
_MOST_VALUES, _MOST_COUNTED = 2000, 200
# So many values of a column, the first ones, are compared with one another to see whether any is there twice.
_MOST_COMPARED = 20_000
# Ways of writing a day beside ISO 8601; of two that fit, the one that fits more values is taken, then the first.
_DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d")
_DAY = re.compile(r"\d\d([./-])\d\d\1\d{4}|\d{4}/\d\d/\d\d")


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
    repeated: bool = False
    dates: int = 0
    written: Counter[str] = field(default_factory=Counter)
    frequent: Counter[str] = field(default_factory=Counter)
    words: int = 0
    as_numbers: int = 0
    longest: int = 0
    moments: Any = field(default_factory=lambda: np.zeros(4))
    logs: Any = field(default_factory=lambda: np.zeros(4))
    _last: float = -math.inf
    _compared: set[Any] = field(default_factory=set)

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
        self._compare(finite)
        if not self.many:
            first = np.unique(finite[:_MOST_COMPARED])
            self._remember((first if len(first) > _MOST_VALUES else np.unique(finite)).tolist())
        if not self.whole or len(self.values) > _MOST_COUNTED:
            self.frequent.clear()
        else:
            found, counts = np.unique(finite, return_counts=True)
            self.frequent.update({str(int(value)): int(n) for value, n in zip(found, counts, strict=True)})
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
        values = pc.utf8_trim_whitespace(values.cast(pa.string()))
        self._compare(values.drop_null())
        for one in values.value_counts().to_pylist():
            text, count = one["values"], one["counts"]
            if text is None or text in ALWAYS:
                self.gaps += count
                continue
            self.longest = max(self.longest, len(text))
            self.words += count if " " in text else 0
            number = _as_number(text)
            self.as_numbers += count if number is not None or text in GAP_WORDS else 0
            self.whole = self.whole and (number is None or number.is_integer())
            self.dates += count if _is_date(text) or text in GAP_WORDS else 0
            self.written.update({form: count for form in _DATE_FORMATS if _fits(text, form)})
            self._remember([text])
            if not self.many:
                self.frequent[text] += count

    def _compare(self, values: Any) -> None:
        """Note whether a value is there twice among the first ones, whatever the batches they come in."""
        some = values[: max(0, _MOST_COMPARED - len(self._compared))]
        if self.repeated or not len(some):
            return
        found = set((np.unique(some) if isinstance(some, np.ndarray) else some.unique()).tolist())
        self.repeated = len(found) < len(some) or not self._compared.isdisjoint(found)
        self._compared = set() if self.repeated else self._compared | found

    def _remember(self, values: list[Any]) -> None:
        if not self.many:
            self.values.update(values)
            self.many = len(self.values) > _MOST_VALUES

    @property
    def constant(self) -> bool:
        """Whether all values are the same one."""
        return self.low == self.high if self.low <= self.high else len(self.values) == 1

    @property
    def distinct(self) -> int:
        """Different values; a few more than are remembered stand for all that are many."""
        return len(self.values)

    @property
    def present(self) -> int:
        """Values that are not missing."""
        return self.n - self.gaps


def _powers(values: Any) -> Any:
    return np.array([len(values), values.sum(), (values**2).sum(), (values**3).sum()])


def skewness(sums: Any) -> float:
    n, mean = sums[0], sums[1] / max(sums[0], 1)
    variance = sums[2] / max(n, 1) - mean**2
    third = sums[3] / max(n, 1) - 3 * mean * sums[2] / max(n, 1) + 2 * mean**3
    return float(third / variance**1.5) if n and variance > 1e-12 * max(mean**2, 1e-300) else 0.0


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


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
