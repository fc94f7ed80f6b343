"""Growing networks: their papers' own toy data, the manners of estimators, and their place inside FCAC."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import check_estimator

from fcac import FCAC
from fcac.model.storage import save
from fcac.paper.networks import ASOINN, GNG, GWR, SOINNPlus
from fcac.paper.networks.inside import INSIDE, NetworkCondenser
from fcac.paper.peers import labels_of, presented

NETWORKS = [GNG(), GWR(), ASOINN(), SOINNPlus()]
ids = [type(network).__name__ for network in NETWORKS]


def two_spirals(n, rng):
    t, y = np.sqrt(rng.uniform(0.05, 1, n)) * 3 * np.pi, rng.integers(2, size=n)
    side = np.where(y == 1, 1.0, -1.0)
    return np.c_[side * t * np.cos(t), side * t * np.sin(t)] + rng.normal(0, 0.1, (n, 2)), y


def two_rings(n, rng):
    t, y = rng.uniform(0, 2 * np.pi, n), rng.integers(2, size=n)
    r = np.where(y == 1, 1.0, 3.0)
    return np.c_[r * np.cos(t), r * np.sin(t)] + rng.normal(0, 0.05, (n, 2)), y


def five_gaussians(n, rng):
    centres = np.array([[0, 0], [6, 0], [0, 6], [6, 6], [3, 12]])
    y = rng.integers(5, size=n)
    return centres[y] + rng.normal(0, 0.3, (n, 2)), y


def test_gng_learns_the_topology_of_rings_and_spirals():
    rng = np.random.default_rng(0)
    for make in (two_rings, two_spirals):
        X, y = make(20_000, rng)
        model = GNG().fit(X)
        assert model.n_clusters_ == 2
        assert len(model.nodes_) == 100
        assert adjusted_rand_score(y, model.labels_) == 1.0


def test_gng_follows_what_remains_of_a_distribution():
    """Nodes of a region that rows no longer come from are dead; those that are needed are added where rows are."""
    rng = np.random.default_rng(1)
    model = GNG(max_nodes=30).fit(rng.uniform(0, 1, (10_000, 2)))
    model.partial_fit(rng.uniform(5, 6, (10_000, 2)))
    near = (np.abs(model.nodes_ - 5.5) < 0.6).all(axis=1)
    assert near.any()
    assert model.predict([[5.5, 5.5]])[0] in set(model.state_.components()[near])


@pytest.mark.slow
def test_gwr_covers_a_square_to_the_accuracy_asked_for():
    """Marsland's criterion: once the network has stopped growing, every row is matched as the threshold asks."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20_000, 2))
    model = GWR(activity_threshold=0.9).fit(X)
    apart = np.sqrt(((X[:2000, None] - model.nodes_[None]) ** 2).sum(axis=2)).min(axis=1)
    assert np.mean(np.exp(-apart) >= 0.9) > 0.99
    assert len(model.nodes_) < 300


def test_gwr_grows_with_new_data_and_keeps_what_it_knows():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 0.1, (5000, 2)), rng.normal(3, 0.1, (5000, 2))
    model = GWR(activity_threshold=0.9).fit(first)
    before = len(model.nodes_)
    model.partial_fit(second)
    assert len(model.nodes_) > before
    apart = np.sqrt(((first[:, None] - model.nodes_[None]) ** 2).sum(axis=2)).min(axis=1)
    assert np.mean(np.exp(-apart) >= 0.9) > 0.95


@pytest.mark.parametrize("non_stationary", [False, True])
def test_asoinn_finds_gaussians_in_any_order_of_classes(non_stationary):
    rng = np.random.default_rng(0)
    X, y = five_gaussians(10_000, rng)
    order = np.argsort(y, kind="stable") if non_stationary else np.arange(len(y))
    model = ASOINN().fit(X[order])
    # in a non-stationary sequence the second class begins while the first has been cleaned already
    assert model.n_clusters_ == 5
    assert adjusted_rand_score(y, model.predict(X)) > 0.99


def test_asoinn_separates_rings_and_drops_noise():
    rng = np.random.default_rng(0)
    X, y = two_rings(20_000, rng)
    noise = rng.uniform(-8, 8, (600, 2))
    noise = noise[np.abs(noise).max(axis=1) > 4]
    rows = np.concatenate([X, noise])
    order = rng.permutation(len(rows))
    model = ASOINN().fit(rows[order])
    assert adjusted_rand_score(y, model.predict(X)) > 0.95
    assert (np.abs(model.nodes_).max(axis=1) > 4).mean() < 0.3


@pytest.mark.slow
def test_soinn_plus_keeps_structures_when_the_data_change():
    rng = np.random.default_rng(0)
    X, y = five_gaussians(10_000, rng)
    model = SOINNPlus()
    for classes in ([0, 1], [2, 3], [4]):
        model.partial_fit(X[np.isin(y, classes)])
    assert adjusted_rand_score(y, model.predict(X)) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=ids)
def test_manners(network):
    # a clusterer that learns one row at a time does not see two blobs in fifty rows, as scikit-learn expects
    check_estimator(network, expected_failed_checks={"check_clustering": "needs more than fifty rows"})


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=ids)
def test_pieces_do_not_matter(network):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 3))
    whole = type(network)().fit(X)
    pieces = type(network)()
    for part in np.split(X, [1, 2, 3, 700, 1500]):
        pieces.partial_fit(part)
    np.testing.assert_array_equal(whole.nodes_, pieces.nodes_)
    np.testing.assert_array_equal(whole.edges_, pieces.edges_)
    np.testing.assert_array_equal(whole.counts_, pieces.counts_)


@pytest.mark.parametrize("network", NETWORKS, ids=ids)
def test_failure_leaves_the_network_as_it_was(network):
    rng = np.random.default_rng(4)
    model = type(network)().fit(rng.normal(size=(500, 2)))
    before = model.nodes_.copy()
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit([[0.0, np.nan]])
    np.testing.assert_array_equal(model.nodes_, before)


@pytest.mark.parametrize("name", list(INSIDE))
def test_inside_fcac(name, tmp_path):
    rng = np.random.default_rng(0)
    X, y = five_gaussians(9000, rng)
    model = FCAC(site=NetworkCondenser(INSIDE[name]), server=name, random_state=0)
    model.fit(X[:6000], groups=np.arange(6000) % 3).partial_fit(X[6000:], groups=np.arange(3000) % 3)
    assert model.n_rounds_ == 2
    assert len(model.predict(X)) == len(X)
    if name in ("asoinn", "soinn-plus"):  # the other two add nodes too slowly for the few that sites send
        assert adjusted_rand_score(y, model.predict(X)) > 0.5
    model.forget(1)
    assert sorted(model.sites_) == [0, 2]
    with pytest.raises(ValueError, match="cannot be saved"):
        save(model, tmp_path / "model.fcac")


def test_site_goes_without_the_settings_of_the_usual_condenser():
    model = FCAC(site=NetworkCondenser(GNG()), max_nodes=50)
    with pytest.raises(ValueError, match="site: max_nodes"):
        model.fit(np.zeros((10, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ids[:3])
def test_as_peers_they_find_blobs_of_few_rows_in_any_units(name):
    """All but SOINN+, which keeps many small pieces of a table that it sees again and again."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    X = np.array([[0, 0], [20, 0], [0, 20]])[y] + rng.normal(size=(600, 2))
    labels = labels_of(name, X, 3, 0)
    assert adjusted_rand_score(y, labels) > 0.8
    # powers of two change no digit
    np.testing.assert_array_equal(labels, labels_of(name, X * [4096, 0.25], 3, 0))


def test_as_peers_they_see_every_row_equally_often_between_zero_and_one():
    X = np.random.default_rng(0).normal(50, 9, size=(300, 2))
    rows = presented(X, 0)
    assert len(rows) >= 20_000
    np.testing.assert_allclose(rows[:300] * np.ptp(X, axis=0) + X.min(axis=0), X)
    np.testing.assert_array_equal(np.unique(rows[:, 0], return_counts=True)[1], len(rows) // 300)
    np.testing.assert_array_equal([rows.min(), rows.max()], [0, 1])
    large = presented(np.zeros((30_000, 1)), 0)
    assert len(large) == 30_000
