"""The two views of a map: the layout of the neighbourhood graph, and the columns or principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats
from fcac.federation import Server
from fcac.report.layout import GraphLayout, graph_layout

# If the standard deviations of features differ by more than this, the widest feature would dominate the picture.
_MAX_RATIO_OF_SPREADS = 10.0


@dataclass(frozen=True)
class Projection:
    """Maps nodes to two coordinates.

    `shares` is the fraction of the nodes' variance that each direction shows; features were divided by their standard
    deviation first if they are `standardised`.
    """

    directions: Floats
    centre: Floats
    scale: Floats
    x_label: str
    y_label: str
    is_reduced: bool = False
    standardised: bool = False
    shares: tuple[float, float] = (1.0, 0.0)

    def project(self, nodes: Floats) -> Floats:
        """Return coordinates of shape (n, 2)."""
        return ((nodes - self.centre) / self.scale) @ self.directions


def fit_projection(nodes: Floats, counts: Floats, names: list[str]) -> Projection:
    """Choose the projection of a picture: up to two features are shown directly, more by principal components."""
    d = nodes.shape[1]
    if d <= 2:
        directions = np.eye(d, 2)
        return Projection(directions, np.zeros(d), np.ones(d), names[0], names[1] if d == 2 else "")
    weights = counts / counts.sum()
    centre = weights @ nodes
    spread = np.sqrt(weights @ (nodes - centre) ** 2)
    varying = spread > 0
    standardised = bool(varying.any() and spread.max() > _MAX_RATIO_OF_SPREADS * np.median(spread[varying]))
    scale = np.where(varying, spread, 1.0) if standardised else np.ones(d)
    centred = (nodes - centre) / scale * np.sqrt(weights)[:, None]
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = np.vstack([directions, np.zeros((2, d))])[:2]
    # the sign of a principal direction is arbitrary; fix it so that the same data give the same picture
    largest = np.abs(directions).argmax(axis=1)
    signs = np.where(directions[np.arange(2), largest] < 0, -1.0, 1.0)
    total = float((sizes**2).sum()) or 1.0
    shares = tuple(float(s) for s in (np.append(sizes, [0.0, 0.0])[:2] ** 2 / total))
    return Projection(
        (directions * signs[:, None]).T,
        centre,
        scale,
        f"First principal component ({shares[0]:.0%} of the variance)",
        f"Second principal component ({shares[1]:.0%})",
        is_reduced=True,
        standardised=standardised,
        shares=(shares[0], shares[1]),
    )


@dataclass(frozen=True)
class Views:
    """Where nodes lie in the two views."""

    layout: GraphLayout
    projection: Projection

    @property
    def map_first(self) -> bool:
        """Whether the map is shown first; two columns are best shown as they are."""
        return self.projection.is_reduced

    def places(self, nodes: Floats, *, own: bool = False) -> Floats:
        """Return places in the first view; `own` says that these are the nodes that were laid out."""
        if not self.map_first:
            return self.projection.project(nodes)
        return self.layout.node_places if own else self.layout.place(nodes)

    def other_places(self, nodes: Floats) -> Floats:
        """Return places in the second view of the nodes that were laid out."""
        return self.projection.project(nodes) if self.map_first else self.layout.node_places


def make_views(server: Server, names: list[str], d: int) -> Views:
    """Lay out the nodes of a server."""
    nodes, counts = server.nodes, server.counts.astype(np.float64)
    if not len(nodes):
        empty = np.zeros((0, 2))
        projection = Projection(np.eye(d, 2), np.zeros(d), np.ones(d), names[0], names[1] if d > 1 else "")
        return Views(GraphLayout(np.ones(d), np.zeros((0, d)), empty, np.zeros(0, np.int64)), projection)
    # distances as the read-out measures them
    communities = getattr(server.readout, "model", None)
    metric = np.ones(d)
    if communities is not None:
        metric = communities.feature_scales if communities.feature_map is None else communities.feature_map
    return Views(
        graph_layout(nodes, counts, server.node_labels, np.asarray(metric)), fit_projection(nodes, counts, names)
    )
