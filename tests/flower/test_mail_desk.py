"""Sites wait at the hub for messages, and are served one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.node_pb2 import Node

from fcac.flower.mail_desk import FLOWERS_PATH, MailDesk

NODE = 2**63 + 5


class Mail:
    """Stands for the database of messages: which nodes have some."""

    def __init__(self, *nodes: int) -> None:
        self.nodes = set(nodes)

    def nodes_with_mail(self) -> set[int]:
        return set(self.nodes)


def desk_of(app: Any, mail: Any, *settings: Any, hold_seconds: float = 600.0) -> MailDesk:
    return MailDesk(app, mail, *settings, hold_seconds=hold_seconds)


class Caller:
    """One request: what it sends, what it was sent, and when it hangs up."""

    def __init__(self, path: str = FLOWERS_PATH, node: int = NODE) -> None:
        self.scope = {"type": "http", "method": "POST", "path": path}
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self._events = [
            {"type": "http.request", "body": PullMessagesRequest(node=Node(node_id=node)).SerializeToString()}
        ]

    async def receive(self) -> Any:
        if self._events:
            return self._events.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        await self.reads.wait()
        self.sent.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)


async def flower(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was asked, so that tests see that it arrived whole."""
    body = (await receive()).get("body", b"")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"flower:" + body})


def play(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_a_question_is_kept_until_there_is_a_message() -> None:
    mail = Mail()

    async def work() -> None:
        desk, caller = desk_of(flower, mail), Caller()
        waiting = asyncio.create_task(desk(caller.scope, caller.receive, caller.send))
        await until(lambda: NODE in desk._queue)
        assert caller.sent == []
        mail.nodes.add(NODE)
        await waiting
        assert caller.body == b"flower:" + PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
        assert desk._queue == {}

    play(work)


def test_without_a_message_the_answer_is_flowers_own_and_flower_is_not_asked() -> None:
    async def work() -> None:
        caller = Caller()
        await desk_of(flower, Mail(NODE + 1), hold_seconds=0.01)(caller.scope, caller.receive, caller.send)
        assert caller.sent[0]["status"] == 200
        assert list(PullMessagesResponse.FromString(caller.body).messages_list) == []

    play(work)


def test_who_hangs_up_is_not_handed_a_message() -> None:
    """A message that is handed to a site that was killed while it waited would be lost."""
    asked: list[str] = []

    async def spy(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    async def work() -> None:
        desk, caller = desk_of(spy, Mail()), Caller()
        waiting = asyncio.create_task(desk(caller.scope, caller.receive, caller.send))
        await until(lambda: NODE in desk._queue)
        caller.gone.set()
        await waiting
        assert asked == []
        assert desk._queue == {}

    play(work)


def test_a_hub_that_stops_sends_everybody_away() -> None:
    stopping = False

    async def work() -> None:
        nonlocal stopping
        desk, caller = desk_of(flower, Mail(), lambda: stopping), Caller()
        waiting = asyncio.create_task(desk(caller.scope, caller.receive, caller.send))
        await until(lambda: NODE in desk._queue)
        stopping = True
        await waiting
        assert caller.body == b""

    play(work)


def test_requests_take_turns_and_a_slow_reader_keeps_nobody_waiting() -> None:
    inside, most = 0, 0

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1
        await flower(scope, receive, send)

    async def work() -> None:
        desk = desk_of(busy, Mail())
        slow, others = Caller("/v1/fleet/pull-object"), [Caller("/v1/fleet/push-object") for _ in range(5)]
        slow.reads.clear()
        waiting = asyncio.create_task(desk(slow.scope, slow.receive, slow.send))
        await asyncio.gather(*(desk(c.scope, c.receive, c.send) for c in others))
        assert [c.body.startswith(b"flower:") for c in others] == [True] * 5
        assert slow.sent == []
        slow.reads.set()
        await waiting
        assert most == 1

    play(work)


def test_what_is_no_question_of_a_site_goes_to_flower() -> None:
    async def work() -> None:
        desk = desk_of(flower, Mail())
        caller = Caller()
        caller._events = [{"type": "http.request", "body": b"\xff\xff\xff"}]
        health = Caller("/health")
        for one in (caller, health):
            await desk(one.scope, one.receive, one.send)
            assert one.body.startswith(b"flower:")

    play(work)
