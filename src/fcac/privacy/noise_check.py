"""Is as much noise drawn as was asked for, in every round, and is it new every time? Measured on the noise itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

from fcac._typing import Floats, Integers
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.noninterference import small_release, with_sampler

# Probability that sound noise is called faulty, for each of the few things that are looked at.
_FALSE_ALARM = 1e-9


class _Watching:
    """Lets another sampler draw, and keeps the noise that it added, in units of the scale it was asked for."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.secure = inner.secure
        self.kept: list[Floats] = []

    def check_ready(self) -> None:
        self._inner.check_ready()

    def add_noise(self, values: Integers, scale: float) -> Integers:
        noised: Integers = self._inner.add_noise(values, scale)
        self.kept.append(((noised - np.asarray(values)) / scale).ravel())
        return noised


def noise_faults(mechanism: NodeRelease, n_runs: int = 25) -> list[str]:
    """Return what is wrong with the noise that a release draws over three rounds; nothing, if it is sound.

    25 runs find noise that is a tenth too small.

    >>> from fcac.privacy.samplers import InsecureTestSampler
    >>> noise_faults(NodeRelease(4, bounds=[[0, 1]], sampler=InsecureTestSampler(0, factor=0.5)), n_runs=3)
    ['too little noise in round 1', 'too little noise in round 2', 'too little noise in round 3']
    """
    watching = _Watching(mechanism.sampler)
    small = with_sampler(small_release(mechanism, 6), watching)
    rows = np.random.default_rng(0).random((200, 2))
    by_round: dict[int, list[Floats]] = {1: [], 2: [], 3: []}
    for run in range(n_runs):
        state = None
        for number in by_round:
            watching.kept.clear()
            *_, state = small.release(rows, state, "audit", run * 3 + number)
            by_round[number] += watching.kept
    found = []
    for number, kept in by_round.items():
        drawn = np.concatenate(kept)
        if chi2.cdf(float((drawn**2).sum()), len(drawn)) < _FALSE_ALARM:
            found.append(f"too little noise in round {number}")
    everything = [noise.tobytes() for kept in by_round.values() for noise in kept if len(noise) >= 4]
    if len(set(everything)) < len(everything):
        found.append("the same noise twice")
    return found
