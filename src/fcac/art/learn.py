"""The kernels that learn one point after another; they modify arrays in place and use no classes.

The state consists of these arrays, the fields of `State` in order:

- `nodes` (capacity, d) float64; `widths` (capacity,) float64, the bandwidths;
- `screen` (capacity / 32, d, 32) float32: the nodes, shifted and scaled, for the upper bound;
- `links` (capacity,) records: winning count, newer and older node in recency, first half-edge (-1: none);
- `halves` (2E,) records: half-edges 2e and 2e + 1 belong to edge e; each holds the node it leads to, the next half-edge
  of the same node and, in the first of the two, the age of the edge (0: unused);
- `factor`: packed lower triangle of the Cholesky factor of exp(R), until the diversity test has fired;
- `shift` (d,) float64, `rank` (d,) int64: origin of the screening copy and the position of each feature in it, the most
  discriminating features first;
- `clock` (1,) record: the rules and the progress of learning.

Sums over features and nodes follow NumPy's pairwise order. No kernel uses relaxed floating-point arithmetic except for
bounds and for the triangular solve, where it cannot change a result from one run to the next.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._llvm import dot, pairwise_sum
from fcac.art.nearest import SCREEN_HIGH, SCREEN_LOW, search
from fcac.art.simd import cim_of, correntropy, kernel_of, move_node, spread_of

LINK = np.dtype([("count", np.int64), ("newer", np.int64), ("older", np.int64), ("first", np.int64)])
HALF = np.dtype([("to", np.int64), ("next", np.int64), ("age", np.int64)])
CLOCK = np.dtype(
    [
        ("topological", np.int64),
        ("one_minus_cim", np.int64),
        ("min_nodes", np.int64),
        ("age_factor", np.float64),
        ("log_diversity", np.float64),
        ("n_nodes", np.int64),
        ("n_seen", np.int64),
        ("n_active", np.int64),  # 0 until the diversity test has fired
        ("newest", np.int64),
        ("edges_used", np.int64),
        ("free_edge", np.int64),
        ("n_deleted", np.int64),
        ("mean_deleted_age", np.float64),
        ("n_factored", np.int64),  # rows of the factor computed so far
        ("singular", np.int64),
        ("n_lost", np.int64),  # rows still stored although the last point deleted all nodes
        ("threshold", np.float64),
        ("last_width", np.float64),
        ("mean_width", np.float64),
        ("log_det", np.float64),
        ("scale", np.float64),
        ("feature_factor", np.float64),  # of Silverman's rule: (4 / (2 + d)) ^ (1 / (4 + d))
        ("count_factor", np.float64),  # also of Silverman's rule: n ^ (-1 / (4 + d)), for n = counted
        ("counted", np.int64),
    ]
)

# why `learn` returned before the end of its block
DONE, NEED_NODES, NEED_EDGES, NEED_FACTOR, NEED_SCALE = range(5)

#: Number of first points that determine the bandwidth for the whole initial phase.
N_START = 10


# ---------------------------------------------------------------- bandwidth


@inner_kernel(error_model="numpy")
def _bandwidth(points, rows, n, clock, scratch):
    """Silverman's rule over points[rows[:n]], median over features; `scratch` needs room for d values."""
    d = points.shape[1]
    spread_of(points, rows, n, scratch)
    if clock.counted != n:
        clock.counted, clock.count_factor = n, float(n) ** (-1.0 / (4 + d))
    for j in range(d):
        spread = scratch[j] if scratch[j] != 0.0 else 1e-6
        scratch[j] = clock.feature_factor * spread * clock.count_factor
    # quickselect for the median, without branches on values: the processor would mispredict half of them
    middle, low, high = d // 2, 0, d
    while True:
        pivot = scratch[(low + high) // 2]
        less = low
        for j in range(low, high):
            value = scratch[j]
            scratch[j] = scratch[less]
            scratch[less] = value
            less += value < pivot
        if middle < less:
            high = less
            continue
        equal = less
        for j in range(less, high):
            value = scratch[j]
            scratch[j] = scratch[equal]
            scratch[equal] = value
            equal += value <= pivot
        if middle < equal:
            break
        low = equal
    if d % 2 or less < middle:
        return pivot
    lower = scratch[0]
    for j in range(low if low < middle else 0, middle):
        lower = scratch[j] if scratch[j] > lower else lower
    return (lower + pivot) / 2.0


# ---------------------------------------------------------------- initial phase


@inner_kernel(error_model="numpy")
def _extend_factor(nodes, widths, factor, clock):
    """Append the next node's row to the Cholesky factor of exp(R); the logs of its pivots sum to log det exp(R)."""
    k = clock.n_factored
    clock.n_factored = k + 1
    kernel = kernel_of(pairwise_sum(widths, k + 1) / (k + 1))
    base, at, square = k * (k + 1) // 2, 0, 0.0
    for i in range(k):
        similarity = correntropy(nodes, k, nodes, i, kernel)
        similarity = 1.0 - cim_of(similarity) if clock.one_minus_cim else similarity
        value = (np.exp(similarity) - dot(factor, at, base, i)) / factor[at + i]
        factor[base + i] = value
        square += value * value
        at += i + 1
    pivot = np.e - square
    if pivot <= 1e-13:
        clock.singular = 1  # an exact duplicate: the determinant is zero from here on
    else:
        factor[base + k] = np.sqrt(pivot)
        clock.log_det += np.log(pivot)


@inner_kernel(error_model="numpy")
def _set_threshold(nodes, widths, screen, shift, rank, clock, scratch, probes, x32, bound):
    """Give all nodes the latest bandwidth, and set V to the mean CIM between a node and its nearest neighbour."""
    n, probe, none, one, two = clock.n_nodes, probes[0], np.int64(0), np.int64(1), np.int64(2)
    for k in range(n):
        widths[k] = clock.last_width
    width = pairwise_sum(widths, n) / n
    kernel, screened = kernel_of(width), SCREEN_LOW < width * clock.scale < SCREEN_HIGH
    for i in range(n):
        nearest = 0.0
        if screened:
            # the nearest node is the node itself; the second nearest is wanted
            probe.within = 1.0
            search(nodes, screen, n, shift, rank, clock.scale, width, two, nodes, i, probes, none, one, x32, bound)
            nearest = probe.cim2 if probe.cim2 < 1.0 else 1.0
        if nearest == 0.0:
            # a distance of exactly zero means a duplicate, not a neighbour: skip all duplicates
            nearest = 1.0
            for k in range(n):
                cim = cim_of(correntropy(nodes, i, nodes, k, kernel))
                nearest = cim if 0.0 < cim < nearest else nearest
        scratch[i] = nearest
    clock.threshold = pairwise_sum(scratch, n) / n


# ---------------------------------------------------------------- edges


@inner_kernel(error_model="numpy")
def _detach(links, halves, node, half):
    """Remove a half-edge from its node's list."""
    at = links[node].first
    if at == half:
        links[node].first = halves[half].next
        return
    while halves[at].next != half:
        at = halves[at].next
    halves[at].next = halves[half].next


@inner_kernel(inline="always", error_model="numpy")
def _middle(values, start, stop):
    """Median of sorted values[start:stop]."""
    at = (start + stop) // 2
    return (values[at - 1 + (stop - start) % 2] + values[at]) / 2.0


@inner_kernel(error_model="numpy")
def _renew_edges(links, halves, clock, s1, s2):
    """Increase the age of the edges of s1; then, if there is an s2, link both by an edge of age 1, new or renewed."""
    half, found = links[s1].first, -1
    while half >= 0:
        halves[half & ~1].age += 1
        found = half if halves[half].to == s2 else found
        half = halves[half].next
    if s2 < 0:
        return
    if found < 0:
        edge = clock.free_edge
        if edge >= 0:
            clock.free_edge = halves[2 * edge].next
        else:
            edge = clock.edges_used
            clock.edges_used = edge + 1
        found = 2 * edge
        halves[found].to, halves[found + 1].to = s2, s1
        halves[found].next, halves[found + 1].next = links[s1].first, links[s2].first
        links[s1].first, links[s2].first = found, found + 1
    halves[found & ~1].age = 1


@inner_kernel(error_model="numpy")
def _delete_old_edges(links, halves, clock, s1, ages):
    """Delete the edges of s1 whose age is an outlier; quartiles are medians of the ages below and above the median."""
    degree, half = 0, links[s1].first
    while half >= 0:
        # insertion sort: a node has only a handful of edges
        age, at = halves[half & ~1].age, degree
        while at > 0 and ages[at - 1] > age:
            ages[at] = ages[at - 1]
            at -= 1
        ages[at] = age
        degree += 1
        half = halves[half].next
    if degree < 2:
        return  # a single age has no others below or above its median
    median, n_below, first_above = _middle(ages, 0, degree), 0, degree
    while ages[n_below] < median:
        n_below += 1
    while ages[first_above - 1] > median:
        first_above -= 1
    if n_below == 0 or first_above == degree:
        return
    q1, q3 = _middle(ages, 0, n_below), _middle(ages, first_above, degree)
    ratio = clock.n_deleted / (clock.n_deleted + degree)
    limit = clock.mean_deleted_age * ratio + (q3 + clock.age_factor * (q3 - q1)) * (1.0 - ratio)
    n_going, ages_going = 0, 0
    half = links[s1].first
    while half >= 0:
        first, following = half & ~1, halves[half].next
        if halves[first].age > limit:
            n_going += 1
            ages_going += halves[first].age
            _detach(links, halves, s1, half)
            _detach(links, halves, halves[half].to, half ^ 1)
            halves[first].age = 0
            halves[first].next = clock.free_edge
            clock.free_edge = first // 2
        half = following
    if n_going > 0:
        # A running mean, with its rounding, as in the program behind the paper: an age can equal the limit exactly, and
        # then the last bit decides. Edges deleted together are counted together, so their order does not matter.
        total = clock.mean_deleted_age * clock.n_deleted + ages_going
        clock.n_deleted += n_going
        clock.mean_deleted_age = total / clock.n_deleted


@inner_kernel(error_model="numpy")
def _delete_isolated(nodes, widths, screen, links, halves, shift, rank, clock, rows):
    """Delete every node without an edge and close the gaps; the remaining nodes keep their order."""
    n, kept = clock.n_nodes, 0
    for k in range(n):
        rows[k] = kept
        if links[k].first >= 0:
            kept += 1
            continue
        rows[k] = -1
        up, down = links[k].newer, links[k].older
        if up >= 0:
            links[up].older = down
        else:
            clock.newest = down
        if down >= 0:
            links[down].newer = up
    if kept == n:
        return
    clock.n_nodes = kept
    if kept == 0:
        clock.n_lost = n  # the rows stay in place until the next node is created, so that prediction still works
        return
    for k in range(n):
        to = rows[k]
        if to < 0:
            continue
        if to != k:
            move_node(nodes, screen, shift, rank, clock.scale, to, nodes, k, 1.0)
        widths[to] = widths[k]
        links[to].count = links[k].count
        links[to].first = links[k].first
        up, down = links[k].newer, links[k].older
        links[to].newer = rows[up] if up >= 0 else -1
        links[to].older = rows[down] if down >= 0 else -1
    clock.newest = rows[clock.newest]
    for half in range(2 * clock.edges_used):
        if halves[half & ~1].age > 0:
            halves[half].to = rows[halves[half].to]


# ---------------------------------------------------------------- learning


@kernel(error_model="numpy")
def learn(
    nodes, widths, screen, links, halves, factor, shift, rank, clocks, rows, scratch, probes, x32, bound, points, start
):
    """Learn points[start:]; return (index of the next point, why it stopped).

    Stops before a point for which an array is too small or the scale of the screening copy no longer suits; that point
    has not been learned at all then, and the caller makes room and continues. `rows` (capacity), `scratch` (capacity,
    and at least d), `probes` (1), `x32` (1, d) and `bound` (1, capacity) are scratch space.
    """
    clock = clocks[0]
    if clock.n_seen == 0:
        n = points.shape[0] if points.shape[0] < N_START else N_START
        for i in range(n):
            rows[i] = i
        clock.last_width = _bandwidth(points, rows, n, clock, scratch)
    stale = True  # whether the mean bandwidth must be recomputed
    for i in range(start, points.shape[0]):
        n, n_active = clock.n_nodes, clock.n_active
        if stale:
            clock.mean_width = pairwise_sum(widths, n) / n if n > 0 else clock.last_width
            stale = False
        scale = clock.scale
        if n == nodes.shape[0]:
            return i, NEED_NODES
        if clock.topological and clock.free_edge < 0 and 2 * clock.edges_used == halves.shape[0]:
            return i, NEED_EDGES
        if not SCREEN_LOW < clock.mean_width * scale < SCREEN_HIGH:
            return i, NEED_SCALE
        if n_active == 0 and (n + 1) * (n + 2) // 2 > factor.shape[0]:
            return i, NEED_FACTOR

        k, s2, cim, cim2, within = -1, -1, np.inf, np.inf, clock.threshold
        if n >= n_active > 0:
            probe, width = probes[0], clock.mean_width
            probe.within = within
            # int64 variables: literals would cause `search` to be compiled again
            none, one, two = np.int64(0), np.int64(1), np.int64(2)
            search(nodes, screen, n, shift, rank, scale, width, two, points, i, probes, none, one, x32, bound)
            k, s2, cim, cim2 = probe.s1, probe.s2, probe.cim1, probe.cim2
        is_new = k < 0 or cim > within
        if is_new:
            k = n
            links[k].count, links[k].first, links[k].newer = 0, -1, -1
            clock.n_nodes, clock.n_lost = n + 1, 0
        links[k].count += 1
        move_node(nodes, screen, shift, rank, scale, k, points, i, float(links[k].count))
        head = clock.newest
        if head != k:
            up, down = links[k].newer, links[k].older
            if up >= 0:  # a new node is not in the list yet
                links[up].older = down
                if down >= 0:
                    links[down].newer = up
            links[k].newer, links[k].older, clock.newest = -1, head, k
            if head >= 0:
                links[head].newer = k

        if is_new:
            widths[k] = clock.last_width
            stale = True
            if n_active == 0:
                while clock.n_factored < clock.n_nodes and clock.singular == 0:
                    _extend_factor(nodes, widths, factor, clock)
                fires = clock.singular != 0 or clock.log_det < clock.log_diversity
                if fires and n >= 1 and clock.n_nodes >= clock.min_nodes:
                    clock.n_active = clock.n_nodes
            if clock.n_nodes >= clock.n_active > 0:
                recent, at = 0, k
                while at >= 0 and recent < clock.n_active:
                    rows[recent] = at
                    recent += 1
                    at = links[at].older
                clock.last_width = _bandwidth(nodes, rows, recent, clock, scratch)
                widths[k] = clock.last_width
                if clock.n_nodes == clock.n_active:
                    _set_threshold(nodes, widths, screen, shift, rank, clock, scratch, probes, x32, bound)
        else:
            s2 = s2 if cim2 <= within else -1
            if clock.topological:
                _renew_edges(links, halves, clock, k, s2)
                half = links[k].first if s2 >= 0 else -1
                while half >= 0:
                    to = halves[half].to
                    move_node(nodes, screen, shift, rank, scale, to, points, i, 10.0 * links[to].count)
                    half = halves[half].next
                _delete_old_edges(links, halves, clock, k, rows)
            elif s2 >= 0:
                move_node(nodes, screen, shift, rank, scale, s2, points, i, 100.0 * links[s2].count)

        clock.n_seen += 1
        due = clock.n_active > 0 and clock.n_seen % (2 * clock.n_active) == 0
        if clock.topological and due and clock.n_nodes > 1:
            _delete_isolated(nodes, widths, screen, links, halves, shift, rank, clock, rows)
            stale = True
    return points.shape[0], DONE
