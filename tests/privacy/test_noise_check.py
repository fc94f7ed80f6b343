"""The noise itself: half of it, a third too little, in later rounds only, or the same again, is found at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fcac.privacy import NodeRelease, audit
from fcac.privacy.noise_check import noise_faults
from fcac.privacy.samplers import InsecureTestSampler

BOUNDS = [[0.0, 1.0], [0.0, 1.0]]


class HalfLater(InsecureTestSampler):
    """Half the noise in later rounds: a run of three asks 14 times in the first and 8 times in each of the others."""

    _asked = 0

    def add_noise(self, values: Any, scale: float) -> Any:
        self._asked += 1
        self.factor = 1.0 if (self._asked - 1) % 30 < 14 else 0.5
        return super().add_noise(values, scale)


class SameAgain(InsecureTestSampler):
    def add_noise(self, values: Any, scale: float) -> Any:
        self._generator = np.random.default_rng([self.seed, np.size(values)])
        return super().add_noise(values, scale)


class UnnoisedRings(InsecureTestSampler):
    def add_noise(self, values: Any, scale: float) -> Any:
        return np.asarray(values) if np.shape(values) == (10,) else super().add_noise(values, scale)


def faults(sampler: Any, n_runs: int = 6) -> list[str]:
    return noise_faults(NodeRelease(4, BOUNDS, sampler=sampler), n_runs)


def test_sound_noise_passes() -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    assert noise_faults(NodeRelease(4, BOUNDS), 3) == []
    assert faults(InsecureTestSampler(1)) == []


@pytest.mark.parametrize(
    ("sampler", "wanted"),
    [
        (HalfLater(1), ["too little noise in round 2", "too little noise in round 3"]),
        (InsecureTestSampler(1, factor=0.5), [f"too little noise in round {number}" for number in (1, 2, 3)]),
        (InsecureTestSampler(1, factor=0.7), [f"too little noise in round {number}" for number in (1, 2, 3)]),
    ],
)
def test_too_little_noise_is_found_in_the_round_that_has_it(sampler: Any, wanted: list[str]) -> None:
    assert faults(sampler) == wanted


def test_noise_that_comes_back_is_found() -> None:
    assert "the same noise twice" in faults(SameAgain(1), 2)


def test_rings_without_noise_are_found() -> None:
    assert "too little noise in round 1" in faults(UnnoisedRings(1))


@pytest.mark.slow
def test_the_audit_fails_on_it() -> None:
    result = audit(NodeRelease(4, BOUNDS, sampler=HalfLater(1)), n_runs=100)
    assert not result.holds
    assert "too little noise in round 2" in result.verdict
