"""The graph of shared neighbours, made in one call."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from fcac._typing import Floats
from fcac.clusters.snn_graph import SNNEdges, dimension_of


def shared_neighbour_graph(positions: Any, squared: Floats, counts: Floats) -> sparse.csr_matrix:
    """Return the graph of nodes from their neighbours, nearest first, and the squared distances to them."""
    k = positions.shape[1]
    middle, farthest = (squared[:, k // 2 - 1], squared[:, k - 1]) if k > 1 else (counts, counts)
    return SNNEdges.of(positions).weighted_graph(middle, farthest, counts, dimension_of(middle, farthest, k))
