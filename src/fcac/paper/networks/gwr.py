"""Grow when required (Marsland, Shapiro and Nehmzow, 2002)."""

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


class GWR(GrowingNetwork):
    """Grow when required: a node is added where a row is matched badly by a node that has already learned its place.

    A node's activity for a row is exp(-distance). Nodes habituate: the more often a node or a neighbour of it wins, the
    less it moves. If the winner's activity is below `activity_threshold` although the winner is habituated, a node is
    put half-way between it and the row.

    Parameters
    ----------
    activity_threshold : float, default=0.8
        Between 0 and 1; larger means more nodes. Distances enter as they are, so it goes with the scale of the
        features: 0.8 adds a node to rows farther than 0.22 from their nearest one.
    habituation_threshold : float, default=0.1
        A winner whose habituation is below this has learned its place.
    winner_rate : float, default=0.2
        Share of the distance, times its habituation, by which the winner moves towards a row.
    neighbour_rate : float, default=0.05
        The same for its neighbours.
    max_age : int, default=50
        Edges of the winner that have not been confirmed for so many of its rows are removed.
    max_nodes : int, default=5000
        The network stops growing here; a table whose features are not scaled would make every row a node.

    Notes
    -----
    The paper lets the user choose the activity threshold for each data set and gives the constants of habituation that
    are used here (alpha = 1.05, tau = 3.33 for the winner and 14.3 for its neighbours, stimulus and initial strength
    1). It starts with two rows drawn at random; here they are the first two rows that differ. A largest number of nodes
    is our addition.

    References
    ----------
    S. Marsland, J. Shapiro, U. Nehmzow. A self-organising network that grows when required. Neural Networks 15,
    1041-1058, 2002.
    """

    n_values: ClassVar[int] = 2  # rows won, habituation

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "activity_threshold": [Interval(Real, 0, 1, closed="both")],
        "habituation_threshold": [Interval(Real, 0, 1, closed="both")],
        "winner_rate": [Interval(Real, 0, 1, closed="both")],
        "neighbour_rate": [Interval(Real, 0, 1, closed="both")],
        "max_age": [Interval(Integral, 1, None, closed="left")],
        "max_nodes": [Interval(Integral, 2, None, closed="left")],
    }

    def __init__(
        self,
        *,
        activity_threshold: float = 0.8,
        habituation_threshold: float = 0.1,
        winner_rate: float = 0.2,
        neighbour_rate: float = 0.05,
        max_age: int = 50,
        max_nodes: int = 5000,
    ) -> None:
        self.activity_threshold = activity_threshold
        self.habituation_threshold = habituation_threshold
        self.winner_rate = winner_rate
        self.neighbour_rate = neighbour_rate
        self.max_age = max_age
        self.max_nodes = max_nodes


# Marsland's constants: a node's habituation h follows tau dh/dt = alpha (1 - h) - 1, one step a row.
_ALPHA, _TAU_WINNER, _TAU_NEIGHBOUR = 1.05, 3.33, 14.3


@kernel
def _learn(X, start, nodes, ages, values, memory, parameters):  # type: ignore[no-untyped-def]
    activity, habituated, winner_rate, neighbour_rate, max_age, max_nodes = parameters
    for t in range(start, X.shape[0]):
        n, x = next_row(X, t, nodes, memory)
        if n < 0:
            return t
        if n < 2:
            new = begin(nodes, ages, values, memory, x)
            if new >= 0:
                values[new, 1] = 1.0
            continue
        first, apart, second, _ = two_nearest(nodes, n, x)
        link(ages, first, second)
        badly_matched = np.exp(-np.sqrt(apart)) < activity
        if badly_matched and values[first, 1] < habituated and n < max_nodes:
            new = add_node(nodes, ages, values, memory, 0.5 * (nodes[first] + x))
            values[new, 0] = 1.0
            values[new, 1] = 1.0
            link(ages, new, first)
            link(ages, new, second)
            cut(ages, first, second)
            n += 1
        else:
            values[first, 0] += 1.0
            move_towards(nodes, first, x, winner_rate * values[first, 1])
            for i in range(n):
                if ages[first, i] != NO_EDGE:
                    move_towards(nodes, i, x, neighbour_rate * values[i, 1])
        age_edges(ages, n, first)
        values[first, 1] += (_ALPHA * (1.0 - values[first, 1]) - 1.0) / _TAU_WINNER
        for i in range(n):
            if ages[first, i] != NO_EDGE:
                values[i, 1] += (_ALPHA * (1.0 - values[i, 1]) - 1.0) / _TAU_NEIGHBOUR
        if cut_older(ages, n, first, max_age):
            kept = np.ones(n, np.bool_)
            for i in range(n):
                kept[i] = degree(ages, n, i) > 0
            keep_only(kept, nodes, ages, values, memory)
    return X.shape[0]


GWR._loop = _learn
