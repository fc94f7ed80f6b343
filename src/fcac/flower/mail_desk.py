"""Sites wait at the hub for their next message instead of asking again and again, and are served one at a time.

Flower's sites poll: each asks for messages every few seconds, and every question costs the hub a transaction. With a
hundred sites the hub does little else, and a message lies there until its site asks again. Here

- the question of a site without mail is kept open, up to :data:`HOLD_SECONDS`, and answered as soon as there is some
  (long polling);
- a message and its parts are fetched in one request, and a reply sent in one; over Flower's own interface, which stays
  open for sites of earlier versions, this takes nine requests, of 20 to 40 ms of the hub's processor each;
- a message whose site was cut off or killed before it arrived is sent again when the site asks next;
- requests take turns. All of them write to one SQLite file, which has one writer at a time; writers that meet there
  wait in steps of up to a tenth of a second, here they wait in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, MutableMapping
from typing import Any

from fcac.flower.adapter import Handed, Link, read_identity
from fcac.flower.fleet_client import (
    FETCH_PATH,
    NO_MESSAGES,
    REPLY_PATH,
    asking_node,
    split_parts,
    unwrapped,
    wrapped,
)
from fcac.flower.guard import SITE_PATHS, App, Receive, Scope, Send

FLOWERS_PATH = "/v1/fleet/pull-messages"
#: How long a question is kept open. Signs of life wait behind it, and are due every 12 seconds.
HOLD_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_ALIVE_SECONDS = 8.0
# Larger messages are not kept to be sent again.
_MOST_KEPT = 1_000_000


class MailDesk:
    """A layer between the gate and Flower that hands out messages and takes replies.

    Parameters
    ----------
    app : ASGI application
        Flower's Fleet interface, which gets everything else.
    link : Link
    closing : callable, optional
        Returns whether the hub is about to stop; then everybody is sent away.
    hold_seconds : float, default=HOLD_SECONDS
    """

    def __init__(
        self,
        app: App,
        link: Link,
        closing: Callable[[], bool] = lambda: False,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self.app, self.link, self.closing, self.hold_seconds = app, link, closing, hold_seconds
        self._queue: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._handed: dict[int, Handed] = {}
        self._alive: dict[int, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep, answer or pass on a request."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(SITE_PATHS):
            await self.app(scope, receive, send)
        elif path in (FETCH_PATH, REPLY_PATH):
            status, body = await self._serve(path, scope, receive)
            await _answer(send, status, wrapped(body))
        else:
            await self._pass_on(path, scope, receive, send)

    async def _pass_on(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Let Flower answer, in turn."""
        if path == FLOWERS_PATH:
            question = await receive()
            node = asking_node(question.get("body", b""))
            if node is not None and not await self._wait_for_mail(node, receive):
                await _answer(send, 200, NO_MESSAGES)
                return
            receive = _again(question, receive)
        answer: list[MutableMapping[str, Any]] = []

        async def keep(event: MutableMapping[str, Any]) -> None:
            answer.append(event)

        async with self._turn:
            await self.app(scope, receive, keep)
        # after its turn, so that a site that reads slowly keeps nobody waiting
        for event in answer:
            await send(event)

    async def _serve(self, path: str, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        """Return status and body of the answer to a request that is not Flower's."""
        who = read_identity(dict(scope.get("headers", [])))
        if who is None:
            return 401, b""
        node = await asyncio.to_thread(self.link.node_of, who.public_key)
        if node is None:
            return 401, b""
        if time.monotonic() - self._alive.get(node, -_ALIVE_SECONDS) > _ALIVE_SECONDS:
            # signs of life have five seconds to get through, and on a busy hub whole minutes pass before one does
            self._alive[node] = time.monotonic()
            async with self._turn:
                await asyncio.to_thread(self.link.note_alive, node)
        try:
            data = unwrapped((await receive()).get("body", b""))
            if path == REPLY_PATH:
                async with self._turn:
                    answered = await asyncio.to_thread(self.link.take_reply, node, data)
                if node in self._handed and self._handed[node].key == answered:
                    del self._handed[node]
                return 200, b""
            question, last = split_parts(data)
            if asking_node(question) != node:
                return 401, b""
        except ValueError:
            return 400, b""
        return 200, await self._fetch(node, last.decode("ascii", "replace"), receive)

    async def _fetch(self, node: int, last: str, receive: Receive) -> bytes:
        """Return the next message for a node; that is the one before, if it did not arrive and can be answered yet."""
        before = self._handed.pop(node, None)
        lost = before is not None and before.key != last and before.until > time.time()
        if before is not None and lost and await asyncio.to_thread(self.link.is_waited_for, before.key):
            self._handed[node] = before
            return before.data
        if not await self._wait_for_mail(node, receive):
            return b""
        async with self._turn:
            handed = await asyncio.to_thread(self.link.hand_out, node)
        if handed is None:
            return b""
        if len(handed.data) <= _MOST_KEPT:
            self._handed[node] = handed
        return handed.data

    async def _wait_for_mail(self, node: int, receive: Receive) -> bool:
        """Return whether there is a message for a node, after waiting for one; no longer than the node waits itself."""
        arrived = asyncio.Event()
        self._queue[node].add(arrived)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        # A message that is handed to a site that has gone may be lost: whoever hangs up is no longer served.
        tasks = [asyncio.create_task(arrived.wait()), asyncio.create_task(_hung_up(receive))]
        try:
            await asyncio.wait(tasks, timeout=self.hold_seconds, return_when=asyncio.FIRST_COMPLETED)
            return arrived.is_set() and not tasks[1].done() and not self.closing()
        finally:
            for task in tasks:
                task.cancel()
            self._queue[node].discard(arrived)
            if not self._queue[node]:
                del self._queue[node]

    async def _look(self) -> None:
        """Tell those who wait when there is mail, as long as anybody waits."""
        while self._queue and not self.closing():
            begin = time.monotonic()
            for node in await asyncio.to_thread(self.link.nodes_with_mail):
                for arrived in self._queue.get(node, ()):
                    arrived.set()
            await asyncio.sleep(max(_LOOK_SECONDS, 3 * (time.monotonic() - begin)))
        for waiting in self._queue.values():
            for arrived in waiting:
                arrived.set()


async def _hung_up(receive: Receive) -> None:
    """Return when the other side has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _again(first: MutableMapping[str, Any], receive: Receive) -> Receive:
    """Return a channel that yields an event once more, and then what follows it."""
    events = [first]

    async def channel() -> MutableMapping[str, Any]:
        return events.pop() if events else await receive()

    return channel


async def _answer(send: Send, status: int, content: tuple[bytes, bytes]) -> None:
    kind, body = content
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
