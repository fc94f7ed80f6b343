"""One read-out of the contributions: its clusters with sizes, sites and stability, and its picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName
from fcac._typing import Floats, Integers
from fcac.federation import Server
from fcac.federation.readout import ReadOut as ServerReadOut
from fcac.federation.replay import Material, labels_of, rows_by_cluster
from fcac.report.cluster_style import ClusterStyle
from fcac.report.dots import Dots
from fcac.report.views import Views, make_dots


@dataclass(frozen=True)
class Cluster:
    """One cluster, as described by the sites' nodes.

    Attributes
    ----------
    label : int
        As returned by `predict`.
    style : ClusterStyle
    rows : int
        Number of rows represented by its nodes; counted one by one if rows were given.
    share : float
        Fraction of all rows.
    n_nodes : int
        Number of the server's nodes in it.
    site_shares : dict of site to float
        Largest first; sites without rows in it are omitted.
    stability : float or None
        Between 0 and 1, where the server tells.
    rows_error : float or None
        Standard deviation of the known noise in `rows`.
    """

    label: int
    style: ClusterStyle
    rows: int
    share: float
    n_nodes: int
    site_shares: dict[SiteName, float]
    stability: float | None = None
    rows_error: float | None = None


@dataclass(frozen=True)
class Reading:
    """The result of one read-out of the contributions: what is drawn and listed for it."""

    way: type[ServerReadOut]
    clusters: list[Cluster]
    dots: Dots
    n_nodes: int
    labels: Integers

    def style(self, label: int) -> ClusterStyle:
        """Return the colour and shape of a cluster."""
        return next((c.style for c in self.clusters if c.label == label), ClusterStyle(10**6))


def read_out(
    server: Server,
    known: Material,
    views: Views,
    exact: dict[int, int] | None,
    count_noise: Floats | None,
    *,
    own: bool = True,
    stability: Mapping[int, float] | None = None,
) -> Reading:
    """Return what a server made of the contributions.

    Parameters
    ----------
    server : Server
    known : Material
        The sites' latest nodes.
    views : Views
    exact : dict of cluster to rows, or None
        Rows that were counted one by one.
    count_noise : array or None
        Known standard deviation of the noise in the counts of `known`.
    own : bool
        Whether the views were made from this server's nodes.
    stability : mapping of cluster to float, optional
        See :func:`stability_of`.
    """
    labels = labels_of(server, known)
    estimated = rows_by_cluster(labels, known.counts)
    rows = estimated if exact is None else exact
    node_labels, n_nodes = np.unique(server.node_labels, return_counts=True)
    nodes_in = {int(label): int(n) for label, n in zip(node_labels, n_nodes, strict=True)}
    order = sorted({*estimated, *rows, *nodes_in}, key=lambda label: (-rows.get(label, 0), label))
    total = sum(rows.values())
    stability = stability or {}
    clusters = [
        Cluster(
            label,
            ClusterStyle(rank),
            rows.get(label, 0),
            rows.get(label, 0) / total if total else 0.0,
            nodes_in.get(label, 0),
            _site_shares(known, labels == label),
            stability.get(label),
            None if count_noise is None else float(np.sqrt((count_noise[labels == label] ** 2).sum())),
        )
        for rank, label in enumerate(order)
    ]
    places = views.places(server.nodes, own=own)
    dots = make_dots(server, places, server.counts, server.node_labels, server.edges)
    return Reading(type(server.readout), clusters, dots, len(server.nodes), labels)


def stability_of(server: Server) -> dict[int, float]:
    """Return how stable each cluster is, between 0 and 1; nothing where the server does not tell."""
    found = getattr(server.readout, "stability", None)
    if found is None:
        return {}
    pairs = found.items() if isinstance(found, Mapping) else zip(np.unique(server.node_labels), found, strict=True)
    return {int(label): float(value) for label, value in pairs if value is not None and np.isfinite(value)}


def _site_shares(known: Material, inside: NDArray[np.bool_]) -> dict[SiteName, float]:
    mass = np.bincount(known.site[inside], weights=known.counts[inside], minlength=len(known.sites))
    order = np.argsort(-mass, kind="stable")
    return {known.sites[s]: float(mass[s] / mass.sum()) for s in order if mass[s] > 0}
