"""The sampler: does OpenDP's noise have the distribution we pay for? This is what catches ten per cent too little."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler, OpenDPSampler

N_DRAWS = 40_000
# How often a sound sampler, which has no seed, may fail: in practice never.
CHANCE = 1e-10


def fits(noise: np.ndarray, scale: float) -> tuple[float, float]:
    """p-values of the discrete Gaussian's probabilities (chi-squared) and of its variance."""
    reach = np.arange(-int(12 * scale) - 2, int(12 * scale) + 3)
    weights = np.exp(-(reach**2) / (2.0 * scale**2))
    weights /= weights.sum()
    edges = np.searchsorted(np.cumsum(weights), np.linspace(0.02, 0.98, 25))
    groups = np.searchsorted(reach[np.unique(edges)], noise, side="left")
    n_groups = len(np.unique(edges)) + 1
    expected = np.bincount(np.searchsorted(np.unique(edges), np.arange(len(reach))), weights, minlength=n_groups)
    seen = np.bincount(groups, minlength=n_groups)
    by_shape = chisquare(seen, expected * len(noise)).pvalue
    variance = (weights * reach**2).sum()
    ratio = (noise.astype(float) ** 2).sum() / variance
    tail = chi2.cdf(ratio, len(noise))
    return float(by_shape), float(2 * min(tail, 1 - tail))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.8, 3.7, 1000.0])
def test_noise_has_the_shape_and_the_variance_that_are_charged(scale: float) -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    noise = OpenDPSampler().add_noise(np.zeros((N_DRAWS // 4, 4), np.int64), scale).ravel()
    by_shape, by_variance = fits(noise, scale)
    assert by_shape > CHANCE
    assert by_variance > CHANCE


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_ten_per_cent_off_is_caught(factor: float) -> None:
    noise = InsecureTestSampler(0, factor).add_noise(np.zeros(N_DRAWS, np.int64), 1000.0)
    assert min(fits(noise, 1000.0)) < CHANCE


def test_noise_is_added_to_the_value_keeps_the_shape_and_saturates() -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    sampler = OpenDPSampler()
    big = np.array([[10**12, -(10**12)], [0, 5]])
    noised = sampler.add_noise(big, 2.0)
    assert noised.shape == (2, 2)
    assert np.abs(noised - big).max() < 60
    assert sampler.add_noise(np.array([np.iinfo(np.int64).max]), 1e4).dtype == np.int64


def test_draws_differ_between_calls() -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    zeros = np.zeros(20, np.int64)
    assert not np.array_equal(OpenDPSampler().add_noise(zeros, 1e4), OpenDPSampler().add_noise(zeros, 1e4))


def test_without_opendp_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install 'fcac\[privacy\]'"):
        NodeRelease(4, [[0, 1]]).release(np.zeros((3, 1)))


def test_the_test_double_says_what_it_is() -> None:
    sampler = InsecureTestSampler(3)
    assert not sampler.secure
    assert "Insecure" in repr(sampler)
    assert sampler == InsecureTestSampler(3)
    assert sampler != InsecureTestSampler(4)
    statement = NodeRelease(4, [[0, 1]], sampler=sampler).describe()
    assert "protects nobody" in statement["warning"]
    assert "INSECURE" in statement["noise"]
