"""Does anything that leaves a site depend on rows other than through the noise? An exact test of the shipped code.

The proof says: everything that is sent is a function of noised totals and of public constants. So if the noise source
gives the same noised totals for two quite different data sets, everything that leaves must be the same, bit for bit.
This finds what no number of runs can miss or prove: exact counts, a radius or a number of cells taken from the rows, a
codebook that has seen them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.privacy.bounds import check_bounds
from fcac.privacy.cell_release import Outcome
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import SMOOTHING

_NO_ANSWER = "whether there is an answer at all"
_TOO_DEAR = "the noise, which costs more than was charged"

#: A data set of several rounds: rows and, where people are named, ids.
Rounds = list[tuple[Floats, list[str] | None]]


class Replay:
    """Draws test noise and remembers it, or gives the noised values of another run, whatever the true ones are now.

    Then it notes what was asked for in another way, and what the difference of the true values costs: the squared
    difference over twice the variance, infinite if something else differs.
    """

    secure = True  # so that statements are those of a real release; nothing that is drawn here is kept

    def __init__(self, seed: int = 0, first: Replay | None = None) -> None:
        self._inner, self._first = InsecureTestSampler(seed), first
        self.calls: list[tuple[Integers, Integers, float]] = []
        self.differences: list[str] = []
        self.cost = 0.0

    def check_ready(self) -> None:
        """Do nothing: NumPy is always available."""

    def add_noise(self, values: Integers, scale: float) -> Integers:
        """Return noised values, new ones or those of the other run."""
        true, place = np.array(values), len(self.calls)
        if self._first is None:
            noised = self._inner.add_noise(true, scale)
        elif place >= len(self._first.calls) or self._first.calls[place][0].shape != true.shape:
            more = place >= len(self._first.calls)
            self.differences.append("more values are noised" if more else "the number of cells")
            noised, self.cost = true, math.inf
        else:
            known, noised, width = self._first.calls[place]
            if scale != width:
                self.differences.append("the amount of noise")
                self.cost = math.inf
            moved = (true - known).astype(np.float64).ravel()
            self.cost += float(moved @ moved) / (2.0 * (scale**2 - SMOOTHING))
        self.calls.append((true, noised, scale))
        return noised.copy()


def example_rounds(people: bool = False) -> list[Rounds]:
    """Return data sets, three rounds each, that are as different as can be: empty, a single row, crowds, many rows."""
    rng = np.random.default_rng(0)
    corner, other = np.full((80, 2), 0.05), np.full((80, 2), 0.95)
    cases = [
        [corner, corner[:30], corner[:5]],
        [np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2))],
        [rng.random((400, 2)), other, rng.random((700, 2))],
        [other[:1], np.empty((0, 2)), other[:1]],
    ]
    if not people:
        return [[(rows, None) for rows in case] for case in cases]
    return [[(rows, [f"person {i % 7}" for i in range(len(rows))]) for rows in case] for case in cases]


def differences(mechanism: NodeRelease, seed: int = 0) -> list[str]:
    """Return what leaves a site and depends on rows other than through the noise; nothing, if the release is sound.

    The mechanism's epsilon, delta and code are examined; its ledger and its noise are not used.

    >>> from fcac.privacy import NodeRelease
    >>> differences(NodeRelease(4, bounds=[[0, 1]]))
    []
    """
    found: dict[str, None] = {}
    for n_cells in (2, None):
        for people in (False, True):
            for name in compare(small_release(mechanism, n_cells), example_rounds(people), release_rounds, seed):
                found.setdefault(name)
    return list(found)


def compare(
    mechanism: NodeRelease,
    cases: Sequence[Rounds],
    play: Callable[[NodeRelease, Rounds], dict[str, Any]],
    seed: int = 0,
) -> list[str]:
    """Play one data set with recorded noise and the others with the same noised values; return what differs.

    Each case is the recorded one in turn. `play` takes a mechanism and rounds, and returns everything that leaves, by
    name.
    """
    found: dict[str, None] = {}
    for place, reference in enumerate(cases):
        recorder = Replay(seed + place)
        wanted = _answered(play, with_sampler(mechanism, recorder), reference)
        if wanted is None:
            found.setdefault(_NO_ANSWER)
            continue
        if wanted.get(_TOO_DEAR):
            found.setdefault(_TOO_DEAR)
        for other in (case for case in cases if case is not reference):
            replay = Replay(first=recorder)
            got = _answered(play, with_sampler(mechanism, replay), other)
            found |= dict.fromkeys(replay.differences)
            if got is None:
                found.setdefault(_NO_ANSWER)
                continue
            found |= dict.fromkeys(name for name in wanted if not _same(wanted[name], got.get(name)))
    return list(found)


def _answered(
    play: Callable[[NodeRelease, Rounds], dict[str, Any]], mechanism: NodeRelease, rounds: Rounds
) -> dict[str, Any] | None:
    """Return what leaves, or None if the site fails: nothing in these data is a reason to fail."""
    try:
        return play(mechanism, rounds)
    except (ValueError, IndexError, AssertionError, ArithmeticError):
        return None


def release_rounds(mechanism: NodeRelease, rounds: Rounds) -> dict[str, Any]:
    """Play rounds of one site and return everything that the proof covers."""
    state = None
    seen: dict[str, Any] = {}
    for number, (rows, ids) in enumerate(rounds, 1):
        charged = mechanism.charge(mechanism.prepare(rows, state, "audit", number, record_ids=ids))
        outcomes: list[Outcome] = []
        drawn = keeping(mechanism, outcomes)
        state = drawn.draw(charged)
        meta, arrays = state.to_parts()
        where = "" if number == 1 else " of later rounds"
        for name, array in arrays.items():
            seen[f"round {number}: {name}"] = array
        seen[f"round {number}: what is said"] = (meta, mechanism.statement(number, state))
        for place, step in enumerate(outcomes[0].steps, 1):
            seen[f"round {number}, step {place}: the codebook{where}"] = (step.codebook, step.bases)
            seen[f"round {number}, step {place}: the radius"] = step.radius
        dear = sum(_cost(step) for step in outcomes[0].steps) > Fraction(charged.rho)
        seen[_TOO_DEAR] = seen.get(_TOO_DEAR, False) or dear
    return seen


def _cost(step: Any) -> Fraction:
    """Return the cost of a step from its scales, without the mechanism's own arithmetic."""
    parts = [(WEIGHT, step.count_scale), (WEIGHT * step.radius, step.sum_scale), (WEIGHT, step.ring_scale)]
    return sum(
        (Fraction(d) ** 2 / (2 * (Fraction(scale) ** 2 - SMOOTHING)) for d, scale in parts if scale is not None),
        Fraction(0),
    )


def keeping(mechanism: NodeRelease, outcomes: list[Outcome]) -> NodeRelease:
    """Return a copy of a mechanism that also hands over what it drew."""
    kept = copy.copy(mechanism)
    inner = kept._draw_outcome

    def draw_outcome(charged: Any) -> Outcome:
        outcomes.append(inner(charged))
        return outcomes[-1]

    kept._draw_outcome = draw_outcome  # type: ignore[method-assign]
    return kept


def small_release(mechanism: NodeRelease, n_cells: int | None, d: int = 2) -> NodeRelease:
    """Return the mechanism for small data of d features, without its ledger."""
    small = copy.copy(mechanism)
    small.bounds = check_bounds([[0.0, 1.0]] * d)
    small.ledger, small.n_cells = None, n_cells
    return small


def with_sampler(mechanism: NodeRelease, sampler: Any) -> NodeRelease:
    """Return the mechanism with another source of noise."""
    changed = copy.copy(mechanism)
    changed.sampler = sampler
    return changed


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
