"""Rounds of a federation as a Flower ``ServerApp``: the hub's conversation over a Flower ``Grid``.

The run's configuration names the federation's directory on the machine of the SuperLink, ``fcac-federation``, and the
number of rounds, ``fcac-rounds``. A run that is cut short is run again and goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fcac import persistence
from fcac.deployment.conversation import Conversation
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.flower.client_app import RECORD

_NAMES_FILE = "flower-nodes.json"
_POLL_SECONDS = 0.5
_NAME_SECONDS = 60.0

app = ServerApp()


def main(grid: Grid, context: Context) -> None:
    """Play the rounds that the run's configuration asks for."""
    config = context.run_config
    root, rounds = Path(str(config["fcac-federation"])), int(config.get("fcac-rounds", 1))
    with persistence.locked(root / STATE / "run-lock", 0.0):
        hub = Hub(root / STATE, FederationSettings.load(root), lambda entry: print(json.dumps(entry), flush=True))
        talk = Conversation(hub, GridWire(grid, hub), reload=lambda: FederationSettings.load(root))
        if talk.play(rounds) < rounds:
            raise RuntimeError("fewer rounds were closed than asked for: see journal.jsonl of the federation")


app.main()(main)


class GridWire:
    """Reaches sites through a Flower Grid.

    Flower authenticates nodes and gives each a number that stays; which site it is, it says itself, once. The first
    node to claim a name keeps it.
    """

    def __init__(self, grid: Grid, hub: Hub) -> None:
        self.grid, self.hub, self._path = grid, hub, hub.state / _NAMES_FILE
        stored = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        self._nodes: dict[str, int] = {str(site): int(node) for site, node in stored.items()}

    def connected(self) -> set[str]:
        """Return the sites whose nodes are connected."""
        here = set(self.grid.get_node_ids())
        unknown = here - set(self._nodes.values())
        if unknown:
            self._ask_names(unknown)
        return {site for site, node in self._nodes.items() if node in here}

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | None]]:
        """Send requests over the Grid, and yield replies as they arrive."""
        nodes = {self._nodes[site]: site for site in requests if site in self._nodes}
        letters = [
            Message(RecordDict({RECORD: ConfigRecord({"data": requests[site]})}), node, "train.ask", ttl=seconds)
            for node, site in nodes.items()
        ]
        for node, reply in self._replies(letters, seconds):
            record = None if reply.has_error() else reply.content.get(RECORD)
            data = record.get("data") if isinstance(record, ConfigRecord) else None
            yield nodes[node], data if isinstance(data, bytes) else None

    def late(self) -> Iterator[tuple[str, bytes]]:
        """Yield nothing: Flower keeps no replies for a later run. The sites do, and send them again."""
        return iter(())

    def _ask_names(self, nodes: Iterable[int]) -> None:
        letters = [Message(RecordDict(), node, "query.name", ttl=_NAME_SECONDS) for node in sorted(nodes)]
        for node, reply in self._replies(letters, _NAME_SECONDS):
            record = None if reply.has_error() else reply.content.get(RECORD)
            site = record.get("site") if isinstance(record, ConfigRecord) else None
            if not isinstance(site, str) or site not in self.hub.settings.members:
                continue
            if self._nodes.setdefault(site, node) != node:
                # also while that one is away: a name is not free because its owner sleeps
                self.hub.note("refused", site=site, reason=f"node {node} says it is this site, which another node is")
        persistence.write_atomic(self._path, json.dumps(self._nodes).encode())

    def _replies(self, letters: list[Message], seconds: float) -> Iterator[tuple[int, Message]]:
        """Send messages and yield (node, reply) as replies arrive, each group in the order of the nodes."""
        # names of messages are Flower's, and a message that it does not take gets none
        names = dict(zip(self.grid.push_messages(letters), letters, strict=True))
        waiting = {name: letter.metadata.dst_node_id for name, letter in names.items() if name}
        deadline = time.monotonic() + seconds
        while waiting and time.monotonic() < deadline:
            replies = list(self.grid.pull_messages(sorted(waiting)))
            for reply in sorted(replies, key=lambda one: waiting.get(one.metadata.reply_to_message_id, 0)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    yield node, reply
            if waiting:
                time.sleep(_POLL_SECONDS)
