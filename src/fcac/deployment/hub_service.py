"""The hub's service: messages to sites and their replies, requests to join, health and metrics, over HTTPS.

Two ports, so that strangers never share places with sites. On the sites' port TLS asks for a certificate of the hub's
own authority before any request is read:

- ``GET /work``: the next message for the site, kept open until there is one (long polling);
- ``POST /reply``: the site's answer, durable before it is acknowledged;
- ``GET /bundle``, ``POST /renew``: the study's present settings and schema; a certificate for a new key.

On the open port, with its own small limits: ``/join``, ``/health``, and ``/metrics`` for those with its token.

The service knows nothing of rounds; those are played by ``fcac federation run``, through the hub's store. Changes of
``federation.toml`` (a site added or revoked) and of the server's certificate take effect within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import signal
import ssl
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment import certificates, invitations, metrics, presence, study
from fcac.deployment.facts import Observer
from fcac.deployment.hub import Hub
from fcac.deployment.listening import Allowance, Door, FrontLimits, allow_connections
from fcac.deployment.outbox import Outbox, Waiting
from fcac.deployment.settings import FEDERATION_FILE, STATE, FederationSettings, most_bytes
from fcac.exceptions import FederationError

try:
    from aiohttp import web
except ImportError:
    raise ImportError("hubs and sites need the extra: pip install 'fcac[federation]'") from None

Say = Callable[[str], None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: How long a question for messages is kept open.
HOLD_SECONDS = 20.0
TOKEN_FILE = "metrics.token"
_LOOK_SECONDS = 0.05
_CHECK_SECONDS = 1.0
# A site asks again at once; one that has not done so for this long has lost its connection.
_AWAY_SECONDS = 5.0
_LEAST_BODY = 8_000_000
_REFUSALS_EVERY = 60.0
_MOST_KINDS = 200
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


class HubService:
    """Serves the sites of one federation until it is stopped.

    It listens at the address of the settings unless another host is given; `say` is called with every line that the
    operator should see.
    """

    def __init__(
        self, root: Path, host: str | None = None, say: Say = print, limits: FrontLimits | None = None
    ) -> None:
        self.root, self.say, self.limits = root, say, limits or FrontLimits()
        self.settings = FederationSettings.load(root)
        self.host, self.port = listening_address(self.settings, host)
        self.outbox = Outbox(Hub(root / STATE, self.settings).store)
        self.presence = presence.Presence(root / STATE)
        self.counts = self.presence.counts
        self._keys: dict[str, str] = {}
        self._callers: defaultdict[str, _Caller] = defaultdict(
            lambda: _Caller(allowance=Allowance(self.limits.requests_per_second))
        )
        self._waiting: dict[str, Waiting] = {}
        self._letter: tuple[str, bytes] = ("", b"")
        self._to_store: list[tuple[tuple[str, str, bytes], asyncio.Future[bool]]] = []
        self._storing = asyncio.Lock()
        self._bodies = asyncio.Semaphore(self.limits.bodies)
        self._told: dict[str, float] = {}
        self._seen: dict[Path, int] = {}
        self._stopped = asyncio.Event()
        self.observer, self._looking = Observer(root), threading.Lock()

    def run(self) -> None:
        """Serve until a signal arrives."""
        os.umask(0o077)
        check_certificate(self.root)
        with contextlib.ExitStack() as stack:
            # one hub per directory: the lock goes with the process
            try:
                stack.enter_context(persistence.locked(self.root / "server" / "lock", 2.0))
            except TimeoutError:
                raise FederationError(f"another hub already serves {self.root}") from None
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        allow_connections(4096)
        self.outbox.put({}, 0.0)  # the store exists, in the present format
        self._load_settings()
        metrics_token(self.root)
        self._contexts = [self._context(sites=True), self._context(sites=False)]
        doors, runners, servers = [], [], []
        try:
            for port in (self.port, self.settings.join_port):
                try:
                    doors.append(Door.listen_on(self.host, port, self.limits, self.counts))
                except OSError as error:
                    raise FederationError(f"port {port} of {self.host} cannot be used: {error.strerror}") from None
            for door, context, app in zip(doors, self._contexts, self._apps(doors), strict=True):
                runner = web.AppRunner(
                    app, handle_signals=False, access_log=None, handler_cancellation=True, keepalive_timeout=90.0,
                    shutdown_timeout=1.0, lingering_time=0.0, max_line_size=2048, max_field_size=2048,
                )  # fmt: skip
                await runner.setup()
                runners.append(runner)
                assert runner.server is not None
                servers.append(
                    await loop.create_server(
                        runner.server, sock=door, ssl=context, ssl_handshake_timeout=self.limits.head_seconds,
                        ssl_shutdown_timeout=2.0,
                    )
                )  # fmt: skip
            watch, checks = asyncio.create_task(self._watch()), asyncio.create_task(self._check(doors))
            self.presence.write(now=True)
            self.say(f"Server ready on {self.host}:{self.port}; sites join on port {self.settings.join_port}.")
            await self._stopped.wait()
            for task in (watch, checks):
                task.cancel()
            for caller in self._callers.values():
                caller.woken.set()
        finally:
            for server in servers:
                server.close()
            for runner in runners:
                await runner.cleanup()
            for door in doors:
                door.close()
            self.outbox.close()
            for site in self._callers:
                self.presence.lost(site)
            self.presence.write(now=True)

    def _apps(self, doors: list[Door]) -> list[web.Application]:
        sites = web.Application(
            client_max_size=max(_LEAST_BODY, most_bytes(self.settings)), middlewares=[self._guard(doors[0])]
        )
        sites.add_routes(
            [
                web.get("/work", self._of_site(self._work)),
                web.post("/reply", self._of_site(self._reply)),
                web.get("/bundle", self._of_site(self._bundle)),
                web.post("/renew", self._of_site(self._renew)),
                web.get("/health", self._health),
            ]
        )
        strangers = web.Application(client_max_size=self.limits.open_body, middlewares=[self._guard(doors[1], True)])
        strangers.add_routes(
            [
                web.get("/join", self._authority),
                web.post("/join", self._join),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        return [sites, strangers]

    def _context(self, sites: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.root / "server" / "server.crt", self.root / "server" / "server.key")
        if sites:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.root / "ca" / "ca.crt")
        return context

    # ------------------------------------------------------------ who calls

    def _guard(self, door: Door, strangers: bool = False) -> Any:
        """Return the layer around all handlers: limits, and errors in words."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            peer = (request.transport and request.transport.get_extra_info("peername")) or ("", 0)
            if not strangers:
                door.settle((str(peer[0]), int(peer[1])))
            try:
                answer = await asyncio.wait_for(
                    handler(request), self.limits.head_seconds if strangers else self.limits.body_seconds
                )
            except web.HTTPException as error:
                answer = error
            except TimeoutError:
                answer = _refuse(408, "the request took too long")
            except (ValueError, RecursionError) as error:
                answer = _refuse(400, plain(str(error)))
            if strangers or answer.status >= 400:
                answer.force_close()
            if answer.status >= 400:
                self.counts[f"requests_refused_{answer.status}"] += 1
            self.counts["requests"] += 1
            return answer

        return guard

    def _of_site(self, handler: Callable[[web.Request, str, _Caller], Awaitable[web.StreamResponse]]) -> Handler:
        async def known(request: web.Request) -> web.StreamResponse:
            tls = request.transport and request.transport.get_extra_info("ssl_object")
            der = tls.getpeercert(True) if tls else None
            key = certificates.key_fingerprint(der) if der else ""
            site = self._keys.get(key)
            if site is None:
                return _refuse(403, "this key is not, or no longer, that of a site")
            caller = self._callers[site]
            if not caller.allowance.take():
                self._tell(f"{site}: too many requests")
                return _refuse(429, "too many requests from this site")
            if self.settings.members[site].before and key == self.settings.members[site].key:
                await asyncio.to_thread(study.settle_key, self.root, site)
            return await handler(request, site, caller)

        return known

    # ------------------------------------------------------------ handlers of the sites' port

    async def _work(self, request: web.Request, site: str, caller: _Caller) -> web.StreamResponse:
        instance = request.headers.get("X-Fcac-Instance", "")[:40]
        if caller.polls and caller.instance != instance:
            self._tell(f"{site}: its key is already in use by another process")
            return _refuse(409, "this site's key is already in use by another process")
        if caller.polls >= self.limits.per_site:
            return _refuse(429, "too many questions are open")
        caller.instance, caller.busy = instance, request.headers.get("X-Fcac-Busy", "")[:64]
        self.presence.heard(
            site, True, _skew(request), request.headers.get("User-Agent", "")[:40].removeprefix("fcac/")
        )
        caller.polls += 1
        deadline = time.monotonic() + HOLD_SECONDS
        try:
            while not self._stopped.is_set():
                waiting = self._waiting.get(site)
                if waiting is not None and waiting.letter != caller.busy:
                    data = await self._read_letter(waiting.letter)
                    if data is not None and not self._stopped.is_set():
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
            return _refuse(429, "another reply of this site is being read")
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
            return _refuse(410, "nobody waits for this reply any more")
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
        self._load_settings()
        self.say(f"{site}: has a certificate for a new key")
        return web.Response(text=certificate)

    async def _read_letter(self, name: str) -> bytes | None:
        if self._letter[0] != name:
            data = await asyncio.to_thread(self.outbox.letter, name)
            if data is None:
                return None
            self._letter = (name, data)
        return self._letter[1]

    # ------------------------------------------------------------ handlers of the open port

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def _authority(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=(self.root / "ca" / "ca.crt").read_bytes(), content_type="application/x-pem-file")

    async def _join(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise ValueError("this is not JSON") from None
        try:
            # it waits for a lock and for the disk
            files = await asyncio.to_thread(invitations.ask, self.root, asked)
        except ValueError as error:
            self._tell(f"somebody could not join: {error}")
            return _refuse(403, str(error))
        return web.json_response(files)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), metrics_token(self.root).encode()):
            return _refuse(401, f"the token is in server/{TOKEN_FILE} of the federation")
        return web.Response(text=await asyncio.to_thread(self._measured))

    def _measured(self) -> str:
        with self._looking:
            return metrics.of_hub(self.root, self.observer.look(), dict(self.counts))

    # ------------------------------------------------------------ what changes while it runs

    async def _watch(self) -> None:
        """Wake the sites for which there is a message."""
        while True:
            if self.outbox.has_changed():
                with contextlib.suppress(ValueError):  # the store is busy; the next look will do
                    self._waiting = await asyncio.to_thread(self.outbox.waiting)
                for site in self._waiting:
                    if site in self._callers:
                        self._callers[site].woken.set()
            self.presence.write()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _check(self, doors: list[Door]) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                for door in doors:
                    door.close_overdue()
                for site, caller in self._callers.items():
                    if not caller.polls and time.monotonic() - caller.last > _AWAY_SECONDS:
                        self.presence.lost(site)
                # what nobody waits for any more is no longer handed out
                for site, waiting in list(self._waiting.items()):
                    self._waiting[site] = waiting._replace(left=waiting.left - _CHECK_SECONDS)
                    if self._waiting[site].left <= 0:
                        del self._waiting[site]
                self._load_settings()
                self._load_certificate()
            except Exception as error:  # a file that is being edited: the next look will do
                self._tell(f"could not look for changes: {error}")

    def _changed(self, path: Path) -> bool:
        stamp = path.stat().st_mtime_ns
        before, self._seen[path] = self._seen.get(path), stamp
        return before != stamp

    def _load_settings(self) -> None:
        """Let in the keys of all sites that are not revoked, and no others."""
        if not self._changed(self.root / FEDERATION_FILE):
            return
        self.settings = FederationSettings.load(self.root)
        keys = {
            key: name
            for name, member in self.settings.members.items()
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

    def _load_certificate(self) -> None:
        """Use a new certificate for all new connections, once its files have changed."""
        path = self.root / "server" / "server.crt"
        if self._seen.get(path) is None:
            self._changed(path)
        elif self._changed(path):
            for context in self._contexts:
                context.load_cert_chain(path, self.root / "server" / "server.key")
            self.say(f"hub: its new certificate is in use; it ends on {certificates.ends(path):%Y-%m-%d}")

    def _tell(self, text: str) -> None:
        """Tell the operator, at most once a minute for each kind of event, and no more than some kinds."""
        kind, now = text[:60], time.monotonic()
        if now - self._told.get(kind, -_REFUSALS_EVERY) < _REFUSALS_EVERY or len(self._told) > _MOST_KINDS:
            self.counts["lines_not_logged"] += 1
            if len(self._told) > _MOST_KINDS and now - min(self._told.values()) > _REFUSALS_EVERY:
                self._told.clear()
            return
        self._told[kind] = now
        self.say(plain(text))


def _skew(request: web.Request) -> float | None:
    """Return by how many seconds a site's clock is ahead, as far as it says; for information only."""
    try:
        return float(request.headers.get(_SKEW_HEADER, "")[:20]) - time.time()
    except ValueError:
        return None


def _refuse(status: int, text: str) -> web.Response:
    return web.json_response({"detail": text}, status=status, headers={"Date": formatdate(usegmt=True)})


def metrics_token(root: Path) -> str:
    """Return the token for ``/metrics``, which is made once and lasts."""
    path = root / "server" / TOKEN_FILE
    if not path.exists():
        certificates.write_private(path, secrets.token_urlsafe(24).encode() + b"\n")
    return path.read_text("ascii").strip()


def listening_address(settings: FederationSettings, host: str | None) -> tuple[str, int]:
    """Return where a hub listens."""
    own, port = certificates.split_address(settings.address)
    if host is not None:
        return host, port
    # A name or an external address may belong to a router; in that case the machine listens on all interfaces.
    return ({"localhost": "127.0.0.1"}.get(own, own) if certificates.is_loopback(own) else "0.0.0.0"), port


def check_certificate(root: Path) -> None:
    """Raise an error if the server's certificate has expired."""
    ends = certificates.ends(root / "server" / "server.crt")
    if ends.timestamp() <= time.time():
        raise FederationError(f"the server's certificate expired on {ends:%Y-%m-%d}: run 'fcac federation renew'")


def main() -> None:
    """Serve as a process of its own: ``python -m fcac.deployment.hub_service ROOT [HOST] [LIMITS as JSON]``."""
    root, host, given = (*sys.argv[1:], "", "")[:3]
    limits = FrontLimits(**json.loads(given)) if given else None
    try:
        HubService(Path(root), host or None, stamped, limits).run()
    except (FederationError, ValueError) as error:
        sys.exit(str(error))


def stamped(line: str) -> None:
    """Print a line of the log: when, how grave, what."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} INFO {line}", flush=True)


if __name__ == "__main__":
    main()
