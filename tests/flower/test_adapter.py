"""The adapter to Flower. For a new version of flwr: this file first, then ``test_processes.py``, then the soak tests.

What to check when something here fails:

- :func:`test_names_that_are_used`: a name was moved or renamed; follow it in flwr's changelog.
- :func:`test_a_message_and_its_reply`: the Fleet interface, the database or the way messages are cut into objects has
  changed; compare ``flwr.supernode.fleet_http_connection`` and ``flwr.superlink.grid.http_grid``, which do the same.
- :func:`test_which_nodes_have_mail`: the table of messages has changed, which the hub reads to know who has some.
- :func:`test_signed_requests`: the headers that authenticate a node have changed; compare
  ``flwr.superlink.routers.fleet.node_auth``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import uvicorn
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fcac.deployment import certificates
from fcac.flower import adapter
from fcac.flower.adapter import Link, LinkGrid, fleet_app
from fcac.flower.fleet_client import FETCH_PATH, REPLY_PATH, FleetConnection, HubAway, HubRefuses, KeyInUse
from fcac.flower.guard import Connections, FrontLimits, Gate, LimitedSocket
from fcac.flower.mail_desk import MailDesk
from testing.waiting import wait_until

pytestmark = pytest.mark.slow

USED = {
    "flwr.app.message": ["make_message", "remove_content_from_message"],
    "flwr.common.constant": [
        "NOOP_ACCOUNT_NAME", "NOOP_FLWR_AID", "SUPERLINK_NODE_ID", "SYSTEM_TIME_TOLERANCE", "TIMESTAMP_HEADER",
        "TIMESTAMP_TOLERANCE", "ErrorCode",
    ],
    "flwr.common.serde": ["message_from_proto", "message_to_proto"],
    "flwr.proto.fleet_pb2": [
        "ActivateNodeRequest", "DeactivateNodeRequest", "PullMessagesRequest", "PushMessagesRequest",
        "PullMessagesResponse", "RegisterNodeFleetRequest", "UnregisterNodeFleetRequest",
    ],
    "flwr.proto.heartbeat_pb2": ["SendNodeHeartbeatRequest"],
    "flwr.proto.message_pb2": ["ConfirmMessageReceivedRequest", "PullObjectRequest", "PushObjectRequest"],
    "flwr.supercore.constant": [
        "FLEET_HTTP_PUBLIC_KEY_HEADER", "FLEET_HTTP_SIGNATURE_HEADER", "NOOP_FEDERATION_ID", "NodeStatus", "TaskType",
    ],
    "flwr.supercore.date": ["now"],
    "flwr.supercore.error": ["http_error_translator"],
    "flwr.supercore.inflatable.inflatable_object": [
        "get_all_nested_objects", "get_object_tree", "iterate_object_tree", "no_object_id_recompute",
    ],
    "flwr.supercore.inflatable.inflatable_utils": ["inflate_object_from_contents"],
    "flwr.supercore.interceptors.http.runtime_version": ["RuntimeVersionHttpInterceptor"],
    "flwr.supercore.interceptors.http.utils": ["add_headers"],
    "flwr.supercore.object_store": ["NoObjectInStoreError"],
    "flwr.supercore.primitives.asymmetric": [
        "bytes_to_public_key", "generate_key_pairs", "public_key_to_bytes", "sign_message", "verify_signature",
    ],
    "flwr.supercore.protobuf.translation": ["ProtobufTranslationMiddleware"],
    "flwr.supercore.routers.health": ["router"],
    "flwr.supercore.run": ["Run"],
    "flwr.supercore.task_identity": ["TaskIdentity"],
    "flwr.superlink.config_loader": ["get_federation_manager", "get_objectstore_linkstate_factories"],
    "flwr.superlink.routers.fleet.node_auth": ["NodeAuthMiddleware"],
    "flwr.superlink.routers.fleet.router": ["router"],
    "flwr.supernode.fleet_http_client": ["FleetHttpClient"],
}  # fmt: skip


@pytest.mark.parametrize("module", sorted(USED))
def test_names_that_are_used(module: str) -> None:
    found = import_module(module)
    assert [name for name in USED[module] if not hasattr(found, name)] == []


def test_every_name_that_is_used_is_listed_here() -> None:
    """Flower is used beyond its public interface in two files, the hub's and the site's; this test knows all of it."""
    folder = Path(adapter.__file__).parent
    public = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.proto.node_pb2", "flwr.supercore.run",
              "flwr.supercore.task_identity")  # fmt: skip
    for path in folder.glob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1].startswith("flwr."):
                is_adapter = path.name in ("adapter.py", "fleet_client.py")
                assert words[1] in public or (is_adapter and words[1] in USED), f"{path.name}: {line}"


class Served:
    """A hub inside this process, without encryption; `earlier` makes it one that knows Flower's interface only."""

    def __init__(self, folder: Path, keys: dict[bytes, str] | None, earlier: bool = False) -> None:
        self.link = Link(folder / "link.db")
        for pem, name in (keys or {}).items():
            self.link.register(pem, name)
        limits = FrontLimits()
        connections = Connections(limits)
        app = fleet_app(self.link, keys is not None)
        app = Gate(
            app if earlier else MailDesk(app, self.link, hold_seconds=0.3),
            None if keys is None else keys.get,
            limits,
            connections,
        )
        self.listening = LimitedSocket.listen_on("127.0.0.1", 0, connections)
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        config = uvicorn.Config(app, loop="asyncio", http="h11", ws="none", log_config=None, proxy_headers=False)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve(sockets=[self.listening])))
        self.thread.start()
        wait_until(lambda: self.server.started)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.listening.close()


def test_statements_wait_for_a_locked_database(tmp_path: Path) -> None:
    link = Link(tmp_path / "link.db")
    for holder in (link.state, link.state.object_store):
        with holder._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, None)
    yield served
    served.stop()


@pytest.fixture
def earlier_hub(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, None, earlier=True)
    yield served
    served.stop()


def content(**values: Any) -> RecordDict:
    return RecordDict({"fcac": ConfigRecord(values)})


@pytest.mark.parametrize("which", ["hub", "earlier_hub"])
def test_a_message_and_its_reply(which: str, request: pytest.FixtureRequest) -> None:
    hub: Served = request.getfixturevalue(which)
    site = FleetConnection(hub.address, None, None)
    site.connect()
    site.beat()
    assert site.fetch() is None
    with LinkGrid(hub.link) as grid:
        (node,) = grid.get_node_ids()
        (key,) = grid.push_messages([Message(content(round=1), node, "train.contribute", group_id="1", ttl=600)])
        assert grid.pull_messages([key]) == []
        asked = site.fetch()
        assert asked is not None
        assert asked.content["fcac"]["round"] == 1
        assert site.fetch() is None  # a message is given out once
        site.reply(Message(content(code=1, data=bytes(100_000)), reply_to=asked))
        (reply,) = grid.pull_messages([key])
        assert len(reply.content["fcac"]["data"]) == 100_000
        assert reply.metadata.reply_to_message_id == key
        assert reply.metadata.src_node_id == node
        # an error, and a node that does not exist
        (key,) = grid.push_messages([Message(content(round=2), node, "train.contribute", group_id="2", ttl=600)])
        asked = site.fetch()
        assert asked is not None
        site.reply(Message(Error(code=2, reason="no"), reply_to=asked))
        (reply,) = grid.pull_messages([key])
        assert reply.has_error()
        assert grid.push_messages([Message(content(round=2), 12345, "train.contribute", ttl=600)]) == [""]
        run = grid.run.run_id
    # what has ended leaves nothing behind
    assert hub.link.state.num_message_ins() == 0
    assert hub.link.state.num_message_res() == 0
    assert hub.link.state.get_message_ids_from_run_id(run) == set()
    site.close()
    with LinkGrid(hub.link) as grid:
        assert list(grid.get_node_ids()) == []


def test_which_nodes_have_mail(hub: Served) -> None:
    """Read from Flower's table of messages: those that were not handed out and have not expired."""
    site, other = FleetConnection(hub.address, None, None), FleetConnection(hub.address, None, None)
    site.connect()
    other.connect()
    assert hub.link.nodes_with_mail() == set()
    with LinkGrid(hub.link) as grid:
        nodes = {c._node.node_id for c in (site, other)}
        assert set(grid.get_node_ids()) == nodes
        letters = [Message(content(round=1), node, "train.contribute", group_id="1", ttl=600) for node in nodes]
        grid.push_messages(letters)
        assert hub.link.nodes_with_mail() == nodes
        assert site.fetch() is not None
        assert hub.link.nodes_with_mail() == {other._node.node_id}
        hub.link._mail = [(node, 1.0) for node, _ in hub.link._mail]
        assert hub.link.nodes_with_mail() == set()  # expired
    site.close()
    other.close()


def test_a_message_that_did_not_arrive_is_sent_again(hub: Served) -> None:
    """As after a connection that was cut, or a site that was killed; but not once it is answered."""
    site = FleetConnection(hub.address, None, None)
    site.connect()
    with LinkGrid(hub.link) as grid:
        (node,) = grid.get_node_ids()
        first, second = grid.push_messages(
            [Message(content(round=i), node, "train.contribute", group_id="1", ttl=600) for i in (1, 2)]
        )
        lost = site.fetch()
        site._last = ""  # what a site says that has just been started
        again = site.fetch()
        assert lost is not None
        assert again is not None
        assert again.metadata.message_id == lost.metadata.message_id
        reply = Message(content(code=1), reply_to=again)
        for _ in range(2):  # the same reply again changes nothing
            site.reply(reply)
        site._last = ""
        following = site.fetch()
        assert following is not None
        assert {lost.metadata.message_id, following.metadata.message_id} == {first, second}
        found = grid.pull_messages([first, second])
        assert [reply.metadata.reply_to_message_id for reply in found] == [lost.metadata.message_id]
    site._last = ""
    assert site.fetch() is None  # the second one is not sent again: whoever asked has gone
    site.reply(Message(content(code=1), reply_to=following))  # nobody waits for it: it is dropped
    assert hub.link.state.num_message_res() == 0
    site.close()


def test_nobody_speaks_for_another_node_and_nonsense_is_refused(hub: Served) -> None:
    site, other = FleetConnection(hub.address, None, None), FleetConnection(hub.address, None, None)
    site.connect()
    other.connect()
    own, site._node = site._node, other._node
    with pytest.raises(HubRefuses):
        site.fetch()
    site._node = own
    for parts in ([], [b""], [b"\xff\xff"], [b"", b"too", b"many"]):
        for path in (FETCH_PATH, REPLY_PATH):
            with pytest.raises((HubAway, HubRefuses), match=r"status 400|unknown"):
                site._call_whole(path, parts)
    site.close()
    other.close()


def test_a_message_is_fetched_to_the_end_after_the_connection_was_cut(
    earlier_hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub of an earlier version hands out a message once; it was lost if its parts could not all be fetched."""
    hub = earlier_hub
    site = FleetConnection(hub.address, None, None)
    site.connect()
    assert site.fetch() is None
    whole, calls = site._call, []

    def cut(name: Any, request: Any) -> Any:
        calls.append(name)
        if len(calls) in (3, 6):
            raise HubAway("cut")
        return whole(name, request)

    with LinkGrid(hub.link) as grid:
        (node,) = grid.get_node_ids()
        grid.push_messages([Message(content(round=1), node, "train.contribute", group_id="1", ttl=600)])
        monkeypatch.setattr(site, "_call", cut)
        for _ in range(2):
            with pytest.raises(HubAway):
                site.fetch()
        found = site.fetch()
    assert found is not None
    assert found.content["fcac"]["round"] == 1
    assert calls.count("PullMessages") == 1
    monkeypatch.undo()
    site.close()


def test_signed_requests(tmp_path: Path) -> None:
    public = certificates.make_site_key(tmp_path / "node.key")
    other = tmp_path / "other.key"
    certificates.make_site_key(other)
    hub = Served(tmp_path, {certificates.public_pem(public): "north"})
    try:
        site = FleetConnection(hub.address, None, tmp_path / "node.key")
        site.connect()
        # a second process with the same key has to wait; a stranger is refused
        for key, error in ((tmp_path / "node.key", KeyInUse), (other, HubRefuses)):
            with contextlib.closing(FleetConnection(hub.address, None, key)) as second, pytest.raises(error):
                second.connect()
        # a clock that is minutes ahead is noticed and made up for
        site.skew = timedelta(seconds=-400)
        site.beat()
        assert abs(site.skew) < timedelta(seconds=300)
        hub.link.unregister(certificates.public_pem(public))
        assert hub.link.keys() == []
        with pytest.raises((HubRefuses, HubAway)):
            site.beat()
    finally:
        hub.stop()
    with pytest.raises(HubAway, match="does not answer"):
        site.fetch()
    site.close()
