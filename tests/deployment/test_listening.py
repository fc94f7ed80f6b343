"""The door of the hub: few places for those who have not asked for anything yet, and nobody keeps others out."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from fcac.deployment.listening import Allowance, Door, FrontLimits


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door.listen_on("127.0.0.1", 0, FrontLimits(pending=3, head_seconds=0.0), Counter())
    made.setblocking(True)
    yield made
    made.close()


def test_the_oldest_gives_way(door: Door) -> None:
    callers = [socket.create_connection(door.getsockname()) for _ in range(4)]
    accepted = [door.accept() for _ in callers]
    assert door.counts == {"connections": 4, "connections_displaced": 1}
    callers[0].settimeout(60)
    assert callers[0].recv(1) == b""  # hung up
    # who has asked for something keeps its place
    door.settle(accepted[1][1])
    callers.append(socket.create_connection(door.getsockname()))
    accepted.append(door.accept())
    assert door.counts["connections_displaced"] == 1
    door.close_overdue()
    assert door.counts["connections_timed_out"] == 3
    assert not door._pending
    assert not door._origins
    for connection in (*callers, *(one for one, _ in accepted)):
        connection.close()


def test_a_closed_connection_no_longer_counts(door: Door) -> None:
    caller = socket.create_connection(door.getsockname())
    accepted, _ = door.accept()
    assert len(door._pending) == 1
    accepted.close()
    assert not door._pending
    caller.close()


def test_one_address_has_few_places(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcac.deployment.listening.is_local", lambda address: False)
    object.__setattr__(door.limits, "pending_per_address", 1)
    callers = [socket.create_connection(door.getsockname()) for _ in range(2)]
    accepted, _ = door.accept()
    door.setblocking(False)
    with pytest.raises(BlockingIOError):
        door.accept()
    assert door.counts["connections_refused"] == 1
    for connection in (*callers, accepted):
        connection.close()


def test_requests_grow_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("fcac.deployment.listening.time.monotonic", lambda: now[0])
    allowance = Allowance(2.0)
    assert [allowance.take() for _ in range(21)] == [True] * 20 + [False]
    now[0] += 1.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]
