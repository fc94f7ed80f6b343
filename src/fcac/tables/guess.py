"""Guesses what columns mean, from their types, their names and, if they may be looked at, their values.

The shell and Python guess by the same code: `fcac schema`, `fcac fit` without a schema, `Schema.guess` and `FCAC.fit`.
Ids, dates, constants and free text are left out, and said to be: none of them makes clusters that mean something.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fcac._text import listed
from fcac.exceptions import DataError, RequestError
from fcac.tables.column import Column
from fcac.tables.kind import is_numeric, kind_in_words
from fcac.tables.kinds.boolean import _NO, _YES
from fcac.tables.schema import Schema
from fcac.tables.values_seen import Seen, skewness

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
    for field in schema.fields:
        kind = field.how.name
        if field.how.reads == "nothing":
            lines.setdefault("Left out", []).append(f"{field.name} ({reasons.get(field.name, kind)})")
            continue
        about = ""
        if field.categories:
            about = f" ({len(field.categories)} levels)"
        elif field.scaling == "log":
            about = " (as logarithm)"
        plural = {"category": "categories", "boolean": "yes or no", "text": "texts"}.get(kind, f"{kind}s")
        lines.setdefault(f"Taken as {plural}", []).append(field.name + about)
    last = sorted(lines, key=lambda what: what == "Left out")
    return [f"{what}: {listed(lines[what], _MOST_LISTED)}" for what in last]


def guess_column(name: str, kind: Any, seen: Seen | None) -> Guess:
    """Return what a column most likely means; `seen` is None if its values were not looked at."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind) and seen is not None:
        return _category(name, seen, "categories")
    if is_numeric(kind):
        return _guess_numbers(name, kind, seen)
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
    if _INDEX_NAME.match(name) and (seen is None or seen.rising):
        return _left_out(name, "an index of rows")
    why = _names_records(name, seen)
    if why:
        return Guess(Column(name, kind="id"), why)
    if _YEAR_NAME.search(name) and (seen is None or (seen.whole and seen.low >= 1000 and seen.high <= 2999)):
        return _left_out(name, 'years; write kind = "number" to use them')
    if seen is not None and seen.whole and (seen.low, seen.high) == (0.0, 1.0):
        return Guess(Column(name, kind="boolean", missing="native"), "0 and 1 only")
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
    if _SURE_ID_NAME.search(name) and (seen.many or seen.distinct > _CODES or seen.distinct == seen.present):
        return "whole numbers that name records, by the name"
    if not _all_differ(seen):
        return ""
    if _ID_NAME.search(name):
        return "whole numbers that name records, by the name"
    if seen.rising or seen.high - seen.low < _DENSE * seen.present:
        return _COUNTS
    return ""


def _guess_texts(name: str, seen: Seen) -> Guess:
    if not seen.present:
        return _left_out(name, "no values")
    if seen.distinct == 2 and all(str(word).lower() in (*_YES, *_NO) for word in seen.values):
        return Guess(Column(name, kind="boolean", missing="native"), "yes and no")
    if _all_differ(seen) and seen.words < 0.5 * seen.present:
        return Guess(Column(name, kind="id"), "text, every value different: it names records")
    if _SURE_ID_NAME.search(name) and (seen.many or seen.distinct > _CODES):
        return Guess(Column(name, kind="id"), "text that names records, by the name")
    if seen.words > 0.5 * seen.present and (seen.many or seen.distinct > 0.5 * seen.present):
        return _left_out(name, 'free text; write kind = "text" to use it (extra "text")')
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
    return seen.present >= _ENOUGH_ROWS and (seen.many or seen.distinct == seen.present)


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
