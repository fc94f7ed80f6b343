"""Drafts a schema from tables, for a person to complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcac.exceptions import DataError, RequestError
from fcac.tables.files import find_files, open_table
from fcac.tables.read_options import ReadOptions
from fcac.tables.readers import TableFile
from fcac.tables.rows import read_rows
from fcac.tables.schema import FORMAT, Column, Schema, _key, column_line, is_numeric, kind_in_words

_HEAD = """\
# What the columns of the tables mean. All sites use the same file, so that a column means the same everywhere.
# Columns are used in this order; columns that are not listed here are ignored.

fcac_schema = {format}

# Bounds (min, max) are needed for --epsilon and for scaling = "range". They must be public knowledge, such as what a
# form or an instrument allows, and must never be taken from private records. Once every min and max is public, write
# true.
bounds_are_public = false

# Defaults for all columns:
scaling = "none"    # none | range (min..max becomes 0..1) | standard ((x - center) / spread, public constants)
missing = "error"   # error | drop (leave the row out) | fill (with the public constant `fill`)
# min = 0
# max = 1

# A text column can be used by listing its public values: ward = {{ categories = ["surgery", "medicine"] }}
"""
_SUGGESTED = """\
# The ranges in the comments were computed from these data. They are meant to help you, they are NOT public, and they
# reveal something about single records: replace them by public bounds and DELETE them before you share this file.
"""


@dataclass
class _Seen:
    low: float = math.inf
    high: float = -math.inf
    missing: int = 0


def draft_schema(
    paths: Sequence[str | Path],
    *,
    apart: Sequence[str] = (),
    suggestions: bool = True,
    progress: Callable[[int, float], None] | None = None,
    options: ReadOptions | None = None,
) -> str:
    """Return the text of a schema file for these tables.

    Parameters
    ----------
    paths : sequence of path-like
        Files or directories.
    apart : sequence of str
        Columns that are not features (site, label, ids).
    suggestions : bool
        Read the data and write the ranges of values, rounded outwards, as comments; False reads only the column names.
    progress : callable, optional
        Called with the number of rows read and the fraction of the data read.
    options : ReadOptions, optional
        How to read the tables.

    Returns
    -------
    str

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fcac.tables.draft import draft_schema
    >>> from fcac.tables.schema import Schema
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("age,name\\n71,x\\n38,y\\n")
    ...     text = draft_schema([folder])
    >>> print(text[text.index("[columns]"):])
    [columns]
    age = {}    # seen: 30 to 80
    # name is left out: text
    <BLANKLINE>
    >>> Schema.from_toml(text).columns
    ['age']
    """
    files = [open_table(source.path, options) for source in find_files(paths)]
    for file in files:
        file.check_names()
    first = files[0]
    for name in apart:
        if name not in first.schema.names:
            raise RequestError(f"{first.path} has no column {name!r}")
    columns = [field for field in first.schema if field.name not in apart and field.name not in first.not_features]
    used = [field.name for field in columns if is_numeric(field.type)]
    if not used:
        raise DataError(f"{first.path} has no numeric column")
    for file in files[1:]:
        lacking = [name for name in used if name not in file.schema.names]
        if lacking:
            raise DataError(f"{file.path} has no column {', '.join(lacking[:8])}: all tables need the same columns")
    seen = _look(files, used, progress) if suggestions else {}
    lines = [_HEAD.format(format=FORMAT) + (_SUGGESTED if suggestions else ""), "[columns]"]
    for field in columns:
        if not is_numeric(field.type):
            lines.append(f"# {_key(field.name)} is left out: {kind_in_words(field.type)}")
            continue
        line = column_line(Column(field.name))
        lines.append(line + (f"    # {_in_words(seen[field.name])}" if field.name in seen else ""))
    return "\n".join(lines) + "\n"


def _look(files: list[TableFile], used: list[str], progress: Any) -> dict[str, _Seen]:
    """Read all files once and determine the range and the number of missing values of each column."""
    import numpy as np

    as_they_are = Schema(used)
    seen = {name: _Seen() for name in used}
    n = 0
    for number, file in enumerate(files):
        for table, converted, share in read_rows(file, as_they_are):
            n += table.num_rows
            for name, values in zip(used, converted.block.T, strict=True):
                finite = values[np.isfinite(values)]
                column = seen[name]
                column.missing += len(values) - len(finite)
                if len(finite):
                    column.low = min(column.low, float(finite.min()))
                    column.high = max(column.high, float(finite.max()))
            if progress is not None:
                progress(n, (number + share) / len(files))
    return seen


def _in_words(column: _Seen) -> str:
    missing = f"; {column.missing:,} missing" if column.missing else ""
    if column.low > column.high:
        return "seen: no values" + missing
    low, high = rounded_outwards(column.low, column.high)
    return f"seen: {low:g} to {high:g}{missing}"


def rounded_outwards(low: float, high: float) -> tuple[float, float]:
    """Widen a range to round numbers, so that it does not give exact values of single records.

    Examples
    --------
    >>> from fcac.tables.draft import rounded_outwards
    >>> rounded_outwards(18, 97), rounded_outwards(0.012, 0.988), rounded_outwards(5, 5)
    ((10.0, 100.0), (0.0, 1.0), (0.0, 10.0))
    """
    width = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(width))
    if high == low:
        step *= 10.0
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.floor(low / step) * step, digits), round(math.ceil(high / step) * step, digits)
