"""A server's log that stays in the hub's store and is read on demand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

import numpy as np

from fcac._sites import SiteName, site_order
from fcac._typing import Floats
from fcac.deployment import seen
from fcac.federation.contribution import Contribution
from fcac.federation.log import Entry, Log

#: Opens the store for reading.
Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]

_NEWEST = "SELECT round FROM contributions WHERE site = ? AND batch <= ? ORDER BY batch DESC LIMIT 1"
_ONE = "SELECT data FROM contributions JOIN bodies USING (id) WHERE site = ? AND round = ? AND batch <= ?"
_ENTRIES = """
SELECT batch, site, round, n_nodes, n_rows, privacy FROM contributions WHERE batch <= ? ORDER BY batch, site
"""
_ALL = """
SELECT batch, data FROM contributions JOIN bodies USING (id) WHERE batch <= ? ORDER BY batch, site
"""


class StoredLog(Log):
    """The rounds of a store up to a given one; rounds added here stay in memory until the store records them.

    The store is opened by `reading`; the other properties of those rounds are known without reading them.
    """

    def __init__(self, reading: Reading, until: int, n_rounds: int, n_features: int | None, released: bool) -> None:
        super().__init__()
        self._reading, self._until = reading, until
        self._n_rounds, self._n_features, self._released = n_rounds, n_features, released
        self._added = Log()
        self._stored: list[list[Contribution]] | None = None
        self._newest: dict[SiteName, int] | None = None
        self._read: dict[tuple[SiteName, int], Contribution] = {}

    @property
    def rounds(self) -> list[list[Contribution]]:
        """All contributions; this reads the whole history."""
        if self._stored is None:
            with self._reading() as connection:
                rows = connection.execute(_ALL, (self._until,)).fetchall()
            self._stored = [
                [Contribution.from_bytes(data) for _, data in batch] for _, batch in groupby(rows, lambda row: row[0])
            ]
        return [*self._stored, *self._added.rounds]

    def add(self, batch: Sequence[Contribution]) -> None:
        """Append one round, in memory."""
        self._added.add(batch)

    def find_all(self, keys: Iterable[tuple[SiteName, int]]) -> list[Contribution | None]:
        """Return the contributions of these sites to these rounds; None for those that do not exist."""
        keys, newest = list(keys), self._newest_rounds()
        # rounds later than a site's newest need not be looked up: a site's rounds only increase
        unread = [key for key in keys if key not in self._read and key[1] <= newest.get(key[0], 0)]
        if unread:
            with self._reading() as connection:
                for key in unread:
                    row = connection.execute(_ONE, (*key, self._until)).fetchone()
                    if row is not None:
                        self._read[key] = Contribution.from_bytes(row[0])
        return [self._added.find(key) or self._read.get(key) for key in keys]

    def find(self, key: tuple[SiteName, int]) -> Contribution | None:
        """Return the contribution of a site to a round, if it exists."""
        return self.find_all([key])[0]

    def _newest_rounds(self) -> dict[SiteName, int]:
        """Return the newest stored round of every site."""
        if self._newest is None:
            with self._reading() as connection:
                sites = connection.execute("SELECT site FROM sites WHERE first <= ?", (self._until,)).fetchall()
                rows = {site: connection.execute(_NEWEST, (site, self._until)).fetchone() for (site,) in sites}
            self._newest = {site: int(row[0]) for site, row in rows.items() if row is not None}
        return self._newest

    @property
    def n_rounds(self) -> int:
        """Number of rounds with at least one contribution."""
        return self._n_rounds + self._added.n_rounds

    @property
    def n_features(self) -> int | None:
        """Number of features; None while empty."""
        return self._added.n_features if self._n_features is None else self._n_features

    @property
    def sites(self) -> list[SiteName]:
        """Sites that have contributed, in order."""
        return site_order(self._newest_rounds().keys() | set(self._added.sites))

    def latest(self) -> dict[SiteName, Contribution]:
        """Return the contribution of every site to its highest round."""
        added = self._added.latest()
        keys = [key for key in self._newest_rounds().items() if key[0] not in added]
        stored = {item.site: item for item in self.find_all(keys) if item is not None}
        return {site: added[site] if site in added else stored[site] for site in self.sites}

    def entries(self) -> list[list[Entry]]:
        """Return all rounds without their nodes."""
        with self._reading() as connection:
            rows = connection.execute(_ENTRIES, (self._until,)).fetchall()
        statements: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row[5] not in statements:
                statements[row[5]] = json.loads(row[5])
        stored = [
            [Entry(row[1], row[2], row[3], row[4], statements[row[5]]) for row in batch]
            for _, batch in groupby(rows, lambda row: row[0])
        ]
        return stored + self._added.entries()

    @property
    def released(self) -> bool:
        """Whether every contribution came from `NodeRelease`."""
        return self._released and self._added.released

    @property
    def has_nodes(self) -> bool:
        """Whether any node was ever contributed."""
        if self._added.has_nodes:
            return True
        with self._reading() as connection:
            query = "SELECT 1 FROM contributions WHERE batch <= ? AND n_nodes > 0 LIMIT 1"
            return connection.execute(query, (self._until,)).fetchone() is not None

    def holds(self, points: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for every point whether it equals a node that was ever contributed, bit for bit."""
        with self._reading() as connection:
            return seen.holds(connection, points) | self._added.holds(points)
