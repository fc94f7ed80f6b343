"""A Grid inside one process: the same apps without a network, for tests and for thousands of virtual sites."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fcac.flower.client_app import SETTINGS_KEY
from fcac.flower.client_app import app as site_app

_SERVER_NODE = 1

#: What happens to a reply in transit: returns the replies that arrive instead (none: lost; two: delivered twice).
Fault = Callable[[Message, Message], list[Message]]


class InProcessGrid(Grid):
    """Delivers messages by calling the site's app; replies wait until they are pulled.

    Parameters
    ----------
    sites : mapping of int to path-like
        Node id and settings file of every site.
    app : ClientApp, optional
    keys : mapping of int to bytes, optional
        Public keys, as known to a SuperLink.
    fault : callable, optional
        Called with request and reply; returns the replies that arrive.
    """

    def __init__(
        self,
        sites: Mapping[int, str | Path],
        app: ClientApp = site_app,
        keys: Mapping[int, bytes] | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.sites = dict(sites)
        self.app, self.keys, self.fault = app, dict(keys or {}), fault
        self.n_sent = 0
        self._waiting: dict[str, list[Message]] = {}
        self._numbers = itertools.count(1)
        self._run = Run.create_empty(1)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, _SERVER_NODE, 1

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message (Flower's older interface)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all sites."""
        return sorted(self.sites)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the sites with their public keys."""
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in sorted(self.sites)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages immediately; the replies wait to be pulled."""
        ids = []
        for message in messages:
            key = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = key
            self.n_sent += 1
            self._waiting[key] = self._deliver(message)
            ids.append(key)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return [reply for key in message_ids for reply in self._waiting.pop(key, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Deliver and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> list[Message]:
        node = message.metadata.dst_node_id
        context = Context(1, node, {SETTINGS_KEY: str(self.sites[node])}, RecordDict(), {})
        try:
            reply = self.app(message, context)
        except Exception as error:  # as in Flower, which sends the text as well
            reply = Message(Error(code=2, reason=str(error)), reply_to=message)
        return [reply] if self.fault is None else self.fault(message, reply)


def reply_with(message: Message, **values: Any) -> Message:
    """Return a reply with arbitrary content, as a hostile site could send it."""
    return Message(RecordDict({"fcac": ConfigRecord(values)}), reply_to=message)
