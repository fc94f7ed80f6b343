"""Merging of nodes whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.clusters import noisy_merge
from fcac.clusters.noisy_merge import merge_noisy, principal_axes


def noisy(n_groups: int, each: int, noise: float, seed: int, d: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noisy nodes, their variances, and the group of each."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(n_groups), each)
    centres = rng.normal(size=(n_groups, d))
    deviation = noise * rng.uniform(0.5, 1.5, (len(truth), 1))
    nodes = centres[truth] + 0.05 * rng.normal(size=(len(truth), d)) + deviation * rng.normal(size=(len(truth), d))
    return nodes, np.repeat(deviation**2, d, axis=1), truth


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(((a[:, None] == a) == (b[:, None] == b)).all())


def test_axes_leave_out_what_noise_adds() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=(4000, 3)) * [2.0, 1.0, 0.0]
    axes = principal_axes(true + 0.5 * rng.normal(size=true.shape), np.full(true.shape, 0.25), np.ones(4000))
    assert axes.signal[:2] == pytest.approx([4.0, 1.0], rel=0.1)
    assert axes.signal[2:].sum() < 0.05


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_groups_are_found_from_few_noisy_nodes(noise: float) -> None:
    nodes, variance, truth = noisy(5, 4, noise, seed=1)
    assert same_partition(merge_noisy(nodes, variance, np.ones(len(nodes))).labels, truth)


def test_places_are_nearer_to_the_truth_than_nodes() -> None:
    nodes, variance, truth = noisy(4, 8, 0.3, seed=2)
    found = merge_noisy(nodes, variance, np.ones(len(nodes)))
    centres = np.array([nodes[truth == g].mean(axis=0) for g in range(4)])[truth]
    assert np.linalg.norm(found.places - centres, axis=1).mean() < 0.5 * np.linalg.norm(nodes - centres, axis=1).mean()


def test_exact_nodes_stay_where_they_are() -> None:
    nodes, _, truth = noisy(4, 8, 0.0, seed=3)
    found = merge_noisy(nodes, np.zeros(nodes.shape), np.ones(len(nodes)))
    np.testing.assert_allclose(found.places, nodes, atol=1e-9)
    assert same_partition(found.labels, truth)


def test_a_node_that_is_nothing_but_noise_moves_no_cluster() -> None:
    nodes, variance, truth = noisy(3, 6, 0.1, seed=4)
    stray = np.vstack([nodes, nodes[:6].mean(axis=0) + 30.0])
    of_stray = np.vstack([variance, np.full((1, nodes.shape[1]), 1e4)])
    found = merge_noisy(stray, of_stray, np.append(np.full(len(nodes), 50.0), 1.0))
    assert same_partition(found.labels[:-1], truth)
    alone = merge_noisy(nodes, variance, np.full(len(nodes), 50.0))
    assert np.abs(found.places[:-1] - alone.places).max() < 0.1


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes, variance, _ = noisy(6, 5, 0.4, seed=5)
    order = np.random.default_rng(0).permutation(len(nodes))
    one = merge_noisy(nodes, variance, np.ones(len(nodes)))
    other = merge_noisy(nodes[order], variance[order], np.ones(len(nodes)))
    assert same_partition(one.labels[order], other.labels)


def test_many_nodes_are_merged_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, variance, truth = noisy(4, 30, 0.2, seed=6)
    monkeypatch.setattr(noisy_merge, "_CHUNK", 25)
    found = merge_noisy(nodes, variance, np.ones(len(nodes)))
    assert same_partition(found.labels, truth)
    n_units = int(found.unit_of.max()) + 1
    assert n_units < len(nodes)
    assert len(found.joins) == n_units - 1
    assert found.n_joined == n_units - 4


def test_probability_is_one() -> None:
    nodes, variance, _ = noisy(5, 4, 0.3, seed=7)
    found = merge_noisy(nodes, variance, np.ones(len(nodes)))
    assert len(found.probability) == found.labels.max() + 1
    assert ((found.probability >= 0) & (found.probability <= 1)).all()


def test_one_node_and_equal_nodes_are_one_group() -> None:
    one = merge_noisy(np.ones((1, 3)), np.ones((1, 3)), np.ones(1))
    assert one.labels.tolist() == [0]
    equal = merge_noisy(np.ones((5, 3)), np.ones((5, 3)), np.ones(5))
    assert equal.labels.tolist() == [0] * 5
    np.testing.assert_array_equal(equal.places, np.ones((5, 3)))
