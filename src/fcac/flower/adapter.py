"""The adapter to Flower's internals: what the hub uses of ``flwr`` beyond its public interface.

Flower's own programs run whatever app is submitted to them, listen on further ports and poll slowly. fcac needs only
Flower's transport: the Fleet interface, over which sites fetch and answer messages, and the database behind it. This
module uses those parts directly, so that

- a site is one process that listens on no port and executes nothing that was sent to it
  (:class:`fcac.flower.fleet_client.FleetConnection`);
- the hub offers the Fleet interface and nothing else; there is no interface to submit runs to (:func:`fleet_app`);
- whoever plays rounds does so through the hub's database, for which one needs access to its files (:class:`LinkGrid`).

Nothing of Flower is replaced. ``tests/flower/test_adapter.py`` names what has to be checked for a new version.
"""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flwr.app import Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fcac.flower.fleet_client import HEARTBEAT_SECONDS, VERSION_HEADER, join_parts, split_parts, without_content

Item = TypeVar("Item")

_TASK_HEARTBEAT_SECONDS = 15.0
_LOCK_MILLISECONDS = 60_000
# Messages are written and read in transactions of so many: each transaction costs as much as a message, and keeps the
# hub, which writes to the same file, waiting meanwhile.
_AT_ONCE = 8


class Identity(NamedTuple):
    """Who signed a request, and by how many seconds the signer's clock is ahead of ours."""

    public_key: bytes
    skew: float
    version: str = ""


def read_identity(headers: Mapping[bytes, bytes], now: datetime | None = None) -> Identity | None:
    """Return who signed a request to the Fleet interface, from its headers alone; None if nobody did.

    The signature is checked; whether the key is known, and the clock close enough, is for the caller to decide.

    Parameters
    ----------
    headers : mapping of bytes to bytes
        Lower-case names.
    now : datetime, optional
    """
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now as flower_now
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    def header(name: str) -> bytes:
        return headers[name.lower().encode()]

    try:
        public_key = base64.b64decode(header(FLEET_HTTP_PUBLIC_KEY_HEADER), validate=True)
        signature = base64.b64decode(header(FLEET_HTTP_SIGNATURE_HEADER), validate=True)
        stamp = header(TIMESTAMP_HEADER)
        if len(stamp) > 64 or not verify_signature(bytes_to_public_key(public_key), stamp, signature):
            return None
        signed = datetime.fromisoformat(stamp.decode("ascii"))
        skew = (signed - (now or flower_now())).total_seconds()
    except (KeyError, ValueError, TypeError, UnicodeError):
        return None
    return Identity(public_key, skew, headers.get(VERSION_HEADER.encode(), b"").decode("ascii", "replace")[:20])


def clock_tolerance() -> tuple[float, float]:
    """Return by how many seconds a site's clock may be behind and ahead of the hub's."""
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    return float(TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE), float(SYSTEM_TIME_TOLERANCE)


def _wait_for_locks(engine: Any) -> None:
    """Let statements wait for a locked database, longer than Flower would.

    A statement that gives up loses the message it was about, and on a busy machine, with many sites, five seconds are
    soon over.
    """
    from sqlalchemy import event

    def patient(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_MILLISECONDS}")

    event.listen(engine, "connect", patient)
    engine.dispose()  # connections that were opened before are replaced


class Handed(NamedTuple):
    """A message that was handed out: its id, all of it as bytes, and until when an answer is waited for."""

    key: str
    data: bytes
    until: float


class _Dropped(Exception):
    """A reply that is not stored."""


class Link:
    """The hub's database of nodes and messages in transit, as Flower keeps it.

    Several processes may use the same file at the same time.

    Parameters
    ----------
    database : path-like
    """

    def __init__(self, database: str | Path) -> None:
        from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

        self.database = str(database)
        manager = get_federation_manager(is_simulation=False)
        _, self.factory = get_objectstore_linkstate_factories(self.database, manager)
        with warnings.catch_warnings():
            # Flower's own use of the tool that brings its database up to date
            warnings.simplefilter("ignore", DeprecationWarning)
            self.state: Any = self.factory.state()
        for holder in (self.state, self.state.object_store):
            _wait_for_locks(holder._engine)
        self._nodes: dict[bytes, int] = {}
        self._look: sqlite3.Connection | None = None
        self._look_lock = threading.Lock()
        self._looked_at = -1
        self._mail: list[tuple[int, float]] = []

    def register(self, public_pem: bytes, name: str) -> None:
        """Let a key connect; nothing happens if it already may."""
        from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID

        if self.state.get_node_id_by_public_key(public_pem) is None:
            self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_pem, 0, name=name)

    def unregister(self, public_pem: bytes) -> bool:
        """Stop accepting a key; return whether it was accepted until now."""
        from flwr.common.constant import NOOP_FLWR_AID

        node = self.state.get_node_id_by_public_key(public_pem)
        self._nodes.pop(public_pem, None)  # the same key would come back with another number
        if node is not None:
            self.state.delete_node(NOOP_FLWR_AID, node)
        return node is not None

    def nodes_with_mail(self) -> set[int]:
        """Return the nodes for which a message is waiting; cheap while nothing changes in the database."""
        from flwr.supercore.date import now

        with self._reading() as database:
            (version,) = database.execute("PRAGMA data_version").fetchone()
            if version != self._looked_at:
                rows = database.execute("SELECT dst_node_id, created_at + ttl FROM message_ins WHERE delivered_at=''")
                # Flower stores node ids as signed numbers
                self._mail = [(node % 2**64, until) for node, until in rows]
                self._looked_at = version
            current = now().timestamp()
            return {node for node, until in self._mail if until > current}

    def note_alive(self, node: int) -> None:
        """Take a request of a node for a sign of life."""
        self.state.acknowledge_node_heartbeat(node, HEARTBEAT_SECONDS)

    def is_waited_for(self, key: str) -> bool:
        """Return whether anybody still waits for the answer to a message."""
        with self._reading() as database:
            return database.execute("SELECT 1 FROM message_ins WHERE message_id = ?", [key]).fetchone() is not None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Read Flower's database without its layers, which take a hundred times as long."""
        with self._look_lock:
            if self._look is None:
                place = f"{Path(self.database).resolve().as_uri()}?mode=ro"
                self._look = sqlite3.connect(place, uri=True, check_same_thread=False)
            yield self._look

    def node_of(self, public_key: bytes) -> int | None:
        """Return the node of a public key (PEM), if it is accepted."""
        if public_key not in self._nodes:
            node = self.state.get_node_id_by_public_key(public_key)
            if node is None:
                return None
            self._nodes[public_key] = int(node)
        return self._nodes[public_key]

    def hand_out(self, node: int) -> Handed | None:
        """Hand out the next message for a node, with all its parts; Flower will not hand it out again."""
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PullMessagesResponse
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.object_store import NoObjectInStoreError

        state, store = self.state, self.state.object_store
        with state.session():
            found = state.get_message_ins(node_id=node, limit=1)
            if not found:
                return None
            meta = found[0].metadata
            try:
                tree = store.get_object_tree(meta.message_id)
            except NoObjectInStoreError:  # withdrawn
                state.delete_messages(message_ins_ids={meta.message_id})
                return None
            parts = [state.get_object(meta.run_id, part.object_id) or b"" for part in iterate_object_tree(tree)]
            head = PullMessagesResponse(messages_list=[message_to_proto(found[0])], message_object_trees=[tree])
            data = join_parts([head.SerializeToString(), *parts])
            store.delete(meta.message_id)
            state.store_traffic(meta.run_id, bytes_sent=len(data), bytes_recv=0)
        return Handed(str(meta.message_id), data, meta.created_at + meta.ttl)

    def take_reply(self, node: int, data: bytes) -> str:
        """Store a node's reply with all its parts, and return which message it answers; ``ValueError`` if it is none.

        A reply that comes again changes nothing. One to a message that nobody waits for any more is dropped.
        """
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from google.protobuf.message import DecodeError
        from sqlalchemy.exc import IntegrityError

        try:
            head, *contents = split_parts(data)
            request = PushMessagesRequest.FromString(head)
            (letter,), (tree,) = request.messages_list, request.message_object_trees
            message = message_from_proto(letter)
        except (DecodeError, TypeError) as error:
            raise ValueError(f"this is not a reply: {type(error).__name__}") from None
        meta, names = message.metadata, [part.object_id for part in iterate_object_tree(tree)]
        if meta.src_node_id != node or len(names) != len(contents) or not meta.reply_to_message_id:
            raise ValueError("this is not a reply of this node")
        state = self.state
        with contextlib.suppress(_Dropped, IntegrityError), state.session():
            session = state.start_session(meta.run_id)
            stored, missing = state.store_message_and_object_tree(message, tree, session)
            if not stored:
                raise _Dropped  # undoes what has been written
            for name, content in dict(zip(names, contents, strict=True)).items():
                if name in missing and not state.store_object(meta.run_id, session, name, content):
                    raise _Dropped
            state.store_traffic(meta.run_id, bytes_sent=0, bytes_recv=len(data))
        return str(meta.reply_to_message_id)

    def keys(self) -> list[bytes]:
        """Return all keys that are accepted."""
        from flwr.supercore.constant import NodeStatus

        statuses = [NodeStatus.REGISTERED, NodeStatus.ONLINE, NodeStatus.OFFLINE]
        return [bytes(node.public_key) for node in self.state.get_node_info(statuses=statuses)]


def fleet_app(link: Link, authenticated: bool) -> Any:
    """Return the web application of the hub: Flower's Fleet interface and a health check, nothing else.

    Parameters
    ----------
    link : Link
    authenticated : bool
        Only registered keys are accepted. Without, every node registers itself; for loopback only.
    """
    from fastapi import FastAPI
    from flwr.supercore.error import http_error_translator
    from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
    from flwr.supercore.routers.health import router as health_router
    from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
    from flwr.superlink.routers.fleet.router import router
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware

    layers = [
        Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
        Middleware(ProtobufTranslationMiddleware),
        # checks for every request, also without registered keys, that a node speaks for itself only
        Middleware(NodeAuthMiddleware),
    ]
    app = FastAPI(title="fcac hub", docs_url=None, redoc_url=None, openapi_url=None, middleware=layers)
    app.state.linkstate_factory = link.factory
    app.state.enable_supernode_auth = authenticated
    app.state.fleet_event_log_plugin = None
    app.include_router(health_router)
    app.include_router(router)
    return app


class LinkGrid(Grid):
    """A Grid over the hub's database: messages are written for the sites and their replies are read.

    Use it in a ``with`` statement: it begins a run of Flower's and ends it, whatever happens.

    Parameters
    ----------
    link : Link
    """

    def __init__(self, link: Link) -> None:
        self.link, self._state = link, link.state
        self._run: Run | None = None
        # replies that have been announced and are still arriving: Flower tells of each only once
        self._arriving: dict[str, Message] = {}
        self._ended = threading.Event()
        self._pulse: threading.Thread | None = None

    def __enter__(self) -> LinkGrid:
        from flwr.common.constant import NOOP_FLWR_AID
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
        from flwr.supercore.task_identity import TaskIdentity

        run_id = self._state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID,
                                        TaskType.SERVER_APP)  # fmt: skip
        (self._run,) = self._state.get_run_info(run_ids=[run_id])
        self._task = self._run.primary_task_id
        if self._state.claim_task(self._task) is None or not self._state.activate_task(self._task):
            raise RuntimeError("Flower's database does not accept a new run")
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, _server_node(), self._task
        self._pulse = threading.Thread(target=self._stay_alive, daemon=True)
        self._pulse.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._ended.set()
        if self._pulse is not None:
            self._pulse.join()
        # removes its messages and their contents from the database as well
        self._state.stop_run(self.run.run_id)

    def _stay_alive(self) -> None:
        """Keep the run from expiring; if this process is killed, it expires by itself."""
        while not self._ended.wait(_TASK_HEARTBEAT_SECONDS):
            with contextlib.suppress(Exception):  # a busy database: the next beat will do
                self._state.acknowledge_task_heartbeat(self._task)

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        assert self._run is not None, "use LinkGrid in a with statement"
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message (Flower's older interface)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""
        return sorted(self._state.get_nodes(self.run.run_id))

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the connected nodes with their public keys."""
        nodes: list[NodeInfo] = self._state.get_node_info(node_ids=list(self.get_node_ids()))
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Write messages for the sites; return their ids, "" for one that was not accepted."""
        ids = []
        for some in _in_groups(messages):
            # in one transaction: a site may fetch a message as soon as it is there, and needs its content then
            with self._state.session():
                ids += [self._push(message) for message in some]
        return ids

    def _push(self, message: Message) -> str:
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

        run_id = self.run.run_id
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            session = self._state.start_session(run_id)
            stored, missing = self._state.store_message_and_object_tree(
                without_content(message), get_object_tree(message), session
            )
            if not stored:
                return ""
            parts = get_all_nested_objects(message)
            for key in missing:
                self._state.store_object(run_id, session, key, parts[key].deflate())
        return str(message.metadata.message_id)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived completely; an error where a reply was lost."""
        wanted, run_id = set(message_ids), self.run.run_id
        for item in self._state.get_message_res(message_ids=wanted - set(self._arriving), run_id=run_id):
            self._arriving[item.metadata.reply_to_message_id] = item
        answered: dict[str, Message] = {}
        for some in _in_groups(key for key in self._arriving if key in wanted):
            with self._state.session():
                found = [(key, self._complete(self._arriving[key])) for key in some]
                answered |= {key: reply for key, reply in found if reply is not None}
                self._state.delete_messages(message_ins_ids={key for key, reply in found if reply is not None})
        for key in answered:
            del self._arriving[key]
        return list(answered.values())

    def _complete(self, reply: Message) -> Message | None:
        """Return a reply with its content; None while its content is still arriving."""
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
        from flwr.supercore.object_store import NoObjectInStoreError

        if reply.has_error():
            return reply
        key, store = reply.metadata.message_id, self._state.object_store
        try:
            names = [tree.object_id for tree in iterate_object_tree(store.get_object_tree(key))]
        except NoObjectInStoreError:
            # what Flower itself answers for a site (an expired message) has no content
            return _lost(reply)
        contents = {name: self._state.get_object(self.run.run_id, name) for name in names}
        if any(content is None for content in contents.values()):
            return _lost(reply)
        if any(content == b"" for content in contents.values()):
            return None
        store.delete(key)
        try:
            whole = inflate_object_from_contents(key, contents)
        except Exception:  # a site may have sent anything
            return _lost(reply)
        if not isinstance(whole, Message) or whole.metadata.src_node_id != reply.metadata.src_node_id:
            return _lost(reply)
        whole.metadata.__dict__["_message_id"] = key
        # the envelope was checked when it arrived; the copy inside the content was not
        whole.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        return whole

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Write messages and wait for all replies, or until time runs out."""
        waiting = {key for key in self.push_messages(messages) if key}
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        replies: list[Message] = []
        while waiting and time.monotonic() < deadline:
            fresh = list(self.pull_messages(waiting))
            replies += fresh
            waiting -= {reply.metadata.reply_to_message_id for reply in fresh}
            time.sleep(0.1 if waiting else 0.0)
        return replies


def _in_groups(items: Iterable[Item]) -> Iterable[list[Item]]:
    """Yield items in groups of a size that one transaction may have."""
    rest = list(items)
    for start in range(0, len(rest), _AT_ONCE):
        yield rest[start : start + _AT_ONCE]


def _server_node() -> int:
    from flwr.common.constant import SUPERLINK_NODE_ID

    return int(SUPERLINK_NODE_ID)


def _lost(reply: Message) -> Message:
    """Return an error in place of a reply that cannot be read."""
    from flwr.app.message import make_message
    from flwr.common.constant import ErrorCode

    error = Error(code=ErrorCode.MESSAGE_UNAVAILABLE, reason="")
    lost: Message = make_message(metadata=reply.metadata, error=error)
    return lost
