"""What the server was after each round: as it was kept, or replayed from the contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Floats, Integers
from fcac.federation import Contribution, Server

#: Most rounds that are shown side by side: the first, the last, and some between.
MAX_SHOWN = 6

#: Events that concern a smaller share of a round's rows are not told.
SMALLEST_SHARE = 0.01

# A cluster counts as having gone (partly) into another if that one took at least this share of its rows.
_REAL_SHARE = 0.2


@dataclass(frozen=True)
class Material:
    """Nodes of all sites as known at one moment; `site` is the position in `sites` of each node's site."""

    nodes: Floats
    counts: Integers
    site: Integers
    sites: list[SiteName]


def material(latest: dict[SiteName, Contribution], n_features: int) -> Material:
    """Stack the latest contribution of every site."""
    items = list(latest.values())
    sizes = [len(item.counts) for item in items]
    return Material(
        np.concatenate([item.nodes for item in items]) if items else np.empty((0, n_features)),
        np.concatenate([item.counts for item in items]) if items else np.empty(0, np.int64),
        np.repeat(np.arange(len(items)), sizes),
        list(latest),
    )


@dataclass(frozen=True)
class Snapshot:
    """The server after one round; `flow` counts rows by (cluster at the snapshot before, cluster now)."""

    round: int
    nodes: Floats
    counts: Integers
    labels: Integers
    edges: Integers
    cluster_rows: dict[int, int]
    flow: dict[tuple[int, int], int]

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(np.unique(self.labels)) or len(self.cluster_rows)


@dataclass(frozen=True)
class Event:
    """Something that happened to clusters: born, grew, shrank, merged, split or died.

    The clusters concerned are numbered as they were before and are since; `rows` are those behind them, (0, 0) where
    not told.
    """

    round: int
    kind: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    rows: tuple[int, int] = (0, 0)


def rounds_to_show(n_rounds: int, most: int = MAX_SHOWN) -> list[int]:
    """First, last, and evenly spaced rounds between.

    >>> rounds_to_show(3), rounds_to_show(24)
    ([1, 2, 3], [1, 6, 10, 15, 19, 24])
    """
    if n_rounds <= most:
        return list(range(1, n_rounds + 1))
    return sorted({round(x) for x in np.linspace(1, n_rounds, most)})


def replay(server: Server) -> list[Snapshot] | None:
    """Return what the server was after the rounds that are shown: as it was kept, or else by playing a few again.

    Returns None where nothing was kept and there are too many rounds or nodes: the cost does not grow with the rounds.
    """
    shown = rounds_to_show(server.n_rounds)
    if server.past is not None:
        kept = [server if number == server.n_rounds else server.past(number) for number in shown]
        return _snapshots((number, source) for number, source in zip(shown, kept, strict=True) if source is not None)
    if len(shown) < server.n_rounds:
        return None
    if sum(len(item.counts) for batch in server.log for item in batch) > server.readout.max_replayed_nodes:
        return None
    return _snapshots(_played(server, shown))


def _played(server: Server, shown: Sequence[int]) -> Iterator[tuple[int, Server]]:
    again = server.blank()
    for number, batch in enumerate(server.log, start=1):
        again.learn(batch)
        if number in shown:
            # the last one is read off the server itself, whatever path led to it
            yield number, server if number == server.n_rounds else again


def _snapshots(states: Iterable[tuple[int, Server]]) -> list[Snapshot]:
    snapshots: list[Snapshot] = []
    before: Material | None = None
    labels_before: Integers | None = None
    for number, source in states:
        snapshots.append(_snapshot(source, number, before, labels_before))
        before = material(source.latest(), source.n_features or 1)
        labels_before = labels_of(source, before)
    return snapshots


def labels_of(server: Server, known: Material) -> Integers:
    """Cluster of every known node, by the server."""
    if not len(known.nodes):
        return np.empty(0, np.int64)
    if np.array_equal(server.nodes, known.nodes):
        return server.node_labels  # the sites' nodes are the server's own
    return server.predict(known.nodes)


def _snapshot(server: Server, number: int, before: Material | None, labels_before: Integers | None) -> Snapshot:
    known = material(server.latest(), server.n_features or 1)
    rows = rows_by_cluster(labels_of(server, known), known.counts)
    flow: dict[tuple[int, int], int] = {}
    if before is not None and labels_before is not None and len(known.nodes):
        now = labels_of(server, before)
        pairs, weights = np.unique(np.column_stack([labels_before, now]), axis=0, return_inverse=True)
        mass = np.bincount(weights.ravel(), weights=before.counts, minlength=len(pairs))
        flow = {(int(a), int(b)): round(m) for (a, b), m in zip(pairs, mass, strict=True)}
    return Snapshot(number, server.nodes, server.counts, server.node_labels, server.readout.edges, rows, flow)


def rows_by_cluster(labels: Integers, counts: Integers) -> dict[int, int]:
    """Rows per cluster."""
    found, place = np.unique(labels, return_inverse=True)
    mass = np.bincount(place.ravel(), weights=counts, minlength=len(found))
    return {int(label): round(m) for label, m in zip(found, mass, strict=True)}


def descendants(snapshots: Sequence[Snapshot]) -> list[dict[int, int]]:
    """For every snapshot: into which cluster of the last one most rows of each cluster went."""
    final = {label: label for label in snapshots[-1].cluster_rows}
    result = [final | {int(label): int(label) for label in np.unique(snapshots[-1].labels)}]
    for later in reversed(snapshots[1:]):
        best: dict[int, tuple[int, int]] = {}
        for (source, target), rows in later.flow.items():
            if source not in best or rows > best[source][0]:
                best[source] = (rows, target)
        result.insert(0, {source: result[0].get(target, target) for source, (_, target) in best.items()})
    return result


def events(snapshots: Sequence[Snapshot]) -> list[Event]:
    """Tell births, merges and splits between the shown rounds, from where rows went; tiny clusters are left out."""
    told = []
    for before, snapshot in pairwise(snapshots):
        leaving = _large(before.cluster_rows)
        arriving = _large(snapshot.cluster_rows)
        pairs = [pair for pair, n in snapshot.flow.items() if n >= _REAL_SHARE * before.cluster_rows.get(pair[0], n)]
        for target in arriving:
            sources = tuple(sorted(a for a, b in pairs if b == target and a in leaving))
            if not any(b == target for _, b in pairs):
                told.append(Event(snapshot.round, "born", (), (target,)))
            elif len(sources) > 1:
                told.append(Event(snapshot.round, "merged", sources, (target,)))
        for source in leaving:
            targets = tuple(sorted(b for a, b in pairs if a == source and b in arriving))
            if len(targets) > 1:
                told.append(Event(snapshot.round, "split", (source,), targets))
    return told


def _large(cluster_rows: dict[int, int]) -> list[int]:
    total = sum(cluster_rows.values())
    return sorted(label for label, rows in cluster_rows.items() if rows >= SMALLEST_SHARE * total)
