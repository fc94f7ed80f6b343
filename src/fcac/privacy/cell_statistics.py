"""One step of the release, in integer arithmetic: records are assigned to cells, with totals of bounded sensitivity.

The proof of the release rests on three facts about :func:`cell_totals`, and this module is written so that they
hold exactly, not only up to rounding:

1. The cell of a record depends only on that record and on released values. Distances are integers small enough to be
   exact in float64, so even a matrix product gives the same answer whatever the other rows are.
2. A row adds its weight, an integer, to one count and to one ring. The weights of a person's rows in a batch add up to
   ``WEIGHT`` and depend on that person's rows alone; without ids every row weighs ``WEIGHT``.
3. A row adds its weight times an integer vector of norm at most ``radius`` to one sum: residuals are clipped and
   rounded toward zero, and their norm is then checked in integers. A gap has the residual zero.

So adding or removing one person (without ids: one row) changes the counts and the rings by at most ``WEIGHT`` each, and
the sums by at most ``WEIGHT * radius``, in the Euclidean norm. All totals are plain sums over rows, in units of
1/WEIGHT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.privacy.bounds import to_unit

#: Number of grid steps across the range of a feature. Records are integers from -UNIT/2 to UNIT/2.
UNIT = 2**16

#: Weight of one person (without ids: of one row) in every total. It is large so that the rows of a person can share it,
#: and so that the noise, in these units, is wide: then discrete noise is as good as continuous noise (see zcdp.py).
WEIGHT = 2**10

#: Number of rings in the histogram of residual norms; the radius of each is sqrt(2) times that of the one inside it.
N_RINGS = 10

#: Largest number of features: with more, distances could leave the range in which float64 is exact.
MAX_FEATURES = 2**17

#: A gap, in place of a grid point. It is no grid point, and it never enters a sum or a distance.
GAP = -(2**31)

_ROWS_AT_ONCE = 4096


class Totals(NamedTuple):
    """The totals of one step before noise is added, in units of 1/WEIGHT."""

    counts: Integers
    sums: Integers
    rings: Integers


def to_grid(unit_rows: Floats) -> Integers:
    """Map points in [0, 1] to the integer grid, with the centre at 0; NaN becomes `GAP`."""
    points = np.asarray(unit_rows)
    gaps = np.isnan(points)
    if not gaps.any():
        return np.rint((points - 0.5) * UNIT).astype(np.int64)
    grid = np.rint((np.where(gaps, 0.5, points) - 0.5) * UNIT).astype(np.int64)
    grid[gaps] = GAP
    return grid


def from_grid(points: Floats | Integers) -> Floats:
    """Map grid points (or means of them) back to [0, 1]."""
    result: Floats = np.asarray(points, dtype=np.float64) / UNIT + 0.5
    return result


class RowBlocks(Protocol):
    """Rows that can be read block by block, as often as needed and always the same."""

    n_rows: int
    n_features: int

    def blocks(self) -> Iterator[Floats]:
        """Yield the rows in order."""


class GridBlocks:
    """Records on the grid that are converted while they are read, for batches too large for memory; `kept` are used."""

    def __init__(self, rows: RowBlocks, bounds: Floats, kept: NDArray[np.bool_] | None = None) -> None:
        self.rows, self.bounds, self.kept = rows, bounds, kept
        self.shape = (rows.n_rows if kept is None else int(kept.sum()), rows.n_features)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, kept: NDArray[np.bool_]) -> GridBlocks:
        return GridBlocks(self.rows, self.bounds, kept)

    def blocks(self) -> Iterator[Integers]:
        """Yield the records in order."""
        start = 0
        for block in self.rows.blocks():
            own = block if self.kept is None else block[self.kept[start : start + len(block)]]
            start += len(block)
            yield to_grid(to_unit(own, self.bounds))


def widest_radius(n_features: int) -> int:
    """Return half the diagonal of the cube, in grid steps, rounded up: no record is farther from the centre."""
    squared = n_features * (UNIT // 2) ** 2
    root = math.isqrt(squared)
    return root if root * root == squared else root + 1


def ring_edges(n_features: int) -> Integers:
    """Return the squared outer radii of all rings but the last, which contains everything beyond."""
    widest = widest_radius(n_features)
    return np.array([(widest * widest) >> (N_RINGS - 1 - ring) for ring in range(N_RINGS - 1)], dtype=np.int64)


def nearest(rows: Integers, codebook: Integers) -> Integers:
    """Return the position of the codeword nearest to every row; ties go to the lowest position.

    A row with gaps is compared over the features it has. All numbers in the product are integers below 2**53, so
    float64 arithmetic is exact in any order.
    """
    words = codebook.astype(np.float64)
    own = np.einsum("ij,ij->i", words, words)
    result = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE].astype(np.float64)
        lengths = own
        has = block != GAP
        if not has.all():
            # for a row without gaps this is the same integer as without the mask
            block, lengths = np.where(has, block, 0.0), has.astype(np.float64) @ (words**2).T
        result[start : start + _ROWS_AT_ONCE] = np.argmin(lengths - 2.0 * (block @ words.T), axis=1)
    return result


def cut(residuals: Integers, radius: int) -> Integers:
    """Clip integer vectors to norm at most ``radius``, rounding toward zero.

    >>> import numpy as np
    >>> cut(np.array([[3, 4], [30, -40]]), 10).tolist()
    [[3, 4], [6, -8]]
    """
    squared = np.einsum("ij,ij->i", residuals, residuals)
    limit = radius * radius
    long = squared > limit
    if not long.any():
        return residuals
    result = residuals.copy()
    factor = radius / np.sqrt(squared[long].astype(np.float64))
    short = np.trunc(residuals[long] * factor[:, None]).astype(np.int64)
    # A product may have been rounded up to the next integer. The norm is therefore checked in integers: one step toward
    # zero, and a vector that is still too long is set to zero.
    over = np.einsum("ij,ij->i", short, short) > limit
    short[over] -= np.sign(short[over])
    over = np.einsum("ij,ij->i", short, short) > limit
    short[over] = 0
    result[long] = short
    return result


def person_weights(record_ids: Sequence[str]) -> Integers:
    """Return integer weights of rows, such that the rows of each person weigh ``WEIGHT`` together.

    A person's m rows weigh WEIGHT/m each, up to rounding; of more than WEIGHT rows, some weigh nothing. The weights
    depend on the rows of that person only.

    >>> person_weights(["ann", "bob", "ann", "ann"]).tolist()
    [341, 1024, 341, 342]
    """
    _, person, rows_of = np.unique(np.asarray(record_ids, dtype=object), return_inverse=True, return_counts=True)
    order = np.argsort(person, kind="stable")
    first = np.concatenate([[0], np.cumsum(rows_of)[:-1]]).astype(np.int64)
    turn = np.empty(len(person), dtype=np.int64)  # 0 for a person's first row, 1 for the second, ...
    turn[order] = np.arange(len(person)) - first[person[order]]
    m = rows_of[person]
    weights: Integers = ((turn + 1) * WEIGHT) // m - (turn * WEIGHT) // m
    return weights


def cell_totals(
    rows: Integers | GridBlocks, codebook: Integers, bases: Integers, radius: int, weights: Integers | None = None
) -> Totals:
    """Add up weights, residuals and a histogram of their norms (rings) by cell; totals of blocks add up exactly.

    A record, `GAP` where a value is missing, belongs to the cell of the nearest codeword, and its residual is measured
    from the base of the cell. A residual longer than `radius`, in grid steps, is clipped. Without weights every row
    weighs ``WEIGHT``.
    """
    n_cells, n_features = codebook.shape
    if isinstance(rows, GridBlocks):
        start, whole = 0, Totals(*(np.zeros(shape, np.int64) for shape in (n_cells, codebook.shape, N_RINGS)))
        for block in rows.blocks():
            own = None if weights is None else weights[start : start + len(block)]
            start += len(block)
            for total, part in zip(whole, cell_totals(block, codebook, bases, radius, own), strict=True):
                total += part
        return whole
    cells = nearest(rows, codebook)
    if weights is None:
        weights = np.full(len(rows), WEIGHT, dtype=np.int64)
    # bincount adds up in float64, exactly: the weights of fewer than 2**43 rows stay below 2**53
    counts = np.bincount(cells, weights, minlength=n_cells).astype(np.int64)
    sums = np.zeros((n_cells, n_features), dtype=np.int64)
    rings = np.zeros(N_RINGS, dtype=np.int64)
    edges = ring_edges(n_features)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        here = cells[start : start + _ROWS_AT_ONCE]
        block = rows[start : start + _ROWS_AT_ONCE]
        residuals = np.where(block == GAP, 0, block - bases[here])
        own = weights[start : start + _ROWS_AT_ONCE]
        squared = np.einsum("ij,ij->i", residuals, residuals)
        rings += np.bincount(np.searchsorted(edges, squared), own, minlength=N_RINGS).astype(np.int64)
        # below 2**63 for 2**29 rows of the most features there may be
        np.add.at(sums, here, cut(residuals, radius) * own[:, None])
    return Totals(counts, sums, rings)
