"""One round under secure aggregation inside one process: the same protocol as between machines, message by message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, site_order
from fcac._typing import Integers
from fcac.aggregation import Assignment, Collector, Member, Roster, SigningKey
from fcac.aggregation.pooled import POOLED, PooledGrowth, read_task, site_vector, step_cost, terms
from fcac.aggregation.roster import check_size, fewest_sites, usual_tolerance
from fcac.exceptions import BudgetExceeded, TooFewSites
from fcac.federation.aggregation_setting import SECURE
from fcac.federation.contribution import Contribution
from fcac.federation.rounds import Engine
from fcac.federation.site import Site
from fcac.privacy.account import Account
from fcac.privacy.cell_statistics import person_weights
from fcac.privacy.ledger import Admission
from fcac.privacy.mechanism import AnyMechanism
from fcac.privacy.mechanisms.node_release import NodeRelease, Prepared
from fcac.privacy.record_ids import MultisetHash, canonical_id
from fcac.privacy.released_state import ReleasedState
from fcac.privacy.zcdp import rho_from_epsilon, show

#: What happens to an answer on its way to the hub: returns it, or None if the site has vanished. For tests.
Fault = Callable[[str, str, int, bytes], bytes | None]


def check_pooled(privacy: AnyMechanism | None) -> NodeRelease:
    """Return the mechanism if its sites can be summed; only totals with noise can."""
    if not isinstance(privacy, NodeRelease):
        raise ValueError(
            "aggregation: only the totals of NodeRelease can be summed before anyone sees them; "
            "give privacy=NodeRelease(epsilon, bounds), or leave aggregation='plain'"
        )
    return privacy


def tolerance_for(n_sites: int, wanted: int | None) -> int:
    """Return how many sites may vanish or collude, or raise an error that says how many sites that needs."""
    check_size(n_sites)
    tolerance = usual_tolerance(n_sites) if wanted is None else wanted
    if n_sites < fewest_sites(tolerance):
        raise ValueError(
            f"secure aggregation with t = {tolerance} needs at least {fewest_sites(tolerance)} sites, "
            f"this round has {n_sites}: the total of a few sites would tell too much about each"
        )
    return tolerance


class PooledRows:
    """What the sites of one owner do in every step of a round: charge once for all, add up, draw each its noise.

    A person with rows at several of them is one person: their rows share one weight, and they are charged once, under
    the name of `payer` or that of the only site. A ledger that does not know the receipts of `account` is refused.
    """

    def __init__(
        self,
        mechanism: NodeRelease,
        prepared: Mapping[str, Prepared],
        account: Account | None = None,
        payer: str | None = None,
    ) -> None:
        self.mechanism, self.prepared = mechanism, dict(prepared)
        self.account = Account() if account is None else account
        self._payer = next(iter(self.prepared)) if payer is None else payer
        self._paid: list[Admission | None] = []
        self._parts: dict[str, tuple[Any, Integers | None]] = {}
        named = [item.record_ids is not None for item in self.prepared.values()]
        if any(named) and not all(named):
            raise ValueError("record_ids: either all sites of a round name the person of every row, or none does")

    def __call__(self, name: str, assigned: Assignment) -> Integers:
        """Return what one site adds to the total of a step; the step is charged before anybody draws."""
        request = read_task(assigned, self.mechanism)
        if assigned.step != len(self._paid):
            self._charge(assigned)
        rows, weights = self._parts[name]
        return site_vector(rows, request, assigned.certain_shares, self.mechanism.sampler, weights)

    def _charge(self, assigned: Assignment) -> None:
        mechanism, ledger, parts = self.mechanism, self.mechanism.ledger, list(self.prepared.values())
        ids = None if parts[0].record_ids is None else [name for part in parts for name in part.record_ids or ()]
        rho, unit = step_cost(mechanism, assigned.step, assigned.n_steps), "row" if ids is None else "person"
        admission = None
        if ledger is not None:
            admission = ledger.admit(
                self._payer,
                rho,
                round=parts[0].round,
                batch=_batch(parts),
                record_ids=ids,
                what=f"NodeRelease, summed over sites, step {assigned.step} of {assigned.n_steps} of "
                f"eps = {mechanism.epsilon:g} at delta = {show(mechanism.delta)}, "
                f"noise for {assigned.certain_shares} honest sites",
                receipts=self.account.receipts,
            )
            self.account = self.account.after(rho, unit, admission.spent, ledger.budget, admission.receipt)
        else:
            self.account = self.account.after(rho, unit, None, None, None)
        self._paid = [*[None] * (assigned.step - 1), admission]
        self._parts = dict(zip(self.prepared, _admitted(parts, ids, admission), strict=True))

    def complete(self) -> None:
        """Mark the charge of the latest step as completed: what it paid for is stored."""
        if self._paid and self._paid[-1] is not None and self.mechanism.ledger is not None:
            self.mechanism.ledger.complete(self._paid[-1].number)


def _admitted(
    parts: Sequence[Prepared], ids: list[str] | None, admission: Admission | None
) -> list[tuple[Any, Integers | None]]:
    """Return the rows and weights of every site; people whose budget is used up are left out at all of them."""
    if ids is None:
        return [(part.rows, None) for part in parts]
    kept: NDArray[np.bool_] = np.ones(len(ids), dtype=np.bool_)
    if admission is not None and admission.admitted is not None:
        kept = admission.admitted
    weights = np.zeros(len(ids), dtype=np.int64)
    weights[kept] = person_weights([canonical_id(name) for name, stays in zip(ids, kept, strict=True) if stays])
    ends = np.cumsum([len(part.record_ids or ()) for part in parts])[:-1]
    return [
        (part.rows[own], weight[own])
        for part, own, weight in zip(parts, np.split(kept, ends), np.split(weights, ends), strict=True)
    ]


def _batch(parts: Sequence[Prepared]) -> Any:
    """Return the rows of all sites, by which a ledger recognises them; of very many rows it was their hash already."""
    if len(parts) == 1:
        return parts[0].given_rows
    if any(isinstance(part.given_rows, MultisetHash) for part in parts):
        return None
    return np.concatenate([part.given_rows for part in parts])


class Summed(Engine):
    """Sums the sites' rows step by step under secure aggregation; one contribution comes of it.

    Every site in `data` takes part; an empty table is fine. What was released so far stands in `sites` under the name
    :data:`~fcac.aggregation.pooled.POOLED`. Of the sites, `tolerance` may vanish or collude, a tenth by default.
    `fault` is called with site, stage, step and answer, and returns the answer, or None if it is lost and the site is
    gone.
    """

    def __init__(
        self,
        sites: dict[SiteName, Site],
        data: Mapping[SiteName, Any],
        privacy: AnyMechanism | None,
        *,
        tolerance: int | None = None,
        progress: Callable[[int], None] | None = None,
        record_ids: Mapping[SiteName, Sequence[Any]] | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.mechanism = check_pooled(privacy)
        self.sites, self.data = sites, data
        self._spelled = {str(name): name for name in site_order(data)}
        if len(self._spelled) != len(data):
            raise ValueError("two sites have the same name, once as a text and once as a number")
        self._pooled = sites.get(POOLED) or Site(POOLED, self.mechanism)
        self._tolerance = tolerance_for(len(data), tolerance)
        self._progress, self._fault = progress, fault
        self._record_ids = record_ids

    @property
    def newest_round(self) -> int:
        return self._pooled.round

    def contribute(self, number: int) -> list[Contribution]:
        mechanism, pooled = self.mechanism, self._pooled
        released = pooled.model if isinstance(pooled.model, ReleasedState) else None
        work = self._work(number, None if released is None else released.account)
        check_budgets(mechanism, list(work.prepared), self._record_ids, work.account)
        keys = {text: SigningKey.new() for text in work.prepared}
        least = fewest_sites(self._tolerance)
        roster = Roster("in one process", {t: key.public for t, key in keys.items()}, self._tolerance, least)
        agreed = terms(mechanism)
        members = {text: Member(text, key, roster, agreed) for text, key in keys.items()}
        growth = PooledGrowth(mechanism, released, number)
        collector = Collector(roster, number, 1, growth.n_steps, agreed)
        try:
            self._play(collector, growth, members, work)
        except TooFewSites:
            if released is not None:  # what was drawn in vain has been paid for
                pooled.note_cost(work.account)
            raise
        assert growth.released is not None
        pooled.adopt(replace(growth.released, account=work.account), number)
        self.sites[POOLED] = pooled
        return [pooled_contribution(pooled, len(collector.survivors), self._tolerance)]

    def _work(self, number: int, account: Account | None) -> PooledRows:
        ids = self._record_ids or {}
        prepared = {
            text: self.mechanism.prepare(_rows(self.data[name]), site=text, round=number, record_ids=ids.get(name))
            for text, name in self._spelled.items()
        }
        return PooledRows(self.mechanism, prepared, account, POOLED)

    def _play(
        self, collector: Collector, growth: PooledGrowth, members: Mapping[str, Member], work: PooledRows
    ) -> None:
        gone: set[str] = set()
        for _ in range(2):
            self._play_stage(collector, members, work, gone)
        while growth.request is not None:
            collector.begin_step(growth.task())
            for _ in range(3):
                self._play_stage(collector, members, work, gone)
            assert collector.total is not None
            work.complete()
            growth.take(collector.total, len(collector.survivors), collector.certain_shares)
            if self._progress is not None:
                self._progress(collector.step)

    def _play_stage(
        self, collector: Collector, members: Mapping[str, Member], work: PooledRows, gone: set[str]
    ) -> None:
        for text, request in collector.requests().items():
            if text in gone:
                continue
            stage, step = collector.stage, collector.step
            answer: bytes | None = members[text].answer(request, partial(work, text))
            if self._fault is not None and answer is not None:
                answer = self._fault(text, stage, step, answer)
            if answer is None:
                gone.add(text)
            else:
                collector.take(text, answer)
        collector.close_stage()


def pooled_contribution(pooled: Site, n_sites: int, tolerance: int) -> Contribution:
    """Return what the server absorbs: the nodes of all sites together, and how they were summed."""
    sent = pooled.contribute(round=pooled.round)
    said = {**sent.privacy, "aggregation": SECURE, "sites": n_sites, "tolerance": tolerance}
    return replace(sent, privacy=said)


def sites_behind(sent: Contribution) -> int:
    """Return how many sites a contribution is from: one or, if it is a sum, those in its latest total."""
    return int(sent.privacy.get("sites", 1)) if sent.privacy.get("aggregation") == SECURE else 1


def _rows(rows: Any) -> Any:
    if not hasattr(rows, "blocks"):
        return rows
    blocks = [block.copy() for block in rows.blocks()]
    return np.concatenate(blocks) if blocks else np.empty((0, rows.n_features))


def check_budgets(mechanism: NodeRelease, names: Sequence[str], named: Any, account: Account) -> None:
    """Refuse, before anything is charged, a ledger that lacks what has left and a round that it could not pay.

    With ids no round is refused for its cost: people whose budget is used up are left out.
    """
    ledger = mechanism.ledger
    if ledger is None:
        return
    ledger.verify(account.receipts)
    allowed = rho_from_epsilon(ledger.budget, ledger.delta)
    if named is None and ledger.spent_rho() + mechanism.rho * (1.0 - 1e-9) > allowed:
        raise BudgetExceeded(
            f"sites {', '.join(names)}: this round would exceed the budget of eps = {ledger.budget:g}; nothing was "
            "drawn. Raise the budget or stop here"
        )
