"""Is a cluster one heap? A look along the one line on which it would fall in two.

Where clusters overlap, no single edge of the graph of neighbours shows a border: the border test compares what lies
around a few nodes. Seen along the line from one cluster to the other, all nodes together may show a valley that is
far beyond chance. So every cluster is divided in two (2-means), all nodes are projected on the line that parts the
halves best (Fisher's linear discriminant), and the projection is asked whether it has two modes. That is the question
of dip-means (Kalogeratos and Likas 2012), which asks it of the distances to single points; here it is asked of one
line, with two precautions:

- The line and the places of modes and valley are found from one half of the nodes, and the other half is counted.
  A line that parts one heap by chance parts only the nodes it was found from; so the test holds in any number of
  features.
- The valley must be one in space too. Seen from the side a ring has two modes, and so have a crescent and many letters.
  But in a ring the nodes in the valley are far from the straight line that joins the modes, whereas between two heaps
  they scatter around it as much as the nodes at the modes do. And in a letter they are as dense as at the modes,
  whereas between two heaps they are sparser, and the deeper the valley, the sparser.

References
----------
R. A. Fisher, "The use of multiple measurements in taxonomic problems", Annals of Eugenics 7 (1936).
A. Kalogeratos, A. Likas, "Dip-means: an incremental clustering method for estimating the number of clusters", NIPS
(2012).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._parallel import one_blas_thread
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters.border_test import ERROR_OF_PLACES
from fcac.clusters.midpoints import power_of

# A cluster of fewer nodes is not looked at: each half of them has to show two modes and a valley.
_LEAST = 60
# How many errors fewer records than at the modes there must be in the valley of a single cluster. Between 2.5 and 4
# hardly anything changes.
_ERRORS = 3.0
# Squared distance of nodes in the valley from the straight line between the modes, as a multiple of that of the nodes
# at the modes: 1 between two equal heaps, 3.5 in a ring and more in a crescent.
_BENT = 2.0
# Share of the valley's depth that densities along that line must show, within their error.
_IN_SPACE = 0.7
# A mode of less than this share of the highest one is a tail.
_LEAST_MODE = 0.1
# The width of the kernel, as a share of Silverman's, which is meant for one heap and would fill the valley between two.
_WIDTH = 0.5 * 1.06
_GRID = 128
# How many starts the division in two has, and how many steps each may take.
_STARTS, _MOST_STEPS = 3, 30
# The spread inside the halves is estimated from so many nodes for each feature; with fewer the line runs between means.
_NODES_A_FEATURE = 5


class Valley(NamedTuple):
    """Two modes on a line and the lowest place between them."""

    left: float
    bottom: float
    right: float

    @property
    def reach(self) -> float:
        """Half the width of the places that are compared."""
        return 0.5 * min(self.bottom - self.left, self.right - self.bottom)


def split_heaps(
    points: Floats,
    mass: Floats,
    log_density: Floats,
    labels: Integers,
    dimension: float,
    strictness: float = 1.0,
) -> Integers:
    """Divide clusters that are more than one heap, again and again, and return a label for every node.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    mass : ndarray of shape (n,)
        Records at each point.
    log_density : ndarray of shape (n,)
        Logarithm of the density around each point, up to a constant; see :func:`node_log_density`.
    labels : ndarray of shape (n,)
        Clusters so far, from 0.
    dimension : float
        Of the surface the points lie on.
    strictness : float, default=1
        Factor on the number of errors.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(2000, 2)) + np.repeat([[0, 0], [4, 0]], 1000, axis=0)
    >>> dense = -0.5 * np.minimum((rows**2).sum(axis=1), ((rows - [4, 0]) ** 2).sum(axis=1))
    >>> found = split_heaps(rows, np.ones(2000), dense, np.zeros(2000, dtype=np.int64), 2.0)
    >>> int(found.max()) + 1, bool((found[:1000] == found[0]).mean() > 0.9)
    (2, True)
    """
    found = labels.copy()
    waiting = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    # the more clusters are looked at, the surer each valley must be that none is found by chance (Bonferroni)
    errors = strictness * math.sqrt(_ERRORS**2 + 2 * math.log(len(waiting)))
    with one_blas_thread():
        while waiting:
            members = waiting.pop()
            beyond = _divided(points[members], mass[members], log_density[members], dimension, errors)
            if beyond is not None:
                found[members[beyond]] = found.max() + 1
                waiting += [members[beyond], members[~beyond]]
    return found


def node_log_density(mass: Floats, near: NDArray[Any], squared: Floats, dimension: float) -> Floats:
    """Return the logarithm of the density around every node.

    Parameters
    ----------
    mass : ndarray of shape (n,)
    near : ndarray of shape (n, k)
        Neighbours of each node.
    squared : ndarray of shape (n,)
        Squared distance to the one in the middle of the list, number k // 2.
    dimension : float
    """
    held = mass + mass[near[:, : near.shape[1] // 2]].sum(axis=1)
    density: Floats = np.log(held) - 0.5 * power_of(dimension) * np.log(np.maximum(squared, 1e-300))
    return density


def _divided(points: Floats, mass: Floats, log_density: Floats, dimension: float, wanted: float) -> Booleans | None:
    """Which nodes lie beyond the valley of a cluster; None if it has none that is so many errors deep."""
    if len(points) < _LEAST:
        return None
    # the halves must not depend on where nodes lie, and the same nodes must always be divided alike
    first = np.random.default_rng(0).random(len(points)) < 0.5
    excess = depth = less_dense = 0.0
    for seen in (first, ~first):
        found = _deepest(points[seen], mass[seen])
        if found is None:
            return None
        line, valley = found
        along = points @ line
        passage = _passage(points, along, line, mass, log_density, valley)
        if passage is None or passage[0] > _BENT:
            return None
        less_dense += passage[1] / 2
        errors, fewer = _emptier(along[~seen], mass[~seen], valley)
        excess += errors / math.sqrt(2.0)
        depth += fewer / 2
    # no more than this power of a radius is taken for a volume, so only a part of a depth shows in densities
    shown = power_of(dimension) / max(dimension, 1.0)
    if excess < wanted or less_dense < _IN_SPACE * shown * depth:
        return None
    found = _deepest(points, mass)
    return None if found is None else points @ found[0] > found[1].bottom


def _deepest(points: Floats, mass: Floats) -> tuple[Floats, Valley] | None:
    """Of the lines on which a cluster may fall in two, the one with the surest valley; None if none has any."""
    best, most = None, -math.inf
    for side in _halves(points, mass):
        line = _line(points, mass, side)
        along = points @ line
        valley = _valley(along, mass)
        if valley is not None:
            errors, _ = _emptier(along, mass, valley)
            if errors > most:
                best, most = (line, valley), errors
    return best


def _line(points: Floats, mass: Floats, side: Booleans) -> Floats:
    """Direction that best parts the two halves of a cluster."""
    ahead, behind = (np.average(points[part], axis=0, weights=mass[part]) for part in (side, ~side))
    line: Floats = ahead - behind
    n, d = points.shape
    if n >= _NODES_A_FEATURE * d:
        inside = points - np.where(side[:, None], ahead, behind)
        spread = (inside * mass[:, None]).T @ inside / mass.sum()
        # a little of a sphere, as much as there are features for the nodes: the spread may have no width somewhere
        spread += np.eye(d) * (np.trace(spread) / d * (0.05 + d / n) + 1e-300)
        line = np.linalg.solve(spread, line)
    return line / max(float(np.linalg.norm(line)), 1e-300)


def _halves(points: Floats, mass: Floats) -> list[Booleans]:
    """Divisions in two by k-means, begun across the widest directions and around the centre."""
    rows = points - np.average(points, axis=0, weights=mass)
    lengths = np.einsum("ij,ij->i", rows, rows)
    starts = [rows @ axis > 0 for axis in _wide_directions(rows, mass)]
    starts.append(lengths > np.median(lengths))
    halves: list[Booleans] = []
    for side in starts:
        for _ in range(_MOST_STEPS):
            weight = mass * side
            ahead, behind = float(weight.sum()), float((mass * ~side).sum())
            if not ahead > 0 or not behind > 0:
                break
            # all rows together have their mean at zero, so one mean tells the other
            towards = weight @ rows / ahead
            other = -towards * (ahead / behind)
            moved = rows @ (towards - other) > 0.5 * (towards @ towards - other @ other)
            if np.array_equal(moved, side):
                if not any(np.array_equal(side, known) or np.array_equal(~side, known) for known in halves):
                    halves.append(side)
                break
            side = moved
    return halves


def _wide_directions(rows: Floats, mass: Floats) -> list[Floats]:
    """The first principal axes, by a few steps of subspace iteration: they are only where a search begins."""
    n_axes = min(_STARTS - 1, rows.shape[1])
    axes = np.linalg.qr(np.cos(np.arange(rows.shape[1] * n_axes, dtype=np.float64)).reshape(-1, n_axes))[0]
    for _ in range(12):
        axes = np.linalg.qr(rows.T @ (mass[:, None] * (rows @ axes)))[0]
    return list(axes.T)


def _valley(along: Floats, mass: Floats) -> Valley | None:
    """The surest valley of a density on a line; None if it has one mode only."""
    low, high = np.quantile(along, (0.01, 0.99))
    middle = np.average(along, weights=mass)
    deviation = math.sqrt(np.average((along - middle) ** 2, weights=mass))
    step = (high - low) / (_GRID - 1)
    if not step > 0:
        return None
    density = np.bincount(np.clip(np.rint((along - low) / step), 0, _GRID - 1).astype(np.int64), mass, _GRID)
    width = max(_WIDTH * deviation * len(along) ** -0.2 / step, 0.5)
    density = np.convolve(density, np.exp(-0.5 * (np.arange(1 - _GRID // 2, _GRID // 2) / width) ** 2), "same")
    best, most = None, 0.0
    for bottom in 1 + np.flatnonzero((density[1:-1] < density[:-2]) & (density[1:-1] <= density[2:])):
        left, right = int(np.argmax(density[:bottom])), bottom + int(np.argmax(density[bottom:]))
        mode = min(density[left], density[right])
        if mode < _LEAST_MODE * density.max():
            continue
        # the surest, not the deepest: as many errors as there are records around it and at the lower mode
        surer = (mode - density[bottom]) * math.sqrt(min(bottom - left, right - bottom) / (mode + density[bottom]))
        if surer > most:
            best, most = Valley(low + step * left, low + step * bottom, low + step * right), surer
    return best


def _emptier(along: Floats, mass: Floats, valley: Valley) -> tuple[float, float]:
    """By how many errors a valley holds fewer records than the lower mode, and how many times fewer, as a logarithm."""
    left, bottom, right = (float(mass[np.abs(along - place) <= valley.reach].sum()) for place in valley)
    mode, least = min(left, right), 0.5 * float(mass.mean())
    # records are counted, but it is also chance where the nodes lie that they are counted at
    variance = max(mode + bottom, least) * (1 + ERROR_OF_PLACES * float(mass.mean()))
    return (mode - bottom) / math.sqrt(variance), math.log(max(mode, least) / max(bottom, least))


def _passage(
    points: Floats, along: Floats, line: Floats, mass: Floats, log_density: Floats, valley: Valley
) -> tuple[float, float] | None:
    """Describe the valley along the straight line between the modes; None if there are no nodes at a mode.

    Returns how far from that line the nodes are (see `_BENT`), and how much sparser they may be than at either mode:
    the difference of log densities over the half of the nodes nearest to the line, plus its standard error.
    """
    left, bottom, right = (np.flatnonzero(np.abs(along - place) <= valley.reach) for place in valley)
    if not len(left) or not len(right):
        return None
    if not len(bottom):
        return 0.0, math.inf
    start, end = (np.average(points[mode], axis=0, weights=mass[mode]) for mode in (left, right))
    joining = (end - start) / ((end - start) @ line)
    distance, dense, errors = [], [], []
    for nodes in (left, bottom, right):
        off = points[nodes] - start - (along[nodes] - start @ line)[:, None] * joining
        squared = np.einsum("ij,ij->i", off, off)
        distance.append(float(np.average(squared, weights=mass[nodes])))
        nearer = nodes[squared <= np.median(squared)]
        dense.append(float(np.average(log_density[nearer], weights=mass[nearer])))
        errors.append(1 / len(nearer))
    usual = 0.5 * (distance[0] + distance[2])
    lower = 0 if dense[0] < dense[2] else 2
    less_dense = dense[lower] - dense[1] + math.sqrt(errors[lower] + errors[1])
    return distance[1] / usual if usual > 0 else 0.0, less_dense
