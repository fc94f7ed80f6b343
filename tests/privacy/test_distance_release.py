"""The release of distances: what one person changes, where bins lie, and how the noised counts are smoothed."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.codebook import Codebook
from fcac.novelty.distance_curve import _curve_and_slopes, smooth_counts
from fcac.privacy import NodeRelease, PrivacyError
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.distance_release import (
    Charge,
    DistanceBins,
    NoisedDistances,
    calibration_from,
    count_distances,
    distances_alone,
    release_distances,
    release_for_sites,
)
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import gaussian_rho, gaussian_scale

BOUNDS = np.array([[-5.0, 5.0]] * 3)


def book(**more: object) -> Codebook:
    nodes = np.random.default_rng(0).normal(size=(20, 3))
    return Codebook(nodes, np.zeros(20), **more)


BOOKS = {
    "plain": book(),
    "scaled": book(scales=[1.0, 0.2, 7.0]),
    "mapped": book(map=np.random.default_rng(1).normal(size=(3, 2))),
    "correntropy": book(bandwidth=0.4),
}


@pytest.mark.parametrize("kind", BOOKS)
def test_no_row_within_the_bounds_lies_beyond_the_bins(kind: str) -> None:
    own, rng = BOOKS[kind], np.random.default_rng(2)
    bins = DistanceBins.of(own, BOUNDS)
    corners = np.stack(np.meshgrid(*BOUNDS), -1).reshape(-1, 3)
    rows = np.concatenate([corners, rng.uniform(-5, 5, size=(2000, 3))])
    distances = distances_alone(own, rows)
    np.testing.assert_allclose(distances, own.nearest(rows)[1], rtol=1e-9)
    if kind != "correntropy":
        assert distances.max() <= bins.edges[-1]
    np.testing.assert_allclose(bins.distance(bins.place(distances)), distances, rtol=1e-9)
    assert np.allclose(np.diff(np.log2(bins.edges)), 1 / 8)
    # whatever lies outside is counted at the ends
    everything = np.array([0.0, 1e-200, 0.5, 1.0, 1e3 if kind != "correntropy" else 1.0])
    assert count_distances(everything, bins).sum() == 5 * WEIGHT


@pytest.mark.parametrize("kind", BOOKS)
def test_the_bin_of_a_row_does_not_depend_on_other_rows(kind: str) -> None:
    own, rng = BOOKS[kind], np.random.default_rng(3)
    rows = rng.normal(size=(301, 3))
    if kind != "correntropy":
        rows[::7, 1] = np.nan
    together = distances_alone(own, rows)
    np.testing.assert_array_equal(together[::-1], distances_alone(own, rows[::-1].copy()))
    alone = np.concatenate([distances_alone(own, rows[i : i + 1]) for i in range(len(rows))])
    np.testing.assert_array_equal(together, alone)


def test_one_person_changes_the_counts_by_one_weight_at_most() -> None:
    rng = np.random.default_rng(4)
    bins = DistanceBins.of(BOOKS["plain"], BOUNDS)
    for _ in range(50):
        distances = np.exp(rng.normal(size=60))
        people = [f"p{i}" for i in rng.integers(12, size=60)]
        gone = people[0]
        stays = np.array([name != gone for name in people])
        with_all = count_distances(distances, bins, people)
        without = count_distances(distances[stays], bins, [name for name in people if name != gone])
        assert np.sqrt(((with_all - without) ** 2).sum()) <= WEIGHT
        assert (with_all - without).sum() == WEIGHT
        # leaving somebody out for lack of budget is the same as their not being there
        np.testing.assert_array_equal(count_distances(distances, bins, people, stays), without)
        # without ids a row is the unit
        single = count_distances(distances, bins) - count_distances(distances[1:], bins)
        assert np.sqrt((single**2).sum()) == WEIGHT


def test_the_noise_is_what_was_paid_for() -> None:
    sampler = InsecureTestSampler(0)
    released = release_distances(np.zeros(20_000, np.int64), 0.01, sampler)
    assert released.scale == gaussian_scale(WEIGHT**2, 0.01)
    assert gaussian_rho(WEIGHT**2, released.scale) <= 0.01
    assert released.counts.std() == pytest.approx(released.scale, rel=0.03)


def test_the_slopes_of_the_curve_are_its_derivatives() -> None:
    places = np.linspace(-3.0, 3.0, 40)
    start = np.array([2.0, 0.3, 0.7, 1.1, 0.4, 1.0, -1.0, -0.5])
    _, slopes = _curve_and_slopes(start, places)
    for i in range(len(start)):
        step = np.zeros(len(start))
        step[i] = 1e-6
        up, down = (_curve_and_slopes(start + sign * step, places)[0] for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, i], (up - down) / 2e-6, rtol=1e-4, atol=1e-6)


SHAPES = {
    "Gaussian, 2 features": lambda rng, n: np.linalg.norm(rng.normal(size=(n, 2)), axis=1),
    "Gaussian, 50 features": lambda rng, n: np.linalg.norm(rng.normal(size=(n, 50)), axis=1),
    "power law": lambda rng, n: np.abs(rng.standard_t(3, size=n)),
    "two widths": lambda rng, n: np.linalg.norm(rng.normal(size=(n, 3)), axis=1) * np.where(rng.random(n) < 0.1, 20, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("deviation", [0.0, 8.0, 20.0])
def test_a_share_of_one_in_a_hundred_is_found_in_the_noise(shape: str, deviation: float) -> None:
    rng = np.random.default_rng(5)
    distances, fresh = SHAPES[shape](rng, 10_000), SHAPES[shape](rng, 100_000)
    bins = DistanceBins(256.0 * 2.0 ** (np.arange(-80, 1) / 8), False)
    noise = np.rint(rng.normal(0, deviation * WEIGHT, size=80)).astype(np.int64)
    site = NoisedDistances(count_distances(distances, bins) + noise, max(deviation, 1e-3) * WEIGHT)
    found = calibration_from([site], bins)
    assert 0.003 < (fresh > found.reach(0.01)).mean() < 0.03
    assert 0.07 < (fresh > found.reach(0.1)).mean() < 0.14


def test_noise_alone_is_no_calibration() -> None:
    bins = DistanceBins.of(BOOKS["plain"], BOUNDS)
    assert smooth_counts(np.zeros(80), 100.0, np.log(bins.edges[1:])) is None
    with pytest.raises(PrivacyError, match="larger epsilon"):
        calibration_from([NoisedDistances(np.zeros(80, np.int64), 10.0 * WEIGHT)], bins)


def test_sites_are_added_up_after_their_noise() -> None:
    rng = np.random.default_rng(6)
    rows = {name: rng.normal(size=(3000, 3)) for name in ("a", "b")}
    mechanism = NodeRelease(1.0, BOUNDS, sampler=InsecureTestSampler(7))
    found, charges = release_for_sites(mechanism, BOOKS["plain"], rows, 1.0)
    assert charges["a"] == charges["b"] == Charge(mechanism.rho, "row")
    fresh = BOOKS["plain"].nearest(rng.normal(size=(20_000, 3)))[1]
    assert 0.003 < (fresh > found.reach(0.01)).mean() < 0.03
