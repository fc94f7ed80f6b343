"""Nodes that carry the deviation of their noise: where they are most likely to be, and which clusters suit them.

Nodes that a private release sends are true places plus noise of a public scale. Taken for exact, they mislead a graph
of neighbours: at a low epsilon it is the noise that decides whom a node is tied to. Two readings take it into account:

- *Groups*: nodes merged as long as the known noise explains their differences, :mod:`fcac.clusters.noisy_merge`. It
  needs few nodes, and takes clusters to be round or at least convex.
- *The graph* of the places where nodes are most likely to be. It finds clusters of any shape, and needs many nodes with
  little noise.

The graph is taken where the judge holds its number of clusters for more probable than all others together, groups
otherwise. Everything here is computed from released values and public scales (post-processing), so it costs nothing of
a privacy budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcac._typing import Floats
from fcac.clusters.cluster_tree import Tree
from fcac.clusters.noisy_merge import Groups, merge_noisy
from fcac.clusters.snapshot import Fitted

# Chosen on synthetic data and on iris, wine and breast cancer; see docs/results/noisy.md.
# With more values than this in all nodes, merging would take minutes and gigabytes; a graph of so many nodes averages
# the noise out by itself.
_MOST_VALUES = 400_000
# With fewer nodes than this a graph says nothing, however clear it looks.
_FEWEST = 50

Noise = tuple[Floats, Floats]


@dataclass(frozen=True)
class Reading:
    """Noisy nodes of all sites, denoised: where they are most likely to be, and what merging found.

    `scales` makes the noise alike in all features; `sources` are the arrays this was made from, to see whether it still
    holds.
    """

    held: dict[Any, tuple[Floats, Floats]]
    scales: Floats
    groups: Groups
    sources: list[Any]

    def holds(self, sites: list[Any], held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]) -> bool:
        """Whether these are the nodes."""
        sources = _sources(sites, held, noise)
        return len(sources) == len(self.sources) and all(a is b for a, b in zip(self.sources, sources, strict=True))


def noise_matters(held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]) -> bool:
    """Whether nodes are to be read by their noise: if most of them are noisy, none has gaps, and they are not too many.

    Exact nodes may lie as far apart as records do, which the model of noisy means does not know: so most decide.
    """
    if not noise_prevails(held, noise) or sum(nodes.size for nodes, _ in held.values()) > _MOST_VALUES:
        return False
    return all(bool(np.isfinite(nodes).all()) for nodes, _ in held.values())


def noise_prevails(held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]) -> bool:
    """Whether more than half of the nodes are noisy."""
    return 2 * sum(len(held[s][0]) for s in noise) > sum(len(nodes) for nodes, _ in held.values())


def read_noisy(sites: list[Any], held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]) -> Reading:
    """Denoise the nodes of all sites; a site without an entry in `noise` has sent exact nodes."""
    nodes = np.concatenate([held[s][0] for s in sites])
    counts = np.concatenate([held[s][1] for s in sites])
    deviation, count_deviation = deviations(sites, held, noise)
    scales = 1.0 / _units(nodes, deviation)
    reliable = reliable_counts(counts, count_deviation)
    groups = merge_noisy(nodes * scales, (deviation * scales) ** 2, reliable)
    ends = np.cumsum([len(held[s][0]) for s in sites])[:-1]
    places = np.split(groups.places / scales, ends)
    denoised = {s: (np.ascontiguousarray(own), held[s][1]) for s, own in zip(sites, places, strict=True)}
    return Reading(denoised, scales, groups, _sources(sites, held, noise))


def deviations(
    sites: list[Any], held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]
) -> tuple[Floats, Floats]:
    """Return the deviations of all positions and of all counts, sites in order; 0 for a site with exact nodes."""
    pieces = [noise[s] if s in noise else (np.zeros(held[s][0].shape), np.zeros(len(held[s][0]))) for s in sites]
    return np.concatenate([position for position, _ in pieces]), np.concatenate([count for _, count in pieces])


def reliable_counts(counts: Floats, deviation: Floats) -> Floats:
    """Return counts as weights: one that noise may have made weighs little."""
    reliable: Floats = counts**3 / (counts**2 + deviation**2)
    return reliable


def choose_tree(reading: Reading, now: Fitted) -> Tree:
    """Return the tree of clusters: that of the graph of denoised nodes if it is firm, else that of the groups."""
    groups = reading.groups
    if len(now.points) >= _FEWEST:
        graph = now.tree()
        if _is_probable(graph):
            return graph
    return tree_of(groups, now)


def checked_noise(
    site: Any, nodes: Floats, deviation: ArrayLike | None, count_deviation: ArrayLike | None
) -> tuple[Floats, Floats] | None:
    """Return the deviations of a site's nodes as arrays; None if there are none, or no noise in them."""
    if deviation is None and count_deviation is None:
        return None
    if deviation is None or count_deviation is None:
        raise ValueError(f"site {site!r}: give deviation and count_deviation, or neither")
    of_nodes, of_counts = np.array(deviation, dtype=np.float64), np.array(count_deviation, dtype=np.float64)
    if of_nodes.shape != nodes.shape or of_counts.shape != (len(nodes),):
        raise ValueError(f"site {site!r}: deviations must have the shapes of nodes and counts")
    if not all((np.isfinite(some) & (some >= 0)).all() for some in (of_nodes, of_counts)):
        raise ValueError(f"site {site!r}: deviations must be finite and at least 0")
    return (of_nodes, of_counts) if of_nodes.any() else None


def stored_noise(noisy: list[bool], sizes: list[int], arrays: Mapping[str, NDArray[Any]]) -> list[tuple[Any, ...]]:
    """Return the stored deviations of every site; an empty tuple for those without."""
    if len(noisy) != len(sizes) or not any(noisy):
        return [()] * len(sizes)
    sizes_of_noisy = [size for has, size in zip(noisy, sizes, strict=True) if has]
    of_nodes, of_counts = arrays["deviation"], arrays["count_deviation"]
    if not len(of_nodes) == len(of_counts) == sum(sizes_of_noisy):
        raise ValueError("the stored deviations do not fit the stored nodes")
    ends = np.cumsum(sizes_of_noisy)[:-1]
    pieces = iter(zip(np.split(of_nodes, ends), np.split(of_counts, ends), strict=True))
    return [next(pieces) if has else () for has in noisy]


def _sources(sites: list[Any], held: Mapping[Any, tuple[Floats, Floats]], noise: Mapping[Any, Noise]) -> list[Any]:
    return [part for s in sites for part in (s, held[s], noise.get(s))]


def _units(nodes: Floats, deviation: Floats) -> Floats:
    """Return a unit for every feature: its usual noise, or as many of its spreads where a feature has no noise."""
    unit = np.sqrt((deviation**2).mean(axis=0))
    spread = nodes.std(axis=0)
    both = (unit > 0) & (spread > 0)
    usual = float(np.median(unit[both] / spread[both])) if both.any() else 1.0
    exact = np.where(spread > 0, spread * usual, 1.0)
    units: Floats = np.where(unit > 0, unit, exact)
    return units


def _is_probable(graph: Tree) -> bool:
    """Whether there are clusters in the graph, and their number is more probable than all others together."""
    return graph.n_clusters > 1 and bool(graph.probabilities()[graph.n_clusters - 1] > 0.5)


def cut_as_told(tree: Tree, n_clusters: int) -> Tree:
    """Return the tree with so many clusters as somebody has asked for.

    Where merging has found the clusters, one that was asked for is as probable as the group that it is, and as
    improbable as the surest of those that it joins or is part of.
    """
    cut = tree.into(n_clusters)
    if tree.sure is None:
        return cut
    found, told, sure = tree.labels(), cut.labels(), []
    for cluster in range(int(told.max()) + 1):
        groups = np.unique(found[told == cluster])
        same = len(groups) == 1 and np.array_equal(found == groups[0], told == cluster)
        sure.append(tree.sure[groups[0]] if same else 1.0 - tree.sure[groups].max())
    return replace(cut, sure=np.array(sure))


def tree_of(groups: Groups, now: Fitted) -> Tree:
    """Return groups as a tree over the distinct points of a fit."""
    # denoised nodes at the same place are one point; its first node speaks for it
    unit_of = groups.unit_of[now.first]
    n_units = int(groups.unit_of.max()) + 1
    present, atom_of = np.unique(unit_of, return_inverse=True)
    used = np.zeros(n_units, dtype=bool)
    used[present] = True
    root, number = np.arange(n_units), np.full(n_units, -1, dtype=np.int64)
    number[present] = np.arange(len(present))
    joins: list[tuple[int, int]] = []
    n_joined = 0
    for position, (into, gone) in enumerate(groups.joins):
        a, b = root[into], root[gone]
        root[root == b] = a
        if used[a] and used[b]:
            joins.append((int(number[a]), int(number[b])))
            n_joined += position < groups.n_joined
        elif used[b]:
            # a unit without a point of its own: what it takes in goes on in its place
            used[a], number[a] = True, number[b]
    # numbered by first node, as the tree numbers its clusters
    own = groups.labels[now.first]
    probability = groups.probability[own[np.sort(np.unique(own, return_index=True)[1])]]
    return Tree.of_joins(atom_of, joins, n_joined, probability)
