"""Drafts a schema from tables, for a person to complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcac.exceptions import DataError, RequestError
from fcac.tables.files import find_files, open_table
from fcac.tables.guess import Guess, Seen, guess_column
from fcac.tables.kind import is_numeric
from fcac.tables.read_options import ReadOptions
from fcac.tables.readers import TableFile
from fcac.tables.schema import FORMAT, Column, Schema, as_batch, column_line
from fcac.tables.toml_text import toml_key

# Levels are listed if at least so many rows have them, and if there are at most so many.
_LEAST_ROWS, _MOST_LEVELS = 5, 50

_HEAD = """\
# What the columns of the tables mean. All sites use the same file, so that a column means the same everywhere.
# Columns are used in this order; columns that are not listed here are ignored. Kinds are guesses: check them.
# Every key and kind: docs/guide/schema.md

fcac_schema = {format}

# Bounds (min, max) are needed for --epsilon and for scaling = "range". They must be public knowledge, such as what a
# form or an instrument allows, and must never be taken from private records. Once every min and max is public, write
# true.
bounds_are_public = false

# Defaults for all columns:
scaling = "none"     # none | range (min..max becomes 0..1) | standard ((x - center) / spread) | log
missing = "native"   # native (compare over what is there) | error | drop (leave the row out) | fill (with `fill`)

# A category takes its public levels, as in ward = {{ kind = "category", categories = ["surgery", "medicine"] }};
# without a list every level has a public code.
"""
_SUGGESTED = """\
# The counts and ranges in the comments were computed from these data. They are meant to help you, they are NOT public,
# and they reveal something about single records: replace them by public bounds and DELETE them before you share this
# file.
"""


def draft_schema(
    paths: Sequence[str | Path],
    *,
    apart: Sequence[str] = (),
    suggestions: bool = True,
    levels: bool = False,
    progress: Callable[[int, float], None] | None = None,
    options: ReadOptions | None = None,
) -> str:
    r"""Return the text of a schema file for these tables; the columns `apart` are not features.

    With `suggestions` the data are read: kinds are guessed from values too, and counts and ranges, rounded outwards,
    stand in comments. With `levels` as well, the levels of categories that five rows or more have are listed: a report
    can then name them, but they come from the data, and so does the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("age,ward\n71,x\n38,y\n")
    ...     text = draft_schema([folder])
    >>> print(text[text.index("[columns]"):])
    [columns]
    age = {}    # numbers; seen: 30 to 80
    ward = { kind = "category" }    # text with few values; 2 levels
    <BLANKLINE>
    """
    files = [open_table(source.path, options) for source in find_files(paths)]
    for file in files:
        file.check_names()
    first = files[0]
    for name in apart:
        if name not in first.schema.names:
            raise RequestError(f"{first.path} has no column {name!r}")
    columns = [field for field in first.schema if field.name not in apart and field.name not in first.not_features]
    for file in files[1:]:
        lacking = [field.name for field in columns if field.name not in file.schema.names]
        if lacking:
            raise DataError(f"{file.path} has no column {', '.join(lacking[:8])}: all tables need the same columns")
    seen = _look(files, [field.name for field in columns], progress) if suggestions else {}
    guesses = [guess_column(field.name, field.type, seen.get(field.name)) for field in columns]
    if levels:
        guesses = [_with_levels(guess, seen.get(guess.column.name)) for guess in guesses]
    if not any(guess.column.how.reads != "nothing" for guess in guesses):
        raise DataError(f"{first.path} has no column that can be clustered: all are ids, free text or empty")
    lines = [_HEAD.format(format=FORMAT) + (_SUGGESTED if suggestions else ""), "[columns]"]
    for guess in guesses:
        said = guess.reason if guess.column.name not in seen else _in_words(guess, seen[guess.column.name])
        lines.append(f"{_line(guess.column)}    # {said}")
    return "\n".join(lines) + "\n"


def _with_levels(guess: Guess, seen: Seen | None) -> Guess:
    """List the frequent levels of a category of text; the others count as "other"."""
    if guess.column.how.name != "category" or seen is None or seen.many:
        return guess
    found = sorted(level for level, count in seen.frequent.items() if count >= _LEAST_ROWS)
    if not 1 < len(found) <= _MOST_LEVELS:
        return guess
    return Guess(replace(guess.column, categories=tuple(found)), guess.reason)


def guess_schema(table: Any) -> Schema:
    """Return a schema for a table in memory; see :meth:`fcac.tables.Schema.guess`."""
    batch = as_batch(table)
    columns = []
    for name in batch.schema.names:
        seen = Seen()
        seen.add(batch.column(batch.schema.names.index(name)))
        columns.append(guess_column(name, batch.schema.field(name).type, seen).column)
    return Schema(columns)


def _line(column: Column) -> str:
    """The line of a column; what the file's defaults say already is left out."""
    if column.missing != "native":
        return column_line(column)
    settings = {key: value for key, value in column.settings().items() if key != "missing"}
    return column_line(Column(column.name, **settings)) if settings else f"{toml_key(column.name)} = {{}}"


def _look(files: list[TableFile], names: list[str], progress: Any) -> dict[str, Seen]:
    """Read all files once and summarise the values of each column."""
    seen = {name: Seen() for name in names}
    n = 0
    for number, file in enumerate(files):
        numbers = [name for name in names if is_numeric(file.schema.field(name).type)]
        for batch, share in file.batches(numbers, [name for name in names if name not in numbers]):
            n += batch.num_rows
            for name in names:
                seen[name].add(batch.column(batch.schema.names.index(name)))
            if progress is not None:
                progress(n, (number + share) / len(files))
    return seen


def _in_words(guess: Guess, seen: Seen) -> str:
    said = [guess.reason]
    kind = guess.column.how.name
    if kind == "number" and seen.low <= seen.high:
        low, high = rounded_outwards(seen.low, seen.high)
        said.append(f"seen: {low:g} to {high:g}")
    elif kind == "number":
        said.append("seen: no values")
    elif kind == "category":
        said.append("over 2,000 levels" if seen.many else f"{len(seen.values):,} levels")
    if seen.gaps:
        said.append(f"{seen.gaps:,} missing")
    return "; ".join(said)


def rounded_outwards(low: float, high: float) -> tuple[float, float]:
    """Widen a range to round numbers, so that it does not give exact values of single records.

    >>> rounded_outwards(18, 97), rounded_outwards(0.012, 0.988), rounded_outwards(5, 5)
    ((10.0, 100.0), (0.0, 1.0), (0.0, 10.0))
    """
    width = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(width))
    if high == low:
        step *= 10.0
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.floor(low / step) * step, digits), round(math.ceil(high / step) * step, digits)
