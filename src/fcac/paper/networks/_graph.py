"""Nodes and ageing edges, as arrays that compiled loops can work on.

A network of at most `capacity` nodes is five arrays:

``nodes`` (capacity, d)
    Positions.
``ages`` (capacity, capacity)
    Age of the edge between two nodes, -1 where there is none. Looking through a row of it costs less than the search
    for the nearest node, which every row needs anyway.
``values`` (capacity, m)
    What else a node holds; column 0 is the number of rows it has won.
``memory`` (k,)
    What the network holds besides; entry 0 is the number of nodes, entry 1 the number of rows seen.
``parameters`` (p,)
"""

from __future__ import annotations

import numpy as np

from fcac._kernels import inner_kernel

NO_EDGE = -1


@inner_kernel
def two_nearest(nodes, n, x):  # type: ignore[no-untyped-def]
    """Return the nearest and the second nearest node with their squared distances; ties go to the older node."""
    first, second = -1, -1
    d_first, d_second = np.inf, np.inf
    for i in range(n):
        total = 0.0
        for j in range(x.shape[0]):
            gap = x[j] - nodes[i, j]
            total += gap * gap
        if total < d_first:
            second, d_second = first, d_first
            first, d_first = i, total
        elif total < d_second:
            second, d_second = i, total
    return first, d_first, second, d_second


@inner_kernel
def squared_distance(nodes, a, b):  # type: ignore[no-untyped-def]
    """Return the squared distance of two nodes."""
    total = 0.0
    for j in range(nodes.shape[1]):
        gap = nodes[a, j] - nodes[b, j]
        total += gap * gap
    return total


@inner_kernel
def move_towards(nodes, i, x, rate):  # type: ignore[no-untyped-def]
    """Move a node towards a row by a share of their distance."""
    for j in range(x.shape[0]):
        nodes[i, j] += rate * (x[j] - nodes[i, j])


@inner_kernel
def add_node(nodes, ages, values, memory, x):  # type: ignore[no-untyped-def]
    """Add a node without edges, and return its position; its values are zero."""
    new = int(memory[0])
    for j in range(x.shape[0]):
        nodes[new, j] = x[j]
    for i in range(new + 1):
        ages[new, i] = NO_EDGE
        ages[i, new] = NO_EDGE
    for c in range(values.shape[1]):
        values[new, c] = 0.0
    memory[0] += 1
    return new


@inner_kernel
def next_row(X, t, nodes, memory):  # type: ignore[no-untyped-def]
    """Return the number of nodes and row t, which is counted; -1 if there is no room for one more node."""
    n = int(memory[0])
    if n == nodes.shape[0]:
        return -1, X[t]
    memory[1] += 1
    return n, X[t]


@inner_kernel
def begin(nodes, ages, values, memory, x):  # type: ignore[no-untyped-def]
    """Make one of the first two nodes of a row and return its position, or -1 if the row is where the first node is."""
    if memory[0] == 0 or two_nearest(nodes, 1, x)[1] > 0.0:
        new = add_node(nodes, ages, values, memory, x)
        values[new, 0] = 1.0
        return new
    values[0, 0] += 1.0
    return -1


@inner_kernel
def link(ages, a, b):  # type: ignore[no-untyped-def]
    """Join two nodes by an edge of age zero, or make their edge young again."""
    ages[a, b] = 0
    ages[b, a] = 0


@inner_kernel
def cut(ages, a, b):  # type: ignore[no-untyped-def]
    """Remove an edge."""
    ages[a, b] = NO_EDGE
    ages[b, a] = NO_EDGE


@inner_kernel
def age_edges(ages, n, a):  # type: ignore[no-untyped-def]
    """Make all edges of a node older by one."""
    for i in range(n):
        if ages[a, i] != NO_EDGE:
            ages[a, i] += 1
            ages[i, a] += 1


@inner_kernel
def cut_older(ages, n, a, limit):  # type: ignore[no-untyped-def]
    """Remove the edges of a node that are older than a limit; return whether any was."""
    found = False
    for i in range(n):
        if ages[a, i] > limit:
            cut(ages, a, i)
            found = True
    return found


@inner_kernel
def degree(ages, n, a):  # type: ignore[no-untyped-def]
    """Return the number of edges of a node."""
    total = 0
    for i in range(n):
        if ages[a, i] != NO_EDGE:
            total += 1
    return total


@inner_kernel
def keep_only(kept, nodes, ages, values, memory):  # type: ignore[no-untyped-def]
    """Remove all nodes that are not kept; the others keep their order."""
    n = int(memory[0])
    place = 0
    for i in range(n):
        if not kept[i]:
            continue
        if place != i:
            for j in range(nodes.shape[1]):
                nodes[place, j] = nodes[i, j]
            for c in range(values.shape[1]):
                values[place, c] = values[i, c]
            for j in range(n):
                ages[place, j] = ages[i, j]
        place += 1
    # the rows have moved; now the columns
    column = 0
    for i in range(n):
        if not kept[i]:
            continue
        if column != i:
            for row in range(place):
                ages[row, column] = ages[row, i]
        column += 1
    memory[0] = place


@inner_kernel
def similarity_threshold(nodes, ages, n, a):  # type: ignore[no-untyped-def]
    """Return the squared distance within which a row is like a node.

    That is the distance to its farthest neighbour; for a node without neighbours, to the nearest other node.
    """
    farthest, nearest = -1.0, np.inf
    for i in range(n):
        if i == a:
            continue
        linked = ages[a, i] != NO_EDGE
        if not linked and farthest >= 0.0:
            continue
        apart = squared_distance(nodes, a, i)
        if linked:
            farthest = max(farthest, apart)
        nearest = min(nearest, apart)
    return farthest if farthest >= 0.0 else nearest


@inner_kernel
def quantile(ordered, q):  # type: ignore[no-untyped-def]
    """Return a quantile of sorted values, between two of them by linear interpolation.

    NumPy's own takes Numba many seconds to compile.
    """
    place = q * (ordered.shape[0] - 1)
    below = int(place)
    share = place - below
    if share == 0.0:
        return ordered[below]
    return (1.0 - share) * ordered[below] + share * ordered[below + 1]
