"""Where nodes lie in the picture: a layout of their neighbourhood graph, the same for the same nodes.

The graph ties each node to its nearest neighbours. A tie weighs what UMAP's does (McInnes, Healy and Melville, 2018),
times the overlap of the two neighbour lists (Jarvis and Patrick, 1973), by which clusters are found as well. Nodes
start at the second and third eigenvector of the graph's Laplacian and are then moved: tied nodes attract each other,
others repel, both through the kernel 1 / (1 + a x^2). Which others is decided by a fixed sequence of pseudo-random
numbers. Clusters are not looked at: those that are apart in the picture are apart in the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from fcac._kernels import kernel
from fcac._typing import Floats, Integers
from fcac.federation import Server
from fcac.report.dots import bisected

#: At most so many points are laid out; of more nodes, neighbours are laid out as one.
MAX_POINTS = 1500
_NEIGHBOURS = 15
_EPOCHS = 200
# Ends of one tie repel this many others each time they attract each other.
_REPELLED = 5.0
# Factor a of the kernel: the smaller, the more room tied nodes keep. It is made smaller until places fill this share of
# the picture: 1 would be places spread evenly, near 0 are islands so small that nothing can be seen in them.
_KERNEL_FACTOR, _SMALLEST_FACTOR, _FILLED = 0.1, 0.02, 0.3
_EXTENT = 10.0
# Nodes that were not laid out are put between so many of those that were.
_PLACED_BETWEEN = 3
_MOST_TRIES = 2
_TREE_UP_TO = 16


@dataclass(frozen=True)
class GraphLayout:
    """Points of which the place in the picture is known, and the point of every node that was laid out.

    `metric` is a factor of every feature in the distance, or a matrix to the coordinates in which distances are
    measured and in which points are.
    """

    metric: Floats
    points: Floats
    places: Floats
    point_of: Integers

    @property
    def node_places(self) -> Floats:
        """Place of every node that was laid out."""
        return self.places[self.point_of]

    def place(self, nodes: Floats) -> Floats:
        """Return places for other nodes: between the points most like them, nearer to those more like them."""
        if not len(nodes) or not len(self.points):
            return np.zeros((len(nodes), 2))
        k = min(_PLACED_BETWEEN, len(self.points))
        distance, near = _nearest(_measured(nodes, self.metric), self.points, k)
        least = 1e-6 * float(distance.max(initial=0.0)) or 1.0
        weight = 1 / np.maximum(distance, least) ** 2
        weight /= weight.sum(axis=1, keepdims=True)
        between: Floats = np.einsum("nk,nkc->nc", weight, self.places[near])
        return between


def graph_layout(nodes: Floats, counts: Floats, labels: Integers, metric: Floats) -> GraphLayout:
    """Lay out nodes by their neighbourhood graph.

    Labels only see to it that nodes of different clusters are never laid out as one. For the metric see `GraphLayout`.

    >>> rng = np.random.default_rng(0)
    >>> nodes = np.concatenate([rng.normal(0, 1, (60, 5)), rng.normal(9, 1, (60, 5))])
    >>> found = graph_layout(nodes, np.ones(120), np.repeat([0, 1], 60), np.ones(5))
    >>> left, right = found.places[:60], found.places[60:]
    >>> bool(np.linalg.norm(left.mean(0) - right.mean(0)) > 2 * left.std())
    True
    """
    points, point_of = _measured(nodes, metric), np.arange(len(nodes))
    if len(points) > MAX_POINTS:
        point_of = bisected(points, counts, labels, MAX_POINTS)
        mass = np.bincount(point_of, weights=counts)
        member = sparse.csr_matrix((counts / mass[point_of], (point_of, np.arange(len(points)))))
        points = member @ points
    points, same = np.unique(points, axis=0, return_inverse=True)
    return GraphLayout(metric, points, _laid_out(points), same.ravel()[point_of])


def _measured(nodes: Floats, metric: Floats) -> Floats:
    measured: Floats = nodes * metric if metric.ndim == 1 else nodes @ metric
    return measured


def _laid_out(points: Floats) -> Floats:
    n = len(points)
    if n < 4:
        # a triangle, a line or a point
        angle = 2 * np.pi * np.arange(n) / max(n, 1)
        return _EXTENT * np.column_stack([np.cos(angle), np.sin(angle)])
    graph = _neighbourhood_graph(points)
    start = _spectral_start(graph, points)
    # equal starting places would stay together for ever
    wobble = np.column_stack([np.cos(1.7 * np.arange(n)), np.sin(2.3 * np.arange(n))])
    places = np.ascontiguousarray(start + 1e-3 * wobble)
    ties = sparse.coo_matrix(graph)
    strong = ties.data > ties.data.max() / _EPOCHS
    order = np.lexsort((ties.col[strong], ties.row[strong]))
    heads, tails, weights = (part[strong][order] for part in (ties.row, ties.col, ties.data))
    every, factor = weights.max() / weights, _KERNEL_FACTOR
    for _ in range(_MOST_TRIES):
        found = places.copy()
        move(found, heads.astype(np.int64), tails.astype(np.int64), every, _EPOCHS, factor, _REPELLED)
        filled = _filled(found)
        if filled >= 0.7 * _FILLED or factor == _SMALLEST_FACTOR:
            break
        factor = max(factor * (filled / _FILLED) ** 2, _SMALLEST_FACTOR)
    return _turned(found)


def _filled(places: Floats) -> float:
    """Distance to the nearest neighbour, relative to that of places spread evenly over the picture."""
    nearest = float(np.median(_nearest(places, places, 2)[0][:, 1]))
    low, high = np.quantile(places, [0.01, 0.99], axis=0)
    return nearest * float(np.sqrt(len(places) / max(float(np.prod(high - low)), 1e-300)))


def _neighbourhood_graph(points: Floats) -> sparse.csr_matrix:
    n = len(points)
    k = min(_NEIGHBOURS, n - 1)
    # points are distinct, so that the nearest to each is itself
    distance, near = _nearest(points, points, k + 1)
    distance, near = distance[:, 1:], near[:, 1:]
    rows = np.repeat(np.arange(n), k)
    listed = sparse.csr_matrix((np.ones(n * k), (rows, near.ravel())), shape=(n, n)) + sparse.identity(n)
    shared = sparse.csr_matrix(listed @ listed.T)
    shared.data = shared.data / (2 * (k + 1) - shared.data)
    one_way = sparse.csr_matrix((_membership(distance).ravel(), (rows, near.ravel())), shape=(n, n))
    back = one_way.T.tocsr()
    either = one_way + back - one_way.multiply(back)
    graph = sparse.csr_matrix(either.multiply(shared))
    graph.eliminate_zeros()
    return graph


def _nearest(queries: Floats, points: Floats, k: int) -> tuple[Floats, Integers]:
    """Distances and positions of the k nearest points; in many dimensions a tree is slower than all distances."""
    if points.shape[1] <= _TREE_UP_TO:
        distance, near = cKDTree(points).query(queries, k)
        return distance.reshape(len(queries), k), near.reshape(len(queries), k)
    parts = []
    for start in range(0, len(queries), 1000):
        apart = cdist(queries[start : start + 1000], points)
        near = np.argsort(apart, axis=1, kind="stable")[:, :k]
        parts.append((np.take_along_axis(apart, near, axis=1), near))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _membership(distance: Floats) -> Floats:
    """UMAP's weights: one for the nearest, falling so that those of all neighbours add up to log2(k)."""
    k = distance.shape[1]
    beyond = np.maximum(distance - distance[:, :1], 0.0)
    low, high = np.zeros(len(beyond)), np.full(len(beyond), np.inf)
    width = np.maximum(distance.mean(axis=1), 1e-300)
    least = 1e-3 * width
    for _ in range(40):
        too_wide = np.exp(-beyond / width[:, None]).sum(axis=1) > np.log2(max(k, 2))
        high, low = np.where(too_wide, width, high), np.where(too_wide, low, width)
        width = np.where(np.isfinite(high), (low + high) / 2, 2 * width)
    weights: Floats = np.exp(-beyond / np.maximum(width, least)[:, None])
    return weights


def _spectral_start(graph: sparse.csr_matrix, points: Floats) -> Floats:
    """Second and third eigenvector of the Laplacian; parts without a tie are first linked where they are nearest."""
    n = len(points)
    linked = graph + _links_between_parts(graph, points)
    degree = np.maximum(np.asarray(linked.sum(axis=1)).ravel(), 1e-12)
    root = sparse.diags(1 / np.sqrt(degree))
    try:
        values, vectors = eigsh(root @ linked @ root, 3, which="LA", v0=np.cos(np.arange(n)), tol=1e-3, maxiter=3000)
        found = vectors[:, np.argsort(-values)][:, 1:] / np.sqrt(degree)[:, None]
    except (ArpackError, TypeError):
        centred = points - points.mean(axis=0)
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        found = (left * sizes)[:, :2]
    found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    # the sign of an eigenvector is arbitrary
    signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(2)])
    found = found * np.where(signs == 0, 1.0, signs)
    largest = np.abs(found).max(axis=0)
    return _EXTENT * found / np.where(largest > 0, largest, 1.0)


def _links_between_parts(graph: sparse.csr_matrix, points: Floats) -> sparse.csr_matrix:
    n = len(points)
    n_parts, part = connected_components(graph, directed=False)
    if n_parts == 1:
        return sparse.csr_matrix((n, n))
    size = np.bincount(part)
    centres = np.column_stack([np.bincount(part, weights=column) / size for column in points.T])
    tree = minimum_spanning_tree(sparse.csr_matrix(cdist(centres, centres) + 1e-12)).tocoo()
    weight = float(graph.data.mean()) if graph.nnz else 1.0
    ends = []
    for a, b in zip(tree.row, tree.col, strict=True):
        first, second = np.flatnonzero(part == a), np.flatnonzero(part == b)
        ends.append((_nearest_to(points, first, centres[b]), _nearest_to(points, second, centres[a])))
    heads, tails = np.array(ends).T
    links = sparse.csr_matrix((np.full(len(heads), weight), (heads, tails)), shape=(n, n))
    return links + links.T


def _nearest_to(points: Floats, some: Integers, target: Floats) -> int:
    return int(some[np.argmin(((points[some] - target) ** 2).sum(axis=1))])


def _turned(places: Floats) -> Floats:
    """Centre the places and turn them so that they are wider than high, as pictures are."""
    centred = places - places.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    turned: Floats = centred @ (axes * np.where(signs == 0, 1.0, signs)[:, None]).T
    return turned


@kernel(error_model="numpy")
def move(places: Any, heads: Any, tails: Any, every: Any, n_epochs: int, width: float, repelled: float) -> None:
    """Move places in turn: along each tie towards each other, and away from a few others."""
    n = places.shape[0]
    due = every.copy()
    due_away = every / repelled
    state = np.uint64(88172645463325252)
    for epoch in range(n_epochs):
        step = 1.0 - epoch / n_epochs
        for tie in range(heads.shape[0]):
            if due[tie] > epoch:
                continue
            i, j = heads[tie], tails[tie]
            dx, dy = places[i, 0] - places[j, 0], places[i, 1] - places[j, 1]
            squared = dx * dx + dy * dy
            pull = -2.0 * width / (width * squared + 1.0)
            gx = step * min(4.0, max(-4.0, pull * dx))
            gy = step * min(4.0, max(-4.0, pull * dy))
            places[i, 0] += gx
            places[i, 1] += gy
            places[j, 0] -= gx
            places[j, 1] -= gy
            due[tie] += every[tie]
            often = int((epoch - due_away[tie]) / every[tie] * repelled)
            for _ in range(often):
                # xorshift (Marsaglia, 2003)
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                other = np.int64(state % np.uint64(n))
                if other == i:
                    continue
                dx, dy = places[i, 0] - places[other, 0], places[i, 1] - places[other, 1]
                squared = dx * dx + dy * dy
                push = 2.0 / ((0.001 + squared) * (width * squared + 1.0))
                places[i, 0] += step * min(4.0, max(-4.0, push * dx))
                places[i, 1] += step * min(4.0, max(-4.0, push * dy))
            due_away[tie] += often * every[tie] / repelled


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
