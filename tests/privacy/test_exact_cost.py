"""The exact cost of a unit: the shipped code keeps to what is charged, nearly tightly, and planted faults do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fcac.privacy import NodeRelease, agreement, agreement_counts, cell_release, distance_release, exact_cost
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.exact_cost import Cost, exact_costs
from fcac.privacy.mechanisms import node_release
from fcac.privacy.released_state import ReleasedState
from fcac.privacy.zcdp import gaussian_scale

Patch = pytest.MonkeyPatch
MECHANISM = NodeRelease(4.0, [[0.0, 1.0]])


def small_cases(d: int) -> list[Any]:
    """Fewer rows than the audit has, so that every fault is looked for in a second."""
    return [(name, (crowd[:60], unit), ids) for name, (crowd, unit), ids in CASES(d)]


CASES = exact_cost._cases


def broken(case: str) -> list[Cost]:
    return [cost for cost in exact_costs(MECHANISM) if not cost.holds and cost.case.startswith(case)]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_shipped_code_charges_what_a_unit_costs(epsilon: float) -> None:
    costs = exact_costs(NodeRelease(epsilon, [[0.0, 1.0]]))
    assert [cost for cost in costs if not cost.holds] == []
    for kind in ("three rounds", "distances", "agreement on bounds:", "agreement on bounds and levels"):
        # the worst case is nearly as bad as allowed: the cases are awake, and no noise is wasted
        assert max(cost.found / cost.promised for cost in costs if cost.case.startswith(kind)) > 0.99


def no_root_of_columns(patch: Patch) -> None:
    patch.setattr(agreement_counts, "gaussian_scale", lambda squared, rho: gaussian_scale(WEIGHT**2, rho))


def a_quarter_of_the_noise_in_fine_counts(patch: Patch) -> None:
    fine = agreement_counts.count_fine
    patch.setattr(agreement, "count_fine", lambda values, edges, rho, *rest: fine(values, edges, 16 * rho, *rest))


def columns_from_the_third_on_without_noise(patch: Patch) -> None:
    noised = cell_release.noised_totals

    def mutant(totals: Any, request: Any, sampler: Any) -> Any:
        step = noised(totals, request, sampler)
        step.sums[:, 2:] = np.asarray(totals.sums)[:, 2:]
        return step

    patch.setattr(cell_release, "noised_totals", mutant)


def gaps_filled_with_means_of_the_batch(patch: Patch) -> None:
    def mutant(rows: Any, bounds: Any) -> Any:
        means = np.nanmean(rows, axis=0) if len(rows) else np.zeros(rows.shape[1])
        return TO_UNIT(np.where(np.isnan(rows), means, rows), bounds)

    patch.setattr(node_release, "to_unit", mutant)


TO_UNIT = node_release.to_unit


def rows_of_a_person_do_not_share_a_weight(patch: Patch) -> None:
    for module in (node_release, distance_release, agreement_counts):
        patch.setattr(module, "person_weights", lambda people: np.full(len(people), WEIGHT, np.int64))


def ids_are_not_folded(patch: Patch) -> None:
    for module in (node_release, distance_release, agreement_counts):
        patch.setattr(module, "canonical_id", lambda text: text)


def distances_with_half_the_noise(patch: Patch) -> None:
    release = distance_release.release_distances
    patch.setattr(distance_release, "release_distances", lambda counts, rho, s: release(counts, 4 * rho, s))


def bins_of_distances_from_the_rows(patch: Patch) -> None:
    count = distance_release.count_distances

    def mutant(distances: Any, bins: Any, *rest: Any) -> Any:
        return count(distances / max(distances.max(initial=0.0), 1e-9), bins, *rest)

    patch.setattr(distance_release, "count_distances", mutant)


def the_exact_number_of_rows_is_said(patch: Patch) -> None:
    draw = NodeRelease.draw

    def mutant(self: NodeRelease, charged: Any) -> ReleasedState:
        state = draw(self, charged)
        state.counts[0] = len(charged.prepared.given_rows)
        return state

    patch.setattr(NodeRelease, "draw", mutant)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (no_root_of_columns, "agreement on bounds"),
        (a_quarter_of_the_noise_in_fine_counts, "agreement on bounds"),
        (columns_from_the_third_on_without_noise, "three rounds"),
        (gaps_filled_with_means_of_the_batch, "three rounds"),
        (rows_of_a_person_do_not_share_a_weight, "three rounds"),
        (rows_of_a_person_do_not_share_a_weight, "agreement"),
        (ids_are_not_folded, "three rounds"),
        (ids_are_not_folded, "distances"),
        (distances_with_half_the_noise, "distances"),
        (bins_of_distances_from_the_rows, "distances"),
        (the_exact_number_of_rows_is_said, "three rounds"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_planted_faults_are_found(monkeypatch: Patch, plant: Callable[[Patch], None], case: str) -> None:
    monkeypatch.setattr(exact_cost, "_cases", small_cases)
    assert broken(case) == []
    plant(monkeypatch)
    assert broken(case)
