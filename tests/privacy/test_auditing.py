"""The audit passes the shipped code and catches every mutant."""

from __future__ import annotations

import copy
import multiprocessing
import random
import secrets
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fcac.privacy import LocalNoise, NodeRelease, PaperLaplace, audit, auditing, cell_release, cell_statistics
from fcac.privacy.auditing import (
    _FALSE_ALARM,
    AuditedPair,
    AuditResult,
    Limits,
    _certain_losses,
    _judge,
    _try_pair,
    _views,
)
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.mechanisms import node_release
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import gaussian_scale, separation

BOUNDS = [[0.0, 1.0], [0.0, 1.0]]
#: How often an audit of sound noise without a seed may give a false alarm.
NEVER = 1e-10


def one_pair(
    mechanism: NodeRelease,
    words: str,
    n_runs: int = 300,
    n_training: int | None = None,
    level: float = _FALSE_ALARM / 3,
) -> AuditedPair:
    (view,) = [view for name, view in _views(mechanism).items() if words in name]
    return _try_pair(words, view, n_runs, n_training or max(100, n_runs // 4), level)


def shipped(epsilon: float = 8.0, seed: int = 0, factor: float = 1.0) -> NodeRelease:
    return NodeRelease(epsilon, BOUNDS, sampler=InsecureTestSampler(seed, factor))


PAIRS = ["a crowd in one corner", "no record at all", "a constant column"]
MORE_PAIRS = ["as many cells", "a person with five", "three rounds"]


def test_the_bound_is_sound_and_near_for_a_gaussian() -> None:
    # alarms of the best test of N(0, 1) against N(mu, 1), drawn as such: the bound holds in all of many audits
    rng, mu, runs = np.random.default_rng(0), 0.84, 4000
    hits, false_hits = rng.binomial(runs, norm.cdf(mu / 2), 2000), rng.binomial(runs, norm.cdf(-mu / 2), 2000)
    bounds = _certain_losses(hits, false_hits, Limits.of(runs, 1e-3))[0]
    assert (bounds > mu).mean() <= 0.005
    assert np.median(bounds) > 0.87 * mu
    # a test that is rarely but surely right is found by the rates, of which guesses know nothing
    rare = _certain_losses(np.array([400]), np.array([0]), Limits.of(runs, 1e-3))[0]
    assert rare > 1.4


@pytest.mark.slow
@pytest.mark.parametrize("words", PAIRS)
def test_the_shipped_code_keeps_its_promise(words: str) -> None:
    found = one_pair(shipped(), words, n_runs=400)
    promised = separation(shipped().rho)
    assert found.mu_low <= promised
    assert found.mu_low > 0.5 * promised  # the audit is awake: it sees most of what there is to see


@pytest.mark.slow
def test_the_same_with_the_real_sampler() -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    # this noise has no seed, so a false alarm must be out of the question, and how much the runs can prove is chance
    found = one_pair(NodeRelease(8, BOUNDS), "no record at all", n_runs=300, level=NEVER)
    assert found.mu_low <= separation(shipped().rho)
    assert found.true_alarms > found.false_alarms


def audit_one_pair(case: tuple[float, str]) -> AuditedPair:
    epsilon, words = case
    return one_pair(NodeRelease(epsilon, BOUNDS), words, n_runs=10_000, n_training=2_000)


@pytest.mark.soak
def test_the_real_thing_with_ten_thousand_runs() -> None:
    # 216,000 releases, about five minutes of a processor for each epsilon; one process per processor shares them
    cases = [(epsilon, words) for epsilon in (8.0, 4.0, 1.0) for words in (*PAIRS, *MORE_PAIRS)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        pairs = list(pool.map(audit_one_pair, cases))
    for epsilon in (8.0, 4.0, 1.0):
        mine = [pair for (its, _), pair in zip(cases, pairs, strict=True) if its == epsilon]
        result = _judge(NodeRelease(epsilon, BOUNDS), mine, 10_000)
        assert result.holds, result.verdict
        # within a fifth of the claim for at least four of the canaries
        near = sum(pair.mu_of_one > 0.8 * result.promised for pair in mine)
        assert near >= 4 or epsilon < 4


# ------------------------------------------------------------ mutants: every one of these must be caught


class UnnoisedCounts(InsecureTestSampler):
    def add_noise(self, values: Any, scale: float) -> Any:
        return np.asarray(values) if np.ndim(values) == 1 else super().add_noise(values, scale)


def half_noise(patch: pytest.MonkeyPatch) -> NodeRelease:
    return shipped(factor=0.5)


def clip_forgotten(patch: pytest.MonkeyPatch) -> NodeRelease:
    patch.setattr(cell_statistics, "cut", lambda residuals, radius: residuals)
    return shipped()


def scale_divided_by_root_d(patch: pytest.MonkeyPatch) -> NodeRelease:
    def too_small(squared: int, rho: float) -> float:
        return gaussian_scale(squared, rho) / (np.sqrt(2) if squared > WEIGHT**2 else 1)

    patch.setattr(cell_release, "gaussian_scale", too_small)
    patch.setattr(cell_release, "gaussian_rho", lambda squared, scale: 0.0)  # and the check that would have noticed
    return shipped()


def input_not_clamped(patch: pytest.MonkeyPatch) -> NodeRelease:
    patch.setattr(node_release, "to_unit", lambda rows, bounds: (rows - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0]))
    return shipped()


def count_not_noised(patch: pytest.MonkeyPatch) -> NodeRelease:
    return NodeRelease(8, BOUNDS, sampler=UnnoisedCounts())


def range_from_the_data(patch: pytest.MonkeyPatch) -> NodeRelease:
    def own_range(rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return rows
        return (rows - rows.min(axis=0)) / np.maximum(np.ptp(rows, axis=0), 1e-12)

    patch.setattr(node_release, "to_unit", own_range)
    return shipped()


def codebook_from_raw_rows(patch: pytest.MonkeyPatch) -> NodeRelease:
    def peeking(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        middle = cell_statistics.from_grid(rows).mean(axis=0)[None, :] if len(rows) else start
        return cell_release.release_cells(rows, rho, sampler, generator, n_cells, middle, weights)

    patch.setattr(node_release, "release_cells", peeking)
    return shipped()


def rows_of_a_person_weigh_fully(patch: pytest.MonkeyPatch) -> NodeRelease:
    patch.setattr(node_release, "person_weights", lambda ids: np.full(len(ids), WEIGHT))
    return shipped()


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], NodeRelease], str]] = [
    (half_noise, "a crowd in one corner"),
    (clip_forgotten, "a crowd in one corner"),
    (scale_divided_by_root_d, "a crowd in one corner"),
    (input_not_clamped, "a constant column"),
    (count_not_noised, "no record at all"),
    (range_from_the_data, "a constant column"),
    (codebook_from_raw_rows, "a crowd in one corner"),
    (rows_of_a_person_weigh_fully, "a person with five rows"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "words"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_mutants_are_caught(monkeypatch: pytest.MonkeyPatch, mutate: Any, words: str) -> None:
    mutant = mutate(monkeypatch)
    n_runs = 400 if mutate is scale_divided_by_root_d else 100  # the smallest fault needs the most runs
    assert one_pair(mutant, words, n_runs).mu_of_one > separation(mutant.rho)


# ------------------------------------------------------------ the public function


@pytest.mark.slow
def test_audit_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    views = auditing._release_views
    monkeypatch.setattr(auditing, "_release_views", lambda mechanism: dict(list(views(mechanism).items())[:2]))
    seen: list[tuple[int, int]] = []
    original = shipped()
    before = copy.copy(original.__dict__)
    result = audit(original, n_runs=100, progress=lambda done, in_all: seen.append((done, in_all)))
    assert isinstance(result, AuditResult)
    assert result.holds
    assert "no loss beyond the promise" in result.verdict
    assert seen[-1] == (800, 800)
    assert result.interference == []
    assert result.to_dict()["pairs"][0]["name"].startswith("a crowd")
    assert original.__dict__.keys() == before.keys()
    assert np.array_equal(original.bounds, before["bounds"])


@pytest.mark.slow
def test_half_the_noise_fails_the_public_function() -> None:
    result = audit(shipped(factor=0.5), n_runs=200)
    assert not result.holds
    assert result.verdict.startswith("FAILS")


@pytest.mark.slow
def test_local_noise_keeps_its_promise_and_the_audit_comes_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbelow", random.Random(0).randrange)
    result = audit(LocalNoise(2, [[0, 1]]), n_runs=1000)
    assert result.holds, result.verdict
    assert result.found > 1.2


@pytest.mark.parametrize("epsilon", [0.5, 15.0])
def test_the_papers_noise_fails_at_any_epsilon(epsilon: float) -> None:
    result = audit(PaperLaplace(epsilon), n_runs=100)
    assert not result.holds
    assert "distinguished in every one" in result.verdict


@pytest.mark.parametrize(("arguments", "words"), [((shipped(), 10), "n_runs"), (("noise", 100), "mechanism")])
def test_wrong_arguments(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        audit(*arguments)
