"""SOINN+ (Wiwatcharakoses and Berrar, 2020)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from fcac._kernels import inner_kernel, kernel
from fcac.paper.networks._graph import (
    NO_EDGE,
    add_node,
    age_edges,
    begin,
    cut,
    degree,
    keep_only,
    link,
    move_towards,
    next_row,
    quantile,
    similarity_threshold,
    two_nearest,
)
from fcac.paper.networks._network import GrowingNetwork


class SOINNPlus(GrowingNetwork):
    """SOINN+: thresholds for linking and forgetting come from the network itself, so that nothing has to be set.

    As in ASOINN, a row outside the similarity thresholds of its two nearest nodes becomes a node. Otherwise:

    - the two nodes are joined if the row is near enough to both by what was seen before: (1 - trust) x distance below
      the mean plus two standard deviations of the distances at which nodes were joined. A node's trust is its number
      of rows over that of the busiest node;
    - edges of the winner whose age is an outlier (upper quartile plus two interquartile ranges, weighed with the mean
      age of the edges deleted so far) are removed;
    - nodes without edges whose unutility, idle rows over rows won, is an outlier (median plus two scaled median
      absolute deviations, weighed with the mean unutility of the nodes deleted so far) are removed.

    Parameters
    ----------
    pull_factor : float, default=50
        Neighbours of the winner move this many times less than it.

    Notes
    -----
    Written from the equations as later papers restate them; three things had to be chosen. The first three joins are
    always made, since no deviation can be told from fewer. The share of nodes without edges lowers the limit for
    unutility by the same share, so that a network full of noise forgets sooner. Idle times and ages are those after the
    present row.

    References
    ----------
    C. Wiwatcharakoses, D. Berrar. SOINN+, a Self-Organizing Incremental Neural Network for Unsupervised Learning from
    Noisy Data Streams. Expert Systems with Applications 143, 113069, 2020.
    """

    n_values: ClassVar[int] = 2  # rows won, idle rows
    # nodes, rows, then of joins: number, mean and sum of squared deviations of the distance; then of deleted edges and
    # of deleted nodes: number and mean
    n_memory: ClassVar[int] = 9

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "pull_factor": [Interval(Real, 1, None, closed="left")],
    }

    def __init__(self, *, pull_factor: float = 50.0) -> None:
        self.pull_factor = pull_factor


@kernel
def _learn(X, start, nodes, ages, values, memory, parameters):  # type: ignore[no-untyped-def]
    for t in range(start, X.shape[0]):
        n, x = next_row(X, t, nodes, memory)
        if n < 0:
            return t
        for i in range(n):
            values[i, 1] += 1.0
        if n < 2:
            if begin(nodes, ages, values, memory, x) < 0:
                values[0, 1] = 0.0
            continue
        first, apart, second, apart_second = two_nearest(nodes, n, x)
        unlike = apart > similarity_threshold(nodes, ages, n, first)
        if unlike or apart_second > similarity_threshold(nodes, ages, n, second):
            new = add_node(nodes, ages, values, memory, x)
            values[new, 0] = 1.0
            continue
        values[first, 0] += 1.0
        values[first, 1] = 0.0
        move_towards(nodes, first, x, 1.0 / values[first, 0])
        for i in range(n):
            if ages[first, i] != NO_EDGE:
                move_towards(nodes, i, x, 1.0 / (parameters[0] * values[i, 0]))
        age_edges(ages, n, first)
        _join(ages, values, memory, n, first, np.sqrt(apart), second, np.sqrt(apart_second))
        _cut_outliers(ages, memory, n, first)
        _forget_idle(nodes, ages, values, memory)
    return X.shape[0]


@inner_kernel
def _join(ages, values, memory, n, first, apart, second, apart_second):  # type: ignore[no-untyped-def]
    """Join the two nearest nodes if the row is near enough to both, and remember at which distances."""
    most = 1.0
    for i in range(n):
        most = max(most, values[i, 0])
    trust_first = (values[first, 0] - 1.0) / (most - 1.0) if most > 1.0 else 0.0
    trust_second = (values[second, 0] - 1.0) / (most - 1.0) if most > 1.0 else 0.0
    joins = memory[2]
    limit = memory[3] + 2.0 * np.sqrt(memory[4] / joins) if joins > 0.0 else 0.0
    near = (1.0 - trust_first) * apart < limit and (1.0 - trust_second) * apart_second < limit
    if joins < 6.0 or near:  # two distances for every join
        link(ages, first, second)
        for distance in (apart, apart_second):
            memory[2] += 1.0
            gap = distance - memory[3]
            memory[3] += gap / memory[2]
            memory[4] += gap * (distance - memory[3])


@inner_kernel
def _cut_outliers(ages, memory, n, first):  # type: ignore[no-untyped-def]
    """Remove edges of the winner that are old beyond what is usual for it and for the edges deleted so far."""
    found = np.empty(n, np.float64)
    m = 0
    for i in range(n):
        if ages[first, i] != NO_EDGE:
            found[m] = ages[first, i]
            m += 1
    if m == 0:
        return
    usual = np.sort(found[:m])
    upper = quantile(usual, 0.75)
    outlier = upper + 2.0 * (upper - quantile(usual, 0.25))
    share = memory[5] / (memory[5] + m)
    limit = memory[6] * share + outlier * (1.0 - share)
    for i in range(n):
        if ages[first, i] > limit:
            memory[5] += 1.0
            memory[6] += (ages[first, i] - memory[6]) / memory[5]
            cut(ages, first, i)


@inner_kernel
def _forget_idle(nodes, ages, values, memory):  # type: ignore[no-untyped-def]
    """Remove nodes without edges that have been idle for too long."""
    n = int(memory[0])
    unutility = values[:n, 1] / values[:n, 0]
    alone = np.zeros(n, np.bool_)
    for i in range(n):
        alone[i] = degree(ages, n, i) == 0
    n_alone = alone.sum()
    if n_alone == 0 or n_alone == n:
        return
    middle = quantile(np.sort(unutility), 0.5)
    outlier = middle + 2.0 * 1.4826 * quantile(np.sort(np.abs(unutility - middle)), 0.5)
    share = memory[7] / (memory[7] + n)
    limit = memory[8] * share + outlier * (1.0 - share) * (1.0 - n_alone / n)
    kept = np.ones(n, np.bool_)
    for i in range(n):
        if alone[i] and unutility[i] > limit:
            kept[i] = False
            memory[7] += 1.0
            memory[8] += (unutility[i] - memory[8]) / memory[7]
    if not kept.all():
        keep_only(kept, nodes, ages, values, memory)


SOINNPlus._loop = _learn
