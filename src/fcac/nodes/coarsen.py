"""Nodes that stand for few rows, joined to their neighbours until each stands for enough."""

from __future__ import annotations

from fcac._typing import Floats
from fcac.nodes import _cells as kernels


def merge_small(
    nodes: Floats, counts: Floats, variances: Floats, scales: Floats, min_rows: float
) -> tuple[Floats, Floats, Floats]:
    """Join nodes of fewer than ``min_rows`` rows to their nearest, smallest first, until none is left.

    Parameters
    ----------
    nodes : ndarray of shape (k, d)
    counts : ndarray of shape (k,)
    variances : ndarray of shape (k, d)
    scales : ndarray of shape (d,)
        Factor of every feature in the distance.
    min_rows : float

    Returns
    -------
    nodes, counts, variances
        None at all if there are fewer rows than that.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.nodes.coarsen import merge_small
    >>> line = np.array([[0.0], [1.0], [5.0], [9.0]])
    >>> nodes, counts, _ = merge_small(line, np.array([1.0, 2, 3, 3]), np.zeros((4, 1)), np.ones(1), 3)
    >>> nodes.round(3).ravel().tolist(), counts.tolist()
    ([0.667, 5.0, 9.0], [3.0, 3.0, 3.0])
    """
    means, squares, totals = nodes.copy(), variances * counts[:, None], counts.copy()
    kernels.join_small(means, squares, totals, scales, min_rows)
    left = totals >= min_rows
    left &= totals > 0
    return means[left], totals[left], squares[left] / totals[left, None]
