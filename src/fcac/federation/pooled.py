"""One round under secure aggregation inside one process: the same protocol as between machines, message by message."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fcac._sites import SiteName, site_order
from fcac._typing import Integers
from fcac.aggregation import Assignment, Collector, Member, Roster, SigningKey
from fcac.aggregation.pooled import POOLED, PooledGrowth, read_task, site_vector, step_cost, terms
from fcac.aggregation.roster import fewest_sites, usual_tolerance
from fcac.exceptions import BudgetExceeded
from fcac.federation.aggregation_setting import SECURE
from fcac.federation.contribution import Contribution
from fcac.federation.rounds import Engine
from fcac.federation.site import Site
from fcac.privacy.cell_statistics import person_weights
from fcac.privacy.mechanism import AnyMechanism
from fcac.privacy.mechanisms.node_release import NodeRelease, Prepared
from fcac.privacy.record_ids import canonical_id
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
    tolerance = usual_tolerance(n_sites) if wanted is None else wanted
    if n_sites < fewest_sites(tolerance):
        raise ValueError(
            f"secure aggregation with t = {tolerance} needs at least {fewest_sites(tolerance)} sites, "
            f"this round has {n_sites}: the total of a few sites would tell too much about each"
        )
    return tolerance


@dataclass
class PooledTask:
    """What a site does in every step: charge, add up, draw its share of the noise.

    Parameters
    ----------
    mechanism : NodeRelease
    prepared : Prepared
        The site's rows of this round, checked.
    joint : str, optional
        Name of this attempt at a round, if several sites share a ledger: each row is at one of them, so the largest
        charge counts. It must differ from attempt to attempt, because each draws anew. None: charges add up.
    """

    mechanism: NodeRelease
    prepared: Prepared
    joint: str | None = None
    charges: list[int] = field(default_factory=list)

    def __call__(self, assigned: Assignment) -> Integers:
        """Charge the step, and only then draw."""
        request = read_task(assigned, self.mechanism)
        ledger, prepared = self.mechanism.ledger, self.prepared
        if ledger is not None:
            admission = ledger.admit(
                prepared.site,
                step_cost(self.mechanism, assigned.step, assigned.n_steps),
                round=prepared.round,
                # the same rows are needed in every step; they count as a repeat only in the first
                batch=prepared.given_rows if assigned.step == 1 else None,
                record_ids=prepared.record_ids,
                what=f"NodeRelease, summed over sites, step {assigned.step} of {assigned.n_steps} of "
                f"eps = {self.mechanism.epsilon:g} at delta = {show(self.mechanism.delta)}",
                alongside=None if self.joint is None else f"{self.joint}, step {assigned.step}",
            )
            self.charges.append(admission.number)
        rows, weights = prepared.rows, None
        if prepared.record_ids is not None:
            people = [canonical_id(name) for name in prepared.record_ids]
            if ledger is not None:  # the rows of people whose budget is used up are left out
                rows = rows[admission.admitted]
                people = [name for name, kept in zip(people, admission.admitted, strict=True) if kept]
            weights = person_weights(people)
        return site_vector(rows, request, assigned.certain_shares, self.mechanism.sampler, weights)

    def complete(self) -> None:
        """Mark the charges as completed: what they paid for has been sent."""
        if self.mechanism.ledger is not None:
            for number in self.charges:
                self.mechanism.ledger.complete(number)


class Summed(Engine):
    """Sums the sites' rows step by step under secure aggregation; one contribution comes of it.

    Parameters
    ----------
    sites : dict of name to Site
        Holds what was released so far under the name :data:`~fcac.aggregation.pooled.POOLED`; the sites themselves
        keep nothing. It is changed.
    data : mapping of name to rows
        Every site in it takes part; an empty table is fine.
    privacy : NodeRelease
    tolerance : int, optional
        Sites that may vanish or collude; a tenth by default.
    progress : callable, optional
        Called with the number of steps that are over.
    record_ids
        As of :class:`~fcac.federation.in_process.InProcess`.
    fault : callable, optional
        Called with site, stage, step and answer; returns the answer, or None if it is lost and the site is gone.
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
        work = self._tasks(number)
        check_budgets(mechanism, list(work), self._record_ids)
        study = SigningKey.new()
        keys = {text: SigningKey.new() for text in work}
        least = fewest_sites(self._tolerance)
        roster = Roster("in one process", 1, {t: key.public for t, key in keys.items()}, self._tolerance, least)
        agreed = terms(mechanism)
        members = {text: Member(text, key, study.public, agreed) for text, key in keys.items()}
        released = pooled.model if isinstance(pooled.model, ReleasedState) else None
        growth = PooledGrowth(mechanism, released, number)
        collector = Collector(roster, roster.signed_by(study), number, 1, growth.n_steps, agreed)
        gone: set[str] = set()
        for _ in range(2):
            self._play_stage(collector, members, work, gone)
        while growth.request is not None:
            collector.begin_step(growth.task())
            for _ in range(3):
                self._play_stage(collector, members, work, gone)
            assert collector.total is not None
            growth.take(collector.total, len(collector.survivors), collector.certain_shares)
            if self._progress is not None:
                self._progress(collector.step)
        for task in work.values():
            task.complete()
        assert growth.released is not None
        pooled.adopt(growth.released, number)
        self.sites[POOLED] = pooled
        return [pooled_contribution(pooled, len(collector.survivors), self._tolerance)]

    def _tasks(self, number: int) -> dict[str, PooledTask]:
        joint = f"round {number} ({secrets.token_hex(8)})"
        ids = self._record_ids or {}
        return {
            text: PooledTask(
                self.mechanism,
                self.mechanism.prepare(
                    _rows(self.data[name]),
                    site=text,
                    round=number,
                    record_ids=ids.get(name),
                ),
                joint,
            )
            for text, name in self._spelled.items()
        }

    def _play_stage(
        self, collector: Collector, members: Mapping[str, Member], work: Mapping[str, PooledTask], gone: set[str]
    ) -> None:
        for text, request in collector.requests().items():
            if text in gone:
                continue
            stage, step = collector.stage, collector.step
            answer: bytes | None = members[text].answer(request, work[text])
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


def check_budgets(mechanism: NodeRelease, names: Sequence[str], named: Any) -> None:
    """Refuse a round that could not be paid to the end, before any is charged; with ids, people are left out."""
    ledger = mechanism.ledger
    if ledger is None:
        return
    allowed = rho_from_epsilon(ledger.budget, ledger.delta)
    if named is None and ledger.spent_rho() + mechanism.rho * (1.0 - 1e-9) > allowed:
        raise BudgetExceeded(
            f"sites {', '.join(names)}: this round would exceed the budget of eps = {ledger.budget:g}; nothing was "
            "drawn. Raise the budget or stop here"
        )
