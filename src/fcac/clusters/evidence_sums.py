"""Sums and ways over the inner nodes of a hierarchy: the compiled part of :mod:`fcac.clusters.evidence`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcac._kernels import inner_kernel, kernel


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
    meet = np.empty((p, p), dtype=np.int64)
    for i in range(p):
        meet[i, i] = i
    for x in range(p, left.shape[0]):
        for i in range(begin[left[x]], end[left[x]]):
            for j in range(begin[right[x]], end[right[x]]):
                meet[leaves[i], leaves[j]] = x
                meet[leaves[j], leaves[i]] = x
    return meet


@kernel
def reaches(near: Any, lengths: Any, core: Any, at_nodes: Any, atom: Any, left: Any, meet: Any) -> Any:
    """Over the pairs of neighbours that meet at each tree node: number, sums of log reach and of its square; the three
    shortest reaches, and the three densest pairs by their less dense end."""
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
    return count, total, squares, shortest, saddle


@inner_kernel
def _valley(place: Any, weight: Any, low: float, high: float) -> Any:
    """How much fewer records lie between two places than around them: in errors, and as a log ratio.

    Nine windows, each a fifth of the way wide; the emptiest of the inner ones against the fullest on either side.
    """
    count = np.zeros(9)
    step = (high - low) / 8
    width = (high - low) / 5
    mean, n = 0.0, place.shape[0]
    for v in range(n):
        mean += weight[v]
        first = (place[v] - 0.5 * width - low) / step
        for w in range(max(0, math.ceil(first)), min(9, math.floor(first + width / step) + 1)):
            count[w] += weight[v]
    mean /= n
    bottom = 2
    for w in range(3, 7):
        if count[w] < count[bottom]:
            bottom = w
    before, after = 0.0, 0.0
    for w in range(bottom):
        before = max(before, count[w])
    for w in range(bottom + 1, 9):
        after = max(after, count[w])
    mode = min(before, after)
    z = (mode - count[bottom]) / math.sqrt(max(mode + count[bottom], mean) * (1 + 0.1 * mean))
    return z, math.log((mode + 0.5 * mean) / (count[bottom] + 0.5 * mean))


@inner_kernel
def _mixture(place: Any, weight: Any, pa: float, ma: float, mb: float, va: float, vb: float, vt: float) -> Any:
    """Two Gaussians on a line, by some steps of expectation and maximisation from the two sides: the gain in log
    likelihood a record over one Gaussian, how many deviations they are apart, and the smaller share."""
    n = place.shape[0]
    least = max(0.01 * vt, 1e-300)
    va, vb = max(va, least), max(vb, least)
    pb = 1.0 - pa
    gain = 0.0
    for step in range(13):
        sa, ta, ua, tb, ub, total, like = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        la = math.log(max(pa, 1e-9)) - 0.5 * math.log(va)
        lb = math.log(max(pb, 1e-9)) - 0.5 * math.log(vb)
        for v in range(n):
            x = place[v]
            ga = la - 0.5 * (x - ma) ** 2 / va
            gb = lb - 0.5 * (x - mb) ** 2 / vb
            top = max(ga, gb)
            e = math.exp(min(ga, gb) - top)
            w = weight[v]
            like += w * (top + math.log1p(e))
            r = 1.0 / (1.0 + e)
            if ga < gb:
                r = 1.0 - r
            total += w
            r *= w
            sa += r
            ta += r * x
            ua += r * x * x
            tb += (w - r) * x
            ub += (w - r) * x * x
        gain = like / total + 0.5 * math.log(vt) + 0.5
        sb = total - sa
        if step == 12 or sa < 1e-9 * total or sb < 1e-9 * total:
            break
        pa, pb = sa / total, sb / total
        ma, mb = ta / sa, tb / sb
        va, vb = max(ua / sa - ma * ma, least), max(ub / sb - mb * mb, least)
    return gain, abs(ma - mb) / math.sqrt(0.5 * (va + vb)), min(pa, pb)


@kernel
def lines(points: Any, mass: Any, begin: Any, end: Any, left: Any, right: Any, p: int, line: Any) -> Any:
    """Along the line across every inner node: errors and depth of the valley, distance of the sides, gain of two
    Gaussians over one, and the kurtosis of both sides."""
    n = left.shape[0]
    q = points.shape[1]
    out = np.zeros((n, 8))
    for x in range(p, n):
        a, b = left[x], right[x]
        na, nb = end[a] - begin[a], end[b] - begin[b]
        place, weight = np.empty(na + nb), np.empty(na + nb)
        at = 0
        sums = np.zeros((2, 2))
        for side in range(2):
            y = a if side == 0 else b
            for v in range(begin[y], end[y]):
                along = 0.0
                for j in range(q):
                    along += points[v, j] * line[x, j]
                place[at], weight[at] = along, mass[v]
                sums[side, 0] += mass[v]
                sums[side, 1] += mass[v] * along
                at += 1
        ma, mb = sums[0, 1] / sums[0, 0], sums[1, 1] / sums[1, 0]
        total = sums[0, 0] + sums[1, 0]
        centre = (sums[0, 1] + sums[1, 1]) / total
        va, vb, vt, fourth, inner = 0.0, 0.0, 0.0, 0.0, 0.0
        for v in range(na):
            va += weight[v] * (place[v] - ma) ** 2
            vt += weight[v] * (place[v] - centre) ** 2
        for v in range(na, na + nb):
            vb += weight[v] * (place[v] - mb) ** 2
            vt += weight[v] * (place[v] - centre) ** 2
        va, vb, vt = va / sums[0, 0], vb / sums[1, 0], vt / total
        if not vt > 0:
            continue
        for v in range(na + nb):
            fourth += weight[v] * ((place[v] - centre) ** 2 / vt) ** 2
        low, high = np.median(place[na:]), np.median(place[:na])
        if high < low:
            low, high = high, low
        if high > low:
            out[x, 0], out[x, 1] = _valley(place, weight, low, high)
        inner = 0.5 * (math.sqrt(va) + math.sqrt(vb))
        out[x, 2] = (high - low) / max(inner, 1e-6 * math.sqrt(vt))
        pa, pb = sums[0, 0] / total, sums[1, 0] / total
        least = 1e-6 * vt
        out[x, 3] = (
            0.5 * math.log(vt)
            - 0.5 * pa * math.log(max(va, least))
            - 0.5 * pb * math.log(max(vb, least))
            + pa * math.log(pa)
            + pb * math.log(pb)
        )
        out[x, 4] = fourth / total
        out[x, 5], out[x, 6], out[x, 7] = _mixture(place, weight, pa, ma, mb, va, vb, vt)
    return out


@kernel
def ways(near: Any, lengths: Any, mass: Any, begin: Any, end: Any, left: Any, right: Any, p: int) -> Any:
    """Along the way across every inner node, each node at its distance to the border over the graph: errors and depth
    of the valley there, and how far apart the sides are in units of their spread. Nodes are in the order of leaves."""
    n = left.shape[0]
    m = lengths.shape[1]
    total = near.shape[0]
    # neighbours either way
    starts = np.zeros(total + 1, dtype=np.int64)
    for v in range(total):
        for q in range(m):
            starts[v + 1] += 1
            starts[near[v, q] + 1] += 1
    for v in range(total):
        starts[v + 1] += starts[v]
    fill = starts[:-1].copy()
    ends, length = np.empty(starts[total], dtype=np.int32), np.empty(starts[total])
    for v in range(total):
        for q in range(m):
            u = near[v, q]
            ends[fill[v]], length[fill[v]] = u, lengths[v, q]
            fill[v] += 1
            ends[fill[u]], length[fill[u]] = v, lengths[v, q]
            fill[u] += 1
    out = np.zeros((n, 3))
    distance = np.full(total, np.inf)
    heap_key, heap_node = np.empty(starts[total] + total), np.empty(starts[total] + total, dtype=np.int64)
    for x in range(p, n):
        first, beyond = begin[x], end[x]
        a, b = left[x], right[x]
        middle = end[a] if begin[a] == first else end[b]
        size = beyond - first
        for v in range(first, beyond):
            distance[v] = np.inf
        held = 0
        for v in range(first, beyond):
            for e in range(starts[v], starts[v + 1]):
                u = ends[e]
                if first <= u < beyond and (u < middle) != (v < middle):
                    distance[v] = min(distance[v], 0.5 * length[e])
            if distance[v] < np.inf:
                # push
                i = held
                held += 1
                while i > 0:
                    up = (i - 1) >> 1
                    if heap_key[up] <= distance[v]:
                        break
                    heap_key[i], heap_node[i] = heap_key[up], heap_node[up]
                    i = up
                heap_key[i], heap_node[i] = distance[v], v
        if held == 0:
            out[x, 0], out[x, 1], out[x, 2] = 0.0, -1.0, 0.0
            continue
        farthest = 0.0
        while held:
            key, v = heap_key[0], heap_node[0]
            held -= 1
            last_key, last_node = heap_key[held], heap_node[held]
            i = 0
            while True:
                child = 2 * i + 1
                if child >= held:
                    break
                if child + 1 < held and heap_key[child + 1] < heap_key[child]:
                    child += 1
                if heap_key[child] >= last_key:
                    break
                heap_key[i], heap_node[i] = heap_key[child], heap_node[child]
                i = child
            heap_key[i], heap_node[i] = last_key, last_node
            if key > distance[v]:
                continue
            farthest = key
            for e in range(starts[v], starts[v + 1]):
                u = ends[e]
                if first <= u < beyond and (u < middle) == (v < middle):
                    new = key + length[e]
                    if new < distance[u]:
                        distance[u] = new
                        i = held
                        held += 1
                        while i > 0:
                            up = (i - 1) >> 1
                            if heap_key[up] <= new:
                                break
                            heap_key[i], heap_node[i] = heap_key[up], heap_node[up]
                            i = up
                        heap_key[i], heap_node[i] = new, u
        place = np.empty(size)
        for v in range(first, beyond):
            d = min(distance[v], farthest)
            place[v - first] = -d if v < middle else d
        low, high = np.median(place[: middle - first]), np.median(place[middle - first :])
        if high > low:
            out[x, 0], out[x, 1] = _valley(place, mass[first:beyond], low, high)
            out[x, 2] = (high - low) / max(np.std(place[: middle - first]) + np.std(place[middle - first :]), 1e-300)
    return out
