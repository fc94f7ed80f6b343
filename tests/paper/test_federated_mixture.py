"""The federated mixture: its bound is the evidence, merges at the server are those of one place, and it needs no k."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils.estimator_checks import check_estimator

from fcac.paper.rivals import FederatedMixture
from fcac.paper.rivals.federated_mixture import (
    _MEAN_ROWS,
    _SHAPE,
    Components,
    Prior,
    _one_less,
    _pair_gains,
    merge_components,
    site_components,
)
from testing.data import labelled_blobs

CENTRES = [[0.2, 0.2], [0.8, 0.2], [0.5, 0.8], [0.2, 0.9]]


def prior_of(X: np.ndarray) -> Prior:
    return Prior.from_totals([Components.of_all(X)], 0.01)


def test_evidence_is_the_product_of_predictive_densities() -> None:
    """Row after row, the predictive distribution of a normal-gamma model is Student's t (Bishop, 2.3.6)."""
    X = np.random.default_rng(0).normal(2.0, 3.0, size=(40, 1))
    prior = prior_of(X)
    rows, mean, shape, rate = _MEAN_ROWS, float(prior.mean[0]), _SHAPE, _SHAPE * float(prior.scale[0])
    expected = 0.0
    for (x,) in X:
        scale = np.sqrt(rate * (rows + 1) / (shape * rows))
        expected += stats.t.logpdf(x, 2 * shape, mean, scale)
        rate += rows * (x - mean) ** 2 / (2 * (rows + 1))
        mean, rows, shape = (rows * mean + x) / (rows + 1), rows + 1, shape + 0.5
    assert float(prior.evidence(*Components.of_all(X).parts())[0]) == pytest.approx(expected, rel=1e-9)


def test_gain_of_a_merge_is_the_difference_of_bounds() -> None:
    X, y = labelled_blobs(200, 0, CENTRES, 0.05)
    prior, components = prior_of(X), Components.weighted(X, np.eye(4)[y])
    gains = _pair_gains(components, prior) + _one_less(components.n, prior)
    for first, second in ((0, 1), (1, 3)):
        grown = prior.bound(components.joined(first, second)) - prior.bound(components)
        assert gains[first, second] == pytest.approx(grown, rel=1e-9)
        assert gains[second, first] == pytest.approx(grown, rel=1e-9)


def test_pieces_of_one_component_are_merged_and_others_are_not() -> None:
    X, y = labelled_blobs(400, 1, CENTRES, 0.04)
    pieces = np.random.default_rng(0).integers(5, size=len(X))
    found = merge_components(Components.weighted(X, np.eye(20)[5 * y + pieces]), prior_of(X))
    np.testing.assert_allclose(np.sort(found.n), np.sort(np.bincount(y)))


def test_a_site_empties_what_it_does_not_need() -> None:
    X, y = labelled_blobs(300, 2, CENTRES, 0.04)
    found, n_iter = site_components(X, prior_of(X), 15, 100, np.random.default_rng(0))
    assert 1 <= n_iter <= 100
    assert sorted(found.n) == sorted(np.bincount(y))


@pytest.mark.parametrize("by", ["rows", "classes"])
def test_sites_find_together_what_one_place_finds(by: str) -> None:
    X, y = labelled_blobs(1200, 3, CENTRES, 0.05)
    groups = np.arange(len(X)) % 6 if by == "rows" else y // 2
    model = FederatedMixture(random_state=0).fit(X, groups=groups)
    assert model.n_clusters_ == 4
    assert model.n_sent_ >= 4
    assert adjusted_mutual_info_score(y, model.labels_) > 0.98
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_equal_seeds_equal_results_and_constant_features_change_nothing() -> None:
    X, _ = labelled_blobs(400, 4, CENTRES, 0.05)
    sites = {"a": X[:150], "b": X[150:]}
    first, again = (FederatedMixture(random_state=5).fit(sites) for _ in range(2))
    np.testing.assert_array_equal(first.cluster_centers_, again.cluster_centers_)
    wider = {site: np.c_[rows, np.full(len(rows), 7.0)] for site, rows in sites.items()}
    np.testing.assert_array_equal(FederatedMixture(random_state=5).fit(wider).labels_, first.labels_)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="weight_concentration must be positive"):
        FederatedMixture(weight_concentration=0).fit([[0.0], [1.0]])
    with pytest.raises(ValueError, match="max_components must be a whole number"):
        FederatedMixture(max_components=0).fit([[0.0], [1.0]])


@pytest.mark.slow
def test_manners() -> None:
    check_estimator(FederatedMixture(max_components=4, random_state=0))
