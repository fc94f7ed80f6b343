"""From a graph to clusters: every part is looked at again, alone, until no border is left in it.

Modularity has a resolution limit (Fortunato and Barthélemy 2007): among many clusters it finds some together, and of
a large one it finds tiles. So the tiles of the whole are joined where :mod:`fcac.clusters.border_test` finds no
border, and what is left is taken apart in the same way, each part as if there were nothing else. The first cut sees
the long borders whole, later ones the small clusters. Joining tiles by the borders between them is close to CHAMELEON
(Karypis, Han and Kumar 1999), which compares the weight across a border with that of bisections inside; what differs is
that density between the parts is looked at as well, and that a border is tested against its sampling error, so that
nobody sets a threshold or a number of clusters.

References
----------
S. Fortunato, M. Barthélemy, "Resolution limit in community detection", PNAS 104 (2007).
G. Karypis, E.-H. Han, V. Kumar, "Chameleon: hierarchical clustering using dynamic modeling", Computer 32 (1999).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcac._typing import Floats, Integers
from fcac.clusters.border_test import Borders, Noise
from fcac.clusters.cluster_tree import (
    RESOLUTION,
    Tree,
    atoms_of,
    block_weights_of,
    few_nodes_tree,
    finished,
    spectral_bisection,
    steadiness,
)
from fcac.clusters.facing import facing_parts
from fcac.clusters.leiden import Search
from fcac.clusters.midpoints import midpoint_log_density
from fcac.clusters.snn_graph import SNNEdges, dimension_of, neighbours_for
from fcac.clusters.valley_test import node_log_density, split_heaps
from fcac.search.exact import NeighborLists, Searcher, build_lists

# A part of fewer nodes is not taken apart: two tiles of a dozen nodes each are the least that has inner cuts.
_LEAST = 24

Join = tuple[int, int, float]


def hierarchy_of(
    points: Floats,
    mass: Floats,
    lists: NeighborLists | None = None,
    strictness: float = 1.0,
) -> Tree:
    """Return the tree of clusters of points: their neighbours, the graph of these, and its hierarchy.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Distinct, in scaled features.
    mass : ndarray of shape (n,)
        Records at each point.
    lists : NeighborLists, optional
        Neighbours of the points, if they are known already.
    strictness : float, default=1
        Factor on what is asked of a border.
    """
    near, squared = build_lists(Searcher(points), neighbours_for(len(points))) if lists is None else lists
    edges = SNNEdges.of(near)
    middle, farthest = squared[:, 1], squared[:, 2]
    dimension = dimension_of(middle, farthest, near.shape[1])
    graph = edges.weighted_graph(middle, farthest, mass, dimension)
    density = midpoint_log_density(points, mass, near, edges.starts, edges.ends, dimension)
    parts = facing_parts(points, mass, near, dimension)
    tree = grow_hierarchy(graph, density, near.shape[1], float(mass.mean()), dimension, strictness, parts)
    labels = tree.labels()
    dense = node_log_density(mass, near, middle, dimension)
    heaps = split_heaps(points, mass, dense, labels, dimension, strictness)
    if heaps.max() == labels.max():
        return tree
    # clusters that overlap have been separated; each is now searched for borders on its own
    return grow_hierarchy(graph, density, near.shape[1], float(mass.mean()), dimension, strictness, heaps)


def grow_hierarchy(
    graph: sparse.csr_matrix,
    density: NDArray[np.float32],
    n_neighbours: int,
    records_per_node: float = 1.0,
    dimension: float = math.inf,
    strictness: float = 1.0,
    parts: Integers | None = None,
) -> Tree:
    """Return the tree of clusters of a graph; its ``labels()`` are the clusters.

    Parameters
    ----------
    graph : scipy.sparse.csr_matrix of shape (n, n), symmetric
    density : ndarray
        Log density at the middle of each edge, in the order of ``graph.data``.
    n_neighbours : int
        Neighbours each node was tied to.
    records_per_node : float, default=1
        How many records a node stands for, on average.
    dimension : float, default=inf
        Of the surface the nodes lie on.
    strictness : float, default=1
        Factor on what is asked of a border.
    parts : ndarray of shape (n,), optional
        Part of each node, if some are known to be apart already.
    """
    search = Search(graph)
    known = parts is not None and bool(parts.any())
    few = None if known else few_nodes_tree(graph, search, records_per_node)
    if few is not None:
        return few
    first, later = (Noise.of(records_per_node, dimension, n_neighbours, again, strictness) for again in (False, True))
    n = graph.shape[0]
    tile_of = np.zeros(n, dtype=np.int64)
    n_tiles = 0
    joins: list[Join] = []
    waiting = [(np.arange(n), graph, density, search)]
    if parts is not None and known:
        apart = [np.flatnonzero(parts == part) for part in np.unique(parts)[::-1]]
        waiting = [(members, *_within(graph, density, members)) for members in apart]
    while waiting:
        members, part, dense, look = waiting.pop()
        tiles, made, left = _apart(part, dense, look, first if len(members) == n else later, dimension)
        pieces = np.unique(left)
        if len(pieces) == 1:
            # one cluster: its tiles are what it falls into if more clusters are wanted
            tile_of[members] = n_tiles + tiles
            joins += [(n_tiles + into, n_tiles + gone, margin) for into, gone, margin in made]
            n_tiles += len(left)
            continue
        piece_of = left[tiles]
        # the last one waiting is looked at first: so pieces keep their order
        for piece in pieces[::-1]:
            chosen = np.flatnonzero(piece_of == piece)
            waiting.append((members[chosen], *_within(part, dense, chosen)))
    tree = _tree(graph, search, tile_of, joins, steadiness(n, dimension))
    tree.stability = _stability(graph, density, search, tree, tile_of, joins, later)
    return tree


def _within(
    graph: sparse.csr_matrix, density: NDArray[np.float32], chosen: Integers
) -> tuple[sparse.csr_matrix, NDArray[np.float32], Search]:
    """The graph between some nodes, and the density at its edges."""
    # edges are numbered, not weighed, while nodes are chosen: weights and densities keep their bits
    numbers = sparse.csr_matrix((np.arange(1, len(graph.data) + 1), graph.indices, graph.indptr), shape=graph.shape)
    part = numbers[chosen][:, chosen].tocsr()
    part.sort_indices()
    edges = part.data - 1
    inner = sparse.csr_matrix((graph.data[edges], part.indices, part.indptr), shape=part.shape)
    return inner, density[edges], Search(inner)


def _apart(
    graph: sparse.csr_matrix, density: NDArray[np.float32], search: Search, noise: Noise, dimension: float
) -> tuple[Integers, list[Join], Integers]:
    """Take a part apart: a tile for every node, the joins of tiles with their margins, and the piece of each tile."""
    n = graph.shape[0]
    resolution = RESOLUTION * steadiness(n, dimension)
    tiles = np.zeros(n, dtype=np.int64) if n < _LEAST else search.communities(resolution)
    n_tiles = int(tiles.max()) + 1
    made: list[Join] = []
    if n_tiles == 1:
        return tiles, made, np.zeros(1, dtype=np.int64)
    atom_of = atoms_of(graph, search, tiles, resolution)
    block_weights = block_weights_of(graph, search, atom_of)
    tile_of_atom = np.zeros(len(block_weights), dtype=np.int64)
    tile_of_atom[atom_of] = tiles
    groups = [np.flatnonzero(tile_of_atom == t) for t in range(n_tiles)]
    cuts = np.array([spectral_bisection(block_weights, atoms)[0] for atoms in groups])
    borders = Borders(graph, density, search, tiles, cuts, noise)
    for _ in range(n_tiles - 1):
        margins = borders.margins()
        into, gone = divmod(int(np.argmin(margins)), n_tiles)
        if not margins[into, gone] < 0:
            break
        made.append((into, gone, float(margins[into, gone])))
        groups[into] = np.concatenate([groups[into], groups[gone]])
        borders.join(into, gone, spectral_bisection(block_weights, groups[into])[0])
    return tiles, made, borders.part_of


def _tree(graph: sparse.csr_matrix, search: Search, tile_of: Integers, joins: list[Join], steady: float) -> Tree:
    """The clusters as joined tiles, and beyond them whatever is wanted: finer and coarser."""
    atom_of = atoms_of(graph, search, tile_of, RESOLUTION * steady)
    block_weights = block_weights_of(graph, search, atom_of)
    tile_of_atom = np.zeros(len(block_weights), dtype=np.int64)
    tile_of_atom[atom_of] = tile_of
    tree = Tree(atom_of, block_weights, [np.flatnonzero(tile_of_atom == t) for t in range(int(tile_of.max()) + 1)])
    # the surest joins first, but those of one cluster in the order they were made
    order = np.argsort(_in_order(joins), kind="stable")
    return finished(tree, [joins[j][:2] for j in order])


def _in_order(joins: list[Join]) -> list[float]:
    """Largest margin so far of the cluster each join belongs to."""
    root: dict[int, int] = {}
    worst: dict[int, float] = {}
    margins = []
    for into, gone, margin in joins:
        a, b = root.get(into, into), root.get(gone, gone)
        so_far = max(margin, worst.get(a, -math.inf), worst.get(b, -math.inf))
        root[gone] = root[b] = root[into] = a
        worst[a] = so_far
        margins.append(so_far)
    return margins


def _stability(
    graph: sparse.csr_matrix,
    density: NDArray[np.float32],
    search: Search,
    tree: Tree,
    tile_of: Integers,
    joins: list[Join],
    noise: Noise,
) -> Floats:
    """How firmly each cluster stands: by its weakest border, and by the join inside it that came nearest to a border.

    Margins are logarithms, so the smaller of the two is turned to 1 - exp(-margin): 0 if another decision was as near.
    """
    labels = tree.labels()
    n_clusters = int(labels.max()) + 1
    firm = np.full(n_clusters, np.inf)
    if joins:
        cluster_of_tile = np.zeros(int(tile_of.max()) + 1, dtype=np.int64)
        cluster_of_tile[tile_of] = labels
        np.minimum.at(firm, cluster_of_tile[[into for into, _, _ in joins]], [-margin for _, _, margin in joins])
    if n_clusters > 1:
        cluster_of_atom = np.zeros(len(tree.block_weights), dtype=np.int64)
        cluster_of_atom[tree.atom_of] = labels
        cuts = [
            spectral_bisection(tree.block_weights, np.flatnonzero(cluster_of_atom == c))[0] for c in range(n_clusters)
        ]
        margins = Borders(graph, density, search, labels, np.array(cuts), noise).margins()
        firm = np.minimum(firm, np.minimum(margins.min(axis=0), margins.min(axis=1)))
    stability: Floats = 1 - np.exp(-np.maximum(firm, 0.0))
    return stability
