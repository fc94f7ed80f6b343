"""Audits that try to distinguish neighbouring data sets by what leaves a site, and compare this with the promise.

A promise of rho-zCDP by Gaussian noise says: whatever test is run on the output, its trade-off between false alarms and
missed detections is no better than that of distinguishing N(0, 1) from N(mu, 1) with mu = sqrt(2 rho). The audit runs
the shipped code many times on worst-case neighbours, chooses the best test it can find on separate runs, and computes a
lower confidence bound on mu (Clopper-Pearson). A bound above the promise proves a fault. An audit that finds none does
not prove the promise; the proof does that (docs/privacy/proof.md).

Why mu and not epsilon: n runs cannot show an epsilon above about log(n), so at epsilon = 8 even half the noise would
pass a test based on epsilon alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, norm

from fcac._typing import Floats, Integers
from fcac.privacy.bounds import check_bounds
from fcac.privacy.cell_release import Step
from fcac.privacy.cell_statistics import UNIT, WEIGHT, ring_edges, to_grid
from fcac.privacy.mechanisms.local_noise import LEVELS, STRIDE, Channel, LocalNoise
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.mechanisms.paper_laplace import PaperLaplace
from fcac.privacy.zcdp import separation

#: Called with (runs done, total runs).
Progress = Callable[[int, int], None]

#: One run: takes True for the data set with the extra record, and the number of the run; returns an observable vector.
_View = Callable[[bool, int], Floats]

# Probability that a sound mechanism is called faulty, over all pairs together.
_FALSE_ALARM = 1e-3

# Thresholds that a test may use, as quantiles of the observations in training.
_THRESHOLDS = np.linspace(0.05, 0.95, 19)

_CLEARLY = 0.25

# Far below the bounds, and chosen so that its square would vanish in 64-bit arithmetic if the value were not clipped.
_FAR = 0.5 - 2.0**16


@dataclass(frozen=True)
class AuditedPair:
    """How well one pair of neighbours was distinguished.

    Attributes
    ----------
    name : str
        Description of the neighbours.
    true_alarms, false_alarms : float
        Rates of the chosen test on fresh runs.
    mu_low, epsilon_low : float
        Lower confidence bounds on the privacy loss.
    """

    name: str
    true_alarms: float
    false_alarms: float
    mu_low: float
    epsilon_low: float


@dataclass(frozen=True)
class AuditResult:
    """Outcome of an audit.

    Attributes
    ----------
    holds : bool
        False if a pair was distinguished better than promised.
    measure : str
        "mu" (Gaussian trade-off) or "epsilon".
    promised, found : float
        The promise and the largest lower bound over all pairs, in that measure.
    pairs : list of AuditedPair
    n_runs : int
        Test runs per side and pair.
    verdict : str
        One sentence for human readers.
    """

    holds: bool
    measure: str
    promised: float
    found: float
    pairs: list[AuditedPair]
    n_runs: int
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-serialisable values."""
        return asdict(self)


def audit(
    mechanism: NodeRelease | LocalNoise | PaperLaplace,
    n_runs: int = 10_000,
    n_training: int | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Search for a privacy loss beyond what the mechanism promises.

    The mechanism is audited with its own epsilon, delta, noise and code, but on small worst-case data of two features
    and two cells, where a loss is easiest to detect. Nothing is charged to its ledger.

    Parameters
    ----------
    mechanism : NodeRelease, LocalNoise or PaperLaplace
    n_runs : int
        Test runs per side and pair.
    n_training : int, optional
        Runs per side for choosing the test; by default a fifth of ``n_runs``.
    progress : callable, optional
        Called from time to time with (runs done, total runs).

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> from fcac.privacy import NodeRelease, audit
    >>> from fcac.privacy.samplers import InsecureTestSampler
    >>> half = InsecureTestSampler(seed=1, factor=0.5)  # a fault: half the noise
    >>> audit(NodeRelease(8, bounds=[[0, 1]], sampler=half), n_runs=100).holds
    False
    """
    if n_runs < 100:
        raise ValueError(f"n_runs must be at least 100, got {n_runs}")
    training = max(100, n_runs // 5) if n_training is None else n_training
    views = _views(mechanism)
    done, in_all = 0, len(views) * 2 * (n_runs + training)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % 100 == 0 or done == in_all):
            progress(done, in_all)

    level = _FALSE_ALARM / (2 * len(views))
    # Gaussian noise is judged by mu, noise with a fixed bound on the ratio of probabilities by epsilon.
    goal = 0 if isinstance(mechanism, NodeRelease) else 1
    pairs = [_try_pair(name, view, n_runs, training, level, step, goal) for name, view in views.items()]
    return _judge(mechanism, pairs, n_runs)


def _judge(mechanism: Any, pairs: list[AuditedPair], n_runs: int) -> AuditResult:
    if isinstance(mechanism, NodeRelease):
        measure, promised = "mu", separation(mechanism.rho)
        found = max(pair.mu_low for pair in pairs)
    else:
        measure, promised = "epsilon", float(mechanism.epsilon)
        found = max(pair.epsilon_low for pair in pairs)
    perfect = [pair for pair in pairs if pair.true_alarms == 1.0 and pair.false_alarms == 0.0]
    if isinstance(mechanism, PaperLaplace) and perfect:
        return AuditResult(
            False, measure, promised, found, pairs, n_runs,
            f"FAILS: {perfect[0].name}: distinguished in every one of {2 * n_runs} runs; no epsilon can be promised.",
        )  # fmt: skip
    holds = found <= promised
    words = (
        f"no loss beyond the promise was found: {measure} is at least {found:.2f}, at most {promised:.2f} is promised"
        if holds
        else f"FAILS: {measure} is certainly above {found:.2f}, but at most {promised:.2f} is promised"
    )
    return AuditResult(holds, measure, promised, found, pairs, n_runs, f"{words} ({n_runs} runs per side).")


def _views(mechanism: Any) -> dict[str, _View]:
    if isinstance(mechanism, NodeRelease):
        return _release_views(mechanism)
    if isinstance(mechanism, LocalNoise):
        return _local_views(mechanism)
    if isinstance(mechanism, PaperLaplace):
        return _paper_views(mechanism)
    raise ValueError(f"mechanism must be a NodeRelease, LocalNoise or PaperLaplace, got {type(mechanism).__name__}")


def _try_pair(
    name: str,
    view: _View,
    n_runs: int,
    n_training: int,
    level: float,
    step: Callable[[], None] = lambda: None,
    goal: int = 0,
) -> AuditedPair:
    """Choose a test on training runs, then count its alarms on new runs."""

    def collect(extra: bool, first: int, runs: int) -> Floats:
        seen = []
        for run in range(first, first + runs):
            seen.append(view(extra, run))
            step()
        return np.array(seen)

    without, with_extra = collect(False, 0, n_training), collect(True, 0, n_training)
    best, direction, threshold = -math.inf, np.zeros(0), 0.0
    # One half of the training runs proposes tests, the other half chooses among them: a linear combination judged on
    # the runs it was fitted to would always look good.
    half = n_training // 2
    n_choosing = n_training - half
    limits = _limits(n_choosing, level)
    for number, candidate in enumerate(_directions(without[:half], with_extra[:half])):
        low, high = np.sort(without[half:] @ candidate), np.sort(with_extra[half:] @ candidate)
        places = np.unique(np.quantile(np.concatenate([low, high]), _THRESHOLDS))
        hits = n_choosing - np.searchsorted(high, places, side="right")
        false_hits = n_choosing - np.searchsorted(low, places, side="right")
        # The likelihood ratio comes first and is replaced only by a test that is clearly better.
        losses = _certain_losses(hits, false_hits, limits)[goal] - (_CLEARLY if number > 0 else 0.0)
        if losses.max() > best:
            best, direction, threshold = float(losses.max()), candidate, float(places[losses.argmax()])
    alarms = int((collect(True, n_training, n_runs) @ direction > threshold).sum())
    false_alarms = int((collect(False, n_training, n_runs) @ direction > threshold).sum())
    found = _certain_losses(np.array([alarms]), np.array([false_alarms]), _limits(n_runs, level))
    return AuditedPair(name, alarms / n_runs, false_alarms / n_runs, float(found[0][0]), float(found[1][0]))


def _directions(without: Floats, with_extra: Floats) -> list[Floats]:
    """Return tests worth trying: the likelihood ratio (first), the components that differ most, the best linear mix.

    They are few, because the best of many tests on few runs is mostly luck.
    """
    n_seen = without.shape[1]
    centre = np.concatenate([without - without.mean(axis=0), with_extra - with_extra.mean(axis=0)])
    scale = np.maximum(centre.std(axis=0), 1e-12 * (1.0 + np.abs(without).max(axis=0)))
    gap = (with_extra.mean(axis=0) - without.mean(axis=0)) / scale
    chosen = [0, *np.argsort(-np.abs(gap))[:3].tolist()]
    alone = [sign * np.eye(n_seen)[i] for i in dict.fromkeys(chosen) for sign in (1.0, -1.0)]
    covariance = np.atleast_2d(np.cov((centre / scale).T)) + 1e-6 * np.eye(n_seen)
    return [*alone, np.linalg.solve(covariance, gap) / scale]


def _limits(runs: int, level: float) -> tuple[Floats, Floats]:
    """Return the Clopper-Pearson lower and upper bounds on the rate for every possible number of alarms."""
    alarms = np.arange(runs + 1)
    lowest = np.append(0.0, beta.ppf(level, alarms[1:], runs - alarms[1:] + 1))
    highest = np.append(beta.ppf(1.0 - level, alarms[:-1] + 1, runs - alarms[:-1]), 1.0)
    return lowest, highest


def _certain_losses(hits: Integers, false_hits: Integers, limits: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return lower bounds on mu and on epsilon from counted alarms."""
    sure_hits, most_false = np.maximum(limits[0][hits], 1e-300), limits[1][false_hits]
    mu = norm.ppf(1.0 - most_false) - norm.ppf(1.0 - sure_hits)
    epsilon = np.log(sure_hits) - np.log(most_false)
    return np.maximum(mu, 0.0), np.maximum(epsilon, 0.0)


def _release_views(mechanism: NodeRelease) -> dict[str, _View]:
    """Return neighbours that a leaky release would reveal, and everything that a release shows about them."""
    small = copy.copy(mechanism)
    small.bounds = check_bounds([[0.0, 1.0], [0.0, 1.0]])
    small.ledger, small.n_cells = None, 2
    crowd = np.full((60, 2), 0.05)
    flat = np.column_stack([np.linspace(0.2, 0.4, 12), np.full(12, 0.5)])
    return {
        "a crowd in one corner, with or without a record in the opposite one": _release_view(small, crowd, [1.0, 1.0]),
        "no record at all, or one": _release_view(small, np.empty((0, 2)), [0.0, 1.0]),
        "a constant column, with or without a record far outside the bounds": _release_view(small, flat, [0.3, _FAR]),
    }


def _release_view(mechanism: NodeRelease, crowd: Floats, extra: list[float]) -> _View:
    neighbour = np.vstack([crowd, [extra]])
    record = to_grid(np.clip([extra], 0.0, 1.0))[0]
    clean_crowd = to_grid(np.clip(crowd, 0.0, 1.0))

    def view(with_extra: bool, run: int) -> Floats:
        prepared = mechanism.prepare(neighbour if with_extra else crowd, site="audit", round=run)
        steps = mechanism._draw_outcome(mechanism.charge(prepared)).steps
        ratio = sum(_log_ratio(step, clean_crowd, record) for step in steps)
        seen: list[Any] = [[ratio]]
        for step in steps:
            placed = (step.sums + step.counts[:, None] * step.bases).sum(axis=0) / UNIT
            rings = np.zeros(0) if step.rings is None else step.rings
            seen += [step.counts[:1], [step.counts.sum()], placed, rings]
        seen += [steps[0].bases[0] / UNIT, steps[0].codebook[0] / UNIT]
        return np.concatenate(seen).astype(np.float64)

    return view


def _log_ratio(step: Step, crowd: Integers, record: Integers) -> float:
    """Return the log-likelihood ratio of one step under the promise, without using the mechanism's own code."""
    points = np.vstack([crowd, record[None, :]]).astype(np.float64)
    cells = ((points[:, None, :] - step.codebook[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    residuals = points - step.bases[cells]
    lengths = np.sqrt((residuals**2).sum(axis=1))
    rings = (lengths[:, None] > np.sqrt(ring_edges(points.shape[1]))[None, :]).sum(axis=1)
    cut = residuals * np.minimum(1.0, step.radius / np.maximum(lengths, 1.0))[:, None]
    cell, mine = cells[-1], cells[:-1] == cells[-1]
    by_count = (step.counts[cell] / WEIGHT - mine.sum() - 0.5) * (WEIGHT / step.count_scale) ** 2
    sums = step.sums[cell] / WEIGHT - cut[:-1][mine].sum(axis=0) - cut[-1] / 2.0
    by_sum = sums @ cut[-1] * (WEIGHT / step.sum_scale) ** 2
    if step.rings is None or step.ring_scale is None:
        return float(by_count + by_sum)
    by_ring = (step.rings[rings[-1]] / WEIGHT - (rings[:-1] == rings[-1]).sum() - 0.5) * (WEIGHT / step.ring_scale) ** 2
    return float(by_count + by_sum + by_ring)


def _local_views(mechanism: LocalNoise) -> dict[str, _View]:
    """Return the two ends of a feature's range as neighbours; the observation is in which window the answer lies."""
    small = LocalNoise(mechanism.epsilon, [[0.0, 1.0]])
    channel = Channel(small.epsilon / small.n_reported)
    values = 0.5 + channel.values() / 2.0

    def view(high: bool, run: int) -> Floats:
        answer = float(small.perturb(np.array([[1.0 if high else 0.0]]))[0, 0])
        position = int(np.argmin(np.abs(values - answer)))
        in_high = LEVELS * STRIDE <= position < LEVELS * STRIDE + channel.width
        return np.array([float(in_high) - float(position < channel.width), answer])

    return {"the lowest or the highest value of a feature": view}


def _paper_views(mechanism: PaperLaplace) -> dict[str, _View]:
    """Return a constant column with and without one more record that differs in it."""
    flat = np.column_stack([np.linspace(0.0, 1.0, 12), np.full(12, 0.5)])
    neighbour = np.vstack([flat, [0.5, 1.0]])

    def view(with_extra: bool, run: int) -> Floats:
        noisy = copy.copy(mechanism)
        noisy._warned, noisy.paper_streams, noisy.random_state = True, False, None
        sent = noisy.perturb(neighbour if with_extra else flat)
        off = np.abs(sent[:12, 1] - 0.5).max()
        return np.array([math.log10(off + 1e-15)])

    return {"a constant column, with or without a record that differs in it": view}
