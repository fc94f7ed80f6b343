"""A small set of labelled means that predicts nearly like the nodes behind it, for handing out."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from fcac._typing import Floats, Integers
from fcac.codebook.codebook import Codebook
from fcac.novelty import reach_of_means
from fcac.search.exact import nearest


def coarse_codebook(
    nodes: Floats,
    counts: Floats,
    ids: Integers,
    scales: Floats,
    max_nodes: int = 256,
    min_nodes: int = 3,
    *,
    map: Floats | None = None,
) -> Codebook:
    """Return a codebook of at most ``max_nodes`` means, each of at least ``min_nodes`` nodes of one cluster."""
    names, sizes = np.unique(ids, return_counts=True)
    large = np.argsort(-sizes, kind="stable")[:max_nodes]
    kept = [(name, size) for name, size in zip(names[large], sizes[large], strict=True) if size >= min_nodes]
    if not kept:
        raise ValueError(f"every cluster has fewer than min_nodes={min_nodes} nodes: nothing can be handed out")
    share = max_nodes / sum(size for _, size in kept)
    words, labels, masses = [], [], []
    for name, size in sorted(kept):
        members = np.flatnonzero(ids == name)
        wanted = int(np.clip(share * size, 1, size // min_nodes))
        placed = nodes[members] * scales if map is None else nodes[members] @ map
        group = _grouped(placed, counts[members], wanted, min_nodes)
        for g in range(int(group.max()) + 1):
            here = members[group == g]
            words.append(np.average(nodes[here], axis=0, weights=counts[here]))
            labels.append(name)
            masses.append(counts[here].sum())
    return Codebook(words, labels, scales=scales, map=map, counts=masses)


def reaching(means: Codebook, nodes: Floats, reach: Floats) -> Codebook:
    """Return the means with the reach that nodes give to the mean nearest to each of them.

    Nodes of clusters that are left out count too: their rows are not novel, although none of the means is of them.
    """
    position, distance = means.nearest(nodes)
    return means.replace(reach=reach_of_means(len(means.nodes), position, distance, reach))


def _grouped(points: Floats, counts: Floats, wanted: int, min_nodes: int) -> Integers:
    """Group points around ``wanted`` means; groups of too few points dissolve into their neighbours."""
    group: Integers = np.zeros(len(points), dtype=np.int64)
    if wanted > 1:
        means = KMeans(wanted, n_init=1, max_iter=20, random_state=0).fit(points, sample_weight=counts)
        group = means.labels_.astype(np.int64)
        while True:
            present, sizes = np.unique(group, return_counts=True)
            smallest = int(np.argmin(sizes))
            if sizes[smallest] >= min_nodes or len(present) == 1:
                break
            others = np.delete(present, smallest)
            loose = np.flatnonzero(group == present[smallest])
            near, _ = nearest(means.cluster_centers_[others], points[loose], 1)
            group[loose] = others[near[:, 0]]
        group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return group
