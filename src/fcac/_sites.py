"""Names of sites: what they may be, the order in which sites are computed, and the order in which people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

#: The name of a site is text or a whole number.
SiteName = str | int


def plain_site(name: Any) -> SiteName:
    """Return a site's name as a plain string or integer; anything else is an error."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ValueError(f"a site's name must be text or a whole number, got {name!r}")
    return name


def site_order(names: Iterable[Any]) -> list[Any]:
    """Sort site names: first numbers, by value, then text.

    Examples
    --------
    >>> from fcac._sites import site_order
    >>> site_order([10, 9, "b", "a"])
    [9, 10, 'a', 'b']
    """
    return sorted(names, key=order_key)


def order_key(name: Any) -> tuple[int, Any, str]:
    """Return the sort key of a site's name."""
    return (0, name, "") if isinstance(name, Real) else (1, 0, str(name))


def in_reading_order(names: Iterable[Any]) -> list[Any]:
    """Sort site names as people read them, for lists that are shown; computations use :func:`site_order`.

    >>> in_reading_order(["site 10", "site 2", "north", 3])
    [3, 'north', 'site 2', 'site 10']
    """
    return sorted(names, key=_reading_key)


def _reading_key(name: Any) -> tuple[int, Any, tuple[tuple[int, int, str], ...], str]:
    if isinstance(name, Real):
        return (0, name, (), "")
    pieces = re.findall(r"[0-9]+|[^0-9]+", str(name))
    # digits come before letters, as in plain sorting; the name itself settles "1" beside "01"
    parts = tuple((0, int(piece), "") if piece.isdecimal() else (1, 0, piece.casefold()) for piece in pieces)
    return (1, 0, parts, str(name))
