"""Planted faults in what is sent: each must be found exactly, without any number of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fcac.federation import site as site_module
from fcac.federation.sent_audit import sent_differences
from fcac.privacy import NodeRelease, audit, cell_release
from fcac.privacy.cell_statistics import cell_totals, from_grid
from fcac.privacy.mechanisms import node_release
from fcac.privacy.noninterference import compare, differences, example_rounds, release_rounds, small_release
from fcac.privacy.samplers import InsecureTestSampler

pytestmark = pytest.mark.slow

BOUNDS = [[0.0, 1.0], [0.0, 1.0]]
RELEASE = cell_release.release_cells
Patch = pytest.MonkeyPatch


def shipped(epsilon: float = 4.0) -> NodeRelease:
    return NodeRelease(epsilon, BOUNDS)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_shipped_code_is_sound(epsilon: float) -> None:
    assert differences(shipped(epsilon)) == []
    assert sent_differences(shipped(epsilon)) == []


@pytest.mark.soak
def test_the_shipped_code_is_sound_for_many_seeds() -> None:
    for epsilon in (0.1, 1.0, 4.0, 10.0):
        for seed in range(0, 2000, 10):
            assert differences(shipped(epsilon), seed) == []
            assert sent_differences(shipped(epsilon), seed) == []


def true_counts(rows: Any, outcome: Any, weights: Any) -> Any:
    step = outcome.steps[-1]
    return cell_totals(rows, step.codebook, step.bases, step.radius, weights).counts


def after_release(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Let every release be changed by something that knows the rows."""

    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        return change(RELEASE(rows, rho, sampler, generator, n_cells, start, weights), rows, weights)

    patch.setattr(node_release, "release_cells", release)


# ------------------------------------------------------------ the review's


def exact_counts_sent(patch: Patch) -> None:
    def change(outcome: Any, rows: Any, weights: Any) -> Any:
        return outcome._replace(counts=np.full(len(outcome.counts), 1.0 + len(rows)))

    after_release(patch, change)


def live_cells_from_true_counts(patch: Patch) -> None:
    def change(outcome: Any, rows: Any, weights: Any) -> Any:
        n_alive = max(1, min(int((true_counts(rows, outcome, weights) > 0).sum()), len(outcome.counts)))
        kept = {
            name: getattr(outcome, name)[:n_alive] for name in ("unit_nodes", "counts", "node_noise", "count_noise")
        }
        return outcome._replace(**kept)

    after_release(patch, change)


def radius_from_true_rings(patch: Patch) -> None:
    step, next_radius, true = cell_release.noised_step, cell_release._next_radius, {}

    def watching(rows: Any, codebook: Any, bases: Any, radius: Any, *rest: Any) -> Any:
        true["rings"] = cell_totals(rows, codebook, bases, radius).rings
        return step(rows, codebook, bases, radius, *rest)

    patch.setattr(cell_release, "noised_step", watching)
    patch.setattr(cell_release, "_next_radius", lambda noised, d: next_radius(replace(noised, rings=true["rings"]), d))


def number_of_cells_from_true_n(patch: Patch) -> None:
    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        return RELEASE(rows, rho, sampler, generator, max(3, min(9, len(rows) // 20)), start, weights)

    patch.setattr(node_release, "release_cells", release)


def later_codebook_from_raw_rows(patch: Patch) -> None:
    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        if start is not None and len(rows):
            start = from_grid(rows[np.arange(len(start)) % len(rows)])
        return RELEASE(rows, rho, sampler, generator, n_cells, start, weights)

    patch.setattr(node_release, "release_cells", release)


def less_noise_in_later_rounds(patch: Patch) -> None:
    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        return RELEASE(rows, rho * (1 if start is None else 4), sampler, generator, n_cells, start, weights)

    patch.setattr(node_release, "release_cells", release)
    patch.setattr(cell_release, "gaussian_rho", lambda squared, scale: 0.0)  # and the check that would have noticed


# ------------------------------------------------------------ more of them


def empty_batches_are_not_answered(patch: Patch) -> None:
    def change(outcome: Any, rows: Any, weights: Any) -> Any:
        if len(rows) == 0:
            raise ValueError("nothing to send")
        return outcome

    after_release(patch, change)


def deviations_from_true_counts(patch: Patch) -> None:
    def change(outcome: Any, rows: Any, weights: Any) -> Any:
        return outcome._replace(node_noise=outcome.node_noise / (1.0 + len(rows)))

    after_release(patch, change)


def joined_by_the_spread_of_rows(patch: Patch) -> None:
    def change(outcome: Any, rows: Any, weights: Any) -> Any:
        return outcome._replace(vigilance=float(len(rows)))

    after_release(patch, change)


def noise_from_the_number_of_rows(patch: Patch) -> None:
    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        return RELEASE(rows, rho * (0.9 if len(rows) > 50 else 1.0), sampler, generator, n_cells, start, weights)

    patch.setattr(node_release, "release_cells", release)


def the_statement_tells_the_number_of_rows(patch: Patch) -> None:
    charge = NodeRelease.charge

    def telling(self: NodeRelease, prepared: Any) -> Any:
        charged = charge(self, prepared)
        return replace(charged, account=replace(charged.account, spent=float(len(prepared.rows))))

    patch.setattr(NodeRelease, "charge", telling)


def splits_seeded_by_the_rows(patch: Patch) -> None:
    def release(rows: Any, rho: float, sampler: Any, generator: Any, n_cells: Any, start: Any, weights: Any) -> Any:
        return RELEASE(rows, rho, sampler, np.random.default_rng(len(rows)), n_cells, start, weights)

    patch.setattr(node_release, "release_cells", release)


FAULTS = [
    (exact_counts_sent, "released_counts"),
    (live_cells_from_true_counts, "unit_nodes"),
    (radius_from_true_rings, "the radius"),
    (number_of_cells_from_true_n, "the number of cells"),
    (later_codebook_from_raw_rows, "the codebook of later rounds"),
    (less_noise_in_later_rounds, "costs more"),
    (empty_batches_are_not_answered, "whether there is an answer"),
    (deviations_from_true_counts, "node_noise"),
    (joined_by_the_spread_of_rows, "round 2: unit_nodes"),
    (noise_from_the_number_of_rows, "the amount of noise"),
    (the_statement_tells_the_number_of_rows, "what is said"),
    (splits_seeded_by_the_rows, "the codebook"),
]


@pytest.mark.parametrize(("plant", "words"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_planted_faults_are_found(monkeypatch: Patch, plant: Callable[[Patch], None], words: str) -> None:
    plant(monkeypatch)
    found = compare(small_release(shipped(), None), example_rounds(), release_rounds)
    assert any(words in name for name in found), found


def test_a_fault_in_what_the_hub_receives_is_found(monkeypatch: Patch) -> None:
    current = site_module.Site._current
    seen: list[int] = []
    observe = site_module.Site.observe

    def counting(self: Any, rows: Any, *more: Any, **named: Any) -> None:
        seen.append(len(rows))
        observe(self, rows, *more, **named)

    def telling(self: Any) -> Any:
        sent = current(self)
        return replace(sent, counts=sent.counts + seen[-1])

    monkeypatch.setattr(site_module.Site, "observe", counting)
    monkeypatch.setattr(site_module.Site, "_current", telling)
    assert differences(shipped()) == []
    assert "round 1: counts as received" in sent_differences(shipped())


def test_the_audit_fails_on_interference(monkeypatch: Patch) -> None:
    exact_counts_sent(monkeypatch)
    result = audit(NodeRelease(4, BOUNDS, sampler=InsecureTestSampler(0)), n_runs=100)
    assert not result.holds
    assert "depends on rows other than through the noise" in result.verdict
    assert result.to_dict()["interference"]
