"""Drafts a schema from tables, for a person to complete."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcac._text import listed
from fcac.exceptions import DataError, RequestError
from fcac.tables.column import toml_key
from fcac.tables.find_tables import find_files, open_table
from fcac.tables.guess import Guess, Seen, guess_columns, is_plain
from fcac.tables.kind import is_numeric
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import FORMAT, Column, Schema, as_batch, column_line
from fcac.tables.table_file import TableFile

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
    found = guess_files(paths, apart=apart, look=suggestions, levels=levels, progress=progress, options=options)
    lines = [_HEAD.format(format=FORMAT) + (_SUGGESTED if suggestions else ""), "[columns]"]
    for guess in found.guesses:
        seen = found.seen.get(guess.column.name)
        said = guess.reason if seen is None else _in_words(guess, seen)
        lines.append(f"{_line(guess.column)}    # {said}")
    return "\n".join(lines) + "\n"


class Guessed(NamedTuple):
    """What the columns of some tables most likely mean, and what was seen of their values."""

    guesses: list[Guess]
    seen: dict[str, Seen]

    @property
    def schema(self) -> Schema | None:
        """The schema of the guesses; None for plain numbers without gaps, which need none."""
        if self.seen and is_plain(self.guesses, self.seen):
            return None
        return Schema([guess.column for guess in self.guesses])

    @property
    def reasons(self) -> dict[str, str]:
        """Why each column is thought to be what it was taken for."""
        return {guess.column.name: guess.reason for guess in self.guesses}


def guess_files(
    paths: Sequence[str | Path],
    *,
    apart: Sequence[str] = (),
    look: bool = True,
    levels: bool = True,
    progress: Callable[[int, float], None] | None = None,
    options: ReadOptions | None = None,
) -> Guessed:
    """Return what the columns of files mean; see :func:`draft_schema`. Values are looked at only if `look` says so."""
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
    types = {field.name: field.type for field in columns}
    seen = _look(files, list(types), progress) if look else {}
    return Guessed(guess_columns(types, seen, levels=levels and look, where=str(first.path)), seen)


def guess_tables(tables: Sequence[Any], told: Mapping[str, Any] | None = None, apart: Sequence[str] = ()) -> Guessed:
    """Return what the columns of tables in memory mean, which have the same columns.

    `told` says what is known of some: a kind, settings, or a Column; it replaces the guess. Those `apart` are no
    features.
    """
    seen: dict[str, Seen] = {}
    types: dict[str, Any] = {}
    for number, table in enumerate(tables):
        batch = as_batch(table)
        twice = [name for name, count in Counter(batch.schema.names).items() if count > 1]
        if twice:
            raise DataError(f"column {listed(twice)} appears more than once: give every column its own name")
        for place, name in enumerate(batch.schema.names):
            if name in apart or (number and name not in types):
                continue
            types.setdefault(name, batch.schema.field(place).type)
            seen.setdefault(name, Seen()).add(batch.column(place))
    return Guessed(guess_columns(types, seen, told=told), seen)


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
