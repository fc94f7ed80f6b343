"""What stands between the network and the hub: who may send how much, how fast, over how many connections.

Three layers, all inside the hub, so that no proxy is needed:

- :class:`LimitedSocket` accepts connections: so many in all, and so many from one address;
- :class:`Connections` closes those on which no request is complete in time, whether or not TLS was ever agreed on;
- :class:`Gate` reads the headers of a request first: without a registered key, nothing of its body is read. With one,
  the body may be as long as a contribution can be, has to arrive in time, and requests are counted per key.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fcac.flower.adapter import Identity, clock_tolerance, read_identity

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The paths of sites, for which a key is needed, and those that are open to everybody.
SITE_PATHS = "/v1/fleet/"
OPEN_PATHS = ("/health", "/v1/join")


@dataclass(frozen=True)
class FrontLimits:
    """What the hub puts up with.

    Parameters
    ----------
    body : int
        Bytes that a request with a registered key may have.
    open_body : int
        Bytes that a request to an open path may have.
    head_seconds : float
        How long a connection may take to its first, or next, complete request head.
    body_seconds : float
        How long a body may take.
    connections : int
        Connections at one time; never more than the system allows less 100.
    per_address : int
        Connections at one time from one address (IPv6: from one /64 network). Loopback addresses may have all.
    requests_per_second : float
        Sustained rate of requests with one key.
    bytes_per_second : float
        Sustained rate of bytes with one key; a burst may be four bodies.
    """

    body: int = 8_000_000
    open_body: int = 16_384
    head_seconds: float = 15.0
    body_seconds: float = 120.0
    connections: int = 2000
    per_address: int = 100
    requests_per_second: float = 20.0
    bytes_per_second: float = 2_000_000.0


def is_local(address: str | None) -> bool:
    """Return whether an address is a loopback address of this machine.

    Examples
    --------
    >>> from fcac.flower.guard import is_local
    >>> is_local("127.0.0.1"), is_local("::1"), is_local("::ffff:127.0.0.1"), is_local("203.0.113.5"), is_local(None)
    (True, True, True, False, False)
    """
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def origin(address: str) -> str:
    """Return what is counted as one address: IPv6 hosts own a whole network of them.

    Examples
    --------
    >>> from fcac.flower.guard import origin
    >>> origin("203.0.113.5"), origin("2001:db8::1:2:3:4"), origin("::ffff:203.0.113.5")
    ('203.0.113.5', '2001:db8::/64', '203.0.113.5')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


# ------------------------------------------------------------ connections


class Connections:
    """The connections there are, and how long each has been waiting for a request.

    Parameters
    ----------
    limits : FrontLimits
    """

    def __init__(self, limits: FrontLimits) -> None:
        self.limits = limits
        self.refused = 0
        self.timed_out = 0
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], _Watched] = {}
        self._waiting: dict[tuple[str, int], float] = {}
        self._per_origin: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, peer: tuple[str, int]) -> bool:
        """Return whether one more connection from here is acceptable."""
        home = origin(peer[0])
        with self._lock:
            full = len(self._open) >= self.limits.connections
            greedy = self._per_origin[home] >= self.limits.per_address and not is_local(peer[0])
            self.refused += full or greedy
            return not (full or greedy)

    def add(self, peer: tuple[str, int], connection: _Watched) -> None:
        """Note a connection that was accepted."""
        with self._lock:
            self._open[peer] = connection
            self._waiting[peer] = time.monotonic()
            self._per_origin[origin(peer[0])] += 1

    def remove(self, peer: tuple[str, int]) -> None:
        """Note that a connection was closed."""
        with self._lock:
            if self._open.pop(peer, None) is not None:
                self._waiting.pop(peer, None)
                home = origin(peer[0])
                self._per_origin[home] -= 1
                if not self._per_origin[home]:
                    del self._per_origin[home]

    def busy(self, peer: tuple[str, int]) -> None:
        """Note that a request has begun: its head is complete."""
        self._waiting.pop(peer, None)

    def idle(self, peer: tuple[str, int]) -> None:
        """Note that a request has been answered."""
        if peer in self._open:
            self._waiting[peer] = time.monotonic()

    def close_overdue(self) -> int:
        """Close all connections that have waited too long for a request; return how many."""
        horizon = time.monotonic() - self.limits.head_seconds
        late = [peer for peer, since in list(self._waiting.items()) if since < horizon]
        for peer in late:
            self._waiting.pop(peer, None)
            connection = self._open.get(peer)
            if connection is not None:
                # the event loop notices and closes it
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.timed_out += len(late)
        return len(late)


class _Watched(socket.socket):
    """An accepted connection that says when it is closed."""

    connections: Connections | None = None
    peer: tuple[str, int] = ("", 0)

    def close(self) -> None:
        """Close, and no longer count."""
        if self.connections is not None:
            self.connections.remove(self.peer)
        super().close()


class LimitedSocket(socket.socket):
    """A listening socket that turns away connections beyond the limits before anything is read from them."""

    connections: Connections

    @classmethod
    def listen_on(cls, host: str, port: int, connections: Connections) -> LimitedSocket:
        """Return a socket that listens on this address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = cls(family, socket.SOCK_STREAM)
        listening.connections = connections
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        listening.listen(256)
        return listening

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection within the limits; those beyond are closed."""
        while True:
            handle, address = self._accept()  # type: ignore[attr-defined]
            connection = _Watched(self.family, self.type, self.proto, fileno=handle)
            peer = (str(address[0]), int(address[1]))
            if self.connections.admit(peer):
                connection.connections, connection.peer = self.connections, peer
                self.connections.add(peer, connection)
                return connection, address
            connection.close()


def allow_connections(wanted: int) -> int:
    """Raise the process's own limit of open files as far as the system allows; return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted + 200 if hard == resource.RLIM_INFINITY else min(wanted + 200, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
    return wanted if soft == resource.RLIM_INFINITY else max(16, min(wanted, soft - 100))


# ------------------------------------------------------------ requests


class Visit(NamedTuple):
    """What the gate tells about a request with a known key: the site, its clock, its version, and a refusal if any."""

    site: str
    skew: float
    version: str
    refusal: str = ""


class _TooLong(Exception):
    """A body is longer, or takes longer, than allowed."""

    def __init__(self, status: int) -> None:
        self.status = status


class _Allowance:
    """Requests and bytes that a key may still use: both grow with time, up to a burst."""

    def __init__(self, limits: FrontLimits) -> None:
        self.limits = limits
        self._requests, self._bytes, self._at = 10 * limits.requests_per_second, 4.0 * limits.body, time.monotonic()

    def take(self, n_bytes: int) -> bool:
        """Use one request of this many bytes, if it is still allowed."""
        now, limits = time.monotonic(), self.limits
        passed, self._at = now - self._at, now
        self._requests = min(10 * limits.requests_per_second, self._requests + passed * limits.requests_per_second)
        self._bytes = min(4.0 * limits.body, self._bytes + passed * limits.bytes_per_second)
        if self._requests < 1 or self._bytes < n_bytes:
            return False
        self._requests -= 1
        self._bytes -= n_bytes
        return True


class Gate:
    """A layer around the hub's web application that lets in what is small, in time and signed by a known key.

    Parameters
    ----------
    app : ASGI application
    site_of : callable, optional
        Returns the site of a public key (PEM), or None for an unknown one. None: no keys are used, every caller is let
        in; the hub then listens on loopback only.
    limits : FrontLimits
    connections : Connections, optional
    visited : callable, optional
        Called with every :class:`Visit`.
    """

    def __init__(
        self,
        app: App,
        site_of: Callable[[bytes], str | None] | None,
        limits: FrontLimits,
        connections: Connections | None = None,
        visited: Callable[[Visit], None] | None = None,
    ) -> None:
        self.app, self.site_of, self.limits = app, site_of, limits
        self.connections, self.visited = connections, visited
        self._allowances: dict[str, _Allowance] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks anything else
            return
        peer = scope.get("client") or ("", 0)
        if self.connections is not None:
            self.connections.busy((str(peer[0]), int(peer[1])))
        try:
            await self._answer(scope, receive, send)
        finally:
            if self.connections is not None:
                self.connections.idle((str(peer[0]), int(peer[1])))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = str(scope.get("path", "")), dict(scope.get("headers", []))
        most, visit = self.limits.open_body, None
        if path.startswith(SITE_PATHS):
            most = self.limits.body
            if self.site_of is not None:
                who = read_identity(headers)
                site = None if who is None else self.site_of(who.public_key)
                if who is None or site is None:
                    await _refuse(send, 401, "this key is not known here")
                    return
                visit = self._visit(site, who)
                if visit.refusal:
                    await _refuse(send, 401, visit.refusal)
                    return
        elif not path.startswith(OPEN_PATHS):
            await _refuse(send, 404, "there is nothing here")
            return
        announced = _length(headers)
        if announced is None or announced > most:
            await _refuse(send, 413, f"a request may have at most {most} bytes and must state its length")
            return
        name = visit.site if visit is not None else ""
        if visit is not None and not self._allowances.setdefault(name, _Allowance(self.limits)).take(announced):
            await _refuse(send, 429, "too many requests, or too many bytes, from this site")
            self._tell(visit._replace(refusal="too many requests, or too many bytes"))
            return
        await self._pass_on(scope, receive, send, most, visit)

    def _visit(self, site: str, who: Identity) -> Visit:
        behind, ahead = clock_tolerance()
        visit = Visit(site, who.skew, who.version)
        if not -behind < who.skew < ahead:
            visit = visit._replace(refusal=f"this site's clock is {_apart(who.skew)} the hub's")
        self._tell(visit)
        return visit

    def _tell(self, visit: Visit) -> None:
        if self.visited is not None:
            self.visited(visit)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, most: int, visit: Visit | None) -> None:
        """Let the application read the body, within the limits, and answer."""
        read, deadline, answered = 0, time.monotonic() + self.limits.body_seconds, False

        async def careful() -> MutableMapping[str, Any]:
            nonlocal read
            try:
                event = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                if complete:
                    # the application waits for the end of the connection, not for the body
                    return {"type": "http.disconnect"}
                raise _TooLong(408) from None
            read += len(event.get("body", b""))
            if read > most:
                raise _TooLong(413)
            return event

        # The whole body is read here: it is bounded, and the application's own layers would hide our errors.
        parts, complete = [], False
        try:
            while not complete:
                event = await careful()
                if event["type"] == "http.disconnect":
                    return
                parts.append(event.get("body", b""))
                complete = not event.get("more_body", False)
        except _TooLong as error:
            await _refuse(send, error.status, "the request is too long or took too long")
            return
        body: MutableMapping[str, Any] | None = {
            "type": "http.request",
            "body": b"".join(parts),
            "more_body": False,
        }
        del parts

        async def replay() -> MutableMapping[str, Any]:
            nonlocal body
            if body is not None:
                event, body = body, None
                return event
            return await receive()

        async def watched(event: MutableMapping[str, Any]) -> None:
            nonlocal answered
            if event["type"] == "http.response.start" and not answered:
                answered = True
                if visit is not None and event["status"] == 412 and scope["path"].endswith("/activate-node"):
                    self._tell(visit._replace(refusal="its key is already in use by another process"))
            await send(event)

        await self.app(scope, replay, watched)


def _length(headers: dict[bytes, bytes]) -> int | None:
    """Return the announced length of a body; None where it is not announced."""
    if b"transfer-encoding" in headers:
        return None
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() and len(text) < 16 else None


def _apart(skew: float) -> str:
    return f"{abs(skew):.0f} seconds {'ahead of' if skew > 0 else 'behind'}"


async def _refuse(send: Send, status: int, text: str) -> None:
    """Answer without reading the body; the connection ends, so that the rest of the body is not read either."""
    body = json.dumps({"detail": text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
