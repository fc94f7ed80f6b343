"""Two hundred attempts to release beyond a budget: whatever is tried, what a person has really cost stays within it.

The cost is not taken from the ledger: for everything that leaves, it is computed from what was noised, with and without
Ann's rows (:mod:`fcac.privacy.exact_cost`).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac.aggregation import Assignment
from fcac.aggregation.pooled import PooledGrowth, share_scales, to_task
from fcac.exceptions import PrivacyError
from fcac.federation.summed_round import PooledRows
from fcac.privacy import Ledger, NodeRelease, durable_release, ledger_sums, release_once
from fcac.privacy.account import Account
from fcac.privacy.cell_release import release_cells
from fcac.privacy.cell_statistics import UNIT, person_weights
from fcac.privacy.exact_cost import cost_between
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import SMOOTHING, rho_from_epsilon

BUDGET, EPSILON, DELTA, BOUNDS = 2.0, 0.35, 1e-6, [[0.0, 1.0]]
#: Ann's rows are the only ones in the upper half.
ANN = np.array([[0.95], [0.97], [1.0]])
SPELLINGS = ["Ann 1", "ann1", "ANN01", " ann\u200b1", "Ann\u00ad001", "\uff21nn1"]


class _Died(Exception):
    """The program ends here."""


class _Dying(InsecureTestSampler):
    def add_noise(self, values: Any, scale: float) -> Any:
        raise _Died


class Owner:
    """An owner of data who tries to get more out of them than the budget allows; `cost` is what has left about Ann."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.ledger = Ledger(folder / "ledger.db", BUDGET, DELTA)
        self.state: Any = None
        self.cost, self.number = 0.0, 0
        self.told: Counter[str] = Counter()
        self.first = self.rows(), self.ids()

    def rows(self) -> np.ndarray:
        return np.vstack([self.rng.uniform(0.0, 0.4, (12, 1)), ANN])

    def ids(self) -> list[str]:
        return [*(f"other {n}" for n in range(12)), *self.rng.choice(SPELLINGS, 3)]

    def mechanism(self, sampler: Any = None) -> NodeRelease:
        noise = InsecureTestSampler(self.number) if sampler is None else sampler
        return NodeRelease(EPSILON, BOUNDS, DELTA, self.ledger, n_cells=2, sampler=noise)

    def leaves(self, charged: Any) -> float:
        """Return what Ann's part in a release costs."""
        ann = charged.rows[:, 0] > 0
        weights = person_weights([str(n) for n in range(len(ann))]) if charged.weights is None else charged.weights
        start, _ = charged.prepared.state, None
        nodes = None if start is None else start.unit_nodes

        def play(source: Any, batch: Any) -> list[Any]:
            made = release_cells(batch[0], charged.rho, source, np.random.default_rng(1), 2, nodes, batch[1])
            return [made.unit_nodes, made.counts]

        return cost_between(play, (charged.rows, weights), (charged.rows[~ann], weights[~ann]))

    def release(self, rows: Any, ids: Any, site: str = "clinic", state: Any = None, sampler: Any = None) -> Any:
        self.number += 1
        mechanism = self.mechanism(sampler)
        charged = mechanism.charge(mechanism.prepare(rows, state, site, self.number, record_ids=ids))
        released = mechanism.draw(charged)
        self.cost += self.leaves(charged)
        return released

    def copy(self, name: str) -> None:
        for end in ("", ".key", ".last"):
            if (self.folder / f"ledger.db{end}").exists():
                shutil.copy2(self.folder / f"ledger.db{end}", self.folder / f"{name}{end}")

    def put(self, name: str, *ends: str) -> None:
        for end in ends:
            shutil.copy2(self.folder / f"{name}{end}", self.folder / f"ledger.db{end}")


def usual(owner: Owner) -> None:
    owner.state = owner.release(owner.rows(), owner.ids(), state=owner.state)


def same_rows_under_another_file_name(owner: Owner) -> None:
    owner.release(owner.first[0], owner.first[1], f"export-{owner.number}.csv")


def ids_spelt_differently(owner: Owner) -> None:
    owner.release(owner.rows(), [*owner.ids()[:12], *SPELLINGS[:3]])
    owner.release(owner.rows(), [*owner.ids()[:12], *SPELLINGS[3:]])


def same_rows_under_other_ids(owner: Owner) -> None:
    with pytest.raises(PrivacyError, match=r"other record ids before|the budget is"):
        owner.release(owner.first[0], [f"{owner.number}-{n}" for n in range(15)])


def without_ids(owner: Owner) -> None:
    """The unit is a row then, and Ann has one."""
    owner.release(owner.rows()[:-2], None)


def _with_another_ledger(owner: Owner, change: Callable[[], None]) -> None:
    """Change the ledger's files, try to go on, and put them back."""
    usual(owner)
    owner.copy("now")
    change()
    try:
        with pytest.raises(PrivacyError):
            owner.release(owner.rows(), owner.ids(), state=owner.state)
    finally:
        for file in owner.folder.glob("ledger.db*"):
            file.unlink()
        owner.put("now", "", ".key", ".last")


def older_ledger(owner: Owner) -> None:
    _with_another_ledger(owner, lambda: owner.put("old", ""))


def older_ledger_and_what_is_beside_it(owner: Owner) -> None:
    _with_another_ledger(owner, lambda: owner.put("old", "", ".key", ".last"))


def deleted_ledger(owner: Owner) -> None:
    _with_another_ledger(owner, (owner.folder / "ledger.db").unlink)


def everything_deleted(owner: Owner) -> None:
    _with_another_ledger(owner, lambda: [file.unlink() for file in owner.folder.glob("ledger.db*")] and None)


def crash_between_charge_and_draw(owner: Owner) -> None:
    with pytest.raises(_Died):
        owner.release(owner.rows(), owner.ids(), sampler=_Dying(0))


def crash_between_draw_and_record(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw is lost; asked again, the round is charged and drawn anew, and only that leaves."""
    owner.number += 1
    rows, ids, path = owner.rows(), owner.ids(), owner.folder / f"sent-{owner.number}"
    given = rows, None, "clinic", owner.number, path

    def die(*_: Any) -> None:
        raise _Died

    with monkeypatch.context() as patch:
        patch.setattr(durable_release, "write_atomic", die)
        with pytest.raises(_Died):
            release_once(owner.mechanism(), *given, record_ids=ids)
    kept: list[Any] = []
    mechanism = owner.mechanism()
    charge = mechanism.charge
    mechanism.charge = lambda prepared: kept.append(charge(prepared)) or kept[-1]  # type: ignore[method-assign]
    sent = release_once(mechanism, *given, record_ids=ids)
    assert release_once(mechanism, *given, record_ids=ids).data == sent.data
    owner.cost += sum(map(owner.leaves, kept))


def four_at_once(owner: Owner) -> None:
    def one(place: int) -> float:
        mechanism = owner.mechanism(InsecureTestSampler(place))
        ids = [*(f"other {n}" for n in range(12)), *SPELLINGS[place : place + 3]]
        rows = np.vstack([np.random.default_rng([owner.number, place]).uniform(0.0, 0.4, (12, 1)), ANN])
        charged = mechanism.charge(mechanism.prepare(rows, None, f"site-{place}", owner.number, record_ids=ids))
        mechanism.draw(charged)
        return owner.leaves(charged)

    owner.number += 1
    with ThreadPoolExecutor(4) as threads:
        owner.cost += sum(threads.map(one, range(4)))


def wrong_clock(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledger_sums, "_now", lambda: "1970-01-01T00:00:00+00:00")
        owner.release(owner.rows(), owner.ids())


def another_budget(owner: Owner) -> None:
    for settings in ((5 * BUDGET, DELTA), (BUDGET, 1e-5)):
        own, owner.ledger = owner.ledger, Ledger(owner.folder / "ledger.db", *settings)
        with pytest.raises((PrivacyError, ValueError)):
            owner.release(owner.rows(), owner.ids())
        owner.ledger = own


def summed_round_that_breaks_off(owner: Owner) -> None:
    """Two steps of a summed round leave; the third is never asked for, and the next attempt begins anew."""
    owner.number += 1
    mechanism = owner.mechanism()
    prepared = mechanism.prepare(owner.rows(), None, "clinic", owner.number, record_ids=owner.ids())
    growth = PooledGrowth(mechanism, None, owner.number)
    work = PooledRows(mechanism, {"clinic": prepared}, Account())
    for number in (1, 2):
        assert growth.request is not None
        vector = work("clinic", Assignment(to_task(growth.request), number, growth.n_steps, 4))
        rows, weights = work._parts["clinic"]
        scales, request = share_scales(growth.request, 4), growth.request

        def play(source: Any, batch: Any, request: Any = request) -> list[Any]:
            from fcac.aggregation.pooled import site_vector

            return [site_vector(batch[0], request, 1, source, batch[1])]  # all of the noise that a total has

        ann = rows[:, 0] > UNIT // 10
        own = weights if weights is not None else person_weights([str(n) for n in range(len(ann))])
        owner.cost += cost_between(play, (rows, own), (rows[~ann], own[~ann]))
        assert scales.counts**2 > SMOOTHING
        growth.take(vector, 4, 4)


ATTEMPTS = [
    usual, same_rows_under_another_file_name, ids_spelt_differently, same_rows_under_other_ids, without_ids,
    older_ledger, older_ledger_and_what_is_beside_it, deleted_ledger, everything_deleted, crash_between_charge_and_draw,
    crash_between_draw_and_record, four_at_once, wrong_clock, another_budget, summed_round_that_breaks_off,
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_nothing_leaves_beyond_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    owner = Owner(tmp_path, seed)
    monkeypatch.setattr("fcac.privacy.mechanisms.node_release.warnings.warn", lambda *_, **__: None)
    owner.release(*owner.first)
    owner.copy("old")
    allowed, most = rho_from_epsilon(BUDGET, DELTA), 0.0
    order = [ATTEMPTS[n % len(ATTEMPTS)] for n in range(200)]
    owner.rng.shuffle(order)  # type: ignore[arg-type]
    for attempt in order:
        needs = (owner, monkeypatch) if "monkeypatch" in attempt.__code__.co_varnames[:2] else (owner,)
        try:
            attempt(*needs)
            owner.told[f"{attempt.__name__}: done or refused as it should be"] += 1
        except PrivacyError as refused:
            owner.told[f"{attempt.__name__}: {type(refused).__name__}"] += 1
        assert owner.cost <= allowed, attempt.__name__
        assert owner.cost <= owner.ledger.spent_rho() * (1 + 1e-9), attempt.__name__
        most = max(most, owner.cost)
    print(
        f"200 attempts: {most / allowed:.3f} of the budget has really left; the ledger has {owner.ledger.spent():.3f}"
    )
    for words, times in sorted(owner.told.items()):
        print(f"  {times:3} {words}")
    assert most > 0.5 * allowed  # the attempts were near the limit
