"""The look along one line: heaps that overlap are told apart, and nothing else is divided."""

from __future__ import annotations

import numpy as np
import pytest
from fcac.clusters.hierarchy import hierarchy_of
from fcac.clusters.valley_test import node_log_density, split_heaps
from sklearn.metrics import adjusted_rand_score

from fcac.clusters.snn_graph import dimension_of, neighbours_for
from fcac.search.exact import nearest


def split(rows):
    n, k = len(rows), neighbours_for(len(rows))
    near, squared = nearest(rows, rows, k, own=np.arange(n))
    middle = squared[:, max(k // 2 - 1, 0)]
    dimension = dimension_of(middle, squared[:, -1], k)
    dense = node_log_density(np.ones(n), near, middle, dimension)
    return split_heaps(rows, np.ones(n), dense, np.zeros(n, dtype=np.int64), dimension)


@pytest.mark.parametrize("n_features", [2, 5, 10])
def test_two_heaps_three_and_a_half_deviations_apart_are_told_apart(n_features):
    generator = np.random.default_rng(n_features)
    y = np.repeat([0, 1], 1500)
    rows = generator.normal(size=(3000, n_features))
    rows[:, 0] += 3.5 * y
    found = split(rows)
    assert found.max() == 1
    # the best line there is puts 96 % of the rows on their side
    assert adjusted_rand_score(y, found) > 0.8


def test_many_heaps_that_overlap_are_divided_again_and_again():
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 600)
    rows = generator.normal(size=(3600, 2)) + 3.5 * np.array([[i % 3, i // 3] for i in range(6)])[y]
    assert adjusted_rand_score(y, split(rows)) > 0.75


def heap(kind, n, d, generator):
    rows = generator.normal(size=(n, d))
    if kind == "cube":
        return generator.uniform(size=(n, d))
    if kind == "long tails":
        return generator.standard_t(3, size=(n, d))
    return np.exp(rows) if kind == "lognormal" else rows


@pytest.mark.parametrize("kind", ["normal", "cube", "long tails", "lognormal"])
@pytest.mark.parametrize(("n", "d"), [(300, 2), (300, 100), (2000, 2), (2000, 20)])
def test_one_heap_stays_whole(kind, n, d):
    for seed in range(3):
        assert split(heap(kind, n, d, np.random.default_rng([n, d, seed]))).max() == 0


@pytest.mark.parametrize("kind", ["ring", "crescent", "parabola"])
@pytest.mark.parametrize("n", [300, 2000])
def test_a_curve_has_two_modes_from_the_side_and_stays_whole(kind, n):
    for seed in range(3):
        generator = np.random.default_rng([n, seed])
        t = generator.uniform(size=n)
        angle = (2 if kind == "ring" else 1) * np.pi * t
        curve = np.column_stack([np.cos(angle), np.sin(angle)])
        if kind == "parabola":
            curve = np.column_stack([3 * t - 1.5, 0.5 * (3 * t - 1.5) ** 2])
        assert split(curve + generator.normal(size=(n, 2)) * 0.05).max() == 0


def test_nodes_of_no_width_and_few_nodes_are_left_alone():
    line = np.zeros((100, 3))
    line[:, 0] = np.arange(100)
    assert split(line).max() == 0
    assert split(line[:20]).max() == 0
    assert split(np.zeros((100, 3))).max() == 0


def test_the_tree_has_the_heaps_as_its_clusters_and_can_still_join_them():
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 300)
    rows = generator.normal(size=(1800, 2)) + 3.5 * np.array([[i % 3, i // 3] for i in range(6)])[y]
    tree = hierarchy_of(rows, np.ones(1800))
    assert tree.n_clusters == 6
    assert adjusted_rand_score(y, tree.labels()) > 0.7
    assert tree.labels(1).max() == 0
    assert len(np.unique(tree.labels(9))) == 9
