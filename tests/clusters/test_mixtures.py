"""Mixtures of Gaussians over the moments of atoms: what they find, and that moments are those of the nodes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from fcac.clusters.mixtures import Moments, principal_axes, shares_of_nodes


def groups_of(X: np.ndarray, size: int) -> np.ndarray:
    """Groups of nodes that lie beside each other: halved along the longest side until they are small."""
    group = np.zeros(len(X), dtype=np.int64)
    open_ = [np.arange(len(X))]
    count = 0
    while open_:
        some = open_.pop()
        if len(some) <= size:
            group[some] = count
            count += 1
            continue
        order = some[np.argsort(X[some, np.ptp(X[some], axis=0).argmax()])]
        open_ += [order[: len(order) // 2], order[len(order) // 2 :]]
    return group


def cut_by(X: np.ndarray, group: np.ndarray):
    """Start a search from so many groups of atoms, by k-means of their means."""
    from sklearn.cluster import KMeans

    means = np.stack([X[group == g].mean(axis=0) for g in range(group.max() + 1)])
    return lambda k: KMeans(k, n_init=3, random_state=0).fit(means).labels_.astype(np.int64)


def test_moments_are_those_of_the_nodes_from_the_mean_of_all():
    rng = np.random.default_rng(0)
    X, mass, group = rng.normal(size=(50, 3)), rng.uniform(1, 5, size=50), np.arange(50) % 4
    found = Moments.of(X, mass, group)
    centred = X - np.average(X, axis=0, weights=mass)
    for g in range(4):
        own, weight = centred[group == g], mass[group == g]
        assert found.mass[g] == pytest.approx(weight.sum())
        np.testing.assert_allclose(found.sums[g], weight @ own)
        np.testing.assert_allclose(found.products[g], (own * weight[:, None]).T @ own)


def test_overlapping_gaussians_are_told_apart_about_as_well_as_on_the_nodes_themselves():
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=900)
    spread = np.array([[1.0, 0.3], [0.4, 1.2], [0.8, 0.8]])
    X = np.array([[0.0, 0.0], [2.6, 1.0], [0.0, 3.2]])[y] + rng.normal(size=(900, 2)) * spread[y]
    group, mass = groups_of(X, 8), np.ones(900)
    share = shares_of_nodes(X, mass, Moments.of(X, mass, group), group, cut_by(X, group))
    assert share.shape == (900, 3)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    known = GaussianMixture(3, n_init=3, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, share.argmax(axis=1)) > adjusted_rand_score(y, known) - 0.03


def test_as_many_components_as_are_wanted():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2)) + 12 * np.stack(np.divmod(np.arange(400) % 9, 3), axis=1)
    group, mass = groups_of(X, 8), np.ones(400)
    moments = Moments.of(X, mass, group)
    for wanted in (2, 5, 9):
        assert shares_of_nodes(X, mass, moments, group, cut_by(X, group), wanted).shape[1] == wanted


@pytest.mark.parametrize("features", [30, 300])
def test_axes_of_many_features_keep_what_tells_clusters_apart(features):
    rng = np.random.default_rng(features)
    y = rng.integers(2, size=300)
    X = rng.normal(size=(300, features)) + np.where(y[:, None], 1.5, -1.5)
    axes = principal_axes(X, np.ones(300))
    assert axes.shape == (300, 20)
    assert abs(np.corrcoef(axes[:, 0], y)[0, 1]) > 0.95
