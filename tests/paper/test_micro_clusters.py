"""Micro-clusters merged by density: unequal clusters of any shape, in fragments at the sites, and their number."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcac.paper.rivals import MergedMicroClusters
from fcac.paper.rivals.micro_clusters import micro_clusters


# The check's 50 rows give seven micro-clusters, too few to be merged into more than one cluster.
@parametrize_with_checks([MergedMicroClusters()], expected_failed_checks=lambda _: {"check_clustering": "too few rows"})
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def unequal():
    """A ring of 3,000 rows around a disc of 600, and a small blob apart from both."""
    rng = np.random.default_rng(0)
    angle, y = rng.uniform(0, 2 * np.pi, 4000), np.repeat([0, 1, 2], [3000, 600, 400])
    radius = np.where(y == 0, rng.normal(10, 0.3, 4000), 2 * np.sqrt(rng.uniform(size=4000)))
    X = np.c_[radius * np.cos(angle), radius * np.sin(angle)] + np.where(y == 2, 25.0, 0.0)[:, None]
    return X, y


@pytest.mark.parametrize("how", ["alike", "fragments"])
def test_number_and_shapes_of_unequal_clusters_are_found_in_one_shot(unequal, how):
    """What the abstract of Fed-k*-HC promises: unequal sizes, any shape, and nobody tells the number."""
    X, y = unequal
    # fragments: every site holds one sector of the plane, so that no site sees the ring
    groups = np.arange(len(X)) % 6 if how == "alike" else (np.arctan2(X[:, 1], X[:, 0]) // (np.pi / 3)).astype(int)
    for seed in range(3):
        model = MergedMicroClusters(random_state=seed).fit(X, groups=groups)
        assert model.n_clusters_ == 3
        assert adjusted_rand_score(y, model.labels_) == 1.0


def test_a_site_sends_as_many_centres_as_the_root_of_its_rows(unequal):
    X, _ = unequal
    model = MergedMicroClusters(random_state=0).fit(X, groups=np.repeat([0, 1], [2500, 1500]))
    assert len(model.prototypes_) == 50 + 38
    assert model.bytes_sent_ == 8 * 2 * (50 + 38)
    assert micro_clusters(np.ones((100, 2)), 10, 0)[0].tolist() == [[1.0, 1.0]]


def test_few_prototypes_are_one_cluster():
    X = np.arange(12.0)[:, None]
    assert MergedMicroClusters().fit(X).n_clusters_ == 1


def test_wrong_parameters_are_named(unequal):
    with pytest.raises(ValueError, match="min_cluster_size must be at least 2; it is 1"):
        MergedMicroClusters(min_cluster_size=1).fit(unequal[0])
