"""Every family of generated tables, its group, and how a table is drawn by name and seed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

# the modules enter their families in the register when they are loaded
from . import families_curves, families_discrete, families_round, families_shapes, families_single, families_spaces
from .parts import FAMILIES, GROUPS, Labels, Rows

__all__ = ["FAMILIES", "GROUPS", "MODULES", "make", "tables"]

MODULES = (families_round, families_shapes, families_curves, families_spaces, families_discrete, families_single)


def make(name: str, seed: int) -> tuple[Rows, Labels]:
    """The table of a family that belongs to a seed; label -1 marks noise.

    Parameters
    ----------
    name : str
        One of `FAMILIES`.
    seed : int
        Any number from zero on; the same one gives the same table.
    """
    return FAMILIES[name](np.random.default_rng([zlib.crc32(name.encode()), seed]))


def tables(n_per_family: int, seed: int) -> Iterator[tuple[str, str, int, Rows, Labels]]:
    """One table of every family, then a second one of each, and so on.

    Yields
    ------
    tuple
        Family, group, the seed with which `make` gives this table again, rows, labels. Tables of two values of `seed`
        have no seed in common, as long as there are fewer than a million of a family.
    """
    for i in range(n_per_family):
        for name in FAMILIES:
            of_table = seed * 1_000_000 + i
            yield name, GROUPS[name], of_table, *make(name, of_table)
