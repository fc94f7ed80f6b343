"""LocalNoise: exact weights, no bias, grid values only, and a word when it will not help."""

from __future__ import annotations

import random
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.base import clone

from fcac.privacy import LocalNoise, PrivacyWarning
from fcac.privacy.mechanisms.local_noise import LEVELS, STRIDE, Channel
from testing.holder import Holder


def exact_exp(x: float, terms: int = 400) -> Fraction:
    total, term = Fraction(1), Fraction(1)
    for i in range(1, terms):
        term *= Fraction(x) / i
        total += term
    return total  # a lower bound on exp(x)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5, 4.99, 10.0, 40.0])
def test_the_ratio_of_probabilities_is_exactly_within_the_promise(epsilon: float) -> None:
    channel = Channel(epsilon)
    assert Fraction(channel.high, channel.low) <= exact_exp(epsilon)
    assert Fraction(channel.high, channel.low) > exact_exp(epsilon) * Fraction(999_999, 1_000_000)
    assert channel.total == channel.width * channel.high + (channel.n_positions - channel.width) * channel.low
    assert channel.n_positions == LEVELS * STRIDE + channel.width


@pytest.mark.parametrize("level", [0, 1, 300, LEVELS])
def test_every_ticket_goes_where_its_weight_says(level: int) -> None:
    channel = Channel(1.0)
    start, width = level * STRIDE, channel.width

    def drawn(ticket: int) -> int:
        return channel.draw(level, lambda total: ticket)

    # the first and last ticket of each block: inside the window, before it, behind it
    assert drawn(0) == start
    assert drawn(channel.high - 1) == start
    assert drawn(channel.high) == start + 1
    assert drawn(channel.inside - 1) == start + width - 1
    outside = channel.n_positions - width
    positions = [drawn(channel.inside + i * channel.low) for i in range(outside)]
    assert sorted(positions) == [p for p in range(channel.n_positions) if not start <= p < start + width]
    assert drawn(channel.total - 1) == positions[-1]


def test_draws_follow_the_weights() -> None:
    channel = Channel(2.0)
    rng = random.Random(3)
    positions = np.array([channel.draw(500, rng.randrange) for _ in range(20_000)])
    edges = np.linspace(0, channel.n_positions, 21).astype(int)
    weights = np.full(channel.n_positions, channel.low, dtype=float)
    weights[500 * STRIDE : 500 * STRIDE + channel.width] = channel.high
    expected = np.add.reduceat(weights, edges[:-1]) / weights.sum() * len(positions)
    assert chisquare(np.histogram(positions, edges)[0], expected).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 20.0])
def test_values_are_unbiased_by_exact_expectation(epsilon: float) -> None:
    channel = Channel(epsilon)
    values = channel.values()
    for level in (0, 100, LEVELS // 2, LEVELS):
        weights = np.full(channel.n_positions, float(channel.low))
        weights[level * STRIDE : level * STRIDE + channel.width] = float(channel.high)
        mean = (weights * values).sum() / weights.sum()
        assert mean == pytest.approx(2 * level / LEVELS - 1, abs=1e-9)


def test_noised_rows_are_right_on_average_and_on_the_grid() -> None:
    bounds = np.array([[0.0, 10.0], [-1.0, 1.0]])
    mechanism = LocalNoise(6, bounds)
    rows = np.tile([7.0, -0.5], (4000, 1))
    noised = mechanism._perturb(rows, random.Random(0).randrange)
    assert noised.mean(axis=0) == pytest.approx([7.0, -0.5], abs=0.4)
    channel = Channel(6 / mechanism.n_reported)
    for feature, (low, high) in enumerate(bounds):
        allowed = (low + high) / 2 + channel.values() * (2 / mechanism.n_reported) * (high - low) / 2
        assert np.isin(noised[:, feature], np.append(allowed, (low + high) / 2)).all()


def test_error_is_what_the_design_notes_measured() -> None:
    rows = np.random.default_rng(0).uniform(size=(3000, 64))
    noised = LocalNoise(4, np.tile([0, 1], (64, 1)))._perturb(rows, random.Random(0).randrange)
    assert ((noised - rows) ** 2).mean() == pytest.approx(7.4, rel=0.1)  # Laplace noise gives 514


def test_values_outside_count_as_on_the_edge() -> None:
    mechanism = LocalNoise(5, [[0, 1], [0, 1]])
    far = mechanism._perturb(np.full((50, 2), 1e8), random.Random(1).randrange)
    edge = mechanism._perturb(np.full((50, 2), 1.0), random.Random(1).randrange)
    assert np.array_equal(far, edge)


@pytest.mark.parametrize(("epsilon", "d", "k"), [(1, 8, 1), (5, 8, 2), (100, 8, 8), (2.4, 1, 1), (10, 3, 3)])
def test_number_of_reported_features(epsilon: float, d: int, k: int) -> None:
    mechanism = LocalNoise(epsilon, np.tile([0, 1], (d, 1)))
    assert mechanism.n_reported == k
    noised = mechanism._perturb(np.full((50, d), 0.9), random.Random(0).randrange)
    assert ((noised != 0.5).sum(axis=1) <= k).all()


def test_it_warns_where_clustering_will_hardly_work() -> None:
    mechanism = LocalNoise(8, np.tile([0, 1], (3, 1)))
    with pytest.warns(PrivacyWarning, match="hardly work"):
        mechanism.perturb(np.zeros((2, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.perturb(np.zeros((2, 3)))
        LocalNoise(8, np.tile([0, 1], (2, 1))).perturb(np.zeros((2, 2)), site="A", round=2)
        LocalNoise(64, np.tile([0, 1], (3, 1))).perturb(np.zeros((2, 3)))


def test_the_generator_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    import secrets

    asked = []
    monkeypatch.setattr(secrets, "randbelow", lambda n: asked.append(n) or 0)
    LocalNoise(2, [[0, 1]]).perturb(np.zeros((3, 1)))
    assert len(asked) == 9  # per record: which feature, rounding, position


def test_plain_object_and_statement() -> None:
    mechanism = LocalNoise(4, [[0, 1], [0, 1]])
    assert clone(Holder(mechanism)).privacy == mechanism
    assert mechanism != LocalNoise(5, [[0, 1], [0, 1]])
    statement = mechanism.describe()
    assert (statement["epsilon"], statement["delta"]) == (4.0, 0.0)
    assert statement["adjacency"] == "one record replaced by any other"


@pytest.mark.parametrize(
    ("arguments", "words"), [((0, [[0, 1]]), "epsilon"), ((4, None), "bounds"), ((4, [[1, 0]]), "inverted")]
)
def test_wrong_settings(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LocalNoise(*arguments)


def test_wrong_rows() -> None:
    with pytest.raises(ValueError, match="NaN"):
        LocalNoise(4, [[0, 1]]).perturb([[np.nan]])
    assert LocalNoise(4, [[0, 1]]).perturb(np.empty((0, 1))).shape == (0, 1)
