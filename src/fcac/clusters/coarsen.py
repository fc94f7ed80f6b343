"""Coarsening a large graph to small pieces, and what is known of nodes from the pieces they are in.

Every node goes with the one to which its edge is heaviest, which makes pieces of a few dozen nodes at most: close to
the heavy-edge matching of multilevel partitioning (Karypis and Kumar 1998), but in one step and not in pairs. A search
among pieces is many times faster than one among nodes and loses hardly anything, because such nodes belong together
anyway; those that do not are moved afterwards.

References
----------
G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM Journal on
Scientific Computing 20 (1998).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._kernels import inner_kernel, kernel


@inner_kernel
def root_of(root: Any, v: Any) -> Any:
    """Return the root of a node in a forest, and halve the way there (union-find, Tarjan 1975)."""
    while root[v] != v:
        root[v] = root[root[v]]
        v = root[v]
    return v


@kernel
def heavy_edge_pieces(indptr: Any, indices: Any, weights: Any, most: int) -> Any:
    """A piece for every node, so that each goes with the one it is tied to most, up to so many nodes in a piece."""
    n = indptr.shape[0] - 1
    root = np.arange(n).astype(np.int32)
    size = np.ones(n, dtype=np.int32)
    for v in range(n):
        best, heaviest = v, 0.0
        for e in range(indptr[v], indptr[v + 1]):
            if weights[e] > heaviest and indices[e] != v:
                best, heaviest = indices[e], weights[e]
        a, b = root_of(root, v), root_of(root, best)
        if a != b and size[a] + size[b] <= most:
            a, b = min(a, b), max(a, b)
            root[b] = a
            size[a] += size[b]
    for v in range(n):
        # a root is never above its nodes, so its own root is known by then
        root[v] = root[root[v]]
    return root


@kernel
def majority_label(piece: Any, n_pieces: int, volume: Any, label: Any) -> Any:
    """Label of each piece: the one that holds more than half of its volume, if one does."""
    out = np.zeros(n_pieces, dtype=label.dtype)
    ahead = np.zeros(n_pieces)
    for v in range(piece.shape[0]):
        p = piece[v]
        if ahead[p] <= 0:
            out[p], ahead[p] = label[v], volume[v]
        elif out[p] == label[v]:
            ahead[p] += volume[v]
        else:
            ahead[p] -= volume[v]
    return out


@kernel
def within(starts: Any, ends: Any, sums: Any, label: Any) -> Any:
    """The edges between nodes of one label."""
    out_starts = np.zeros(starts.shape[0], dtype=np.int64)
    out_ends, out_sums = np.empty(ends.shape[0], dtype=np.int32), np.empty(ends.shape[0])
    at = 0
    for v in range(label.shape[0]):
        for e in range(starts[v], starts[v + 1]):
            if label[ends[e]] == label[v]:
                out_ends[at], out_sums[at] = ends[e], sums[e]
                at += 1
        out_starts[v + 1] = at
    return out_starts, out_ends[:at], out_sums[:at]


@kernel
def settled(indptr: Any, indices: Any, weights: Any, label: Any, label_of_piece: Any, piece: Any, part: Any) -> Any:
    """Parts of labels for every node, given those of pieces, where some nodes have another label than their piece.

    These go to the part of their own label that they are tied to most, or else to a part of their own for each label.
    """
    n = label.shape[0]
    n_parts = 0
    for p in range(part.shape[0]):
        n_parts = max(n_parts, part[p] + 1)
    out = np.empty(n, dtype=np.int64)
    for v in range(n):
        out[v] = part[piece[v]] if label_of_piece[piece[v]] == label[v] else -1
    tie = np.zeros(n_parts)
    for v in range(n):
        if label_of_piece[piece[v]] == label[v]:
            continue
        best = n_parts + label[v]
        heaviest = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if label[u] == label[v] and 0 <= out[u] < n_parts:
                tie[out[u]] += weights[e]
                if tie[out[u]] > heaviest:
                    best, heaviest = out[u], tie[out[u]]
        for e in range(indptr[v], indptr[v + 1]):
            if 0 <= out[indices[e]] < n_parts:
                tie[out[indices[e]]] = 0.0
        out[v] = best
    return out


@kernel
def inside(starts: Any, ends: Any, label: Any, piece: Any) -> Any:
    """Which pieces, and all pieces they are tied to, lie within one community."""
    n_pieces = starts.shape[0] - 1
    label_of = np.full(n_pieces, -1, dtype=np.int64)
    for v in range(label.shape[0]):
        p = piece[v]
        if label_of[p] == -1:
            label_of[p] = label[v]
        elif label_of[p] != label[v]:
            label_of[p] = -2
    out = np.empty(n_pieces, dtype=np.bool_)
    for p in range(n_pieces):
        out[p] = label_of[p] >= 0
        for e in range(starts[p], starts[p + 1]):
            if label_of[ends[e]] != label_of[p]:
                out[p] = False
                break
    return out


@kernel
def at_borders(indptr: Any, indices: Any, label: Any, piece: Any, inside: Any) -> Any:
    """Nodes tied to a node of another community; nodes of some pieces are known to be inside."""
    out = np.empty(label.shape[0], dtype=np.int32)
    count = 0
    for v in range(label.shape[0]):
        if inside[piece[v]]:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            if label[indices[e]] != label[v]:
                out[count] = v
                count += 1
                break
    return out[:count].copy()


@kernel
def block_weights(indptr: Any, indices: Any, weights: Any, label: Any, n_labels: int) -> Any:
    """Weight between each two labels, twice the inner weight on the diagonal."""
    out = np.zeros((n_labels, n_labels))
    for v in range(label.shape[0]):
        for e in range(indptr[v], indptr[v + 1]):
            out[label[v], label[indices[e]]] += weights[e]
    return out
