"""Growing neural gas (Fritzke, 1995)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from fcac._kernels import kernel
from fcac.paper.networks._graph import (
    NO_EDGE,
    add_node,
    age_edges,
    begin,
    cut,
    cut_older,
    degree,
    keep_only,
    link,
    move_towards,
    next_row,
    two_nearest,
)
from fcac.paper.networks._network import GrowingNetwork


class GNG(GrowingNetwork):
    """Growing neural gas: the nearest node and its neighbours follow a row; a node is added at regular intervals.

    Nodes add up the squared distances of the rows they win. Every `insert_every` rows a node is put between the node
    with the largest sum and the neighbour of that node with the largest sum. Edges of the winner that have not been
    confirmed for `max_age` of its rows are removed, and so are nodes without edges.

    Parameters
    ----------
    max_nodes : int, default=100
        The network stops growing here. Fritzke's own pictures stop at 100.
    winner_rate : float, default=0.2
        Share of the distance by which the winner moves towards a row.
    neighbour_rate : float, default=0.006
        The same for its neighbours.
    max_age : int, default=50
    insert_every : int, default=100
        Rows between two insertions.
    error_split : float, default=0.5
        What the two nodes beside a new one keep of their error.
    error_decay : float, default=0.995
        What all nodes keep of their error from row to row.

    Notes
    -----
    The defaults are those of the paper. It starts with two nodes at random places; here they are the first two rows
    that differ, so that equal rows give equal results without a seed. It draws rows from a distribution for as long as
    one likes; here every row is learned once, so that a small table should be repeated.

    References
    ----------
    B. Fritzke. A Growing Neural Gas Network Learns Topologies. Advances in Neural Information Processing Systems 7,
    625-632, 1995.
    """

    n_values: ClassVar[int] = 2  # rows won, error

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_nodes": [Interval(Integral, 2, None, closed="left")],
        "winner_rate": [Interval(Real, 0, 1, closed="both")],
        "neighbour_rate": [Interval(Real, 0, 1, closed="both")],
        "max_age": [Interval(Integral, 1, None, closed="left")],
        "insert_every": [Interval(Integral, 1, None, closed="left")],
        "error_split": [Interval(Real, 0, 1, closed="both")],
        "error_decay": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        *,
        max_nodes: int = 100,
        winner_rate: float = 0.2,
        neighbour_rate: float = 0.006,
        max_age: int = 50,
        insert_every: int = 100,
        error_split: float = 0.5,
        error_decay: float = 0.995,
    ) -> None:
        self.max_nodes = max_nodes
        self.winner_rate = winner_rate
        self.neighbour_rate = neighbour_rate
        self.max_age = max_age
        self.insert_every = insert_every
        self.error_split = error_split
        self.error_decay = error_decay


@kernel
def _learn(X, start, nodes, ages, values, memory, parameters):  # type: ignore[no-untyped-def]
    max_nodes, winner_rate, neighbour_rate, max_age, insert_every, split, decay = parameters
    for t in range(start, X.shape[0]):
        n, x = next_row(X, t, nodes, memory)
        if n < 0:
            return t
        if n < 2:
            if begin(nodes, ages, values, memory, x) == 1:
                link(ages, 0, 1)
            continue
        first, apart, second, _ = two_nearest(nodes, n, x)
        age_edges(ages, n, first)
        values[first, 0] += 1.0
        values[first, 1] += apart
        move_towards(nodes, first, x, winner_rate)
        for i in range(n):
            if ages[first, i] != NO_EDGE:
                move_towards(nodes, i, x, neighbour_rate)
        link(ages, first, second)
        if cut_older(ages, n, first, max_age):
            kept = np.ones(n, np.bool_)
            for i in range(n):
                kept[i] = degree(ages, n, i) > 0
            keep_only(kept, nodes, ages, values, memory)
            n = int(memory[0])
        if memory[1] % insert_every == 0.0 and n < max_nodes:
            _insert(nodes, ages, values, memory, split)
        for i in range(int(memory[0])):
            values[i, 1] *= decay
    return X.shape[0]


@kernel
def _insert(nodes, ages, values, memory, split):  # type: ignore[no-untyped-def]
    """Put a node between the node of the largest error and its neighbour of the largest error."""
    n = int(memory[0])
    worst = 0
    for i in range(n):
        if values[i, 1] > values[worst, 1]:
            worst = i
    beside = -1
    for i in range(n):
        if ages[worst, i] != NO_EDGE and (beside < 0 or values[i, 1] > values[beside, 1]):
            beside = i
    if beside < 0:
        return
    new = add_node(nodes, ages, values, memory, 0.5 * (nodes[worst] + nodes[beside]))
    cut(ages, worst, beside)
    link(ages, worst, new)
    link(ages, beside, new)
    values[worst, 1] *= split
    values[beside, 1] *= split
    values[new, 1] = values[worst, 1]


GNG._loop = _learn
