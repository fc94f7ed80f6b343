"""Rounds over a Flower Grid: ask the sites, store what arrives, close the round, send the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fcac import persistence
from fcac._text import plain
from fcac.deployment.certificates import pem_der, public_der
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings
from fcac.exceptions import TooFewSites
from fcac.flower import messages

if TYPE_CHECKING:
    from fcac.deployment.pooled_hub import PooledHub

_NAMES_FILE = "nodes.json"

Take = Callable[[str, messages.Reply], None]


@dataclass
class Timeouts:
    """How long to wait for replies, for sites to connect, and between two looks for replies at most, in seconds."""

    timeout: float = 300.0
    wait: float = 60.0
    poll: float = 0.5


class RoundRunner:
    """Runs rounds of a federation over a Grid.

    A node's key identifies its site. Without keys (on loopback only), its first reply does, and the first node to claim
    a name keeps it as long as it is connected.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    hub : Hub
    timeouts : Timeouts
    reload : callable, optional
        Returns the current settings; called before and after asking, so that sites can be added and revoked meanwhile.
    check : callable, optional
        Called now and then while waiting; what it raises ends the run.
    """

    def __init__(
        self,
        grid: Grid,
        hub: Hub,
        timeouts: Timeouts,
        reload: Callable[[], FederationSettings] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.grid, self.hub, self.timeouts = grid, hub, timeouts
        self._check = check if check is not None else lambda: None
        self._reload = reload
        self._claimed = _Names(hub)

    def play(self, rounds: int, hand_out: bool = True) -> int:
        """Run up to `rounds` rounds, send the model to the sites, and return how many rounds were closed.

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
        number, missing = self.hub.open_round, set(self.hub.missing())
        nodes = {node: site for node, site in self._connected(missing).items() if site is None or site in missing}
        known = {site for site in nodes.values() if site is not None}
        strangers = len(nodes) - len(known)
        absent = sorted(missing - known) if not strangers else []
        self.hub.note("asking", round=number, sites=sorted(known), unnamed=strangers, absent=absent)
        held = self.hub.holdings()
        requests = {
            node: messages.ask_contribution(number, held if site is None else {site: held.get(site, 0)})
            for node, site in nodes.items()
        }
        self._exchange(messages.CONTRIBUTE, requests, nodes, number, self._take)
        self._refresh()
        return bool(self.hub.close_round())

    def _play_summed_round(self) -> bool:
        """Play a round of secure aggregation, stage by stage; return False if too few sites took part to the end."""
        from fcac.deployment.pooled_hub import PooledHub

        pooled = PooledHub(self.hub, self.hub.state.parent)
        number, active = pooled.number, set(self.hub.settings.active)
        self.hub.note("summing", round=number, attempt=pooled.attempt)
        nodes: dict[int, str | None] = {}
        try:
            if not pooled.finished:
                # a hub that was started again waits for the sites of the open stage, which must find it first
                nodes = self._connected(active & set(pooled.requests()))
            while not pooled.finished:
                lost = self._play_stage(pooled, nodes, number)
                if lost:
                    # a request may be repeated: the site answers with the same bytes, also after it was started again
                    nodes |= self._connected(lost)
                    self._play_stage(pooled, {node: site for node, site in nodes.items() if site in lost}, number)
                pooled.close_stage()
        except TooFewSites as error:
            self.hub.note("too few sites", round=number, reason=str(error))
            return False
        pooled.close_round()
        return True

    def _play_stage(self, pooled: PooledHub, nodes: dict[int, str | None], number: int) -> set[str]:
        """Ask in the open stage and take the answers; return the sites that could not be asked or heard."""
        wanted = pooled.requests()
        if pooled.joining:
            # the request is the same for all, so that a node may still have to say which site it is
            anyone = next(iter(wanted.values()), None)
            questions = {n: anyone for n, site in nodes.items() if anyone and (site is None or site in wanted)}
        else:
            questions = {n: wanted[site] for n, site in nodes.items() if site is not None and site in wanted}
        closed = number - 1
        requests = {n: messages.ask_sum(number, closed, data) for n, data in questions.items() if data is not None}

        def take(site: str, reply: messages.Reply) -> None:
            if reply.code != messages.SUMMAND:
                self.hub.note(messages.CODES[reply.code], site=site, round=number)
                return
            try:
                pooled.take(site, reply.data)
            except ValueError as error:
                self.hub.note("rejected", site=site, round=number, reason=str(error)[:300])

        lost = self._exchange(messages.SUM, requests, nodes, number, take)
        if self.hub.settings.insecure:
            nodes.update({node: self._claimed.names.get(node) for node in nodes})
        return {site for node in lost if (site := nodes.get(node)) is not None}

    def hand_out_model(self) -> None:
        """Send the global model to every active site; a site that misses it gets the next one."""
        model, number = self.hub.model_bytes(), self.hub.open_round - 1
        if model is None:
            return
        nodes = self._connected(set())
        requests = {node: messages.offer_model(number, model) for node in nodes}

        def took(site: str, reply: messages.Reply) -> None:
            event = "model taken" if reply.code == messages.DONE else "model not taken"
            self.hub.note(event, site=site, round=number)

        self._exchange(messages.TAKE_MODEL, requests, nodes, number, took)

    def _take(self, site: str, reply: messages.Reply) -> None:
        if reply.left is not None:
            self.hub.note("budget", site=site, round=self.hub.open_round, left=round(reply.left, 4))
        if reply.code == messages.CONTRIBUTION:
            self.hub.receive(site, reply.data)
        else:
            self.hub.note(messages.CODES[reply.code], site=site, round=self.hub.open_round)

    # ------------------------------------------------------------ messages

    def _exchange(
        self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, str | None], number: int, take: Take
    ) -> list[int]:
        """Send requests and handle each reply as it arrives, until all have arrived or time runs out.

        Returns
        -------
        list of int
            Nodes whose answer was lost on the way, as Flower says; those that were silent are not among them.
        """
        if not requests:
            return []
        lost = []
        letters = [
            Message(content, node, kind, group_id=str(number), ttl=self.timeouts.timeout)
            for node, content in sorted(requests.items())
        ]
        ids = self.grid.push_messages(letters)
        sent = {key: letter.metadata.dst_node_id for key, letter in zip(ids, letters, strict=True) if key}
        waiting = set(sent)
        deadline = time.monotonic() + self.timeouts.timeout
        pause = 0.0
        while waiting:
            begin = time.monotonic()
            replies = list(self.grid.pull_messages(sorted(waiting)))
            # soon again while replies come in, but most of the time the database is the hub's
            pause = 0.0 if replies else pause
            pause = min(self.timeouts.poll, max(0.05, 1.5 * pause, 3 * (time.monotonic() - begin)))
            # sorted by site, so that nothing depends on which reply arrived first
            for reply in sorted(replies, key=lambda r: str(nodes.get(sent.get(r.metadata.reply_to_message_id, 0)))):
                key = reply.metadata.reply_to_message_id
                waiting.discard(key)
                if key in sent:
                    if reply.has_error() and reply.error.code in messages.LOST:
                        lost.append(sent[key])
                    self._handle(sent[key], nodes, reply, number, take, kind)
            if not waiting or time.monotonic() >= deadline:
                break
            self._check()
            time.sleep(pause)
        self._claimed.store()
        for key in waiting:
            self.hub.note("no reply", site=nodes[sent[key]] or f"node {sent[key]}", round=number, **_about(kind))
        return lost

    def _handle(
        self, node: int, nodes: Mapping[int, str | None], reply: Message, number: int, take: Take, kind: str
    ) -> None:
        site = nodes[node]
        shown = site or f"node {node}"
        if reply.has_error():
            # Only the code is noted: the text comes from the site's machine and may contain anything.
            self.hub.note("failed", site=shown, round=number, code=reply.error.code, **_about(kind))
            return
        try:
            if reply.metadata.src_node_id != node:
                raise ValueError("the reply came from another node")
            answer = messages.read_reply(reply.content)
            if site is None:
                site = self._claimed.claim(node, answer.site, set(nodes))
            if answer.site not in ("", site):
                raise ValueError(f"the reply has the name of another site ({plain(answer.site, 70)})")
        except Exception as error:
            self.hub.note("rejected", site=shown, round=number, reason=plain(str(error)))
            return
        take(site, answer)

    # ------------------------------------------------------------ connected nodes

    def _refresh(self) -> None:
        if self._reload is not None:
            self.hub.settings = self._reload()

    def _connected(self, wait_for: set[str]) -> dict[int, str | None]:
        """Return the nodes of active sites (None: site not known yet), after waiting for the named sites to connect."""
        deadline = time.monotonic() + self.timeouts.wait
        while True:
            nodes = self._nodes()
            unknown = sum(site is None for site in nodes.values())
            lacking = wait_for - {site for site in nodes.values() if site is not None}
            if len(lacking) <= unknown or time.monotonic() >= deadline:
                return nodes
            self._check()
            time.sleep(self.timeouts.poll)

    def _nodes(self) -> dict[int, str | None]:
        active = set(self.hub.settings.active)
        if self.hub.settings.insecure:
            named = {node: self._claimed.names.get(node) for node in self.grid.get_node_ids()}
            return {node: site for node, site in named.items() if site is None or site in active}
        owners = {public_der(self.hub.settings.members[site].key): site for site in active}
        found = {node.node_id: owners.get(pem_der(node.public_key)) for node in self.grid.get_nodes()}
        return {node: site for node, site in found.items() if site is not None}


def _about(kind: str) -> dict[str, str]:
    """Return what distinguishes a model that was not handed out from a round that was missed."""
    return {"kind": "model"} if kind == messages.TAKE_MODEL else {}


class _Names:
    """Which node has claimed which name, if there are no keys; kept on disk, since nodes outlive runs."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.path = hub.state / _NAMES_FILE
        self.names: dict[int, str] = {}
        if self.path.exists():
            stored: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
            self.names = {int(node): str(site) for node, site in stored.items()}
        self._stored = dict(self.names)

    def claim(self, node: int, site: str, connected: set[int]) -> str:
        """Assign a name to a node, unless another connected node has it."""
        if site not in self.hub.settings.members:
            raise ValueError(f"there is no site {plain(site, 70)}")
        holders = [other for other, name in self.names.items() if name == site and other != node]
        if any(other in connected for other in holders):
            raise ValueError(f"another node is already site {site!r}")
        for other in holders:
            del self.names[other]
        self.names[node] = site
        return site

    def store(self) -> None:
        """Store new names; after a crash before that, nodes are asked for their names again."""
        if self.names != self._stored:
            persistence.write_atomic(
                self.path, json.dumps({str(node): site for node, site in self.names.items()}).encode()
            )
            self._stored = dict(self.names)
