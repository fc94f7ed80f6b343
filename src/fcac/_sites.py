"""Names of sites: what they may be, and the one order in which sites are listed."""

from __future__ import annotations

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
