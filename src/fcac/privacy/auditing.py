"""Audits that try to distinguish neighbouring data sets by what leaves a site, and compare this with the promise.

A promise of rho-zCDP by Gaussian noise says: whatever test is run on the output, its trade-off between false alarms and
missed detections is no better than that of distinguishing N(0, 1) from N(mu, 1) with mu = sqrt(2 rho). The audit runs
the shipped code many times on worst-case neighbours, chooses the best test it can find on separate runs, and computes a
lower confidence bound on mu. A bound above the promise proves a fault. An audit that finds none does not prove the
promise; the proof does that (docs/privacy/proof.md).

The bound is the better of two, each at half of the error allowed. One bounds both rates of alarms by themselves
(Clopper-Pearson) and goes through the trade-off curve, as in the tight audits of Nasr et al. (2023); it finds tests
that are rarely but surely right. The other bounds the share of right guesses over both sides at once: under mu it is at
most Phi(mu / 2), whatever the test (Dong, Roth and Su, 2022), and the number of right guesses, a sum of unequal coins,
is no more spread than a binomial (Hoeffding, 1956). One bound instead of two is what makes it tighter.

Why mu and not epsilon: n runs cannot show an epsilon above about log(n), so at epsilon = 8 even half the noise would
pass a test based on epsilon alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta, norm

from fcac._typing import Floats, Integers
from fcac.privacy.cell_release import Outcome, Step
from fcac.privacy.cell_statistics import N_RINGS, UNIT, WEIGHT, ring_edges, to_grid
from fcac.privacy.exact_cost import exact_costs
from fcac.privacy.mechanism import Mechanism
from fcac.privacy.mechanisms.local_noise import LEVELS, STRIDE, Channel, LocalNoise
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.mechanisms.paper_laplace import PaperLaplace
from fcac.privacy.noise_check import noise_faults
from fcac.privacy.noninterference import differences, keeping, small_release
from fcac.privacy.zcdp import separation

#: Called with (runs done, total runs).
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _View:
    """One run: takes True for the data set with the extra record, and the number of the run; returns what is seen."""

    run: Callable[[bool, int], Floats]
    #: Releases in a run: the promise of mu grows with the square root of their number.
    rounds: int = 1

    def __call__(self, extra: bool, run: int) -> Floats:
        return self.run(extra, run)


#: What the audit of a release looks at, for its reader.
COVERS = (
    "everything that is noised: counts, sums and rings of every step, as the proof has them",
    "what is sent: nodes, counts, their number, the statement, and the bytes that a hub receives",
    "first and later rounds, a fixed number of cells and one chosen by the release",
    "empty sites, single rows, records far outside the bounds, people with many rows",
    "that nothing of this depends on rows except through the noise (exactly, for data that differ in every row)",
    "what a unit costs, exactly, against what is charged: in rounds, calibrations and agreements on bounds and levels, "
    "with one, two and seven columns, gaps, and people who write their ids in several ways",
    "the noise that was drawn: how much of it there is in each of three rounds, and that none comes twice",
)
CANNOT_SEE = (
    "how long a site takes, that it takes part, and what its operator, its disk and its log reveal",
    "noise that is almost enough: a hundredth too little would pass, and so would a generator that can be predicted",
    "worse data than the cases tried; the proof, not the audit, covers all data",
    "whether bounds and ids are what they are said to be",
    "with what probability an agreement names a level that one person alone has: the proof bounds it",
    "sums over sites (`--aggregation secure` attacks them), and text encoders, which are declared to see rows alone",
    "what stands around a release: ledgers, crashes, recovery, how tables are read from files; tests look at these",
)

# Probability that a sound mechanism is called faulty, over all pairs together.
_FALSE_ALARM = 1e-3

# Thresholds that a test may use, as quantiles of the observations in training.
_THRESHOLDS = np.linspace(0.05, 0.95, 19)

_CLEARLY = 0.25

# Far below the bounds, and chosen so that its square would vanish in 64-bit arithmetic if the value were not clipped.
_FAR = 0.5 - 2.0**16


@dataclass(frozen=True)
class AuditedPair:
    """How well one pair of neighbours was distinguished: rates of the chosen test on fresh runs, and what they prove.

    `mu_low` and `epsilon_low` are lower confidence bounds on the privacy loss. With several releases in a run the
    promised mu is multiplied by the square root of their number.
    """

    name: str
    true_alarms: float
    false_alarms: float
    mu_low: float
    epsilon_low: float
    rounds: int = 1

    @property
    def mu_of_one(self) -> float:
        """The lower bound on mu, for one release."""
        return self.mu_low / math.sqrt(self.rounds)


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
    interference : list of str
        For `NodeRelease`: what was sent and depends on rows other than through the noise, or what is wrong with the
        noise; then no runs were made.
    """

    holds: bool
    measure: str
    promised: float
    found: float
    pairs: list[AuditedPair]
    n_runs: int
    verdict: str
    interference: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-serialisable values."""
        return asdict(self)


def audit(
    mechanism: NodeRelease | LocalNoise | PaperLaplace,
    n_runs: int = 10_000,
    n_training: int | None = None,
    progress: Progress | None = None,
    also: Callable[[NodeRelease], list[str]] = lambda mechanism: [],
) -> AuditResult:
    """Search for a privacy loss beyond what the mechanism promises.

    The mechanism is audited with its own epsilon, delta, noise and code, but on small worst-case data of two features,
    where a loss is easiest to detect. Nothing is charged to its ledger. A release is also tested exactly for anything
    that depends on rows other than through the noise.

    Parameters
    ----------
    mechanism : NodeRelease, LocalNoise or PaperLaplace
    n_runs : int
        Test runs per side and pair.
    n_training : int, optional
        Runs per side for choosing the test; by default a fifth of ``n_runs``.
    progress : callable, optional
        Called from time to time with (runs done, total runs).
    also : callable, optional
        A further exact test of a release, such as :func:`fcac.federation.sent_audit.sent_differences`: returns what
        depends on rows other than through the noise.

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
    if isinstance(mechanism, NodeRelease):
        found = list(dict.fromkeys([*differences(mechanism), *also(mechanism)]))
        what = "something depends on rows other than through the noise"
        if not found:
            costs = exact_costs(mechanism)
            found = [f"{cost.case} ({cost.found / cost.promised:.2f} times)" for cost in costs if not cost.holds]
            what = "a unit costs more than is charged for it"
        if not found:
            found, what = noise_faults(mechanism), "the noise is not what was asked for"
        if found:  # no run could add anything
            verdict = f"FAILS: {what}: {', '.join(found)}."
            return AuditResult(False, "mu", separation(mechanism.rho), 0.0, [], 0, verdict, found)
    done, in_all = 0, len(views) * 2 * (n_runs + training)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % 100 == 0 or done == in_all):
            progress(done, in_all)

    level = _FALSE_ALARM / len(views)
    # Gaussian noise is judged by mu, noise with a fixed bound on the ratio of probabilities by epsilon.
    goal = 0 if isinstance(mechanism, NodeRelease) else 1
    pairs = [_try_pair(name, view, n_runs, training, level, step, goal) for name, view in views.items()]
    return _judge(mechanism, pairs, n_runs)


def _judge(mechanism: Mechanism, pairs: list[AuditedPair], n_runs: int) -> AuditResult:
    if isinstance(mechanism, NodeRelease):
        measure, promised = "mu", separation(mechanism.rho)
        found = max(pair.mu_of_one for pair in pairs)
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


def _views(mechanism: Mechanism) -> dict[str, _View]:
    if isinstance(mechanism, NodeRelease):
        return _release_views(mechanism)
    if isinstance(mechanism, LocalNoise):
        return _local_views(mechanism)
    if isinstance(mechanism, PaperLaplace):
        return _paper_views(mechanism)
    raise ValueError(f"mechanism must be a NodeRelease, LocalNoise or PaperLaplace, got {type(mechanism).__name__}")


def _try_pair(
    name: str,
    view: Callable[[bool, int], Floats],
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
    limits = Limits.of(n_choosing, level)
    for number, candidate in enumerate(_directions(without[:half], with_extra[:half])):
        low, high = np.sort(without[half:] @ candidate), np.sort(with_extra[half:] @ candidate)
        places = np.unique(np.quantile(np.concatenate([low, high]), _THRESHOLDS))
        hits = n_choosing - np.searchsorted(high, places, side="right")
        false_hits = n_choosing - np.searchsorted(low, places, side="right")
        # The likelihood ratio comes first and is replaced only by a test that is clearly better.
        losses = _certain_losses(hits, false_hits, limits)[goal] - (_CLEARLY if number > 0 else 0.0)
        # where few runs make nothing certain, the threshold that separates best is taken
        losses = losses + 1e-3 * (hits - false_hits) / n_choosing
        if losses.max() > best:
            best, direction, threshold = float(losses.max()), candidate, float(places[losses.argmax()])
    alarms = int((collect(True, n_training, n_runs) @ direction > threshold).sum())
    false_alarms = int((collect(False, n_training, n_runs) @ direction > threshold).sum())
    found = _certain_losses(np.array([alarms]), np.array([false_alarms]), Limits.of(n_runs, level))
    rounds = getattr(view, "rounds", 1)
    return AuditedPair(name, alarms / n_runs, false_alarms / n_runs, float(found[0][0]), float(found[1][0]), rounds)


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


class Limits(NamedTuple):
    """Confidence bounds for every possible number of alarms: rates of either side, and the share of right guesses."""

    lowest: Floats
    highest: Floats
    least_right: Floats

    @classmethod
    def of(cls, runs: int, level: float) -> Limits:
        """Return the bounds for so many runs a side; all together are wrong with a probability of at most `level`."""
        alarms, both = np.arange(runs + 1), np.arange(2 * runs + 1)
        lowest = np.append(0.0, beta.ppf(level / 4, alarms[1:], runs - alarms[1:] + 1))
        highest = np.append(beta.ppf(1.0 - level / 4, alarms[:-1] + 1, runs - alarms[:-1]), 1.0)
        least_right = np.append(0.0, beta.ppf(level / 2, both[1:], 2 * runs - both[1:] + 1))
        return cls(lowest, highest, least_right)


def _certain_losses(hits: Integers, false_hits: Integers, limits: Limits) -> tuple[Floats, Floats]:
    """Return lower bounds on mu and on epsilon from counted alarms."""
    sure_hits, most_false = np.maximum(limits.lowest[hits], 1e-300), limits.highest[false_hits]
    runs = len(limits.lowest) - 1
    by_rates = norm.ppf(1.0 - most_false) - norm.ppf(1.0 - sure_hits)
    by_guesses = 2.0 * norm.ppf(np.maximum(limits.least_right[hits + runs - false_hits], 1e-300))
    epsilon = np.log(sure_hits) - np.log(most_false)
    return np.maximum(np.maximum(by_rates, by_guesses), 0.0), np.maximum(epsilon, 0.0)


def _release_views(mechanism: NodeRelease) -> dict[str, _View]:
    """Return neighbours that a leaky release would reveal, and everything that a release shows about them."""
    small, free = small_release(mechanism, 2), small_release(mechanism, None)
    crowd, nobody = np.full((60, 2), 0.05), np.empty((0, 2))
    flat = np.column_stack([np.linspace(0.2, 0.4, 12), np.full(12, 0.5)])
    corner, far = [[1.0, 1.0]], [[0.3, _FAR]]
    person = [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    return {
        "a crowd in one corner, with or without a record in the opposite one": _release_view(small, crowd, corner),
        "no record at all, or one": _release_view(small, nobody, [[0.0, 1.0]]),
        "a constant column, with or without a record far outside the bounds": _release_view(small, flat, far),
        "as many cells as the release likes, with or without a record": _release_view(free, crowd, corner),
        "a person with five rows, there or not": _release_view(small, crowd, person, by_person=True),
        "three rounds, with or without a record in each": _release_view(small, crowd, corner, rounds=3),
    }


def _release_view(
    mechanism: NodeRelease, crowd: Floats, extra: list[list[float]], by_person: bool = False, rounds: int = 1
) -> _View:
    neighbour = np.vstack([crowd, extra])
    added = to_grid(np.clip(extra, 0.0, 1.0))
    clean_crowd = to_grid(np.clip(crowd, 0.0, 1.0))
    people = [f"crowd {i}" for i in range(len(crowd))]
    share = 1.0 / len(extra) if by_person else 1.0

    def view(with_extra: bool, run: int) -> Floats:
        state, ratio = None, 0.0
        seen: list[Any] = []
        for number in range(rounds):
            ids = [*people, *(["extra"] * len(extra) if with_extra else [])] if by_person else None
            rows = neighbour if with_extra else crowd
            prepared = mechanism.prepare(rows, state, "audit", run * rounds + number, record_ids=ids)
            outcomes: list[Outcome] = []
            state = keeping(mechanism, outcomes).draw(mechanism.charge(prepared))
            steps = outcomes[0].steps
            ratio += sum(_log_ratio(step, clean_crowd, added, share) for step in steps)
            for step in steps:
                placed = (step.sums + step.counts[:, None] * step.bases).sum(axis=0) / UNIT
                rings = np.zeros(N_RINGS) if step.rings is None else step.rings
                seen += [step.counts[:1], [step.counts.sum()], placed, rings]
            seen += [steps[0].bases[0] / UNIT, steps[0].codebook[0] / UNIT]
            # what is sent in the end, as anybody receives it
            mean = np.average(state.nodes, axis=0, weights=state.counts)
            seen += [[len(state.counts), state.counts.sum(), state.counts.max()], mean]
        return np.concatenate([[ratio], *seen]).astype(np.float64)

    return _View(view, rounds)


def _log_ratio(step: Step, crowd: Integers, extra: Integers, share: float = 1.0) -> float:
    """Return the log-likelihood ratio of one step under the promise, without using the mechanism's own code.

    The rows of `extra`, each of weight `share`, are there or not.
    """
    points = np.vstack([crowd, np.atleast_2d(extra)]).astype(np.float64)
    n_crowd, n_cells = len(crowd), len(step.codebook)
    cells = ((points[:, None, :] - step.codebook[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    residuals = points - step.bases[cells]
    lengths = np.sqrt((residuals**2).sum(axis=1))
    rings = (lengths[:, None] > np.sqrt(ring_edges(points.shape[1]))[None, :]).sum(axis=1)
    cut = residuals * np.minimum(1.0, step.radius / np.maximum(lengths, 1.0))[:, None]

    def ratio(noised: Any, scale: float, places: Integers, values: Floats, n_places: int) -> float:
        known, moved = np.zeros((2, n_places, values.shape[1]))
        np.add.at(known, places[:n_crowd], values[:n_crowd])
        np.add.at(moved, places[n_crowd:], share * values[n_crowd:])
        seen = np.reshape(noised, known.shape) / WEIGHT
        return float(((seen - known - moved / 2.0) * moved).sum() * (WEIGHT / scale) ** 2)

    ones = np.ones((len(points), 1))
    found = ratio(step.counts, step.count_scale, cells, ones, n_cells)
    found += ratio(step.sums, step.sum_scale, cells, cut, n_cells)
    if step.rings is not None and step.ring_scale is not None:
        found += ratio(step.rings, step.ring_scale, rings, ones, N_RINGS)
    return found


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

    return {"the lowest or the highest value of a feature": _View(view)}


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

    return {"a constant column, with or without a record that differs in it": _View(view)}
