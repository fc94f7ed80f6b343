"""What a unit costs, exactly: the shipped code is run with and without it, on the same noised values.

The noise source remembers what it was asked to noise. In the second run, without the unit, it gives the noised values
of the first, so that both runs take the same steps; what was to be noised then differs by what the unit adds, and
Gaussian noise makes that cost the squared difference over twice the variance. If anything else that leaves differs, it
left without noise. No chance is involved, so one run of a case proves a fault; cases that show none prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.codebook import Codebook
from fcac.privacy.agreement import agree
from fcac.privacy.distance_release import release_for_sites
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.noninterference import Replay, small_release, with_sampler
from fcac.privacy.zcdp import rho_from_epsilon
from fcac.tables.schema import Schema

#: Rows and, where people are named, ids.
Batch = tuple[Floats, list[str] | None]


class Cost(NamedTuple):
    """What a unit has cost in one case, and what was charged for it, as rho; infinite if something had no noise."""

    case: str
    found: float
    promised: float

    @property
    def holds(self) -> bool:
        """Whether no more was spent than was charged."""
        return self.found <= self.promised * (1.0 + 1e-12)


def cost_between(play: Callable[[Any, Batch], list[Any]], with_unit: Batch, without: Batch) -> float:
    """Return what the difference between two batches costs; `play` takes a noise source and returns what leaves."""
    first = Replay()
    left = play(first, with_unit)
    second = Replay(first=first)
    left_without = play(second, without)
    same = len(first.calls) == len(second.calls) and all(map(np.array_equal, left, left_without))
    return second.cost if same else math.inf


def exact_costs(mechanism: NodeRelease) -> list[Cost]:
    """Return what a unit costs in rounds, calibrations and agreements of this mechanism's epsilon and delta.

    Cases have one to seven columns, gaps, levels, rows far outside the bounds, and people with many rows, also such as
    write their ids in several ways.

    >>> from fcac.privacy import NodeRelease
    >>> all(cost.holds for cost in exact_costs(NodeRelease(4, bounds=[[0, 1]])))
    True
    """
    found = []
    for d in (1, 2, 7):
        for name, (crowd, unit), ids in _cases(d):
            people = None if ids is None else [f"crowd {n}" for n in range(len(crowd))]
            with_unit = np.vstack([crowd, unit]), None if people is None else [*people, *(ids or [])]
            named = f"{name}, {d} column{'s' if d > 1 else ''}"
            rho = rho_from_epsilon(mechanism.epsilon, mechanism.delta)
            for n_cells in (2, None):
                play = _rounds(mechanism, d, n_cells)
                found.append(Cost(f"three rounds: {named}", cost_between(play, with_unit, (crowd, people)), 3 * rho))
            cost = cost_between(_distances(mechanism, d), with_unit, (crowd, people))
            found.append(Cost(f"distances for novelty: {named}", cost, rho))
            # a level that only the unit has is named with a probability of its own, not by this cost
            for levels in (False, True) if len(crowd) else (False,):
                slack = 0.01 if levels else 0.0
                promised = rho_from_epsilon(mechanism.epsilon, mechanism.delta * (1.0 - slack))
                cost = cost_between(_agreement(mechanism, d, levels), with_unit, (crowd, people))
                what = "agreement on bounds and levels" if levels else "agreement on bounds"
                found.append(Cost(f"{what}: {named}", cost, promised))
    return found


def _cases(d: int) -> list[tuple[str, tuple[Floats, Floats], list[str] | None]]:
    crowd = np.random.default_rng(d).uniform(0.02, 0.1, (400, d))
    corner, gaps = np.ones((1, d)), np.ones((1, d))
    gaps[:, ::2] = np.nan
    others = crowd[:20].copy()
    others[:, 1::2] = np.nan
    everywhere = np.vstack([corner, 0 * corner, corner, gaps, 0.5 * corner])
    spelled = ["P01", "p1", " P1 ", "p\u200b1", "P001"]
    return [
        ("a row in the opposite corner", (crowd, corner), None),
        ("a row with gaps", (np.vstack([others, gaps, crowd]), gaps), None),
        ("a row far outside the bounds", (crowd, np.full((1, d), 1e9)), None),
        ("a row among nobody", (np.empty((0, d)), corner), None),
        ("a person with rows everywhere", (crowd, everywhere), spelled),
    ]


def _rounds(mechanism: NodeRelease, d: int, n_cells: int | None) -> Callable[[Any, Batch], list[Any]]:
    def play(source: Any, batch: Batch) -> list[Any]:
        small, state, left = with_sampler(small_release(mechanism, n_cells, d), source), None, []
        for number in (1, 2, 3):
            *sent, state = small.release(batch[0], state, "audit", number, record_ids=batch[1])
            left += [*sent, state.node_noise, state.count_noise]
        return left

    return play


def _distances(mechanism: NodeRelease, d: int) -> Callable[[Any, Batch], list[Any]]:
    book = Codebook(np.vstack([np.full((1, d), 0.05), np.full((1, d), 0.5)]), np.array([0, 1]))

    def play(source: Any, batch: Batch) -> list[Any]:
        ids: dict[SiteName, Any] | None = None if batch[1] is None else {"audit": batch[1]}
        small = with_sampler(small_release(mechanism, mechanism.n_cells, d), source)
        try:
            calibration, _ = release_for_sites(small, book, {"audit": batch[0]}, mechanism.epsilon, ids)
        except ValueError:  # too few rows for so much noise: said after it was drawn, from noised counts
            return []
        return [np.asarray(calibration.distances)]

    return play


def _agreement(mechanism: NodeRelease, d: int, levels: bool) -> Callable[[Any, Batch], list[Any]]:
    columns = {f"x{number}": {"kind": "number"} for number in range(d)}
    columns |= {"level": {"kind": "category"}} if levels else {}
    schema = Schema.from_dict({"fcac_schema": 1, "bounds_are_public": False, "columns": columns})

    def play(source: Any, batch: Batch) -> list[Any]:
        rows, ids = batch
        table = {f"x{number}": pa.array(rows[:, number], from_pandas=True) for number in range(d)}
        table["level"] = pa.array(["usual"] * len(rows), pa.string())
        if ids is not None:
            table["who"] = pa.array(ids, pa.string())
        try:
            agreed = agree(
                schema, {"audit": pa.table(table)}, mechanism.epsilon, delta=mechanism.delta, sampler=source,
                record_id=None if ids is None else "who", levels=levels,
            )  # fmt: skip
        except ValueError:  # too few rows to agree on anything, by their noised counts
            return []
        return [np.array([agreed.to_toml()])]

    return play
