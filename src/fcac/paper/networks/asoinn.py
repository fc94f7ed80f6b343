"""Adjusted self-organizing incremental neural network (Shen and Hasegawa, 2008)."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from fcac._kernels import kernel
from fcac.paper.networks._graph import (
    NO_EDGE,
    add_node,
    age_edges,
    begin,
    cut_older,
    degree,
    keep_only,
    link,
    move_towards,
    next_row,
    similarity_threshold,
    two_nearest,
)
from fcac.paper.networks._network import GrowingNetwork


class ASOINN(GrowingNetwork):
    """Adjusted SOINN: one layer, and a similarity threshold for every node.

    A row farther from its nearest or second nearest node than that node's similarity threshold becomes a node itself.
    Otherwise the two nodes are joined, and the winner and its neighbours move towards the row. Every `clean_every` rows
    nodes with at most one neighbour are taken for noise and removed.

    Parameters
    ----------
    max_age : int, default=100
        Edges of the winner that have not been confirmed for so many of its rows are removed.
    clean_every : int, default=100
        Rows between two removals of noise.

    Notes
    -----
    The winner moves by 1 / M of the distance, its neighbours by 1 / (100 M), where M is the number of rows that the
    node has won. A removal that would leave no node at all is not carried out: without nodes nothing can be predicted.

    References
    ----------
    F. Shen, O. Hasegawa. A fast nearest neighbor classifier based on self-organizing incremental neural network. Neural
    Networks 21, 1537-1547, 2008.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_age": [Interval(Integral, 1, None, closed="left")],
        "clean_every": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, *, max_age: int = 100, clean_every: int = 100) -> None:
        self.max_age = max_age
        self.clean_every = clean_every


@kernel
def _learn(X, start, nodes, ages, values, memory, parameters):  # type: ignore[no-untyped-def]
    max_age, clean_every = parameters
    for t in range(start, X.shape[0]):
        n, x = next_row(X, t, nodes, memory)
        if n < 0:
            return t
        if n < 2:
            begin(nodes, ages, values, memory, x)
            continue
        first, apart, second, apart_second = two_nearest(nodes, n, x)
        unlike = apart > similarity_threshold(nodes, ages, n, first)
        if unlike or apart_second > similarity_threshold(nodes, ages, n, second):
            new = add_node(nodes, ages, values, memory, x)
            values[new, 0] = 1.0
        else:
            age_edges(ages, n, first)
            link(ages, first, second)
            values[first, 0] += 1.0
            move_towards(nodes, first, x, 1.0 / values[first, 0])
            for i in range(n):
                if ages[first, i] != NO_EDGE:
                    move_towards(nodes, i, x, 1.0 / (100.0 * values[i, 0]))
            cut_older(ages, n, first, max_age)
        if memory[1] % clean_every == 0.0:
            n = int(memory[0])
            kept = np.ones(n, np.bool_)
            for i in range(n):
                kept[i] = degree(ages, n, i) > 1
            if kept.any():
                keep_only(kept, nodes, ages, values, memory)
    return X.shape[0]


ASOINN._loop = _learn
