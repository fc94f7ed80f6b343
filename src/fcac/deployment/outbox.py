"""Messages that wait in the hub's store: put there by whoever plays rounds, handed to sites by the hub's service.

A site has at most one message at a time. It is handed out until its reply is stored, and the reply stays until it was
dealt with; so nothing is lost, whichever process dies when. The same request again has the same name: what a site has
already answered is not asked twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from fcac.deployment import presence
from fcac.deployment.hub import Hub
from fcac.deployment.store import HubStore

_LOOK_SECONDS = 0.05
_STATE_SECONDS = 1.0
#: A site that loses its connection, and does not come back for so long, is no longer waited for.
GONE_SECONDS = 20.0


class Waiting(NamedTuple):
    """A message that a site has not answered: its name, and how many seconds an answer is still waited for."""

    letter: str
    left: float


class Outbox:
    """The outbox of a hub's store.

    >>> import os, tempfile
    >>> from fcac.deployment.store import HubStore
    >>> folder = tempfile.TemporaryDirectory()
    >>> outbox = Outbox(HubStore(os.path.join(folder.name, "hub.db")))
    >>> names = outbox.put({"a": b"a request"}, seconds=60.0)
    >>> outbox.letter(outbox.waiting()["a"].letter)
    b'a request'
    >>> outbox.answer([("a", names["a"], b"a reply"), ("b", "unknown", b"nobody asked")])
    [True, False]
    >>> outbox.replies()
    [('a', b'a reply')]
    >>> outbox.drop(["a"])
    >>> outbox.waiting(), outbox.replies()
    ({}, [])
    >>> outbox.close()
    >>> folder.cleanup()
    """

    def __init__(self, store: HubStore) -> None:
        self.store = store
        self._watch: sqlite3.Connection | None = None
        self._seen = -1

    def put(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, str]:
        """Store a request for each site, in place of its message before, and return their names."""
        names = {site: hashlib.sha256(data).hexdigest()[:32] for site, data in requests.items()}
        now = time.monotonic()
        with self.store.changing() as connection:
            letters = {names[site]: data for site, data in requests.items()}
            connection.executemany("INSERT OR IGNORE INTO letters VALUES (?, ?)", letters.items())
            for site, name in names.items():
                # the same request again keeps the reply, should there be one
                connection.execute("DELETE FROM outbox WHERE site = ? AND letter != ?", (site, name))
                connection.execute(
                    "INSERT INTO outbox VALUES (?, ?, ?, ?, NULL) "
                    "ON CONFLICT (site) DO UPDATE SET asked = excluded.asked, seconds = excluded.seconds",
                    (site, name, now, seconds),
                )
            connection.execute("DELETE FROM letters WHERE id NOT IN (SELECT letter FROM outbox)")
        return names

    def waiting(self) -> dict[str, Waiting]:
        """Return the messages that are to be handed out; those nobody waits for any more are not."""
        now, found = time.monotonic(), {}
        with self.store.reading() as connection:
            rows = connection.execute("SELECT site, letter, asked, seconds FROM outbox WHERE reply IS NULL").fetchall()
        for site, letter, asked, seconds in rows:
            # after a restart of the machine its steady clock begins again: such a message belongs to another run
            if 0 <= now - asked < seconds:
                found[site] = Waiting(letter, asked + seconds - now)
        return found

    def letter(self, name: str) -> bytes | None:
        """Return the request of this name."""
        with self.store.reading() as connection:
            row = connection.execute("SELECT data FROM letters WHERE id = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def answer(self, replies: Sequence[tuple[str, str, bytes]]) -> list[bool]:
        """Store replies (site, name of the request, bytes), durably; return which of them were asked for."""
        with self.store.changing() as connection:
            query = "UPDATE outbox SET reply = ? WHERE site = ? AND letter = ? AND reply IS NULL"
            done = [connection.execute(query, (data, site, name)).rowcount == 1 for site, name, data in replies]
            # sent again because the hub's answer was lost: it is here already
            again = "SELECT 1 FROM outbox WHERE site = ? AND letter = ?"
            return [
                stored or connection.execute(again, (site, name)).fetchone() is not None
                for stored, (site, name, _) in zip(done, replies, strict=True)
            ]

    def replies(self, sites: Collection[str] | None = None) -> list[tuple[str, bytes]]:
        """Return the replies that have arrived, in the order of the sites' names."""
        with self.store.reading() as connection:
            rows = connection.execute("SELECT site FROM outbox WHERE reply IS NOT NULL ORDER BY site").fetchall()
            here = [site for (site,) in rows if sites is None or site in sites]
            one = "SELECT reply FROM outbox WHERE site = ?"
            return [(site, bytes(connection.execute(one, (site,)).fetchone()[0])) for site in here]

    def drop(self, sites: Collection[str]) -> None:
        """Remove the messages of these sites, answered or not."""
        if sites:
            with self.store.changing() as connection:
                connection.executemany("DELETE FROM outbox WHERE site = ?", [(site,) for site in sites])

    def has_changed(self) -> bool:
        """Return whether another process or thread has written to the store since the last look; it costs little."""
        if self._watch is None:
            if not self.store.path.exists():
                return False
            self._watch = sqlite3.connect(self.store.path, isolation_level=None, check_same_thread=False)
        with contextlib.suppress(sqlite3.OperationalError):
            (version,) = self._watch.execute("PRAGMA data_version").fetchone()
            changed, self._seen = version != self._seen, version
            return bool(changed)
        return True

    def close(self) -> None:
        """Let go of the file."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None


class OutboxWire:
    """Reaches sites through the hub's store and its service, which hands messages out.

    `check` is called now and then while waiting; what it raises ends the exchange. A site that has lost its connection
    is waited for `gone_seconds`.
    """

    def __init__(self, hub: Hub, check: Callable[[], None] = lambda: None, gone_seconds: float = GONE_SECONDS) -> None:
        self.hub, self.outbox, self.check, self.gone_seconds = hub, Outbox(hub.store), check, gone_seconds

    def connected(self) -> set[str]:
        """Return the sites whose question for messages is open at the hub."""
        self.check()
        return {site for site, heard in presence.read(self.hub.state).items() if heard.open}

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | None]]:
        """Put requests into the outbox, and yield replies as they arrive."""
        self.outbox.put(requests, seconds)
        waiting, deadline = set(requests), time.monotonic() + seconds
        heard = dict.fromkeys(waiting, time.monotonic())
        look = 0.0
        try:
            while waiting:
                if self.outbox.has_changed():
                    arrived = self.outbox.replies(waiting)
                    yield from arrived
                    # only now: what was not dealt with when this process died is found by the next one
                    self.outbox.drop([site for site, _ in arrived])
                    waiting -= {site for site, _ in arrived}
                now = time.monotonic()
                if now > look:
                    look = now + _STATE_SECONDS
                    heard.update(dict.fromkeys(self.connected(), now))
                    if all(now - heard[site] > self.gone_seconds for site in waiting):
                        break
                if not waiting or now > deadline:
                    break
                time.sleep(_LOOK_SECONDS)
        finally:
            self.outbox.close()

    def late(self) -> Iterator[tuple[str, bytes]]:
        """Yield replies that a run which has ended was still waiting for, or waited for no longer."""
        arrived = self.outbox.replies()
        yield from arrived
        self.outbox.drop([site for site, _ in arrived])
