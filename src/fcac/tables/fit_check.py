"""Tells, before anything is learned, how far tables fit a schema: counts by column, never a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fcac._text import counted, listed
from fcac.exceptions import DataError, RequestError
from fcac.tables.find_tables import find_files, open_table
from fcac.tables.kinds.number import unscaled
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Schema
from fcac.tables.table_file import read_rows


@dataclass
class FitCheck:
    """How many values, by column, fit a schema and how many do not.

    Learning would stop at those `missing` or `unknown`; the schema provides for `gaps`, `other` (levels that are not
    listed) and those `outside` min and max. `errors` say what is wrong with whole tables.
    """

    n_rows: int = 0
    n_dropped: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether the tables can be learned."""
        return not (self.missing or self.unknown or self.errors)

    def lines(self, schema: Schema) -> list[str]:
        """Return what was found, one line per column and per problem."""
        said = [f"{counted(self.n_rows, 'row')} read, {self.n_dropped:,} of them dropped by the schema"]
        for column in schema.used:
            name = column.name
            parts = [column.how.name]
            for what, counts in (
                ("missing", self.gaps),
                ('not listed, counted as "other"', self.other),
                ("outside min and max", self.outside),
            ):
                if counts[name]:
                    parts.append(f"{counts[name]:,} {what}")
            if self.missing[name]:
                fix = 'complete them, or write missing = "native", "drop" or "fill"'
                parts.append(f"PROBLEM: {self.missing[name]:,} missing: {fix}")
            if self.unknown[name]:
                fix = 'add them to the schema, or write kind = "category" or missing = "native"'
                parts.append(f"PROBLEM: {self.unknown[name]:,} not known to the schema: {fix}")
            said.append(f"{name}: {', '.join(parts)}")
        return [*said, *(f"PROBLEM: {error}" for error in self.errors)]


def check_fit(
    paths: Sequence[str | Path],
    schema: Schema,
    *,
    options: ReadOptions | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> FitCheck:
    """Read tables by a schema and count what fits and what does not."""
    found = FitCheck()
    sources = find_files(paths)
    for number, source in enumerate(sources):
        try:
            file = open_table(source.path, options)
            lacking = [name for name in schema.columns if name not in file.schema.names]
            if lacking:
                raise RequestError(f"{source.path} has no column {listed(lacking)}, which the schema needs")
            for table, converted, share in read_rows(file, schema):
                found.n_rows += table.num_rows
                found.n_dropped += table.num_rows - len(converted.block)
                for name in ("missing", "unknown", "gaps", "other"):
                    getattr(found, name).update(getattr(converted, name))
                _count_outside(schema, converted.block, found.outside)
                if progress is not None:
                    progress(found.n_rows, (number + share) / len(sources))
        except (DataError, RequestError) as error:
            found.errors.append(str(error) if str(source.path) in str(error) else f"{source.path}: {error}")
    return found


def _count_outside(schema: Schema, block: np.ndarray, outside: Counter[str]) -> None:
    at = 0
    for column in schema.used:
        width = len(column.feature_names)
        low, high = column.min, column.max
        if width == 1 and (low is not None or high is not None) and not column.clip:
            values = unscaled(column, block[:, at] / np.sqrt(column.weight))
            # a value at a bound may move by a rounding error on its way through the scaling
            slack = 1e-9 * max(abs(low or 0.0), abs(high or 0.0))
            n = int((values < (-np.inf if low is None else low - slack)).sum())
            n += int((values > (np.inf if high is None else high + slack)).sum())
            if n:
                outside[column.name] += n
        at += width
