"""The conversation of rounds: ask the sites, store what arrives, close the round, send the model.

One way of asking serves plain rounds, rounds that are summed, and agreements on bounds and levels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fcac._text import plain
from fcac.deployment import wire
from fcac.deployment.agreement_hub import AgreementHub
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, schema_digest
from fcac.deployment.wire import Reply, Request, Wire
from fcac.exceptions import TooFewSites

if TYPE_CHECKING:
    from fcac.deployment.pooled_hub import PooledHub

Take = Callable[[str, Reply], None]

_POLL_SECONDS = 0.1
_MOST_WORDS = 300


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for replies, and for sites to connect before asking, in seconds."""

    timeout: float = 300.0
    wait: float = 60.0


class Conversation:
    """Plays rounds of a federation over a wire, with the timeouts of the hub's settings unless others are given.

    `reload` returns the current settings; it is called before and after asking, so that sites can be added and revoked
    meanwhile.
    """

    def __init__(
        self,
        hub: Hub,
        wire: Wire,
        timeouts: Timeouts | None = None,
        reload: Callable[[], FederationSettings] | None = None,
    ) -> None:
        self.hub, self.wire = hub, wire
        self.timeouts = timeouts or Timeouts(hub.settings.timeout, hub.settings.wait)
        self._reload = reload

    def play(self, rounds: int, hand_out: bool = True) -> int:
        """Play up to `rounds` rounds, send the model to the sites, and return how many rounds were closed.

        It stops early if a round brings no contribution: asking again immediately would not bring any either.
        """
        closed = 0
        while closed < rounds and self.play_round():
            closed += 1
        if hand_out:
            self.hand_out_model()
        return closed

    def play_round(self) -> bool:
        """Ask every active site that has not contributed yet and close the round; return False if nothing arrived."""
        self._refresh()
        if self.hub.settings.summing is not None:
            return self._play_summed_round()
        self._take_late()
        number = self.hub.open_round
        here = self._wait_for(set(self.hub.missing()))
        missing = set(self.hub.missing())
        self.hub.note("asking", round=number, sites=sorted(here & missing), absent=sorted(missing - here))
        held, schema = self.hub.holdings(), schema_digest(self.hub.settings.schema)
        asked = {site: Request(wire.CONTRIBUTE, number, held.get(site, 0), schema) for site in sorted(here & missing)}
        self._ask(asked, number, self._take)
        self._refresh()
        return bool(self.hub.close_round())

    def hand_out_model(self) -> None:
        """Send the global model to every active site; a site that misses it gets the next one."""
        model, number = self.hub.model_bytes(), self.hub.open_round - 1
        if model is None:
            return
        here = self.wire.connected() & set(self.hub.settings.active)

        def took(site: str, reply: Reply) -> None:
            event = "model taken" if reply.code == wire.DONE else "model not taken"
            self.hub.note(event, site=site, round=number)

        self._ask({site: Request(wire.TAKE_MODEL, number, data=model) for site in sorted(here)}, number, took)

    def agree(self, agreement: AgreementHub) -> list[str]:
        """Ask the sites until they have agreed on a schema, and hand it out; return the sites that have it.

        There is a ValueError if too little has arrived, or if the counts do not suffice; what has arrived is kept.
        """
        while agreement.stage != "done":
            self._agree_on(agreement)
            agreement.close_stage()
        return self._agree_on(agreement)

    # ------------------------------------------------------------ kinds of rounds

    def _take_late(self) -> None:
        """Take contributions that arrived when no run was waiting for them."""
        for site, data in self.wire.late():
            reply = self._read(site, data, self.hub.open_round)
            if reply is not None and reply.code == wire.CONTRIBUTION:
                self.hub.receive(site, reply.data)

    def _take(self, site: str, reply: Reply) -> None:
        if reply.left is not None:
            self.hub.note("budget", site=site, round=self.hub.open_round, left=round(reply.left, 4))
        if reply.code == wire.CONTRIBUTION:
            self.hub.receive(site, reply.data)
        else:
            self.hub.note(reply.code, site=site, round=self.hub.open_round)

    def _play_summed_round(self) -> bool:
        """Play a round of secure aggregation, stage by stage; return False if too few sites took part to the end."""
        from fcac.deployment.pooled_hub import PooledHub

        pooled = PooledHub(self.hub, self.hub.state.parent)
        number = pooled.number
        self.hub.note("summing", round=number, attempt=pooled.attempt)
        try:
            if not pooled.finished:
                # a hub that was started again waits for the sites of the open stage, which must find it first
                here = self._wait_for(set(self.hub.settings.active) & set(pooled.requests()))
            while not pooled.finished:
                lost = self._sum_stage(pooled, here, number)
                if lost:
                    # a request may be repeated: the site answers with the same bytes, also after it was started again
                    self._sum_stage(pooled, lost & self._wait_for(lost), number)
                pooled.close_stage()
        except TooFewSites as error:
            self.hub.note("too few sites", round=number, reason=str(error))
            return False
        pooled.close_round()
        return True

    def _sum_stage(self, pooled: PooledHub, here: set[str], number: int) -> set[str]:
        """Ask in the open stage and take the answers; return the sites whose answer was lost."""

        def take(site: str, reply: Reply) -> None:
            if reply.code != wire.SUMMAND:
                self.hub.note(reply.code, site=site, round=number)
                return
            try:
                pooled.take(site, reply.data)
            except ValueError as error:
                self.hub.note("rejected", site=site, round=number, reason=plain(str(error), _MOST_WORDS))

        schema = schema_digest(self.hub.settings.schema)
        wanted = {site: data for site, data in pooled.requests().items() if site in here}
        asked = {site: Request(wire.SUM, number, pooled.have(site), schema, data) for site, data in wanted.items()}
        return self._ask(asked, number, take)

    def _agree_on(self, agreement: AgreementHub) -> list[str]:
        stage, took = agreement.stage, []
        here = self._wait_for(set(agreement.missing())) & set(agreement.missing())
        self.hub.note("agreeing", stage="schema" if stage == "done" else stage, sites=sorted(here))

        def take(site: str, reply: Reply) -> None:
            if reply.code == wire.COUNTS and stage != "done":
                try:
                    agreement.take(site, reply.data)
                except ValueError as error:
                    self.hub.note("rejected", site=site, round=0, reason=plain(str(error), _MOST_WORDS))
                    return
                self.hub.note("sent counts", site=site, stage=stage)
                took.append(site)
            elif reply.code == wire.DONE and stage == "done":
                self.hub.note("has the agreed schema", site=site)
                took.append(site)
            else:
                self.hub.note(reply.code, site=site)

        data = agreement.request()
        self._ask({site: Request(wire.AGREE, data=data) for site in sorted(here)}, 0, take)
        return sorted(took)

    # ------------------------------------------------------------ asking

    def _ask(self, requests: Mapping[str, Request], number: int, take: Take) -> set[str]:
        """Send requests and handle each reply as it arrives; return the sites whose reply was lost on the way."""
        if not requests:
            return set()
        silent, lost = set(requests), set()
        # a model that was not handed out is no round that was missed
        model = {"kind": "model"} if next(iter(requests.values())).kind == wire.TAKE_MODEL else {}
        letters = {site: request.to_bytes() for site, request in requests.items()}
        for site, data in self._replies(letters):
            silent.discard(site)
            if data is None:
                lost.add(site)
                self.hub.note("failed", site=site, round=number, **model)
                continue
            reply = self._read(site, data, number)
            if reply is not None:
                take(site, reply)
        for site in sorted(silent):
            self.hub.note("no reply", site=site, round=number, **model)
        return lost

    def _replies(self, letters: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        return self.wire.exchange(letters, self.timeouts.timeout)

    def _read(self, site: str, data: bytes, number: int) -> Reply | None:
        try:
            reply = Reply.from_bytes(data)
            if reply.site not in ("", site):
                raise ValueError(f"the reply has the name of another site ({plain(reply.site, 70)})")
        except ValueError as error:
            self.hub.note("rejected", site=site, round=number, reason=plain(str(error), _MOST_WORDS))
            return None
        return reply

    def _wait_for(self, sites: set[str]) -> set[str]:
        """Return the active sites that are connected, after waiting for the named ones."""
        deadline = time.monotonic() + self.timeouts.wait
        while True:
            here = self.wire.connected()
            if sites <= here or time.monotonic() >= deadline:
                return here & set(self.hub.settings.active)
            time.sleep(_POLL_SECONDS)

    def _refresh(self) -> None:
        if self._reload is not None:
            self.hub.settings = self._reload()
