"""What stands between the network and the hub: how many connections, from where, and for how long without a request.

A connection is *pending* until its first request is complete, whether or not TLS was agreed on by then. There are few
places for pending ones, and when they are full the oldest of the address with the most gives way: a flood of strangers
displaces strangers, and a site, which needs a fraction of a second, gets in. Connections of sites do not count there.
"""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import resource
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

Peer = tuple[str, int]

_CONNECTIONS_A_COLLECTION = 32
_QUEUE = 1024
_MOST_DYING = 32


@dataclass(frozen=True)
class FrontLimits:
    """What the hub puts up with.

    Parameters
    ----------
    pending : int
        Connections to the sites' port without a complete request at one time; each takes a quarter of a megabyte.
    open_pending : int
        The same for the open port.
    pending_per_address : int
        Of these, from one address (IPv6: from one /64 network). Loopback addresses may have all.
    head_seconds : float
        How long a connection may be pending.
    body_seconds : float
        How long the body of a request may take.
    open_body : int
        Bytes that a stranger's request to join may have.
    bodies : int
        Replies of sites that are read at one time; others wait.
    per_site : int
        Connections at one time with one certificate.
    requests_per_second : float
        Sustained rate of requests with one certificate.
    """

    pending: int = 160
    open_pending: int = 64
    pending_per_address: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 120.0
    open_body: int = 16_384
    bodies: int = 8
    per_site: int = 8
    requests_per_second: float = 20.0


def is_local(address: str) -> bool:
    """Return whether an address is a loopback address of this machine.

    >>> is_local("127.0.0.1"), is_local("::1"), is_local("::ffff:127.0.0.1"), is_local("203.0.113.5"), is_local("")
    (True, True, True, False, False)
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def origin(address: str) -> str:
    """Return what is counted as one address: IPv6 hosts own a whole network of them.

    >>> origin("203.0.113.5"), origin("2001:db8::1:2:3:4"), origin("::ffff:203.0.113.5")
    ('203.0.113.5', '2001:db8::/64', '203.0.113.5')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(found), 64), strict=False))
        found = found.ipv4_mapped
    return str(found)


class Door(socket.socket):
    """A listening socket that turns connections away before anything is read from them.

    It is used by one event loop alone, so that nothing here needs a lock.
    """

    limits: FrontLimits
    counts: Counter[str]
    _pending: dict[Peer, tuple[float, _Accepted]]
    _origins: Counter[str]
    _dying: set[Peer]

    @classmethod
    def listen_on(cls, host: str, port: int, limits: FrontLimits, counts: Counter[str]) -> Door:
        """Return a socket that listens on this address."""
        door = cls(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        door.limits, door.counts, door._pending, door._origins = limits, counts, {}, Counter()
        door._dying = set()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, port))
            door.setblocking(False)
            door.listen()
        except OSError:
            door.close()
            raise
        return door

    def listen(self, backlog: int = 0) -> None:
        """Listen; whatever the event loop asks for, a burst must not fill the queue, for then callers wait seconds."""
        super().listen(_QUEUE)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection within the limits; those beyond are closed."""
        while True:
            if len(self._dying) >= _MOST_DYING:
                raise BlockingIOError  # the event loop tries again when it has closed some: they still take memory
            handle, address = self._accept()  # type: ignore[attr-defined]
            connection = _Accepted(self.family, self.type, self.proto, fileno=handle)
            self.counts["connections"] += 1
            if not self.counts["connections"] % _CONNECTIONS_A_COLLECTION:
                # a closed connection leaves cycles with large buffers, which Python takes for a few small objects
                gc.collect()
            peer, home = (str(address[0]), int(address[1])), origin(str(address[0]))
            if self._origins[home] >= self.limits.pending_per_address and not is_local(peer[0]):
                self.counts["connections_refused"] += 1
                connection.close()
                continue
            if len(self._pending) >= self.limits.pending:
                self._make_room()
            connection.door, connection.peer, connection.home = self, peer, home
            self._pending[peer] = (time.monotonic(), connection)
            self._origins[home] += 1
            return connection, address

    def _make_room(self) -> None:
        greediest = self._origins.most_common(1)[0][0]
        oldest = next(peer for peer, (_, connection) in self._pending.items() if connection.home == greediest)
        self._hang_up(oldest, "connections_displaced")

    def close_overdue(self) -> None:
        """Close all connections that have been pending for too long."""
        horizon = time.monotonic() - self.limits.head_seconds
        for peer in [peer for peer, (since, _) in self._pending.items() if since < horizon]:
            self._hang_up(peer, "connections_timed_out")

    def closed(self, peer: Peer) -> None:
        """Note that a connection is closed."""
        self.settle(peer)
        self._dying.discard(peer)

    def settle(self, peer: Peer) -> None:
        """Note that a connection is no longer pending: it has sent a request."""
        known = self._pending.pop(peer, None)
        if known is not None:
            home = known[1].home
            self._origins[home] -= 1
            if not self._origins[home]:
                del self._origins[home]

    def _hang_up(self, peer: Peer, why: str) -> None:
        connection = self._pending[peer][1]
        self.settle(peer)
        self._dying.add(peer)
        self.counts[why] += 1
        # the event loop notices and closes it
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Accepted(socket.socket):
    """An accepted connection that tells its door when it is closed."""

    door: Door | None = None
    peer: Peer = ("", 0)
    home: str = ""

    def close(self) -> None:
        """Close, and no longer count."""
        if self.door is not None:
            self.door.closed(self.peer)
        super().close()


class Allowance:
    """Requests that a site may still make: they grow with time, up to a burst."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._left, self._at = 10 * per_second, time.monotonic()

    def take(self) -> bool:
        """Use one request, if it is still allowed."""
        now = time.monotonic()
        self._left = min(10 * self.per_second, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def allow_connections(wanted: int) -> None:
    """Raise the process's own limit of open files as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
