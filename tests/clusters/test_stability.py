"""Stability from nodes alone: high for clusters that are there, low for cuts that might as well not be."""

from __future__ import annotations

import numpy as np
import pytest
from fcac.clusters.stability import DOUBTFUL, Stability, resampled_stability

from fcac.clusters import Communities


def blobs(n: int, distance: float, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    label = np.repeat(np.arange(k), n)
    return generator.normal(size=(k * n, 2)) + distance * label[:, None] * [1, 0], label


@pytest.mark.slow
def test_far_clusters_are_stable_and_each_has_a_value():
    points, label = blobs(150, 15.0)
    found = resampled_stability(points, np.ones(len(points)), label + 7)
    assert sorted(found.of_cluster) == [7, 8, 9]
    assert min(found.of_cluster.values()) > 0.9
    assert found.overall > 0.9
    assert found.doubtful == []


@pytest.mark.slow
def test_an_arbitrary_cut_is_doubtful_and_a_real_cluster_beside_it_is_not():
    points, label = blobs(200, 15.0, 2)
    label[(label == 0) & (points[:, 0] > 0)] = 2
    found = resampled_stability(points, np.ones(len(points)), label)
    assert found.of_cluster[1] > 0.9
    assert found.doubtful == [0, 2]
    assert max(found.of_cluster[0], found.of_cluster[2]) < DOUBTFUL


@pytest.mark.slow
def test_the_number_is_a_property_of_the_nodes():
    points, label = blobs(80, 4.0)
    first, second = (resampled_stability(points, np.ones(len(points)), label) for _ in range(2))
    assert first == second


def test_too_few_nodes_do_not_tell():
    found = resampled_stability(np.arange(20.0)[:, None], np.ones(20), np.repeat([0, 1], 10))
    assert np.isnan(found.overall)
    assert all(np.isnan(value) for value in found.of_cluster.values())
    assert found.doubtful == []


@pytest.mark.slow
def test_a_given_number_of_clusters_is_asked_of_every_fit():
    points, _ = blobs(150, 15.0, 4)
    right, wrong = (
        Communities(n_clusters=k).set_site("a", points, np.ones(len(points))).fit().stability for k in (4, 7)
    )
    assert right > 0.9
    assert wrong < right - 0.1


def test_values_of_nodes_are_averaged_by_records():
    found = Stability.of_nodes(np.array([1.0, 0.0, 0.5]), np.array([3.0, 1.0, 4.0]), np.array([0, 0, 5]))
    assert found.of_cluster == {0: 0.75, 5: 0.5}
    assert found.overall == pytest.approx(0.625)
