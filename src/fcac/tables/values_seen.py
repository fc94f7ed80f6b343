"""What was seen of a column's values, batch by batch: enough to guess what the column means, and no more."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcac.tables.gap_words import ALWAYS, GAP_WORDS
from fcac.tables.kind import is_numeric, whole_array

# Different values that are remembered of a column, and of numbers how often each was seen while they are so few.
_MOST_VALUES, _MOST_COUNTED = 2000, 200
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
        if not self.many:
            self._remember(np.unique(finite[: 10 * _MOST_VALUES]).tolist())
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
    def constant(self) -> bool:
        """Whether all values are the same one."""
        return self.low == self.high if self.low <= self.high else len(self.values) == 1

    @property
    def distinct(self) -> int:
        """Different values, as far as they were remembered."""
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
