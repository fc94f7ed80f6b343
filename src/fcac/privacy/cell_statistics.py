"""One step of the release, in integer arithmetic: records are assigned to cells, with totals of bounded sensitivity.

The proof of the release rests on three facts about :func:`cell_totals`, and this module is written so that they
hold exactly, not only up to rounding:

1. The cell of a record depends only on that record and on released values. Distances are integers small enough to be
   exact in float64, so even a matrix product gives the same answer whatever the other rows are.
2. A record adds 1 to one count and to one ring.
3. A record adds an integer vector of norm at most ``radius`` to one sum: residuals are clipped and rounded toward zero,
   and their norm is then checked in integers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fcac._typing import Floats, Integers

#: Number of grid steps across the range of a feature. Records are integers from -UNIT/2 to UNIT/2.
UNIT = 2**16

#: Number of rings in the histogram of residual norms; the radius of each is sqrt(2) times that of the one inside it.
N_RINGS = 10

#: Largest number of features: with more, distances could leave the range in which float64 is exact.
MAX_FEATURES = 2**17

_ROWS_AT_ONCE = 4096


class Totals(NamedTuple):
    """The totals of one step before noise is added."""

    counts: Integers
    sums: Integers
    rings: Integers


def to_grid(unit_rows: Floats) -> Integers:
    """Map points in [0, 1] to the integer grid, with the centre at 0."""
    return np.rint((np.asarray(unit_rows) - 0.5) * UNIT).astype(np.int64)


def from_grid(points: Floats | Integers) -> Floats:
    """Map grid points (or means of them) back to [0, 1]."""
    result: Floats = np.asarray(points, dtype=np.float64) / UNIT + 0.5
    return result


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

    All numbers in the product are integers below 2**53, so float64 arithmetic is exact in any order.
    """
    words = codebook.astype(np.float64)
    own = np.einsum("ij,ij->i", words, words)
    result = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE].astype(np.float64)
        result[start : start + _ROWS_AT_ONCE] = np.argmin(own - 2.0 * (block @ words.T), axis=1)
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


def cell_totals(rows: Integers, codebook: Integers, bases: Integers, radius: int) -> Totals:
    """Add up counts, clipped residuals and rings.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Records on the grid.
    codebook : ndarray of shape (K, d)
        A record belongs to the cell of the nearest codeword.
    bases : ndarray of shape (K, d)
        Residuals are measured from the base of the cell.
    radius : int
        Largest norm of a residual, in grid steps; longer ones are clipped.

    Returns
    -------
    Totals
        ``counts`` (K,), ``sums`` (K, d) and ``rings`` (N_RINGS,), the histogram of residual norms.
    """
    cells = nearest(rows, codebook)
    n_cells, n_features = codebook.shape
    counts = np.bincount(cells, minlength=n_cells).astype(np.int64)
    sums = np.zeros((n_cells, n_features), dtype=np.int64)
    rings = np.zeros(N_RINGS, dtype=np.int64)
    edges = ring_edges(n_features)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        here = cells[start : start + _ROWS_AT_ONCE]
        residuals = rows[start : start + _ROWS_AT_ONCE] - bases[here]
        squared = np.einsum("ij,ij->i", residuals, residuals)
        rings += np.bincount(np.searchsorted(edges, squared), minlength=N_RINGS)
        np.add.at(sums, here, cut(residuals, radius))
    return Totals(counts, sums, rings)
