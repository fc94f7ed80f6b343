"""The sites' port: messages that wait for sites, and their replies; every caller has a certificate of the study.

- ``GET /work``: the next message for the site, kept open until there is one (long polling);
- ``POST /reply``: the site's answer, durable before it is acknowledged;
- ``GET /bundle``, ``POST /renew``: the study's present settings and schema; a certificate for a new key.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from aiohttp import web

from fcac._text import plain
from fcac.deployment import certificates, presence, study
from fcac.deployment.listening import Allowance, FrontLimits
from fcac.deployment.outbox import Outbox, Waiting
from fcac.deployment.settings import FederationSettings

Say = Callable[[str], None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: How long a question for messages is kept open.
HOLD_SECONDS = 20.0
# A site asks again at once; one that has not done so for this long has lost its connection.
_AWAY_SECONDS = 5.0
_SKEW_HEADER = "X-Fcac-Time"


@dataclass
class _Caller:
    """A site as the service sees it now."""

    instance: str = ""
    polls: int = 0
    busy: str = ""
    replying: bool = False
    last: float = 0.0
    allowance: Allowance = field(default_factory=lambda: Allowance(20.0))
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class SitesPort:
    """Hands messages out and takes replies; `say` tells the operator everything, `tell` only so often."""

    def __init__(
        self, root: Path, outbox: Outbox, heard: presence.Presence, limits: FrontLimits, say: Say, tell: Say
    ) -> None:
        self.root, self.outbox, self.presence, self.limits = root, outbox, heard, limits
        self.say, self._tell, self.counts = say, tell, heard.counts
        self.settings = FederationSettings.load(root)
        self.stopped = asyncio.Event()
        self._keys: dict[str, str] = {}
        self._callers: defaultdict[str, _Caller] = defaultdict(
            lambda: _Caller(allowance=Allowance(limits.requests_per_second))
        )
        self._waiting: dict[str, Waiting] = {}
        self._letter: tuple[str, bytes] = ("", b"")
        self._to_store: list[tuple[tuple[str, str, bytes], asyncio.Future[bool]]] = []
        self._storing = asyncio.Lock()
        self._bodies = asyncio.Semaphore(limits.bodies)

    def routes(self) -> list[web.RouteDef]:
        """Return what is served where."""
        return [
            web.get("/work", self._of_site(self._work)),
            web.post("/reply", self._of_site(self._reply)),
            web.get("/bundle", self._of_site(self._bundle)),
            web.post("/renew", self._of_site(self._renew)),
        ]

    # ------------------------------------------------------------ what changes while it runs

    def let_in(self, settings: FederationSettings) -> None:
        """Let in the keys of all sites that are not revoked, and no others."""
        self.settings = settings
        keys = {
            key: name
            for name, member in settings.members.items()
            if member.status != "revoked"
            for key in (member.key, member.before)
            if key
        }
        for name in sorted(set(keys.values()) - set(self._keys.values())):
            self.say(f"{name}: may connect")
        for name in sorted(set(self._keys.values()) - set(keys.values())):
            self.say(f"{name}: its key is no longer accepted")
            self._callers[name].woken.set()
        self._keys = keys

    def wake(self, waiting: dict[str, Waiting]) -> None:
        """Hand out these messages, and no others."""
        self._waiting = waiting
        for site in waiting:
            if site in self._callers:
                self._callers[site].woken.set()

    def look(self, seconds: float) -> None:
        """Note who is gone, and what nobody waits for any more; `seconds` have passed since the last look."""
        for site, caller in self._callers.items():
            if not caller.polls and time.monotonic() - caller.last > _AWAY_SECONDS:
                self.presence.lost(site)
        left = {site: waiting._replace(left=waiting.left - seconds) for site, waiting in self._waiting.items()}
        self._waiting = {site: waiting for site, waiting in left.items() if waiting.left > 0}

    def stop(self) -> None:
        """End all questions for messages."""
        self.stopped.set()
        for caller in self._callers.values():
            caller.woken.set()

    def leave(self) -> None:
        """Note that nobody is connected any more."""
        for site in self._callers:
            self.presence.lost(site)

    # ------------------------------------------------------------ handlers

    def _of_site(self, handler: Callable[[web.Request, str, _Caller], Awaitable[web.StreamResponse]]) -> Handler:
        async def known(request: web.Request) -> web.StreamResponse:
            tls = request.transport and request.transport.get_extra_info("ssl_object")
            der = tls.getpeercert(True) if tls else None
            key = certificates.key_fingerprint(der) if der else ""
            site = self._keys.get(key)
            if site is None:
                return refuse(403, "this key is not, or no longer, that of a site")
            caller = self._callers[site]
            if not caller.allowance.take():
                self._tell(f"{site}: too many requests")
                return refuse(429, "too many requests from this site")
            if self.settings.members[site].before and key == self.settings.members[site].key:
                await asyncio.to_thread(study.settle_key, self.root, site)
            return await handler(request, site, caller)

        return known

    async def _work(self, request: web.Request, site: str, caller: _Caller) -> web.StreamResponse:
        instance = request.headers.get("X-Fcac-Instance", "")[:40]
        if caller.polls and caller.instance != instance:
            self._tell(f"{site}: its key is already in use by another process")
            return refuse(409, "this site's key is already in use by another process")
        if caller.polls >= self.limits.per_site:
            return refuse(429, "too many questions are open")
        caller.instance, caller.busy = instance, request.headers.get("X-Fcac-Busy", "")[:64]
        self.presence.heard(
            site, True, _skew(request), request.headers.get("User-Agent", "")[:40].removeprefix("fcac/")
        )
        caller.polls += 1
        deadline = time.monotonic() + HOLD_SECONDS
        try:
            while not self.stopped.is_set():
                waiting = self._waiting.get(site)
                if waiting is not None and waiting.letter != caller.busy:
                    data = await self._read_letter(waiting.letter)
                    if data is not None and not self.stopped.is_set():
                        self.counts["messages_handed_out"] += 1
                        self.counts["message_bytes"] += len(data)
                        headers = {"X-Fcac-Letter": waiting.letter, "X-Fcac-Seconds": f"{waiting.left:.0f}"}
                        return web.Response(body=data, headers=headers)
                caller.woken.clear()
                try:
                    await asyncio.wait_for(caller.woken.wait(), deadline - time.monotonic())
                except TimeoutError:
                    break
            return web.Response(status=204)
        finally:
            caller.polls -= 1
            # between two questions a site is still there; a connection that broke is noticed at once
            task = asyncio.current_task()
            gone = task is not None and bool(task.cancelling())
            caller.last = time.monotonic()
            if gone and not caller.polls:
                self.presence.lost(site)

    async def _reply(self, request: web.Request, site: str, caller: _Caller) -> web.StreamResponse:
        letter = request.headers.get("X-Fcac-Letter", "")[:64]
        if caller.replying:
            return refuse(429, "another reply of this site is being read")
        caller.replying = True
        try:
            async with self._bodies:
                data = await request.read()
            stored = await self._store(site, letter, data)
        finally:
            caller.replying = False
        if caller.busy == letter:
            caller.busy = ""
        self._waiting.pop(site, None)
        if not stored:
            return refuse(410, "nobody waits for this reply any more")
        self.counts["replies"] += 1
        self.counts["reply_bytes"] += len(data)
        return web.Response(status=204)

    async def _store(self, site: str, letter: str, data: bytes) -> bool:
        """Store a reply; those that arrive while others are being stored share one transaction."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._to_store.append(((site, letter, data), done))
        async with self._storing:
            if not done.done():
                batch, self._to_store = self._to_store, []
                try:
                    stored = await asyncio.to_thread(self.outbox.answer, [reply for reply, _ in batch])
                except Exception as error:
                    stored = [False] * len(batch)
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(web.HTTPServiceUnavailable(text=plain(str(error))))
                for (_, future), here in zip(batch, stored, strict=True):
                    if not future.done():
                        future.set_result(here)
        return await done

    async def _bundle(self, request: web.Request, site: str, caller: _Caller) -> web.StreamResponse:
        return web.json_response(await asyncio.to_thread(study.bundle_files, self.root, site))

    async def _renew(self, request: web.Request, site: str, caller: _Caller) -> web.StreamResponse:
        signing_request = await request.text()
        certificate = await asyncio.to_thread(study.renew_site, self.root, site, signing_request)
        self.let_in(await asyncio.to_thread(FederationSettings.load, self.root))
        self.say(f"{site}: has a certificate for a new key")
        return web.Response(text=certificate)

    async def _read_letter(self, name: str) -> bytes | None:
        if self._letter[0] != name:
            data = await asyncio.to_thread(self.outbox.letter, name)
            if data is None:
                return None
            self._letter = (name, data)
        return self._letter[1]


def _skew(request: web.Request) -> float | None:
    """Return by how many seconds a site's clock is ahead, as far as it says; for information only."""
    try:
        return float(request.headers.get(_SKEW_HEADER, "")[:20]) - time.time()
    except ValueError:
        return None


def refuse(status: int, text: str) -> web.Response:
    """Return a refusal in words."""
    return web.json_response({"detail": text}, status=status, headers={"Date": formatdate(usegmt=True)})
