"""The hub's process: the Fleet interface behind its gate, the keys of the sites, and who was heard of when.

It receives and hands over messages and knows nothing of rounds; those are played by ``fcac federation run``. Changes of
``federation.toml`` (a site added or revoked) and of the server's certificate take effect within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment import certificates, presence
from fcac.deployment.settings import FEDERATION_FILE, STATE, FederationSettings, most_bytes
from fcac.exceptions import FlowerError
from fcac.flower.adapter import Link, fleet_app
from fcac.flower.guard import Connections, FrontLimits, Gate, LimitedSocket, Visit, allow_connections
from fcac.flower.join_desk import JoinDesk
from fcac.flower.mail_desk import MailDesk
from fcac.flower.processes import stopped_by_signals

Say = Callable[[str], None]

DATABASE = "superlink.db"
_LOOK_SECONDS = 1.0
_REFUSALS_EVERY = 60.0


class HubServer:
    """Serves the sites of one federation until it is stopped.

    Parameters
    ----------
    root : Path
        Directory of the federation.
    host : str, optional
        Address to listen on, if not the one of the settings.
    say : callable
        Called with every line that the operator should see.
    limits : FrontLimits, optional
    """

    def __init__(
        self, root: Path, host: str | None = None, say: Say = print, limits: FrontLimits | None = None
    ) -> None:
        self.root, self.say = root, say
        self.settings = FederationSettings.load(root)
        self.host, self.port = listening_address(self.settings, host)
        base = limits or FrontLimits()
        self.limits = replace(
            base, body=max(base.body, most_bytes(self.settings)), connections=allow_connections(base.connections)
        )
        self.connections = Connections(self.limits)
        self._sites: dict[bytes, str] = {}
        self._seen_settings = self._seen_certificate = 0
        self._told: dict[tuple[str, str], float] = {}
        self._presence = presence.Presence(root / STATE)
        self._server: Any = None
        self._context: ssl.SSLContext | None = None

    def run(self) -> None:
        """Serve until :meth:`stop` is called, or a signal arrives."""
        import uvicorn

        os.umask(0o077)
        check_certificate(self.root, self.settings)
        # one hub per directory: the lock goes with the process
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(persistence.locked(self.root / "server" / "lock", 0.0))
            except TimeoutError:
                raise FlowerError(f"another hub already serves {self.root}") from None
            link = Link(self.root.resolve() / "server" / DATABASE)
            self.sync_keys(link)
            desk = MailDesk(fleet_app(link, not self.settings.insecure), link, self._stopping)
            app = Gate(
                JoinDesk(desk, self.root),
                None if self.settings.insecure else self._sites.get,
                self.limits,
                self.connections,
                self._visited,
            )
            try:
                listening = LimitedSocket.listen_on(self.host, self.port, self.connections)
            except OSError as error:
                raise FlowerError(f"port {self.port} of {self.host} cannot be used: {error.strerror}") from None
            config = uvicorn.Config(
                app,
                loop="asyncio",  # its sockets are ours; uvloop would open its own
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=3,
                ssl_keyfile=self._tls("server.key"),
                ssl_certfile=self._tls("server.crt"),
                h11_max_incomplete_event_size=32_768,
            )
            config.load()
            self._context = config.ssl
            self._server = uvicorn.Server(config)
            watcher = threading.Thread(target=self._watch, args=(link,), daemon=True)
            watcher.start()
            try:
                # a signal ends the serving, is raised once more after it, and has then done its work
                with contextlib.suppress(KeyboardInterrupt), stopped_by_signals():
                    asyncio.run(self._serve(listening))
            finally:
                listening.close()
                self._presence.write(now=True)

    async def _serve(self, listening: LimitedSocket) -> None:
        await self._server.serve(sockets=[listening])

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.should_exit = True

    def _stopping(self) -> bool:
        return self._server is not None and bool(self._server.should_exit)

    def _tls(self, name: str) -> str | None:
        return None if self.settings.insecure else str(self.root / "server" / name)

    # ------------------------------------------------------------ what changes while it runs

    def _watch(self, link: Link) -> None:
        ready = False
        while not self._server.should_exit:
            if self._server.started and not ready:
                ready = True
                self.say(f"Server ready on {self.host}:{self.port} ({'PLAIN' if self.settings.insecure else 'TLS'}).")
            try:
                for line in self.sync_keys(link):
                    self.say(line)
                self.renew_certificate()
                self.connections.close_overdue()
                self._presence.write()
            except Exception as error:  # a file that is being edited: the next look will do
                self._tell_once("", f"could not look for changes: {error}")
            time.sleep(_LOOK_SECONDS)

    def sync_keys(self, link: Link) -> list[str]:
        """Accept the keys of all sites that are not revoked, and no others; return what has changed."""
        path = self.root / FEDERATION_FILE
        stamp = path.stat().st_mtime_ns
        if stamp == self._seen_settings or self.settings.insecure:
            return []
        settings = FederationSettings.load(self.root)
        wanted = {
            certificates.public_pem(member.key): name
            for name, member in settings.members.items()
            if member.status != "revoked" and member.key
        }
        known, done = set(link.keys()), []
        for pem in sorted(set(wanted) - known):
            link.register(pem, wanted[pem])
            done.append(f"{wanted[pem]} may connect")
        owners = {certificates.public_pem(m.key): name for name, m in settings.members.items() if m.key}
        for pem in sorted(known - set(wanted)):
            link.unregister(pem)
            done.append(f"{'the key of ' + owners[pem] if pem in owners else 'an old key'} is no longer accepted")
        self.settings = settings
        # changed in place: the gate holds on to it
        self._sites.update(wanted)
        for pem in set(self._sites) - set(wanted):
            del self._sites[pem]
        self._seen_settings = stamp
        return done

    def renew_certificate(self) -> bool:
        """Use a new certificate for all new connections, once its files have changed; return whether they had."""
        if self._context is None:
            return False
        path = self.root / "server" / "server.crt"
        stamp = path.stat().st_mtime_ns
        if not self._seen_certificate:
            self._seen_certificate = stamp
        if stamp == self._seen_certificate:
            return False
        self._context.load_cert_chain(path, self.root / "server" / "server.key")
        self._seen_certificate = stamp
        ends = certificates.server_certificate_ends(path)
        self.say(f"the server's new certificate is in use; it ends on {ends:%Y-%m-%d}")
        return True

    def _visited(self, visit: Visit) -> None:
        self._presence.heard(visit.site, visit.skew, visit.version)
        if visit.refusal:
            self._tell_once(visit.site, visit.refusal)

    def _tell_once(self, site: str, reason: str) -> None:
        """Tell the operator, and the journal, at most once a minute."""
        kind, now = (site, reason.split(" is ")[0]), time.monotonic()
        if now - self._told.get(kind, -_REFUSALS_EVERY) < _REFUSALS_EVERY:
            return
        self._told[kind] = now
        self.say(plain(f"{site or 'hub'}: {reason}"))
        from fcac.deployment.hub import Hub

        with contextlib.suppress(OSError):
            Hub(self.root / STATE, self.settings).note("refused", site=site, reason=reason)


def listening_address(settings: FederationSettings, host: str | None) -> tuple[str, int]:
    """Return where a hub listens, after checking it."""
    own, port = certificates.split_address(settings.address)
    if host is not None and not certificates.is_loopback(host) and host not in ("0.0.0.0", "::"):
        raise ValueError(f"--host {host}: the hub's own commands use loopback; listen on 127.0.0.1 or 0.0.0.0")
    if settings.insecure and not certificates.is_loopback(host or own):
        raise ValueError("without encryption, the server listens only on a loopback address")
    if host is not None:
        return host, port
    # A name or an external address may belong to a router; in that case the machine listens on all interfaces.
    return ({"localhost": "127.0.0.1"}.get(own, own) if certificates.is_loopback(own) else "0.0.0.0"), port


def check_certificate(root: Path, settings: FederationSettings) -> None:
    """Raise an error if the server's certificate has expired."""
    if settings.insecure:
        return
    import datetime

    ends = certificates.server_certificate_ends(root / "server" / "server.crt")
    if ends <= datetime.datetime.now(datetime.UTC):
        raise FlowerError(f"the server's certificate expired on {ends:%Y-%m-%d}: run 'fcac federation renew'")


def main() -> None:
    """Serve as a process of its own: ``python -m fcac.flower.hub_server ROOT [HOST] [LIMITS as JSON]``."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    root, host, given = (*sys.argv[1:], "", "")[:3]
    limits = FrontLimits(**json.loads(given)) if given else None
    try:
        HubServer(Path(root), host or None, lambda line: print(line, flush=True), limits).run()
    except (FlowerError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
