"""Checks and cleans what a site sends, field by field, before any of it is stored or shown.

Nodes and counts are checked by :class:`fcac.federation.Contribution` and by the hub's limits. What is left is the
privacy statement: a few words and numbers that end up in the journal, in terminals and on pages.
"""

from __future__ import annotations

import math
from typing import Any

_NUMBERS = ("epsilon", "delta", "spent", "rounds", "rho")
_MOST_FIELDS = 20
_MOST_ITEMS = 20
_MOST_LETTERS = 120
_LARGEST_NUMBER = 1e15


def check_statement(statement: dict[str, Any]) -> None:
    """Raise ``ValueError`` unless a privacy statement is short, flat, printable and of the expected types.

    >>> check_statement({"mechanism": "NodeRelease", "epsilon": 1.0, "delta": 1e-6, "spent": 1.0, "rounds": 1})
    >>> check_statement({"mechanism": "NodeRelease", "spent": "x"})
    Traceback (most recent call last):
    ...
    ValueError: the privacy statement's field 'spent' must be a number of at least 0
    """
    if len(statement) > _MOST_FIELDS:
        raise ValueError(f"the privacy statement has {len(statement)} fields; at most {_MOST_FIELDS} are allowed")
    for name, value in statement.items():
        if not _is_printable(name, 40):
            raise ValueError("a field of the privacy statement has a name that cannot be shown")
        if name in _NUMBERS:
            if not _is_number(value) or value < 0:
                raise ValueError(f"the privacy statement's field {name!r} must be a number of at least 0")
        elif name == "mechanism":
            if not _is_printable(value, _MOST_LETTERS):
                raise ValueError("the privacy statement's mechanism must be a short, printable text")
        elif not _is_plain(value) and not (
            isinstance(value, list) and len(value) <= _MOST_ITEMS and all(map(_is_plain, value))
        ):
            raise ValueError(f"the privacy statement's field {name!r} must be a number or a short, printable text")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool) or _is_number(value) or _is_printable(value, _MOST_LETTERS)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and abs(value) <= _LARGEST_NUMBER
    )


def _is_printable(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isprintable()
