"""Costs: ours against exact fractions, against OpenDP's privacy map and against Google's dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fcac.privacy.cell_release import release_cells
from fcac.privacy.cell_statistics import UNIT, WEIGHT, to_grid, widest_radius
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import (
    SMOOTHING,
    epsilon_from_rho,
    gaussian_rho,
    gaussian_scale,
    rho_from_epsilon,
    separation,
    show,
)

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-5])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_conversion_is_safe_and_tight_in_both_directions(epsilon: float, delta: float) -> None:
    rho = rho_from_epsilon(epsilon, delta)
    assert epsilon_from_rho(rho, delta) <= epsilon
    assert epsilon_from_rho(rho * (1 + 1e-6), delta) > epsilon
    # the simple textbook bound is looser
    assert epsilon_from_rho(rho, delta) < rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-5])
@pytest.mark.parametrize("rho", [1e-7, 1e-3, 0.03, 0.3, 4.0, 20.0])
def test_the_gaussian_curve_in_many_digits(rho: float, delta: float) -> None:
    from mpmath import mp, mpf, ncdf, sqrt

    epsilon = epsilon_from_rho(rho, delta)
    with mp.workdps(60):
        mu = sqrt(2 * mpf(rho))
        exact = ncdf(-mpf(epsilon) / mu + mu / 2) - mp.exp(epsilon) * ncdf(-mpf(epsilon) / mu - mu / 2)
        assert exact <= delta
        assert exact > delta * (1 - 1e-6) or epsilon < 1e-6


@pytest.mark.parametrize("scale", [3.0, 10.0, 1500.0])
def test_discrete_noise_is_rounded_continuous_noise(scale: float) -> None:
    # the lemma behind SMOOTHING: continuous noise of variance s^2 - SMOOTHING, rounded at random by a discrete Gaussian
    # of variance SMOOTHING, has the probabilities of the discrete Gaussian of scale s
    inner = math.sqrt(scale**2 - SMOOTHING)
    places = np.unique(np.round(np.linspace(0, 7 * scale, 9)))
    step = 1 / 64
    y = np.arange(-24, 24, step)  # rounding reaches no farther
    reach = np.arange(-48, 49)
    sums = np.exp(-((reach[None, :] - y[:, None]) ** 2) / (2 * SMOOTHING)).sum(axis=1)
    assert np.ptp(sums) / sums.mean() < 1e-14
    drawn = np.array(
        [(np.exp(-((k + y) ** 2) / (2 * inner**2)) * np.exp(-(y**2) / (2 * SMOOTHING)) / sums).sum() for k in places]
    )
    wanted = np.exp(-(places**2) / (2 * scale**2))
    np.testing.assert_allclose(drawn / drawn[0], wanted / wanted[0], rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_never_below_dp_accounting(epsilon: float) -> None:
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    delta, n_steps = 1e-6, 5
    rho = rho_from_epsilon(epsilon, delta)
    # five Gaussian releases that together cost rho
    event = SelfComposedDpEvent(GaussianDpEvent(math.sqrt(n_steps / (2 * rho))), n_steps)
    by_pld = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(delta)
    by_rdp = RdpAccountant(orders=1 + np.geomspace(0.05, 5e3, 4000)).compose(event).get_epsilon(delta)
    ours = epsilon_from_rho(rho, delta)
    # its answer is an upper bound that gets tighter with its grid; ours may not be below the true value
    assert ours >= by_pld * (1 - 5e-4)
    assert ours <= by_pld * (1 + 1e-3)
    assert ours <= by_rdp


@pytest.mark.parametrize("squared", [1, 7, 655**2, widest_radius(64) ** 2, widest_radius(3) ** 2])
@pytest.mark.parametrize("rho", [1e-6, 0.013, 0.3, 5.0])
def test_scales_are_checked_in_exact_fractions(squared: int, rho: float) -> None:
    scale = gaussian_scale(squared, rho)
    assert Fraction(squared) / (2 * (Fraction(scale) ** 2 - SMOOTHING)) <= Fraction(rho)
    assert gaussian_rho(squared, scale) <= rho
    assert gaussian_rho(squared, scale) > rho * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])
@pytest.mark.parametrize("n_features", [1, 2, 64])
def test_steps_cost_no_more_than_was_charged_by_opendp_too(epsilon: float, n_features: int) -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    from fcac.privacy.samplers import opendp_measurement

    rho = rho_from_epsilon(epsilon, 1e-6)
    rows = to_grid(np.random.default_rng(0).uniform(size=(200, n_features)))
    steps = release_cells(rows, rho, InsecureTestSampler(0), np.random.default_rng(0)).steps
    by_opendp = 0.0
    for step in steps:
        assert step.radius <= widest_radius(n_features)
        by_opendp += opendp_measurement(step.count_scale).map(float(WEIGHT))
        by_opendp += opendp_measurement(step.sum_scale).map(float(WEIGHT * step.radius))
        if step.ring_scale is not None:
            by_opendp += opendp_measurement(step.ring_scale).map(float(WEIGHT))
    assert sum(step.rho for step in steps) <= rho
    assert by_opendp <= rho
    assert by_opendp > 0.999 * rho


def test_no_cost_is_no_loss_and_numbers_are_shown_as_people_write_them() -> None:
    assert epsilon_from_rho(0.0, 1e-6) == 0.0
    assert separation(0.5) == 1.0
    assert [show(x) for x in (1e-6, 2.5e-7, 4.0)] == ["1e-6", "2.5e-7", "4"]
    assert UNIT == 65536


@pytest.mark.parametrize("delta", [0.0, -1e-6, 1e-4, 1.0, math.nan, "x"])
def test_delta_outside_its_range_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        epsilon_from_rho(0.1, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, None])
def test_epsilon_must_be_positive_and_finite(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        rho_from_epsilon(epsilon, 1e-6)


@pytest.mark.parametrize("rho", [-0.1, math.inf, math.nan])
def test_rho_must_be_finite_and_not_negative(rho: float) -> None:
    with pytest.raises(ValueError, match="rho"):
        epsilon_from_rho(rho, 1e-6)


def test_noise_narrower_than_the_grid_has_no_cost_that_could_be_proved() -> None:
    with pytest.raises(ValueError, match="too small"):
        gaussian_rho(1, 1.5)


def test_noise_needs_a_budget() -> None:
    with pytest.raises(ValueError, match="budget"):
        gaussian_scale(1, 0.0)
