"""What the hub accepts from the network: connections, bodies, keys and rates."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import socket
import threading
import time
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from fcac.flower import guard
from fcac.flower.guard import Connections, FrontLimits, Gate, LimitedSocket, Visit
from testing.waiting import PATIENCE, wait_until

LIMITS = FrontLimits(body=1000, open_body=100, body_seconds=0.05)


class Caller:
    """A site's key, and the headers that it signs."""

    def __init__(self) -> None:
        self.private, public = generate_key_pairs()
        self.public = public_key_to_bytes(public)

    def headers(self, ahead: float = 0.0, length: int = 0) -> list[tuple[bytes, bytes]]:
        stamp = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=ahead)).isoformat()
        signature = sign_message(self.private, stamp.encode())
        given = {
            FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(self.public).decode(),
            TIMESTAMP_HEADER: stamp,
            FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
            "content-length": str(length),
        }
        return [(name.lower().encode(), value.encode()) for name, value in given.items()]


async def _ask(gate: Gate, path: str, headers: list[tuple[bytes, bytes]], body: list[bytes] | None) -> tuple[int, int]:
    """Return the status of the answer and how many parts of the body were read; a body of None never comes."""
    seen: list[int] = []
    taken = 0

    async def receive() -> MutableMapping[str, Any]:
        nonlocal taken
        if body is None:
            await asyncio.sleep(PATIENCE)
        taken += 1
        parts = body or [b""]
        return {"type": "http.request", "body": parts[taken - 1], "more_body": taken < len(parts)}

    async def send(event: MutableMapping[str, Any]) -> None:
        seen.extend([event["status"]] if "status" in event else [])

    scope = {"type": "http", "path": path, "client": ("203.0.113.5", 4711), "headers": headers}
    await gate(scope, receive, send)
    return seen[0], taken


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body as the status."""
    event = await receive()
    await send({"type": "http.response.start", "status": 200 + len(event["body"]), "headers": []})


def ask(gate: Gate, path: str, headers: list[tuple[bytes, bytes]], body: list[bytes] | None) -> tuple[int, int]:
    return asyncio.run(_ask(gate, path, headers, body))


def test_nothing_of_a_strangers_body_is_read() -> None:
    known, stranger = Caller(), Caller()
    gate = Gate(application, {known.public: "north"}.get, LIMITS)
    path = "/v1/fleet/activate-node"
    assert ask(gate, path, [(b"content-length", b"1000000000")], [b"x"]) == (401, 0)
    assert ask(gate, path, stranger.headers(length=5), [b"x"]) == (401, 0)
    forged = [*stranger.headers()[1:], (FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), base64.b64encode(known.public))]
    assert ask(gate, path, forged, [b"x"]) == (401, 0)
    assert ask(gate, path, known.headers(length=3), [b"abc"]) == (203, 1)


def test_bodies_are_limited_with_a_key_too() -> None:
    known = Caller()
    gate = Gate(application, {known.public: "north"}.get, LIMITS)
    path = "/v1/fleet/push-object"
    assert ask(gate, path, known.headers(length=1001), [b"x"]) == (413, 0)
    # one that announces less than it sends, and one that does not announce
    assert ask(gate, path, known.headers(length=10), [bytes(600), bytes(600), bytes(600)]) == (413, 2)
    chunked = [*known.headers()[:3], (b"transfer-encoding", b"chunked")]
    assert ask(gate, path, chunked, [b"x"]) == (413, 0)
    # one that never comes
    assert ask(gate, path, known.headers(length=10), None)[0] == 408


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        ("/health", b"0", 200),
        ("/v1/join", b"100", 200),
        ("/v1/join", b"101", 413),
        ("/v1/join", b"-1", 413),
        ("/v1/control/start-run", b"0", 404),
        ("/v1/runtime/acquire-task", b"0", 404),
        ("/docs", b"0", 404),
    ],
)
def test_paths_without_a_key(path: str, length: bytes, status: int) -> None:
    assert ask(Gate(application, {}.get, LIMITS), path, [(b"content-length", length)], [b""])[0] == status


def test_a_wrong_clock_is_named() -> None:
    known, visits = Caller(), list[Visit]()
    gate = Gate(application, {known.public: "north"}.get, LIMITS, visited=visits.append)
    assert ask(gate, "/v1/fleet/pull-messages", known.headers(ahead=20), [b""]) == (401, 0)
    assert ask(gate, "/v1/fleet/pull-messages", known.headers(ahead=-400), [b""]) == (401, 0)
    assert [visit.site for visit in visits] == ["north", "north"]
    assert "20 seconds ahead of the hub's" in visits[0].refusal
    assert "seconds behind the hub's" in visits[1].refusal
    assert ask(gate, "/v1/fleet/pull-messages", known.headers(ahead=-100), [b""])[0] == 200
    assert visits[2].refusal == ""
    assert visits[2].skew == pytest.approx(-100, abs=PATIENCE)


def test_a_flood_with_a_valid_key_is_slowed_down_alone() -> None:
    noisy, quiet = Caller(), Caller()
    visits: list[Visit] = []
    sites = {noisy.public: "noisy", quiet.public: "quiet"}
    # four bodies at once are allowed, and then hardly anything
    burst = FrontLimits(body=1000, requests_per_second=1.0, bytes_per_second=0.001)
    gate = Gate(application, sites.get, burst, visited=visits.append)
    statuses = [ask(gate, "/v1/fleet/push-object", noisy.headers(length=900), [b""])[0] for _ in range(6)]
    assert statuses == [200, 200, 200, 200, 429, 429]
    assert [visit.site for visit in visits if visit.refusal] == ["noisy", "noisy"]
    assert ask(gate, "/v1/fleet/push-object", quiet.headers(length=900), [b""])[0] == 200


@contextlib.contextmanager
def listening(connections: Connections) -> Iterator[LimitedSocket]:
    """Accept connections in the background, and close them when the other side does."""
    server = LimitedSocket.listen_on("127.0.0.1", 0, connections)
    ended = threading.Event()
    held: list[socket.socket] = []

    def serve() -> None:
        while not ended.is_set():
            with contextlib.suppress(BlockingIOError):
                held.append(server.accept()[0])
            for one in list(held):
                with contextlib.suppress(BlockingIOError):
                    one.setblocking(False)
                    if not one.recv(1):
                        one.close()
                        held.remove(one)
            time.sleep(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        thread.join()
        for one in [*held, server]:
            one.close()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_one_address_gets_its_share_of_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "is_local", lambda address: False)  # so that loopback is an address like any other
    connections = Connections(FrontLimits(connections=10, per_address=3))
    with listening(connections) as server, contextlib.ExitStack() as stack:

        def dial() -> socket.socket:
            return stack.enter_context(socket.create_connection(server.getsockname()))

        first = [dial() for _ in range(3)]
        wait_until(lambda: len(connections) == 3)
        assert is_closed(dial())
        assert connections.refused == 1
        assert connections.admit(("198.51.100.7", 1))  # others still get in
        first[0].close()
        wait_until(lambda: len(connections) == 2)
        dial()
        wait_until(lambda: len(connections) == 3)


def test_connections_on_which_nothing_is_asked_are_closed() -> None:
    connections = Connections(FrontLimits(head_seconds=0.0))
    with listening(connections) as server, socket.create_connection(server.getsockname()) as silent:
        wait_until(lambda: len(connections) == 1)
        peer = silent.getsockname()
        connections.busy(peer)
        assert connections.close_overdue() == 0  # a request is being answered
        connections.idle(peer)
        wait_until(lambda: connections.close_overdue() == 1)
        assert is_closed(silent)
        wait_until(lambda: len(connections) == 0)


def test_more_connections_than_the_system_allows_are_not_promised() -> None:
    assert guard.allow_connections(20) == 20
    assert guard.allow_connections(10**9) < 10**9
