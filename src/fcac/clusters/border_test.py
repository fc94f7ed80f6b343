"""Is there a border between two parts of a cluster? A test that says how far one is from being chance.

A search for communities cuts every large cluster to tiles, so most borders between tiles mean nothing. Three things
set a real one apart, and each is the logarithm of a ratio that is 1 on average where a smooth cluster is cut:

- a *gap*: nodes at the border have less of their weight on the other side than a plane through a smooth region leaves;
- a *dip*: nodes lie less densely in the middle of edges that cross the border than in the middle of edges inside the
  less dense of the two parts. Sparse points around a cluster have no density peak of their own: their border is denser
  than they are, so the dip is negative and speaks against a border;
- a *bottleneck*: the border carries less weight than the weakest cuts through the middle of the two parts.

The score, their sum, is compared with its own error, which falls with the square root of the number of nodes that
carry the border and with the number of records behind a node.

A small part at the edge of a large one needs care, for two reasons. Its border is short because the part is small, not
because there is a bottleneck: surfaces grow with the (d - 1) / d-th power of what they enclose, so the cut through the
large part is brought to the scale of the small one. And there are more places where a small part may be found than a
large one, as many more as it is smaller, so more is asked of its border.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcac._kernels import kernel
from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import BALANCE
from fcac.clusters.leiden import Search
from fcac.clusters.midpoints import NODES_IN_BALL, power_of

# Share of their weight that nodes at a plane through a smooth region have on the other side, each counted by that
# weight: a third on a line, about this in more dimensions.
_SMOOTH_SHARE = 0.3
# What the bottleneck counts: it and the gap both come from the weights across the border and partly say the same.
_BOTTLENECK = 0.7
# How many errors the score must exceed zero by, per unit of the logarithm of the number of nodes in both parts: the
# more nodes, the more places there are where a border may seem to run, and a search for communities finds the thinnest
# of them. 4.2 errors for two parts of a hundred nodes each, 6.6 for four thousand nodes. Chosen on single clusters and
# toy data of 100 to 100,000 rows: a constant that is right at one size is wrong at others.
_ERRORS_PER_LOG = 0.8
# Cuts through the middle leave at least a quarter on either side (BALANCE). So a part is small if its border leaves
# less; beyond that the logarithm of how much larger the other part is counts.
_LOG_BALANCED = math.log((1 - BALANCE) / BALANCE)
# Error of the score if one node carries the border and stands for one record, squared, and what is left of it if nodes
# stand for very many records: then records are known exactly, but not where the nodes are. Measured on single clusters
# in 1 to 100 dimensions.
_ERROR_OF_RECORDS, ERROR_OF_PLACES = 1.0, 0.1


@dataclass(frozen=True)
class Noise:
    """What chance does to the score of a border.

    Attributes
    ----------
    error : float
        Standard error of a score, times the square root of the number of nodes that carry the border.
    surface : float
        Power of a part's size that its surface grows with: (d - 1) / d in d dimensions.
    strictness : float
        Factor on the number of errors that a score must exceed zero by.
    """

    error: float
    surface: float
    strictness: float = 1.0

    @classmethod
    def of(
        cls,
        records_per_node: float,
        dimension: float,
        n_neighbours: int,
        again: bool = False,
        strictness: float = 1.0,
    ) -> Noise:
        """Return the noise of borders between nodes.

        Radii vary the less the more dimensions there are, but no more than the third power of a radius is taken for a
        volume: beyond three dimensions the error of a density falls. Where a part of many dimensions is looked at
        again this is not relied on: what its neighbour lists show of it are hubs more than densities.

        Parameters
        ----------
        records_per_node : float
        dimension : float
        n_neighbours : int
        again : bool, default=False
            Whether the nodes are a part that was told from others before.
        strictness : float, default=1

        >>> Noise.of(1.0, 2.0, 30).error > Noise.of(20.0, 2.0, 30).error > Noise.of(20.0, 9.0, 30).error
        True
        """
        share = 1.0 if again else power_of(dimension) / max(dimension, 1.0)
        in_ball = max(min(NODES_IN_BALL, n_neighbours - 1), 1)
        variance = (_ERROR_OF_RECORDS / records_per_node + ERROR_OF_PLACES) * NODES_IN_BALL / in_ball
        return cls(share * math.sqrt(variance), 1 - 1 / max(dimension, 1.0), strictness)


@kernel
def _sums(indptr: Any, indices: Any, weights: Any, density: Any, tile: Any, n_tiles: int) -> Any:
    """Weight between each two tiles, and that weight times the density at each edge."""
    weight, dense = np.zeros((n_tiles, n_tiles)), np.zeros((n_tiles, n_tiles))
    for v in range(tile.shape[0]):
        for e in range(indptr[v], indptr[v + 1]):
            weight[tile[v], tile[indices[e]]] += weights[e]
            dense[tile[v], tile[indices[e]]] += weights[e] * density[e]
    return weight, dense


@kernel
def _carried(indptr: Any, indices: Any, weights: Any, tile: Any, part_of: Any, n_parts: int) -> Any:
    """Sums over nodes at borders, for every pair of parts: of x * x / (x + own), and of x * x.

    x is what a node has on the other side, own what it has in its own part.
    """
    shares, squares = np.zeros((n_parts, n_parts)), np.zeros((n_parts, n_parts))
    towards = np.zeros(n_parts)
    for i in range(tile.shape[0]):
        own = part_of[tile[i]]
        for e in range(indptr[i], indptr[i + 1]):
            towards[part_of[indices[e]]] += weights[e]
        inner = towards[own]
        towards[own] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            other = part_of[indices[e]]
            x = towards[other]
            if x > 0.0:
                shares[own, other] += x * x / (x + inner)
                squares[own, other] += x * x
            towards[other] = 0.0
    return shares, squares


class Borders:
    """The borders between parts that are made of tiles, while parts are joined.

    Parameters
    ----------
    graph : scipy.sparse.csr_matrix of shape (n, n), symmetric
    density : ndarray
        Log density at the middle of each edge, in the order of ``graph.data``.
    search : Search
        Of the graph.
    tile : ndarray of shape (n,)
        Tile of each node.
    cuts : ndarray
        Weight of the weakest cut through the middle of each tile.
    noise : Noise
    """

    def __init__(
        self,
        graph: sparse.csr_matrix,
        density: NDArray[Any],
        search: Search,
        tile: Integers,
        cuts: Floats,
        noise: Noise,
    ) -> None:
        n, n_tiles = graph.shape[0], int(tile.max()) + 1
        self._noise = noise
        self._weight, self._dense = _sums(graph.indptr, graph.indices, graph.data, density, tile, n_tiles)
        member = sparse.csr_matrix((np.ones(n), tile, np.arange(n + 1)), shape=(n, n_tiles))
        # nodes inside a tile carry no border
        carriers = search.at_borders(tile)
        self._towards = (graph[carriers] @ member).tocsr()
        self._tile = tile[carriers]
        self._cuts = cuts.astype(np.float64)
        self._sizes = np.bincount(tile, minlength=n_tiles).astype(np.float64)
        self.part_of: Integers = np.arange(n_tiles)

    def join(self, into: int, gone: int, cut: float) -> None:
        """Make two parts one, through whose middle the weakest cut has the given weight."""
        self.part_of[self.part_of == gone] = into
        for sums in (self._weight, self._dense):
            sums[into] += sums[gone]
            sums[:, into] += sums[:, gone]
            sums[gone] = sums[:, gone] = 0.0
        self._cuts[into], self._cuts[gone] = cut, 0.0
        self._sizes[into] += self._sizes[gone]
        self._sizes[gone] = 0.0

    def margins(self) -> Floats:
        """Return for each two parts by how much the score of their border exceeds what chance explains.

        Positive if there is a border; infinite where two parts do not touch, and below the diagonal.
        """
        towards, weight = self._towards, self._weight
        n_parts = len(weight)
        shares, squares = _carried(towards.indptr, towards.indices, towards.data, self._tile, self.part_of, n_parts)
        touch = np.triu((weight > 0) & (squares > 0) & (squares.T > 0), 1)
        a, b = np.nonzero(touch)
        across = weight[a, b]
        gap = math.log(_SMOOTH_SHARE) - 0.5 * np.log(shares[a, b] / across * (shares[b, a] / weight[b, a]))
        inside = np.diag(self._dense) / np.maximum(np.diag(weight), 1e-300)
        dip = np.minimum(inside[a], inside[b]) - self._dense[a, b] / across
        carriers = np.stack([across**2 / squares[a, b], weight[b, a] ** 2 / squares[b, a]])
        larger, smaller = np.maximum(self._sizes[a], self._sizes[b]), np.minimum(self._sizes[a], self._sizes[b])
        lopsided = np.maximum(np.log(larger / smaller) - _LOG_BALANCED, 0.0)
        # one of the two cuts is through the larger part: half of the logarithm of their product
        expected = 0.5 * np.log(np.maximum(self._cuts[a] * self._cuts[b], 1e-300))
        bottleneck = expected - 0.5 * self._noise.surface * lopsided - np.log(across)
        # the mean of both sides' variances
        error = self._noise.error * np.sqrt((1 / carriers).mean(axis=0))
        errors = self._noise.strictness * (_ERRORS_PER_LOG * np.log(larger + smaller) + lopsided)
        margins = np.full((n_parts, n_parts), np.inf)
        margins[a, b] = gap + dip + _BOTTLENECK * bottleneck - errors * error
        return margins
