"""The layout of the neighbourhood graph, and the dots and outlines drawn from it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from fcac.report.dots import bisected, condense
from fcac.report.layout import MAX_POINTS, fit_projection, graph_layout
from fcac.report.map_shapes import as_path, contours, hull, place_labels


def clusters(k: int, d: int, n: int, apart: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    return (apart * rng.normal(size=(k, d)))[labels] + rng.normal(size=(n, d)), labels


def purity(places: np.ndarray, labels: np.ndarray) -> float:
    """Share of points whose nearest neighbour in the picture is of their cluster."""
    return float((labels[cKDTree(places).query(places, 2)[1][:, 1]] == labels).mean())


@pytest.mark.slow
@pytest.mark.parametrize(("k", "d", "apart"), [(3, 40, 1.5), (12, 8, 3.0), (120, 15, 3.0)])
def test_clusters_are_apart_in_the_map(k, d, apart):
    nodes, labels = clusters(k, d, 1200, apart, k)
    counts = np.ones(len(nodes))
    found = graph_layout(nodes, counts, labels, np.ones(d))
    projected = fit_projection(nodes, counts, [str(j) for j in range(d)]).project(nodes)
    assert purity(found.node_places, labels) >= 0.95
    assert purity(found.node_places, labels) >= purity(projected, labels)


def test_the_same_nodes_have_the_same_places():
    nodes, labels = clusters(4, 6, 400, 3.0, 0)
    first, second = (graph_layout(nodes, np.ones(400), labels, np.ones(6)).node_places for _ in range(2))
    assert np.array_equal(first, second)


def test_labels_do_not_decide_where_nodes_lie():
    nodes, labels = clusters(4, 6, 400, 3.0, 0)
    told = graph_layout(nodes, np.ones(400), labels, np.ones(6)).node_places
    assert np.array_equal(told, graph_layout(nodes, np.ones(400), np.zeros(400, int), np.ones(6)).node_places)


@pytest.mark.slow
def test_many_nodes_are_laid_out_as_few_points_and_others_between_them():
    nodes, labels = clusters(5, 4, 3 * MAX_POINTS, 5.0, 1)
    found = graph_layout(nodes, np.ones(len(nodes)), labels, np.ones(4))
    assert len(found.points) <= MAX_POINTS
    assert found.node_places.shape == (len(nodes), 2)
    others = found.place(nodes[:50] + 1e-3)
    near = np.linalg.norm(others - found.node_places[:50], axis=1)
    assert np.median(near) < 0.05 * np.ptp(found.places, axis=0).max()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5])
def test_few_or_equal_nodes_have_places_too(n):
    different = graph_layout(np.arange(2.0 * n).reshape(n, 2), np.ones(n), np.zeros(n, int), np.ones(2))
    assert np.isfinite(different.node_places).all()
    assert len(np.unique(different.node_places, axis=0)) == n
    same = graph_layout(np.ones((n, 2)), np.ones(n), np.zeros(n, int), np.ones(2))
    assert np.isfinite(same.node_places).all()


def test_groups_are_small_heavy_enough_and_of_one_label():
    rng = np.random.default_rng(0)
    points, counts, labels = rng.normal(size=(900, 3)), rng.integers(1, 4, size=900), rng.integers(6, size=900)
    group = bisected(points, counts, labels, 40, min_rows=7)
    assert group.max() + 1 <= 40
    for g in range(group.max() + 1):
        assert len(np.unique(labels[group == g])) == 1
        assert counts[group == g].sum() >= 7


def test_means_of_dots_are_those_of_their_nodes():
    rng = np.random.default_rng(0)
    points, counts = rng.normal(size=(200, 2)), rng.integers(1, 9, size=200)
    dots = condense(points, counts, np.zeros(200, int), np.empty((0, 2), int), min_rows=20)
    np.testing.assert_allclose(dots.means(points, counts.astype(float)), dots.points)
    assert dots.counts.sum() == counts.sum()


def test_a_hull_surrounds_its_dots_and_nothing_far():
    ring = 60 * np.column_stack([np.cos(np.linspace(0, 6, 40)), np.sin(np.linspace(0, 6, 40))]) + 100
    around = hull(ring, 12.0)
    every = np.concatenate(around)
    distance = cKDTree(ring).query(every)[0]
    assert distance.max() < 15
    assert distance.min() > 8
    assert len(around) == 2, "a ring has an outer and an inner border"
    assert as_path(around).count("Z") == 2


def test_contours_lie_inside_each_other():
    points = np.random.default_rng(0).normal(100, 15, size=(300, 2))
    outer, inner = contours(points, np.ones(300), 10.0, (0.1, 0.6))

    def extent(polygons: list[np.ndarray]) -> float:
        return float(np.ptp(np.concatenate(polygons), axis=0).max())

    assert extent(inner) < extent(outer)


def test_labels_of_two_hundred_clusters_do_not_overlap():
    anchors = np.random.default_rng(0).uniform([200, 150], [700, 450], size=(200, 2))
    placed = place_labels([(k, str(k)) for k in range(200)], anchors, 960, 620)
    assert len(placed) == 200
    for i, a in enumerate(placed):
        assert a.width / 2 <= a.x <= 960 - a.width / 2
        for b in placed[:i]:
            assert abs(a.x - b.x) >= (a.width + b.width) / 2 or abs(a.y - b.y) >= (a.height + b.height) / 2
