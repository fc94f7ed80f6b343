"""One clustering of the contributions, with the sizes, sites and dots of its clusters; and two of them compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Booleans, Floats, Integers
from fcac.federation import Server
from fcac.federation.readout import ReadOut
from fcac.federation.replay import Material, labels_of, rows_by_cluster
from fcac.report.charts import ClusterStyle
from fcac.report.dots import Dots, make_dots
from fcac.report.layout import Views


@dataclass(frozen=True)
class Cluster:
    """One cluster, as described by the sites' nodes.

    `rows` are those that its nodes stand for, counted one by one if rows were given; `rows_error` is the standard
    deviation of the known noise in that. Sites without rows in it are not in `site_shares`, largest first.
    `probability` says how likely it is one cluster and apart from the others, where the server tells.
    """

    label: int
    style: ClusterStyle
    rows: int
    share: float
    n_nodes: int
    site_shares: dict[SiteName, float]
    probability: float | None = None
    rows_error: float | None = None


@dataclass(frozen=True)
class Clustering:
    """What one server made of the contributions; `labels` are those of the sites' nodes."""

    way: type[ReadOut]
    clusters: list[Cluster]
    dots: Dots
    n_nodes: int
    labels: Integers

    def style(self, label: int) -> ClusterStyle:
        """Return the colour and shape of a cluster."""
        return next((c.style for c in self.clusters if c.label == label), ClusterStyle(10**6))


def make_clustering(
    server: Server,
    known: Material,
    views: Views,
    exact: dict[int, int] | None = None,
    count_noise: Floats | None = None,
    *,
    own: bool = True,
) -> Clustering:
    """Return what a server made of the contributions.

    `known` are the sites' latest nodes, `exact` rows that were counted one by one, `count_noise` the standard deviation
    of the noise in the counts of `known`; `own` says that the views were made from this server's nodes.
    """
    labels = labels_of(server, known)
    estimated = rows_by_cluster(labels, known.counts)
    rows = estimated if exact is None else exact
    node_labels, n_nodes = np.unique(server.node_labels, return_counts=True)
    nodes_in = {int(label): int(n) for label, n in zip(node_labels, n_nodes, strict=True)}
    order = sorted({*estimated, *rows, *nodes_in}, key=lambda label: (-rows.get(label, 0), label))
    total = sum(rows.values())
    clusters = [
        Cluster(
            label,
            ClusterStyle(rank),
            rows.get(label, 0),
            rows.get(label, 0) / total if total else 0.0,
            nodes_in.get(label, 0),
            _site_shares(known, labels == label),
            rows_error=None if count_noise is None else float(np.sqrt((count_noise[labels == label] ** 2).sum())),
        )
        for rank, label in enumerate(order)
    ]
    places = views.places(server.nodes, own=own)
    dots = make_dots(server, places, server.counts, server.node_labels, server.readout.edges)
    return Clustering(type(server.readout), clusters, dots, len(server.nodes), labels)


def with_probabilities(found: Clustering, probability: Mapping[int, float]) -> Clustering:
    """Return a clustering whose clusters know how probable they are."""
    clusters = [replace(c, probability=probability.get(c.label)) for c in found.clusters]
    return replace(found, clusters=clusters)


def _site_shares(known: Material, inside: Booleans) -> dict[SiteName, float]:
    mass = np.bincount(known.site[inside], weights=known.counts[inside], minlength=len(known.sites))
    order = np.argsort(-mass, kind="stable")
    return {known.sites[s]: float(mass[s] / mass.sum()) for s in order if mass[s] > 0}


# ------------------------------------------------------------ two clusterings


@dataclass(frozen=True)
class Comparison:
    """Another clustering of the same contributions: rows by pair of clusters, and the adjusted Rand index
    (`agreement`).
    """

    other: Clustering
    rows: dict[tuple[int, int], int]
    agreement: float


def compared(first: Clustering, second: Clustering, counts: Floats) -> Comparison:
    """Compare two clusterings of the same nodes."""
    pairs, place = np.unique(np.column_stack([first.labels, second.labels]), axis=0, return_inverse=True)
    mass = np.bincount(place.ravel(), weights=counts, minlength=len(pairs))
    rows = {(int(a), int(b)): round(m) for (a, b), m in zip(pairs, mass, strict=True)}
    return Comparison(_matching_styles(second, first, rows), rows, adjusted_rand(rows))


def _matching_styles(second: Clustering, first: Clustering, rows: Mapping[tuple[int, int], int]) -> Clustering:
    """Give each cluster of the second the style of the first's cluster with which it shares most rows."""
    free = len(first.clusters)
    taken: set[int] = set()
    clusters = []
    for cluster in second.clusters:
        shared = [(n, -first.style(a).rank) for (a, b), n in rows.items() if b == cluster.label]
        rank = -max(shared)[1] if shared else free
        if rank in taken or not shared:
            rank, free = free, free + 1
        taken.add(rank)
        clusters.append(replace(cluster, style=ClusterStyle(rank)))
    return replace(second, clusters=clusters)


def adjusted_rand(table: Mapping[tuple[int, int], int]) -> float:
    """Return the adjusted Rand index of two clusterings, from the number of rows in each pair of clusters.

    >>> adjusted_rand({(0, 7): 10, (1, 5): 4})
    1.0
    """

    def pairs(sizes: Iterable[int]) -> float:
        return float(sum(n * (n - 1) / 2 for n in sizes))

    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for (a, b), n in table.items():
        first[a] = first.get(a, 0) + n
        second[b] = second.get(b, 0) + n
    both, one, two = pairs(table.values()), pairs(first.values()), pairs(second.values())
    total = pairs([sum(table.values())])
    expected = one * two / total if total else 0.0
    most = (one + two) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
