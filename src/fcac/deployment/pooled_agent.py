"""How a site takes part in secure aggregation: it keeps its keys and the round's rows on disk between two requests.

In the site's state directory:

- ``summing.fcac``: the member's state (keys of the round, answers given), stored before an answer leaves;
- ``summing-account.fcac``: what was paid for so far, with receipts that the ledger must know;
- ``roster.fcac``: the list of sites that the operator has agreed to;
- ``summing-rows.fcac``: the rows of the open round, because every step needs the same ones; removed after it.

The order in a step is: charge, draw, mask, store the answer, send. The same request again gets the stored answer. If
the process dies between charge and store, nothing has left; the retry draws and is charged again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fcac import persistence
from fcac.aggregation import Assignment, Member, Roster, RosterFile, SigningKey
from fcac.aggregation.messages import JOIN, REQUEST, REVEAL, Message, MessageError
from fcac.aggregation.pooled import terms
from fcac.deployment.site_agent import SiteAgent, write_log
from fcac.exceptions import AggregationRefused
from fcac.federation.summed_round import PooledRows, check_budgets
from fcac.privacy.account import Account

_MEMBER_FILE = "summing.fcac"
_ROWS_FILE = "summing-rows.fcac"
_ACCOUNT_FILE = "summing-account.fcac"
_ROWS_KIND = "summing-rows"


class PooledAgent:
    """Answers the requests of secure aggregation for one site, with its settings, mechanism, rows and lock."""

    def __init__(self, agent: SiteAgent) -> None:
        self.agent, self.state = agent, agent.state
        settings = agent.settings
        if not settings.summing_key:
            raise AggregationRefused("this site's study does not sum its sites: its bundle has no section [summing]")
        self.mechanism = agent.mechanism
        self.key = SigningKey.at(settings.summing_key)
        self.roster = RosterFile(self.state)
        self.member = Member(settings.name, self.key, self._agreed(), terms(self.mechanism))
        if (self.state / _MEMBER_FILE).exists():
            self.member.restore((self.state / _MEMBER_FILE).read_bytes())

    def _agreed(self) -> Roster:
        """Return the list of sites that the operator has agreed to."""
        agreed = self.roster.agreed
        if agreed is None:
            bundle = Path(self.agent.settings.summing_key).parent
            raise AggregationRefused(
                f"this site's operator has not agreed to a list of sites: see 'fcac federation sites {bundle}'"
            )
        return agreed

    def answer(self, data: bytes, closed: int, have: int = 0) -> bytes:
        """Return the answer to a request, which is on disk before it is returned.

        If this site's latest round is not among those the hub has closed, its rows are still to be summed. `have` is
        the newest round of which the hub has a total with this site: a ledger that does not know of it is refused.
        """
        try:
            request = Message.from_bytes(data, REQUEST)
        except MessageError as error:
            raise AggregationRefused(str(error)) from None
        with self.agent.alone():
            if request.stage == JOIN:
                self._check_join(request, have)
            reply = self.member.answer(data, lambda assigned: self._work(assigned, closed))
            self._store(self.member.to_bytes())
            if request.stage == REVEAL and request.step == self.member.n_steps:
                (self.state / _ROWS_FILE).unlink(missing_ok=True)
                spent = self.agent.spent()
                self.agent.audit.add("summed", round=self.member.round)
                write_log(self.state, f"round {self.member.round}: summed with the other sites; spent: {spent}")
            return reply

    def _check_join(self, request: Message, have: int) -> None:
        """Refuse to join a round that the site's policy does not allow, or that could not be paid to the end."""
        wanted = (request.meta.get("round"), request.meta.get("attempt"))
        if wanted == (self.member.round, self.member.attempt):
            return  # asked again: it gets the answer that it got
        agent, epsilon = self.agent, self.agent.settings.epsilon
        offered = request.arrays.get("roster")
        if offered is not None:
            self.roster.offer(offered.tobytes(), agent.settings.name, self.key.public)
        agent.policy.check_with_privacy(agent.settings.private)
        agent.check_agreed()
        agent.check_ledger(have)
        past = agent.audit.entries()
        agent.policy.check_request(request.number("round"), self.member.round + 1, past, epsilon)
        check_budgets(self.mechanism, [agent.settings.name], agent.settings.record_id, self._account())

    def _work(self, assigned: Assignment, closed: int) -> Any:
        rows, ids = self._rows(assigned, closed)
        number = self.member.round
        named: dict[str, Any] = {} if ids is None else {"record_ids": ids}
        prepared = self.mechanism.prepare(rows, site=self.agent.settings.name, round=number, **named)
        if assigned.step == 1:
            # written first: what cannot be logged is not done; a round that breaks off counts like a whole one
            self.agent.audit.add("contributed", round=number, epsilon=self.agent.settings.epsilon, summed=True)
        name = self.agent.settings.name
        pooled = PooledRows(self.mechanism, {name: prepared}, self._account())
        vector = pooled(name, assigned)
        # what a receipt is kept for cannot leave before it: a ledger that lacks one is an older copy
        meta = {"site": name, "released": {"account": pooled.account.to_json()}}
        self._write(self.state / _ACCOUNT_FILE, persistence.pack("summing-account", meta, {}))
        pooled.complete()
        return vector

    def _account(self) -> Account:
        """Return what this site has paid for in summed rounds, attempts that broke off included."""
        path = self.state / _ACCOUNT_FILE
        if not path.exists():
            return Account()
        return Account.from_json(persistence.read(path, kind="summing-account")[0]["released"]["account"])

    def _rows(self, assigned: Assignment, closed: int) -> tuple[Any, list[str] | None]:
        """Return the rows of the round: found in its first step, and the same in all others."""
        path, number = self.state / _ROWS_FILE, self.member.round
        if path.exists():
            meta, arrays = persistence.read(path, kind=_ROWS_KIND)
            if (meta["round"], meta["attempt"]) == (number, self.member.attempt):
                return arrays["rows"], meta["record_ids"]
        if assigned.step != 1:
            raise AggregationRefused(f"{path} is missing: it held the rows of this round's first step")
        found = self.agent.new_rows(number, closed)
        meta = {"round": number, "attempt": self.member.attempt, "record_ids": found.record_ids}
        self._write(path, persistence.pack(_ROWS_KIND, meta, {"rows": np.ascontiguousarray(found.rows)}))
        return found.rows, found.record_ids

    def _store(self, data: bytes) -> None:
        self._write(self.state / _MEMBER_FILE, data)

    def _write(self, path: Path, data: bytes) -> None:
        persistence.write_atomic(path, data, private=True)
