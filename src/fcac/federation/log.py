"""What a server remembers of the contributions it has absorbed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, order_key
from fcac._typing import Floats
from fcac.federation.contribution import Contribution
from fcac.privacy.mechanisms import may_be_shared


class Entry(NamedTuple):
    """One contribution without its nodes: enough for tables and for statements about privacy."""

    site: SiteName
    round: int
    n_nodes: int
    n_rows: int
    privacy: dict[str, Any]

    @classmethod
    def of(cls, item: Contribution) -> Entry:
        """Return the entry of a contribution."""
        return cls(item.site, item.round, len(item.counts), int(item.counts.sum()), item.privacy)


class Log:
    """Absorbed contributions, one list per round, kept in memory.

    A server asks it questions instead of walking through all rounds, so that a log kept elsewhere (see
    `fcac.deployment`) can answer them without reading its whole history.

    >>> log = Log()
    >>> log.add([Contribution("a", 1, [[0.0]], [2]), Contribution("b", 1, [[1.0]], [3])])
    >>> log.n_rounds, log.sites, log.entries()[0][1].n_rows
    (1, ['a', 'b'], 3)
    """

    def __init__(self) -> None:
        self._rounds: list[list[Contribution]] = []
        self._known: dict[tuple[SiteName, int], Contribution] = {}

    @property
    def rounds(self) -> list[list[Contribution]]:
        """All contributions, sites in order within a round."""
        return self._rounds

    def add(self, batch: Sequence[Contribution]) -> None:
        """Append one round."""
        self._rounds.append(list(batch))
        self._known.update({item.key: item for item in batch})

    def restate(self, said: Mapping[SiteName, Mapping[str, Any]]) -> None:
        """Bring the statements of the newest contributions of these sites up to date."""
        for site, item in self.latest().items():
            if site in said:
                fresh = replace(item, privacy={**item.privacy, **said[site]})
                self._known[item.key] = fresh
                self._rounds = [[fresh if known is item else known for known in batch] for batch in self._rounds]

    def without(self, site: SiteName) -> Log:
        """Return the log that would have been if this site had never contributed."""
        rest = Log()
        for batch in self.rounds:
            remaining = [item for item in batch if item.site != site]
            if remaining:
                rest.add(remaining)
        return rest

    def find(self, key: tuple[SiteName, int]) -> Contribution | None:
        """Return the contribution of a site to a round, if it is here."""
        return self._known.get(key)

    def find_all(self, keys: Iterable[tuple[SiteName, int]]) -> list[Contribution | None]:
        """Return the contributions of these sites to these rounds, None for those that are not here."""
        return [self.find(key) for key in keys]

    @property
    def n_rounds(self) -> int:
        """Number of rounds with at least one contribution."""
        return len(self._rounds)

    @property
    def n_features(self) -> int | None:
        """Number of features; None while empty."""
        return self._rounds[0][0].n_features if self._rounds else None

    @property
    def sites(self) -> list[SiteName]:
        """Sites that have contributed, in order."""
        return sorted({item.site for batch in self._rounds for item in batch}, key=order_key)

    def latest(self) -> dict[SiteName, Contribution]:
        """Return the contribution with the highest round of every site."""
        result: dict[SiteName, Contribution] = {}
        for batch in self._rounds:
            for item in batch:
                if item.site not in result or item.round > result[item.site].round:
                    result[item.site] = item
        return {site: result[site] for site in self.sites}

    def entries(self) -> list[list[Entry]]:
        """Return all rounds without their nodes."""
        return [[Entry.of(item) for item in batch] for batch in self._rounds]

    @property
    def released(self) -> bool:
        """Whether every contribution is differentially private, so that nodes may be shared."""
        return all(may_be_shared(item.privacy) for batch in self._rounds for item in batch)

    @property
    def has_nodes(self) -> bool:
        """Whether any node was ever contributed."""
        return any(len(item.nodes) for batch in self._rounds for item in batch)

    def holds(self, points: Floats) -> NDArray[np.bool_]:
        """Tell for every point whether it is, bit for bit, a node that was ever contributed."""
        known = {row for batch in self._rounds for item in batch for row in row_bytes(item.nodes)}
        return np.array([row in known for row in row_bytes(points)], np.bool_)


class Extract(Log):
    """What a log tells its readers, in memory: the newest contributions, and all others without their nodes."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._latest, self._entries = log.latest(), log.entries()
        self._n_features, self._released = log.n_features, log.released

    @property
    def rounds(self) -> list[list[Contribution]]:
        """Not here."""
        raise ValueError("this is an extract for readers of a server: contributions of earlier rounds are not here")

    @property
    def n_rounds(self) -> int:
        """Number of rounds with at least one contribution."""
        return len(self._entries)

    @property
    def n_features(self) -> int | None:
        """Number of features; None while empty."""
        return self._n_features

    @property
    def sites(self) -> list[SiteName]:
        """Sites that have contributed, in order."""
        return list(self._latest)

    def latest(self) -> dict[SiteName, Contribution]:
        """Return the contribution with the highest round of every site."""
        return dict(self._latest)

    def entries(self) -> list[list[Entry]]:
        """Return all rounds without their nodes."""
        return self._entries

    @property
    def released(self) -> bool:
        """Whether every contribution is differentially private, so that nodes may be shared."""
        return self._released

    @property
    def has_nodes(self) -> bool:
        """Whether any node was ever contributed."""
        return any(entry.n_nodes for batch in self._entries for entry in batch)


def row_bytes(nodes: Floats) -> list[bytes]:
    """Return the bytes of every row; minus zero counts as zero."""
    return [row.tobytes() for row in np.ascontiguousarray(nodes + 0.0)]
