"""The hub's side of a summed round: a collector whose closed stages are on disk, so that it goes on after a crash.

In the hub's state directory, below ``summing/ROUND-ATTEMPT/``, one file per closed stage holds the answers with which
it was closed. Replaying them brings the collector back to where it was; sites answer a request that is repeated with
the same bytes. What was released so far is in ``summing/site.fcac``, and in ``summing/summed.json`` in which
round each site was summed last. When the round is closed, its files are removed.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcac import persistence
from fcac.aggregation import Collector
from fcac.aggregation.messages import JOIN, MASK
from fcac.aggregation.pooled import POOLED, PooledGrowth, step_cost, terms
from fcac.deployment.aggregated_study import read_roster
from fcac.deployment.hub import Hub
from fcac.exceptions import TooFewSites
from fcac.federation import Contribution, Site
from fcac.federation.summed_round import pooled_contribution
from fcac.privacy.account import Account
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.released_state import ReleasedState

_STAGE_KIND = "summing-stage"
_ATTEMPT_FILE, _SUMMED_FILE = "attempt.json", "summed.json"


class PooledHub:
    """Plays one summed round on disk; the messages are somebody else's business."""

    def __init__(self, hub: Hub, root: Path) -> None:
        summing = hub.settings.summing
        if summing is None:
            raise ValueError("this federation does not sum its sites")
        self.hub, self.folder = hub, hub.state / "summing"
        self.folder.mkdir(exist_ok=True)
        self.number = hub.open_round
        self.mechanism = NodeRelease(summing.epsilon, hub.settings.schema.require_bounds(), summing.delta)
        self.pooled = Site(POOLED, self.mechanism, self.folder)
        self.roster = read_roster(root)
        self._done = self.pooled.round == self.number  # the process died after the last step
        if not self._done:
            self._begin()
        try:
            self._open(self._attempt())
        except TooFewSites:  # the process died when the attempt was known to be lost
            self._open(self._attempt())

    def _begin(self) -> None:
        """Note under which roster this attempt is played; if sites were added or revoked since, begin another."""
        facts, roster = self._facts(), self.roster.digest.hex()
        if facts.get("roster", roster) != roster:
            facts["attempt"] += 1
            facts["in_vain"] = facts.get("in_vain", 0.0) + self.mechanism.rho  # as if it had come to its last step
        if facts.get("roster") != roster:
            self._write({**facts, "roster": roster})

    def _open(self, attempt: int) -> None:
        released = self.pooled.model if isinstance(self.pooled.model, ReleasedState) and not self._done else None
        self.attempt = attempt
        self.growth = PooledGrowth(self.mechanism, released, self.number)
        self.collector = Collector(self.roster, self.number, attempt, self.growth.n_steps, terms(self.mechanism))
        self._answers: dict[str, bytes] = {}
        self._closed = 0
        if not self._done:
            while (path := self._stage_path(self._closed)).exists():
                self._answers = {}
                for site, data in _read_stage(path).items():
                    self.take(site, data)
                self._advance()

    # ------------------------------------------------------------ stage by stage

    @property
    def finished(self) -> bool:
        """Whether all steps are over."""
        return self._done or self.growth.request is None

    @property
    def joining(self) -> bool:
        """Whether sites are being asked to join; that request is the same for all."""
        return self.collector.stage == JOIN

    def requests(self) -> dict[str, bytes]:
        """Return what to ask the sites now."""
        active = set(self.hub.settings.active)
        return {site: data for site, data in self.collector.requests().items() if site in active}

    def take(self, site: str, data: bytes) -> None:
        """Take an answer; raise ``ValueError`` if it is none."""
        self.collector.take(site, data)
        self._answers[site] = data

    def close_stage(self) -> None:
        """Store the answers and go on; if too few have answered, the attempt is over and :class:`TooFewSites` rises."""
        _write_stage(self._stage_path(self._closed), self._answers)
        self._advance()

    def _advance(self) -> None:
        try:
            self.collector.close_stage()
        except TooFewSites:
            drawn = range(1, self.collector.step + 1)
            cost = math.fsum(step_cost(self.mechanism, step, self.collector.n_steps) for step in drawn)
            facts = self._facts()
            in_vain = facts.get("in_vain", 0.0) + cost
            self._write({**facts, "attempt": self.attempt + 1, "in_vain": in_vain})
            raise
        self._answers, self._closed = {}, self._closed + 1
        if self.collector.total is not None:
            self._note_summed()
            total, here = self.collector.total, len(self.collector.survivors)
            self.growth.take(total, here, self.collector.certain_shares)
            self.collector.total = None
        if self.collector.stage == MASK and self.growth.request is not None and not self.collector.in_step:
            self.collector.begin_step(self.growth.task())

    def close_round(self) -> Contribution:
        """Let the server absorb the nodes of all sites together, and remove what is no longer needed."""
        if not self._done:
            assert self.growth.released is not None
            self._note_survivors(len(self.collector.survivors))
            before = self.growth.state
            account = Account(unit="row") if before is None or before.account is None else before.account
            cost = self.mechanism.rho + self._facts().get("in_vain", 0.0)
            account = account.after(cost, "row", None, None, None)
            self.pooled.adopt(replace(self.growth.released, account=account), self.number)
        sent = pooled_contribution(self.pooled, self._survivors(), self.roster.tolerance)
        self.hub.close_summed_round(sent)
        for folder in self.folder.glob("*-*"):
            shutil.rmtree(folder, ignore_errors=True)
        (self.folder / _ATTEMPT_FILE).unlink(missing_ok=True)
        return sent

    # ------------------------------------------------------------ what is on disk

    def have(self, site: str) -> int:
        """Return the newest round with a total that this site is in; 0 if there is none."""
        return self._summed().get(site, 0)

    def _summed(self) -> dict[str, int]:
        path = self.folder / _SUMMED_FILE
        found: dict[str, int] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return found

    def _note_summed(self) -> None:
        here = [self.roster.names[place] for place in self.collector.survivors]
        found = {**self._summed(), **dict.fromkeys(here, self.number)}
        persistence.write_atomic(self.folder / _SUMMED_FILE, json.dumps(found).encode())

    def _facts(self) -> dict[str, Any]:
        path = self.folder / _ATTEMPT_FILE
        facts: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return facts if facts.get("round") == self.number else {"round": self.number, "attempt": 1}

    def _attempt(self) -> int:
        return int(self._facts()["attempt"])

    def _survivors(self) -> int:
        return int(self._facts().get("survivors", 0))

    def _note_survivors(self, n_sites: int) -> None:
        self._write({**self._facts(), "survivors": n_sites})

    def _write(self, facts: Mapping[str, Any]) -> None:
        persistence.write_atomic(self.folder / _ATTEMPT_FILE, json.dumps(dict(facts)).encode())

    def _stage_path(self, index: int) -> Path:
        return self.folder / f"{self.number:09d}-{self.attempt:06d}" / f"{index:03d}.fcac"


def _write_stage(path: Path, answers: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"names": list(answers), "sizes": [len(data) for data in answers.values()]}
    joined = np.frombuffer(b"".join(answers.values()), dtype=np.uint8)
    persistence.write_atomic(path, persistence.pack(_STAGE_KIND, meta, {"answers": joined}))


def _read_stage(path: Path) -> dict[str, bytes]:
    meta, arrays = persistence.read(path, kind=_STAGE_KIND)
    ends = np.cumsum(meta["sizes"]).tolist()
    starts = [0, *ends[:-1]]
    return {
        name: arrays["answers"][start:end].tobytes()
        for name, start, end in zip(meta["names"], starts, ends, strict=True)
    }
