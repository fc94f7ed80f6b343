"""Density between nodes: how densely nodes lie around the middle of every edge of their graph.

A gap that is narrower than the reach of neighbour lists does not show in the density at nodes, because every node sits
in its own cluster. It shows in the middle of the edges that cross it. In many dimensions the middle of two nodes of one
cluster lies nearer to its centre than they do, so edges inside a cluster look dense and edges between clusters do not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._kernels import kernel
from fcac._llvm import squared_gap
from fcac._parallel import in_ranges
from fcac._typing import Floats

# A density is that of the ball around so many nodes: its logarithm is then known to a third (one over the square root).
# Chosen among 7, 10, and a third and two thirds of the list.
NODES_IN_BALL = 10
# In many dimensions a density cannot be told from so few neighbours: more than the third power of the radius is never
# taken. The same limit holds for edges between places of different density.
_LARGEST_POWER = 3.0
# From so many features on distances are summed by vector instructions, so many features between two looks at the limit.
_WIDE, _CHUNK = 32, 64
# What bounds on squared distances are loosened by, far more than rounding.
_SLACK = 1e-9


@kernel
def _halves(points: Any, near: Any, first: int, beyond: int, out: Any) -> None:
    """Half the squared distances to all neighbours of nodes first .. beyond - 1, or a little less."""
    d = points.shape[1]
    for v in range(first, beyond):
        for q in range(near.shape[1]):
            total, u = 0.0, np.int64(near[v, q])
            if d < _WIDE:
                for j in range(d):
                    step = points[v, j] - points[u, j]
                    total += step * step
            else:
                total = squared_gap(points, v, points, u, 0, d)
            out[v, q] = 0.5 * (1 - _SLACK) * total


@kernel
def _upper_half(
    points: Any,
    mass: Any,
    near: Any,
    halves: Any,
    blur: float,
    starts: Any,
    ends: Any,
    inside: int,
    power: float,
    first: int,
    beyond: int,
    out: Any,
) -> None:
    """Log density at the middle of every edge from nodes first .. beyond - 1 to higher ones.

    The ball holds the ``inside`` nearest of all nodes that either end has in its list; its radius lies halfway to the
    next one. From the middle of u and v the squared distance to w is half those from u and from v, less a quarter of
    that between them; and who is not in the list of u is at least as far from u as its last one. So most nodes need not
    be looked at. Rounding moves a middle by less than the blur.
    """
    n, k = near.shape
    d = points.shape[1]
    of_u, of_v = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    from_u, from_v = np.empty(n), np.empty(n)
    middle = np.empty((1, d))
    gap = np.empty(inside + 1)
    who = np.empty(inside + 1, dtype=np.int32)
    for u in range(first, beyond):
        for q in range(k):
            of_u[near[u, q]], from_u[near[u, q]] = u, halves[u, q]
        for e in range(starts[u], starts[u + 1]):
            v = ends[e]
            if v < u:
                continue
            between = from_u[v] if of_u[v] == u else np.inf
            for q in range(k):
                w = near[v, q]
                of_v[w], from_v[w] = e, halves[v, q]
                if w == u:
                    between = halves[v, q]
            between *= 0.5 * (1 + 3 * _SLACK)
            for j in range(d):
                middle[0, j] = 0.5 * (points[u, j] + points[v, j])
            filled, reach = 0, np.inf
            for c in range(2 * k + 2):
                if c < 2:
                    w = u if c == 0 else v
                elif c < k + 2:
                    w = near[u, c - 2]
                    if halves[u, c - 2] + (from_v[w] if of_v[w] == e else halves[v, k - 1]) - between > reach or w == v:
                        continue
                else:
                    w = near[v, c - 2 - k]
                    if halves[v, c - 2 - k] + halves[u, k - 1] - between > reach or of_u[w] == u or w == u:
                        continue
                limit = gap[inside] if filled > inside else np.inf
                total = 0.0
                if d < _WIDE:
                    for j in range(d):
                        step = points[w, j] - middle[0, j]
                        total += step * step
                        if j % 8 == 7 and total >= limit:
                            break
                else:
                    for j in range(0, d, _CHUNK):
                        total += squared_gap(points, w, middle, 0, j, min(d, j + _CHUNK))
                        if total >= limit:
                            break
                if total >= limit:
                    continue
                at = min(filled, inside)
                while at > 0 and gap[at - 1] > total:
                    gap[at], who[at] = gap[at - 1], who[at - 1]
                    at -= 1
                gap[at], who[at] = total, w
                filled = min(filled + 1, inside + 1)
                if filled > inside:
                    reach = (np.sqrt(gap[inside]) + blur) ** 2
            held = 0.0
            for m in range(inside):
                held += mass[who[m]]
            radius = 0.5 * (np.sqrt(gap[inside - 1]) + np.sqrt(gap[inside]))
            out[e] = np.log(held) - power * np.log(max(radius, 1e-300))


@kernel
def _mirror(starts: Any, ends: Any, values: Any) -> None:
    """Give every edge to a lower node the value of its other direction."""
    lower = starts[:-1].copy()
    for v in range(starts.shape[0] - 1):
        for e in range(lower[v], starts[v + 1]):
            u = ends[e]
            values[lower[u]] = values[e]
            lower[u] += 1


def power_of(dimension: float) -> float:
    """Return the power of a radius that stands for a volume.

    >>> [power_of(d) for d in (0.5, 2.5, 9.0)]
    [1.0, 2.5, 3.0]
    """
    return float(min(max(dimension, 1.0), _LARGEST_POWER))


def midpoint_log_density(
    points: Floats, mass: Floats, near: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any], dimension: float
) -> NDArray[np.float32]:
    """Return the logarithm of the density of records around the middle of every edge of :class:`SNNEdges`.

    >>> from fcac.clusters.snn_graph import SNNEdges
    >>> from fcac.search.exact import nearest
    >>> line = np.concatenate([np.arange(20.0), 25 + np.arange(20.0)])[:, None]
    >>> near, _ = nearest(line, line, 12, own=np.arange(40))
    >>> edges = SNNEdges.of(near)
    >>> density = midpoint_log_density(line, np.ones(40), near, edges.starts, edges.ends, 1.0)
    >>> of_node = np.repeat(np.arange(40), np.diff(edges.starts))
    >>> crosses = (of_node < 20) != (edges.ends < 20)
    >>> bool(density[crosses].mean() < density[~crosses].mean())
    True
    """
    density = np.zeros(len(ends), dtype=np.float32)
    inside = min(NODES_IN_BALL, near.shape[1] - 1)
    if inside < 1:
        return density
    power = power_of(dimension)
    points = np.ascontiguousarray(points)
    halves = np.empty(near.shape)
    blur = 1e-15 * float(np.abs(points).max()) * math.sqrt(points.shape[1])

    def measure(first: int, beyond: int) -> None:
        _halves(points, near, first, beyond, halves)

    def work(first: int, beyond: int) -> None:
        _upper_half(points, mass, near, halves, blur, starts, ends, inside, power, first, beyond, density)

    in_ranges(measure, len(points))
    in_ranges(work, len(points))
    _mirror(starts, ends, density)
    return density
