"""Sums and ways over the inner nodes of a hierarchy: the compiled part of :mod:`fcac.clusters.evidence`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcac._kernels import kernel
from fcac._llvm import pairwise_sum


@kernel
def lengths_of(points: Any, near: Any, most: int) -> Any:
    """Distances to the first neighbours of every node."""
    n, d = points.shape
    m = min(most, near.shape[1])
    out = np.empty((n, m))
    for v in range(n):
        for q in range(m):
            total = 0.0
            u = near[v, q]
            for j in range(d):
                step = points[v, j] - points[u, j]
                total += step * step
            out[v, q] = math.sqrt(total)
    return out


@kernel
def leaf_order(left: Any, right: Any, p: int) -> Any:
    """Atoms in the order of the leaves, and where the leaves of every tree node begin and end."""
    n = left.shape[0]
    begin, end = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    leaves = np.empty(p, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    stack[0] = n - 1
    waiting, count = 1, 0
    while waiting:
        waiting -= 1
        x = stack[waiting]
        if left[x] < 0:
            leaves[count] = x
            begin[x], end[x] = count, count + 1
            count += 1
        else:
            stack[waiting], stack[waiting + 1] = right[x], left[x]
            waiting += 2
    for x in range(p, n):
        begin[x] = min(begin[left[x]], begin[right[x]])
        end[x] = max(end[left[x]], end[right[x]])
    return leaves, begin, end


@kernel
def agreement(cross: Any, left: Any, right: Any, begin: Any, end: Any, other_left: Any, other_right: Any) -> Any:
    """For every inner node, how well another hierarchy has both of its sides: the lower of two best Jaccard indices."""
    p = cross.shape[0]
    n, m = left.shape[0], other_left.shape[0]
    both = np.zeros((n, m))
    size, other_size = np.zeros(n), np.zeros(m)
    for x in range(n):
        if left[x] < 0:
            for y in range(m):
                if other_left[y] < 0:
                    both[x, y] = cross[x, y]
                else:
                    both[x, y] = both[x, other_left[y]] + both[x, other_right[y]]
        else:
            for y in range(m):
                both[x, y] = both[left[x], y] + both[right[x], y]
        size[x] = both[x, m - 1]
    for y in range(m):
        other_size[y] = both[n - 1, y]
    best = np.zeros(n)
    for x in range(n):
        for y in range(m):
            overlap = both[x, y]
            if overlap > 0:
                best[x] = max(best[x], overlap / (size[x] + other_size[y] - overlap))
    out = np.empty(p - 1)
    for x in range(p, n):
        out[x - p] = min(best[left[x]], best[right[x]])
    return out


@kernel
def borders(
    indptr: Any,
    indices: Any,
    weights: Any,
    dense: Any,
    near: Any,
    atom: Any,
    left: Any,
    right: Any,
    parent: Any,
    meet: Any,
) -> Any:
    """Sums over the edges and neighbours across every inner node, from either side, in one pass over the nodes.

    0 weight, 1 weight times density, 2 sum of x^2 / (x + own), 3 sum of x^2, 4 weight times own density, 5 weight of
    these, 6 nodes with a neighbour across, 7 in the first half of their list, 8 in the first quarter.
    """
    n = left.shape[0]
    k = near.shape[1]
    half, quarter = max(k // 2, 1), max(k // 4, 1)
    out = np.zeros((9, n, 2))
    within = np.zeros((2, n))
    towards, towards_dense = np.zeros(n), np.zeros(n)
    rank = np.full(n, k, dtype=np.int64)
    for v in range(atom.shape[0]):
        a = atom[v]
        for e in range(indptr[v], indptr[v + 1]):
            z = meet[a, atom[indices[e]]]
            towards[z] += weights[e]
            towards_dense[z] += weights[e] * dense[e]
        for q in range(k):
            z = meet[a, atom[near[v, q]]]
            if q < rank[z]:
                rank[z] = q
        inner, inner_dense = 0.0, 0.0
        x, came = a, -1
        while x >= 0:
            if came >= 0:
                side = 0 if left[x] == came else 1
                t = towards[x]
                if t > 0:
                    out[0, x, side] += t
                    out[1, x, side] += towards_dense[x]
                    out[2, x, side] += t * t / (t + inner)
                    out[3, x, side] += t * t
                    if inner > 0:
                        out[4, x, side] += t * inner_dense / inner
                        out[5, x, side] += t
                if rank[x] < k:
                    out[6, x, side] += 1
                    if rank[x] < half:
                        out[7, x, side] += 1
                    if rank[x] < quarter:
                        out[8, x, side] += 1
            inner += towards[x]
            inner_dense += towards_dense[x]
            within[0, x] += inner
            within[1, x] += inner_dense
            towards[x], towards_dense[x], rank[x] = 0.0, 0.0, k
            came, x = x, parent[x]
    return out, within


@kernel
def meeting(left: Any, right: Any, p: int, leaves: Any, begin: Any, end: Any) -> Any:
    """Lowest common ancestor of every two atoms."""
    meet = np.empty((p, p), dtype=np.int32)
    for i in range(p):
        meet[i, i] = i
    for x in range(p, left.shape[0]):
        for i in range(begin[left[x]], end[left[x]]):
            for j in range(begin[right[x]], end[right[x]]):
                meet[leaves[i], leaves[j]] = x
                meet[leaves[j], leaves[i]] = x
    return meet


@kernel
def reaches(near: Any, lengths: Any, core: Any, at_nodes: Any, atom: Any, left: Any, right: Any, meet: Any) -> Any:
    """Over the pairs of neighbours within each tree node: number, sums of log reach and of its square. Of those that
    meet at it: the three shortest reaches, and the three densest pairs by their less dense end."""
    n = left.shape[0]
    count, total, squares = np.zeros(n), np.zeros(n), np.zeros(n)
    shortest = np.full((n, 3), np.inf)
    saddle = np.full((n, 3), -np.inf)
    for v in range(lengths.shape[0]):
        a = atom[v]
        for q in range(lengths.shape[1]):
            u = near[v, q]
            x = meet[a, atom[u]]
            reach = math.log(max(lengths[v, q], core[v], core[u], 1e-300))
            if q < 3:
                count[x] += 1
                total[x] += reach
                squares[x] += reach * reach
            if x >= (n + 1) // 2:
                s = min(at_nodes[v], at_nodes[u])
                for r in range(3):
                    if reach < shortest[x, r]:
                        reach, shortest[x, r] = shortest[x, r], reach
                for r in range(3):
                    if s > saddle[x, r]:
                        s, saddle[x, r] = saddle[x, r], s
    for x in range((n + 1) // 2, n):
        count[x] += count[left[x]] + count[right[x]]
        total[x] += total[left[x]] + total[right[x]]
        squares[x] += squares[left[x]] + squares[right[x]]
    return count, total, squares, shortest, saddle


@kernel
def density_levels(dense: Any, first: Any, beyond: Any, left: Any, right: Any) -> Any:
    """Mean of the densest tenth, and the median, of every tree node; nodes are in the order of leaves."""
    n = left.shape[0]
    peak, median = np.empty(n), np.empty(n)
    ordered, merged = dense.copy(), np.empty(dense.shape[0])
    for x in range(n):
        i, j = first[x], beyond[x]
        if left[x] < 0:
            ordered[i:j] = np.sort(ordered[i:j])
        else:
            # both sides are sorted by now
            a, b = i, beyond[left[x]]
            middle = b
            for at in range(i, j):
                if b == j or (a < middle and ordered[a] <= ordered[b]):
                    merged[at] = ordered[a]
                    a += 1
                else:
                    merged[at] = ordered[b]
                    b += 1
            ordered[i:j] = merged[i:j]
        few = min(j - i, max(3, (j - i) // 10))
        peak[x] = pairwise_sum(ordered[j - few : j], few) / few
        median[x] = ordered[i + (j - i) // 2]
    return peak, median


@kernel
def summed_up(values: Any, left: Any, right: Any) -> None:
    """Give every inner node the sum of its two sides, from the values of the atoms."""
    for x in range((left.shape[0] + 1) // 2, left.shape[0]):
        values[x] = values[left[x]] + values[right[x]]


@kernel
def most_below(values: Any, low: float, left: Any, right: Any) -> Any:
    """The largest value of the inner nodes below each side of every inner node, and at least the lowest."""
    n = left.shape[0]
    p = (n + 1) // 2
    most, out = np.full(n, low), np.empty(p - 1)
    for x in range(p, n):
        out[x - p] = max(most[left[x]], most[right[x]])
        most[x] = max(values[x - p], out[x - p])
    return out


@kernel
def seen_from_above(values: Any, parent: Any) -> Any:
    """Steps from the root to every inner node, and the largest value of those above it; the root's own for the root."""
    n = parent.shape[0]
    p = (n + 1) // 2
    depth, most = np.zeros(p - 1), np.empty(p - 1)
    most[p - 2] = values[p - 2]
    for x in range(n - 2, p - 1, -1):
        above = parent[x] - p
        depth[x - p] = depth[above] + 1
        most[x - p] = max(most[above], values[above])
    return depth, most
