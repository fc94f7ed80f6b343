"""The hub's service: messages to sites and their replies, requests to join, health, metrics and console, over HTTPS.

Two ports, so that strangers never share places with sites. On the sites' port (:mod:`fcac.deployment.sites_port`) TLS
asks for a certificate of the hub's own authority before any request is read. On the open port, with its own small
limits: ``/join``, ``/health``, ``/metrics`` for those with its token, and the console for those who are near.

The service knows nothing of rounds; those are played by ``fcac federation run``, through the hub's store. Changes of
``federation.toml`` (a site added or revoked) and of the server's certificate take effect within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import json
import logging
import os
import secrets
import signal
import ssl
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment import certificates, invitations, metrics, presence
from fcac.deployment.facts import Observer
from fcac.deployment.hub import Hub
from fcac.deployment.listening import Door, FrontLimits, allow_connections
from fcac.deployment.outbox import Outbox
from fcac.deployment.settings import FEDERATION_FILE, STATE, FederationSettings, most_bytes
from fcac.exceptions import FederationError

try:
    from aiohttp import web
except ImportError:
    raise ImportError("hubs and sites need the extra: pip install 'fcac[federation]'") from None

from fcac.deployment.console import Console
from fcac.deployment.sites_port import Handler, Say, SitesPort, refuse

TOKEN_FILE = "metrics.token"
_LOOK_SECONDS = 0.05
_CHECK_SECONDS = 1.0
_LEAST_BODY = 8_000_000
_REFUSALS_EVERY = 60.0
_MOST_KINDS = 200


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
        self._told: dict[str, float] = {}
        self._seen: dict[Path, int] = {}
        self._stopped = asyncio.Event()
        self.sites = SitesPort(root, self.outbox, self.presence, self.limits, say, self._tell)
        self.observer, self._looking = Observer(root), threading.Lock()
        names = {certificates.split_address(self.settings.address)[0], self.host}
        self.console = Console(root, tuple(names), self._look)

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
        # what strangers cause there is told like everything else
        for name in ("asyncio", "aiohttp.server"):
            logger = logging.getLogger(name)
            logger.propagate, logger.handlers = False, [_Told(self._tell)]
        self.outbox.put({}, 0.0)  # the store exists, in the present format
        self._load_settings()
        metrics_token(self.root)
        self._contexts = [self._context(sites=True), self._context(sites=False)]
        doors, runners, servers = [], [], []
        try:
            for port, pending in (
                (self.port, self.limits.pending), (self.settings.join_port, self.limits.open_pending),
            ):  # fmt: skip
                try:
                    doors.append(Door.listen_on(self.host, port, replace(self.limits, pending=pending), self.counts))
                except OSError as error:
                    raise FederationError(f"port {port} of {self.host} cannot be used: {error.strerror}") from None
            for door, context, app in zip(doors, self._contexts, self._apps(doors), strict=True):
                runner = web.AppRunner(
                    app, handle_signals=False, access_log=None, handler_cancellation=True, keepalive_timeout=90.0,
                    shutdown_timeout=1.0, lingering_time=0.0, max_line_size=2048, max_field_size=2048,
                    auto_decompress=False,  # nobody honest packs what is sent here; a stranger's 16 kB would be 16 MB
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
            # what is here stays: looking for garbage no longer costs more than what has come since
            gc.collect()
            gc.freeze()
            self.say(f"Server ready on {self.host}:{self.port}; sites join on port {self.settings.join_port}.")
            await self._stopped.wait()
            for task in (watch, checks):
                task.cancel()
            self.sites.stop()
        finally:
            for server in servers:
                server.close()
            for runner in runners:
                await runner.cleanup()
            for door in doors:
                door.close()
            self.outbox.close()
            self.console.actions.close()
            self.sites.leave()
            self.presence.write(now=True)

    def _apps(self, doors: list[Door]) -> list[web.Application]:
        sites = web.Application(
            client_max_size=max(_LEAST_BODY, most_bytes(self.settings)), middlewares=[self._guard(doors[0])]
        )
        sites.add_routes([*self.sites.routes(), web.get("/health", self._health)])
        strangers = web.Application(client_max_size=self.limits.open_body, middlewares=[self._guard(doors[1], True)])
        strangers.add_routes(
            [
                web.get("/join", self._authority),
                web.post("/join", self._join),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                *self.console.routes(),
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
            # whoever has come into the console is no stranger, and may watch it for as long as it is open
            watching = strangers and self.console.knows(request)
            if watching or not strangers:
                door.settle((str(peer[0]), int(peer[1])))
            seconds = self.limits.head_seconds if strangers else self.limits.body_seconds
            try:
                answer = await asyncio.wait_for(handler(request), None if watching else seconds)
            except web.HTTPException as error:
                answer = error
            except TimeoutError:
                answer = refuse(408, "the request took too long")
            except (ValueError, RecursionError, ConnectionError) as error:
                answer = refuse(400, plain(str(error)))
            except OSError as error:
                self._tell(f"{request.path} failed: {error}")
                answer = refuse(503, "the hub cannot answer now")
            if (strangers and not watching) or answer.status >= 400:
                answer.force_close()
            if answer.status >= 400:
                self.counts[f"requests_refused_{answer.status}"] += 1
            self.counts["requests"] += 1
            return answer

        return guard

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
            return refuse(403, str(error))
        return web.json_response(files)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), metrics_token(self.root).encode()):
            return refuse(401, f"the token is in server/{TOKEN_FILE} of the federation")
        return web.Response(text=await asyncio.to_thread(self._measured))

    def _measured(self) -> str:
        return metrics.of_hub(self.root, self._look(), dict(self.counts))

    def _look(self) -> dict[str, Any]:
        """Return the state of the federation; what a look costs does not grow with the rounds."""
        with self._looking:
            return self.observer.look()

    # ------------------------------------------------------------ what changes while it runs

    async def _watch(self) -> None:
        """Wake the sites for which there is a message."""
        while True:
            if self.outbox.has_changed():
                with contextlib.suppress(ValueError):  # the store is busy; the next look will do
                    self.sites.wake(await asyncio.to_thread(self.outbox.waiting))
            self.presence.write()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _check(self, doors: list[Door]) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                for door in doors:
                    door.close_overdue()
                self.sites.look(_CHECK_SECONDS)
                self._load_settings()
                self._load_certificate()
            except Exception as error:  # a file that is being edited: the next look will do
                self._tell(f"could not look for changes: {error}")

    def _changed(self, path: Path) -> bool:
        stamp = path.stat().st_mtime_ns
        before, self._seen[path] = self._seen.get(path), stamp
        return before != stamp

    def _load_settings(self) -> None:
        """Let in the sites of the settings, if these have changed."""
        if self._changed(self.root / FEDERATION_FILE):
            self.settings = FederationSettings.load(self.root)
            self.sites.let_in(self.settings)

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


class _Told(logging.Handler):
    """Hands what libraries log to `tell`, in one line."""

    def __init__(self, tell: Say) -> None:
        super().__init__(logging.WARNING)
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell without the traceback, which strangers could cause at will."""
        error = record.exc_info[1] if record.exc_info else None
        said = record.getMessage() if error is None else f"a connection failed: {type(error).__name__}: {error}"
        self.tell(said.partition("\n")[0])


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
