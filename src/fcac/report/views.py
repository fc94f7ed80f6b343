"""The two views of a picture: the map of the neighbourhood graph, and the columns or principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats, Integers
from fcac.federation import Server
from fcac.report.dots import MIN_ROWS, Dots, condense, plain_dots
from fcac.report.layout import GraphLayout, graph_layout
from fcac.report.projection import Projection, fit_projection

#: Most dots of the large picture, and of a small one.
MAX_DOTS, MAX_SMALL_DOTS = 1500, 250


@dataclass(frozen=True)
class Views:
    """Where nodes lie in the two views.

    Attributes
    ----------
    layout : GraphLayout
    projection : Projection
    """

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
