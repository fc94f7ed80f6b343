"""The demo: its data to the letter of the design, and what its model must hold after three rounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, homogeneity_score

from fcac.paper.gaussians import GAUSSIANS, N_POINTS, DemoResult, demo_data, run_demo


@pytest.fixture(scope="module")
def paper() -> DemoResult:
    return run_demo(0, server="cae-fc")


def nearest_gaussian(result: DemoResult, nodes: np.ndarray) -> np.ndarray:
    points, gaussians = result.points()
    centres = np.stack([points[gaussians == g].mean(axis=0) for g in range(len(GAUSSIANS))])
    return ((nodes[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)


def test_schedule_gives_each_site_its_parts():
    arrivals = [
        {site: np.bincount(labels, minlength=3).tolist() for site, labels in r.gaussians.items()} for r in demo_data(3)
    ]
    assert arrivals == [
        {"site 1": [3750, 0, 0], "site 2": [3750, 0, 0]},
        {"site 1": [3750, 7500, 0], "site 2": [3750, 0, 7500]},
        {"site 1": [0, 7500, 0], "site 2": [0, 0, 7500]},
    ]


def test_geometry_is_three_equal_gaussians_scaled_together():
    result = DemoResult(None, list(demo_data(0)))  # type: ignore[arg-type]  # the data alone
    points, gaussians = result.points()
    assert points.shape == (3 * N_POINTS, 2)
    assert len(np.unique(points, axis=0)) == len(points), "every point is given once"
    assert points.min(axis=0).tolist() == [0, 0]
    assert points.max(axis=0).tolist() == [1, 1]
    means = np.stack([points[gaussians == g].mean(axis=0) for g in range(3)])
    spreads = np.stack([points[gaussians == g].std(axis=0) for g in range(3)])
    # scaling is one affine map per feature, so ratios of distances to spreads are those of the design
    x_units, y_units = spreads.mean(axis=0) / 0.08
    np.testing.assert_allclose(spreads / [x_units, y_units], 0.08, rtol=0.02)
    np.testing.assert_allclose((means[2, 0] - means[1, 0]) / x_units, 0.5, rtol=0.02)
    np.testing.assert_allclose((means[0, 1] - means[1, 1]) / y_units, 0.45, rtol=0.02)
    np.testing.assert_allclose((means[0, 0] - means[1, 0]) / x_units, 0.25, rtol=0.02)


def test_second_round_is_shuffled_within_the_site():
    _, second, _ = demo_data(0)
    for labels in second.gaussians.values():
        changes = int((np.diff(labels) != 0).sum())
        assert changes > 1000


def test_data_depend_on_the_seed_alone():
    first, again, other = next(demo_data(5)), next(demo_data(5)), next(demo_data(6))
    assert np.array_equal(first.rows["site 1"], again.rows["site 1"])
    assert not np.array_equal(first.rows["site 1"], other.rows["site 1"])


def test_round_must_exist(paper):
    with pytest.raises(ValueError, match="1 to 3"):
        paper.points(4)


def reachable_homogeneity(result: DemoResult) -> float:
    """What the true centres themselves reach: the Gaussians' tails overlap, and nobody can tell those points apart."""
    points, gaussians = result.points()
    centres = np.stack([points[gaussians == g].mean(axis=0) for g in range(3)])
    spread = np.stack([points[gaussians == g].std(axis=0) for g in range(3)]).mean(axis=0)
    nearest = (((points[:, None] - centres) / spread) ** 2).sum(axis=2).argmin(axis=1)
    return float(homogeneity_score(gaussians, nearest))


def test_paper_server_keeps_gaussians_apart(paper):
    """No component of nodes spans two Gaussians, and few points fall to a node of another.

    Here homogeneity of points is .985, where the true centres reach .989. Over seeds the paper's server differs a
    lot (median .93 of 200 seeds; at worst it links all three); the communities below do not.
    """
    server = paper.model.server_
    of_nodes = homogeneity_score(nearest_gaussian(paper, server.nodes), server.node_labels)
    assert of_nodes == pytest.approx(1.0)
    points, gaussians = paper.points()
    assert homogeneity_score(gaussians, paper.model.predict(points)) >= reachable_homogeneity(paper) - 0.008


def test_round_one_is_still_known_after_round_three(paper):
    points, gaussians = paper.points()
    labels = paper.model.predict(points)
    early, _ = paper.points(1)
    early_labels = paper.model.predict(early)
    # round 1 holds one Gaussian only, so ask what else is in the clusters its points are in
    from_a = np.array([(gaussians[labels == k] == 0).mean() for k in range(labels.max() + 1) if (labels == k).any()])
    place = {k: i for i, k in enumerate(np.unique(labels))}
    assert np.mean([from_a[place[k]] for k in early_labels]) >= 0.99
    nodes = paper.model.server_.nodes
    assert (nearest_gaussian(paper, nodes) == 0).sum() >= 20
    # a point of round 1 still has a node close by
    assert np.mean(-paper.model.score_samples(early) <= paper.model.server_.reach.max()) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_communities_find_exactly_the_three(seed):
    result = run_demo(seed, server="communities")
    points, gaussians = result.points()
    labels = result.model.predict(points)
    assert result.model.n_clusters_ == 3
    assert homogeneity_score(gaussians, labels) >= reachable_homogeneity(result) - 0.008
    assert adjusted_rand_score(gaussians, labels) >= 0.98


@pytest.mark.slow
def test_progress_is_told_round_by_round():
    told: list[int] = []
    result = run_demo(0, progress=told.append)
    assert told == [1, 2, 3]
    assert {site: len(rows) for site, rows in result.rows.items()} == {"site 1": 22500, "site 2": 22500}
