"""The dots of a picture: nodes, or neighbouring nodes of one cluster merged so that no dot stands for a single row."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from fcac._typing import Floats, Integers
from fcac.federation import Server

#: A dot, or the description of a cluster, based on the sites' own nodes stands for at least this many rows.
MIN_ROWS = 5
#: Most dots of the large picture, and of a small one.
MAX_DOTS, MAX_SMALL_DOTS = 1500, 250
_MAX_EDGES = 1500


@dataclass(frozen=True)
class Dots:
    """The dots of a picture of a network.

    Each stands for `n_merged` nodes, `group` is the dot of every node, -1 if it is not drawn; `n_hidden` nodes are not
    drawn because their whole cluster stands for too few rows.
    """

    points: Floats
    counts: Integers
    labels: Integers
    n_merged: Integers
    edges: Integers
    n_hidden: int = 0
    group: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def condensed(self) -> bool:
        """Whether any dot stands for several nodes, or nodes are hidden."""
        return bool(self.n_hidden or (self.n_merged > 1).any())

    def means(self, values: Floats, weights: Floats) -> Floats:
        """Return the weighted mean over each dot's nodes of values of shape (n, m)."""
        drawn = self.group >= 0
        group, weights, values = self.group[drawn], weights[drawn], values[drawn]
        mass = np.bincount(group, weights=weights, minlength=len(self.points))
        sums = [np.bincount(group, weights=weights * column, minlength=len(self.points)) for column in values.T]
        means: Floats = np.column_stack(sums) / np.maximum(mass, 1e-300)[:, None]
        return means


def plain_dots(points: Floats, counts: Integers, labels: Integers, edges: Integers) -> Dots:
    """Return one dot per node."""
    n = len(points)
    return Dots(points, counts, labels, np.ones(n, np.int64), edges, 0, np.arange(n))


def condense(
    points: Floats, counts: Integers, labels: Integers, edges: Integers, *, min_rows: int = 1, most: int = 2000
) -> Dots:
    """Merge neighbouring nodes of the same cluster into at most `most` dots of at least `min_rows` rows each.

    A dot lies at the weighted mean of its nodes. A cluster that is too light as a whole is not drawn; there are more
    dots only if there are more clusters.

    >>> points = np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0], [1.0, 0.9], [0.5, 0.5]])
    >>> dots = condense(points, np.array([4, 2, 9, 1, 1]), np.array([0, 0, 1, 1, 2]), np.empty((0, 2), int), min_rows=5)
    >>> dots.counts.tolist(), dots.labels.tolist(), dots.n_hidden
    ([6, 10], [0, 1], 1)
    """
    if not len(points):
        return plain_dots(points, counts, labels, edges)
    group = bisected(points, counts, labels, most, min_rows)
    inside = group >= 0
    n = int(group.max()) + 1
    weights = np.bincount(group[inside], weights=counts[inside], minlength=n)
    centres = np.column_stack(
        [np.bincount(group[inside], weights=(counts * points[:, j])[inside], minlength=n) for j in range(2)]
    )
    owner = np.zeros(n, dtype=np.int64)
    owner[group[inside]] = labels[inside]
    ends = group[edges] if len(edges) else np.empty((0, 2), np.int64)
    ends = np.sort(ends[(ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])], axis=1)
    links, often = np.unique(ends, axis=0, return_counts=True)
    strongest = np.sort(np.argsort(-often, kind="stable")[:_MAX_EDGES])
    return Dots(
        centres / np.maximum(weights, 1e-300)[:, None],
        np.rint(weights).astype(np.int64),
        owner,
        np.bincount(group[inside], minlength=n),
        links[strongest],
        int((~inside).sum()),
        group,
    )


def bisected(points: Floats, counts: Floats | Integers, labels: Integers, most: int, min_rows: float = 0.0) -> Integers:
    """Group points of the same label: groups are halved, the most spread out first, across their widest direction.

    Groups, at most as many as wanted but one for every label, are numbered by label and first point; -1 is for points
    of a label that is lighter than `min_rows` as a whole.

    >>> line = np.array([[0.0], [0.1], [5.0], [5.2], [9.0]])
    >>> bisected(line, np.ones(5), np.array([0, 0, 0, 0, 7]), 3).tolist()
    [0, 0, 1, 1, 2]
    """
    group = np.full(len(points), -1, dtype=np.int64)
    done: list[Integers] = []
    waiting: list[tuple[float, int, Integers]] = []
    number = 0
    for label in np.unique(labels):
        inside = np.flatnonzero(labels == label)
        if counts[inside].sum() >= min_rows:
            waiting.append((-_spread(points, counts, inside), number, inside))
            number += 1
    heapq.heapify(waiting)
    while waiting and len(waiting) + len(done) < most:
        _, _, inside = heapq.heappop(waiting)
        halves = _halved(points, counts, inside, min_rows)
        if halves is None:
            done.append(inside)
            continue
        for half in halves:
            heapq.heappush(waiting, (-_spread(points, counts, half), number, half))
            number += 1
    parts = done + [inside for _, _, inside in waiting]
    for position, inside in enumerate(sorted(parts, key=lambda part: (labels[part[0]], part[0]))):
        group[inside] = position
    return group


def _spread(points: Floats, counts: Floats | Integers, inside: Integers) -> float:
    """Sum of squares about the mean: what a split can take away; the number of points breaks ties."""
    some, weights = points[inside] - points[inside[0]], counts[inside]
    total = float(weights.sum())
    sums = weights @ some
    squares = float((weights @ (some * some)).sum())
    return max(squares - float(sums @ sums) / max(total, 1e-300), 0.0) + 1e-12 * len(inside)


def _halved(
    points: Floats, counts: Floats | Integers, inside: Integers, min_rows: float
) -> tuple[Integers, Integers] | None:
    """Two halves of about the same weight, or None if it cannot be halved."""
    if len(inside) < 2:
        return None
    some, weights = points[inside], counts[inside]
    gap = some - some[0]
    axis = int(np.argmax((gap * gap).mean(axis=0) - gap.mean(axis=0) ** 2))
    order = np.argsort(some[:, axis], kind="stable")
    values, upto = some[order, axis], np.cumsum(weights[order])[:-1]
    total = float(weights.sum())
    allowed = (np.diff(values) > 0) & (upto >= min_rows) & (total - upto >= min_rows)
    if not allowed.any():
        return None
    at = int(np.argmin(np.where(allowed, np.abs(upto - total / 2), np.inf))) + 1
    return np.sort(inside[order[:at]]), np.sort(inside[order[at:]])


def make_dots(
    server: Server, places: Floats, counts: Integers, labels: Integers, edges: Integers, *, small: bool = False
) -> Dots:
    """Return the dots of a picture; the sites' own nodes are merged unless released, since a node can be a row."""
    most = MAX_SMALL_DOTS if small else MAX_DOTS
    if server.readout.nodes_are_contributed and not server.released:
        return condense(places, counts, labels, edges, min_rows=MIN_ROWS, most=most)
    if len(places) > most:
        return condense(places, counts, labels, edges, most=most)
    return plain_dots(places, counts, labels, edges)
