"""Private k-means over sums of all sites: scale of the noise, what one group can change, and what must be found."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcac.paper.rivals import DPLloyd, FedDPKMeans, SummedLloyd
from fcac.paper.rivals._noised_sums import NoisedSums
from fcac.privacy.zcdp import rho_from_epsilon
from testing.data import labelled_blobs

CENTRES = [[0.2, 0.2, 0.5], [0.8, 0.3, 0.2], [0.5, 0.8, 0.9]]


@pytest.fixture(scope="module")
def blobs():
    X, y = labelled_blobs(3000, 0, CENTRES, 0.03)
    return np.clip(X, 0, 1), y


def sums_of(rows, groups=None, seed=0):
    weights = np.ones(len(rows)) if groups is None else 1.0 / np.bincount(groups)[groups]
    return NoisedSums(rows, weights, np.random.default_rng(seed), 1.0)


@parametrize_with_checks([SummedLloyd(), FedDPKMeans()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_noise_has_the_deviation_that_the_cost_says():
    """A total that one row changes by D, at cost rho, has Gaussian noise of deviation D / sqrt(2 rho)."""
    sums, nobody, rho = sums_of(np.zeros((1, 400))), np.array([-1]), 0.02
    assert sums.counts(nobody, 4000, rho).std() == pytest.approx(1.0 / np.sqrt(2 * rho), rel=0.04)
    moments = sums.moments(rho)
    np.testing.assert_array_equal(moments, moments.T)
    assert moments.std() == pytest.approx(0.25 * 400 / np.sqrt(2 * rho), rel=0.04)
    assert sums.spent == pytest.approx(2 * rho)
    sums.least = -np.inf  # quotients of noise: every cluster counts as filled
    counted = sums_of(np.zeros((1, 400)), seed=5).counts(nobody, 30, 0.12 * rho)
    again = sums_of(np.zeros((1, 400)), seed=5)
    again.least = -np.inf
    noised = again.means(nobody, np.zeros((1, 400)), 3.0, np.zeros((30, 400)), rho) * counted[:, None]
    assert noised.std() == pytest.approx(3.0 / np.sqrt(2 * 0.88 * rho), rel=0.04)


@pytest.mark.parametrize("kind", ["counts", "sums", "moments"])
def test_a_group_changes_a_total_by_no_more_than_one_row_may(kind):
    rng = np.random.default_rng(3)
    rows, groups = rng.choice([-0.5, 0.5], (60, 4)), np.repeat(np.arange(6), [1, 4, 5, 10, 20, 20])
    own = rng.integers(0, 3, 60)

    def total(held):
        sums = sums_of(rows[held], groups[held])
        sums.weights = (1.0 / np.bincount(groups)[groups])[held]
        sums.least = -np.inf
        huge = 1e30  # so costly that there is no noise to speak of
        if kind == "counts":
            return sums.counts(own[held], 3, huge)
        if kind == "moments":
            return sums.moments(huge)
        means = sums.means(own[held], rows[held], sums.half_diagonal, np.zeros((3, 4)), huge)
        return means * sums.counts(own[held], 3, huge)[:, None]

    reach = {"counts": 1.0, "sums": 1.0, "moments": 1.0}[kind]  # half the diagonal of four features is 1
    everybody = total(np.full(60, True))
    for group in range(6):
        assert np.linalg.norm(everybody - total(groups != group)) <= reach + 1e-9


@pytest.mark.parametrize("model", [SummedLloyd(3), FedDPKMeans(3), FedDPKMeans(3, public=[[0.2] * 3] * 3)])
@pytest.mark.parametrize("unit", ["row", "group"])
def test_the_whole_budget_is_spent_and_no_more(model, unit, blobs):
    model.set_params(epsilon=1.5, delta=1e-7, unit=unit, random_state=0).fit(blobs[0], groups=np.arange(3000) % 7)
    assert model.rho_ == pytest.approx(rho_from_epsilon(1.5, 1e-7), rel=1e-12)
    assert model.rho_ <= rho_from_epsilon(1.5, 1e-7) * (1 + 1e-12)


def test_separated_gaussians_are_found_from_public_rows_of_another_distribution(blobs):
    """What the paper shows: a start from few public rows, some of them foreign, finds separated Gaussians at once."""
    X, y = blobs
    rng = np.random.default_rng(1)
    public = np.concatenate([X[rng.choice(len(X), 20, replace=False)], rng.uniform(size=(60, 3))])
    for seed in range(5):
        model = FedDPKMeans(3, public=public, epsilon=1.0, random_state=seed).fit(X)
        assert adjusted_mutual_info_score(y, model.labels_) > 0.95
        distance = np.linalg.norm(model.cluster_centers_[:, None] - np.array(CENTRES)[None], axis=2)
        assert distance.min(axis=0).max() < 0.05


def test_sums_are_better_than_every_site_on_its_own_and_sites_do_not_matter(blobs):
    X, y = blobs
    groups = np.arange(len(X)) % 60
    scores = {"summed": [], "per site": []}
    for seed in range(4):
        one = SummedLloyd(3, epsilon=0.5, random_state=seed).fit(X)
        many = SummedLloyd(3, epsilon=0.5, random_state=seed).fit(X, groups=groups)
        np.testing.assert_array_equal(one.cluster_centers_, many.cluster_centers_)
        own = DPLloyd(3, epsilon=0.5, random_state=seed).fit(X, groups=groups)
        scores["summed"].append(adjusted_mutual_info_score(y, one.labels_))
        scores["per site"].append(adjusted_mutual_info_score(y, own.labels_))
    assert np.mean(scores["summed"]) > np.mean(scores["per site"]) + 0.05


def test_protecting_groups_costs_more_than_protecting_rows(blobs):
    X, y = blobs
    groups = np.arange(len(X)) % 50
    scores = [
        np.mean(
            [
                adjusted_mutual_info_score(
                    y, SummedLloyd(3, epsilon=2.0, unit=unit, random_state=seed).fit(X, groups=groups).labels_
                )
                for seed in range(4)
            ]
        )
        for unit in ("row", "group")
    ]
    assert scores[0] > scores[1]


def test_bytes_are_those_of_the_totals(blobs):
    X = np.tile(blobs[0], 3)  # nine features, so that rows are projected
    groups = np.arange(len(X)) % 4
    model = SummedLloyd(3, max_iter=2, random_state=0).fit(X, groups=groups)
    assert model.bytes_sent_ == 8 * 4 * 2 * 3 * (9 + 1)
    public = FedDPKMeans(3, public=X[:50], random_state=0).fit(X, groups=groups)
    assert public.bytes_sent_ == 8 * 4 * (9 * 10 // 2 + 50 + 2 * 3 * (9 + 1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SummedLloyd(3, unit="person"), "unit must be what is protected, 'row' or 'group'; it is 'person'"),
        (SummedLloyd(3, radius=0), "radius must be positive; it is 0"),
        (FedDPKMeans(3, margin=0.5), "margin must be at least 1; it is 0.5"),
        (FedDPKMeans(3, public=np.zeros((2, 3))), "public must have 3 features and at least 3 rows"),
    ],
)
def test_wrong_parameters_are_named(model, message, blobs):
    with pytest.raises(ValueError, match=message):
        model.fit(blobs[0])
