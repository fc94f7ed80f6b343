"""Leiden: communities of a weighted graph by modularity, moving nodes level by level, compiled and repeatable.

Nodes move to the neighbouring community that gains most; only nodes whose surroundings changed are looked at again.
Then every community is built up anew from its own nodes, which breaks up what is held together badly, and the pieces
become the nodes of a smaller graph on which the same goes on (Traag, Waltman and van Eck 2019; the measure is that of
Newman and Girvan 2004 with the resolution of Reichardt and Bornholdt 2006). What differs: there is no chance in it.
Nodes are taken in their order, and of equal gains the present community, or the one met first, is taken; the
refinement takes the best merge where Leiden draws one.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities", Scientific
Reports 9 (2019).
M. E. J. Newman, M. Girvan, "Finding and evaluating community structure in networks", Physical Review E 69 (2004).
J. Reichardt, S. Bornholdt, "Statistical mechanics of community detection", Physical Review E 74 (2006).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fcac._kernels import kernel
from fcac._typing import Floats, Integers

# A gain below this share of what is at stake is rounding, not gain: without it two equal choices could alternate.
_NO_GAIN = 1e-12


@kernel
def _move(
    indptr: Any, indices: Any, weights: Any, volume: Any, resolution: float, label: Any, first: Any, fence: Any = None
) -> Any:
    """Move nodes to the best neighbouring community, or to an empty one, until none gains; returns how many moved.

    The nodes given are looked at first, then those around whatever moved. With a fence, a label for every node, only
    edges between nodes of one label count.
    """
    n = volume.shape[0]
    held = np.zeros(n)
    size = np.zeros(n, dtype=np.int32)
    for v in range(n):
        held[label[v]] += volume[v]
        size[label[v]] += 1
    empty = np.empty(n, dtype=np.int32)
    n_empty = 0
    for c in range(n - 1, -1, -1):
        if size[c] == 0:
            empty[n_empty] = c
            n_empty += 1
    head, in_queue = 0, first.shape[0]
    queue = np.empty(n, dtype=np.int32)
    queue[:in_queue] = first
    waiting = np.zeros(n, dtype=np.bool_)
    waiting[first] = True
    tie = np.zeros(n)
    met = np.empty(n, dtype=np.int32)
    moved = 0
    while in_queue:
        v = queue[head]
        head = head + 1 if head + 1 < n else 0
        in_queue -= 1
        waiting[v] = False
        home = label[v]
        n_met = 0
        for e in range(indptr[v], indptr[v + 1]):
            c = label[indices[e]]
            if indices[e] != v and weights[e] > 0 and (fence is None or fence[indices[e]] == fence[v]):
                if tie[c] == 0:
                    met[n_met] = c
                    n_met += 1
                tie[c] += weights[e]
        price = resolution * volume[v]
        held[home] -= volume[v]
        best, best_gain = home, tie[home] - price * held[home]
        slack = _NO_GAIN * (volume[v] + price * held[home])
        for m in range(n_met):
            gain = tie[met[m]] - price * held[met[m]]
            if gain > best_gain + slack:
                best, best_gain = met[m], gain
            tie[met[m]] = 0.0
        if best_gain < -slack and n_empty and size[home] > 1:
            n_empty -= 1
            best = empty[n_empty]
        held[best] += volume[v]
        if best == home:
            continue
        moved += 1
        size[best] += 1
        size[home] -= 1
        if size[home] == 0:
            empty[n_empty] = home
            n_empty += 1
        label[v] = best
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if label[u] != best and not waiting[u]:
                waiting[u] = True
                at = head + in_queue
                queue[at if at < n else at - n] = u
                in_queue += 1
    return moved


@kernel
def _build_up(indptr: Any, indices: Any, weights: Any, volume: Any, resolution: float, label: Any) -> Any:
    """Return pieces of the communities: single nodes merged, within their community, with the piece that gains most.

    Only nodes and pieces tied to the rest of their community as firmly as the resolution asks take part, so a node
    that merely bridges two halves cannot hold them together.
    """
    n = volume.shape[0]
    whole = np.zeros(n)
    for v in range(n):
        whole[label[v]] += volume[v]
    outward = np.zeros(n)
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v and label[indices[e]] == label[v]:
                outward[v] += weights[e]
    piece = np.arange(n).astype(np.int32)
    held = volume.copy()
    alone = np.ones(n, dtype=np.bool_)
    tie = np.zeros(n)
    met = np.empty(n, dtype=np.int32)
    for v in range(n):
        if not alone[v] or outward[v] < resolution * volume[v] * (whole[label[v]] - volume[v]):
            continue
        n_met = 0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u != v and label[u] == label[v] and weights[e] > 0:
                p = piece[u]
                if tie[p] == 0:
                    met[n_met] = p
                    n_met += 1
                tie[p] += weights[e]
        best, best_gain, best_tie = v, 0.0, 0.0
        for m in range(n_met):
            p = met[m]
            gain = tie[p] - resolution * volume[v] * held[p]
            if gain > best_gain and outward[p] >= resolution * held[p] * (whole[label[v]] - held[p]):
                best, best_gain, best_tie = p, gain, tie[p]
            tie[p] = 0.0
        if best != v:
            piece[v] = best
            held[best] += volume[v]
            outward[best] += outward[v] - 2 * best_tie
            alone[best] = False
    return piece


@kernel
def relabel_in_place(label: Any, bound: int) -> Any:
    """Number labels, all below the bound, in order of first appearance; returns how many there are."""
    number = np.full(bound, -1, dtype=np.int32)
    count = 0
    for v in range(label.shape[0]):
        if number[label[v]] < 0:
            number[label[v]] = count
            count += 1
        label[v] = number[label[v]]
    return count


@kernel
def _merged(indptr: Any, indices: Any, weights: Any, volume: Any, piece: Any, n_pieces: int) -> Any:
    """The graph whose nodes are the pieces; weight inside pieces lives on in their volume alone."""
    n = volume.shape[0]
    first = np.zeros(n_pieces + 1, dtype=np.int64)
    for v in range(n):
        first[piece[v] + 1] += 1
    for p in range(n_pieces):
        first[p + 1] += first[p]
    place = first[:-1].copy()
    members = np.empty(n, dtype=np.int32)
    for v in range(n):
        members[place[piece[v]]] = v
        place[piece[v]] += 1
    starts = np.zeros(n_pieces + 1, dtype=np.int64)
    ends = np.empty(indices.shape[0], dtype=np.int32)
    sums = np.empty(indices.shape[0])
    volumes = np.zeros(n_pieces)
    at_of = np.full(n_pieces, -1, dtype=np.int64)
    at = 0
    for p in range(n_pieces):
        for m in range(first[p], first[p + 1]):
            v = members[m]
            volumes[p] += volume[v]
            for e in range(indptr[v], indptr[v + 1]):
                q = piece[indices[e]]
                if q == p or weights[e] <= 0:
                    continue
                if at_of[q] < starts[p]:
                    at_of[q] = at
                    ends[at] = q
                    sums[at] = 0.0
                    at += 1
                sums[at_of[q]] += weights[e]
        starts[p + 1] = at
    return starts, ends[:at].copy(), sums[:at].copy(), volumes


def _optimise(indptr: Any, indices: Any, weights: Any, volume: Any, resolution: float, passes: int) -> Any:
    """Communities of a graph whose volumes sum to 1 and whose weights are in the same unit."""
    n = len(volume)
    label = np.arange(n, dtype=np.int32)
    for _ in range(passes):
        moved = _move(indptr, indices, weights, volume, resolution, label, np.arange(n, dtype=np.int32))
        if moved == 0:
            break
        # the levels above: label_at is the community of each node there, top_of where each original node has gone
        starts, ends, sums, volumes, label_at = indptr, indices, weights, volume, label.copy()
        top_of = np.arange(n, dtype=np.int32)
        while True:
            piece = _build_up(starts, ends, sums, volumes, resolution, label_at)
            n_pieces = relabel_in_place(piece, len(piece))
            if n_pieces == len(volumes):
                break
            above = np.empty(n_pieces, dtype=np.int32)
            above[piece] = label_at
            top_of = piece[top_of]
            starts, ends, sums, volumes = _merged(starts, ends, sums, volumes, piece, n_pieces)
            relabel_in_place(above, len(piece))
            label_at = above
            _move(starts, ends, sums, volumes, resolution, label_at, np.arange(n_pieces, dtype=np.int32))
        label = label_at[top_of]
        relabel_in_place(label, n)
    return label


@kernel
def _connected(indptr: Any, indices: Any, weights: Any, label: Any) -> Any:
    """Split communities that are not connected; numbers by first node."""
    n = label.shape[0]
    out = np.full(n, -1, dtype=np.int64)
    stack = np.empty(n, dtype=np.int32)
    count = 0
    for s in range(n):
        if out[s] >= 0:
            continue
        out[s] = count
        stack[0] = s
        depth = 1
        while depth:
            depth -= 1
            v = stack[depth]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if out[u] < 0 and label[u] == label[s] and weights[e] > 0:
                    out[u] = count
                    stack[depth] = u
                    depth += 1
        count += 1
    return out


@kernel
def block_weights(indptr: Any, indices: Any, weights: Any, label: Any, n_labels: int) -> Any:
    """Weight between each two labels, twice the inner weight on the diagonal."""
    out = np.zeros((n_labels, n_labels))
    for v in range(label.shape[0]):
        for e in range(indptr[v], indptr[v + 1]):
            out[label[v], label[indices[e]]] += weights[e]
    return out


class Search:
    """A graph, symmetric and of weights that are not negative, prepared for searches for communities.

    A weight on the diagonal counts once towards the volume of its node.

    >>> search = Search(sparse.csr_matrix(np.kron(np.eye(4), np.ones((5, 5)) - np.eye(5))))
    >>> search.communities(1.0).tolist() == np.repeat(np.arange(4), 5).tolist()
    True
    """

    def __init__(self, graph: sparse.csr_matrix) -> None:
        if graph.shape[0] != graph.shape[1]:
            raise ValueError(f"a graph must be a square matrix; its shape is {graph.shape}")
        weights = np.asarray(graph.data, dtype=np.float64)
        if len(weights) and not weights.min() >= 0:
            raise ValueError("weights of a graph must be numbers of at least zero")
        volume: Floats = np.asarray(graph.sum(axis=1), dtype=np.float64).ravel()
        self._total = float(volume.sum())
        self._graph = graph.indptr.astype(np.int64), graph.indices.astype(np.int32, copy=False), weights, volume
        # volumes in units of the total, so that the price of a community is resolution times volume times volume
        total = max(self._total, 1e-300)
        self._whole = *self._graph[:2], weights / total, volume / total

    def communities(self, resolution: float, passes: int = 4) -> Integers:
        """Return communities of large modularity, each connected, numbered by first node.

        Equal graphs give equal communities. A weight on the diagonal counts once towards the volume of its node. The
        whole is gone through `passes` times at most.
        """
        if self._total <= 0:
            return np.arange(len(self._graph[3]))
        label = _optimise(*self._whole, float(resolution), int(passes))
        labels: Integers = _connected(*self._graph[:3], label)
        return labels

    def block_weights(self, labels: Integers) -> Floats:
        """Return the weight between each two labels, twice the inner weight on the diagonal."""
        weights: Floats = block_weights(*self._graph[:3], labels, int(labels.max()) + 1)
        return weights
