"""The data shown in a report, computed from contributions, and from rows only where that is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName
from fcac._typing import Floats, Integers
from fcac.estimators.fcac import FCAC
from fcac.federation import Server
from fcac.federation.log import Entry
from fcac.federation.readout import ReadOut as ServerReadOut
from fcac.federation.replay import (
    Event,
    Material,
    Snapshot,
    descendants,
    events,
    labels_of,
    material,
    replay,
    rows_by_cluster,
)
from fcac.privacy.mechanisms import may_be_shared
from fcac.report.cluster_style import ClusterStyle
from fcac.report.privacy_statement import PrivacyStatement, make_statement
from fcac.report.projection import MIN_ROWS, Dots, Projection, condense, fit_projection, plain_dots

# Maximum number of nodes drawn one by one; beyond it, neighbouring nodes share a dot.
_MAX_DOTS = 700
_MAX_SMALL_DOTS = 250
_N_BINS = 50
# The histogram of novelty extends to this many thresholds; larger distances share the last bar.
_REACH = 2.0


@dataclass(frozen=True)
class Difference:
    """Distance of a cluster's mean from the overall mean in one feature, in standard deviations."""

    feature: str
    value: float


@dataclass(frozen=True)
class Cluster:
    """One cluster, as described by the sites' nodes.

    Attributes
    ----------
    label : int
        As returned by `predict`.
    style : ClusterStyle
    rows : int
        Number of rows represented by its nodes; counted one by one if rows were given.
    share : float
        Fraction of all rows.
    n_nodes : int
        Number of the server's nodes in it.
    site_shares : dict of site to float
        Largest first; sites without rows in it are omitted.
    differences : list of Difference or None
        Largest first; None if the cluster has too few rows to be described.
    """

    label: int
    style: ClusterStyle
    rows: int
    share: float
    n_nodes: int
    site_shares: dict[SiteName, float]
    differences: list[Difference] | None


@dataclass(frozen=True)
class Participation:
    """A site's participation in one round."""

    n_nodes: int
    rows: int
    late: bool


@dataclass(frozen=True)
class SiteData:
    """One site over the rounds."""

    name: SiteName
    rows: int
    n_nodes: int
    participation: dict[int, Participation]


@dataclass(frozen=True)
class Novelty:
    """Histogram of the distance of rows to their nearest node.

    Attributes
    ----------
    edges : array of shape (bins + 1,)
    known, novel : arrays of shape (bins,)
        Numbers of known and of novel rows. The last bar also includes everything beyond the last edge.
    threshold : float or None
        Distance beyond which a row is novel; None if it differs between nodes.
    """

    edges: Floats
    known: Integers
    novel: Integers
    threshold: float | None

    @property
    def n_novel(self) -> int:
        """Number of rows unlike anything seen."""
        return int(self.novel.sum())

    @property
    def n_rows(self) -> int:
        """Number of all rows."""
        return int(self.known.sum()) + self.n_novel


@dataclass(frozen=True)
class RoundData:
    """One round shown in the report: its picture, and what its clusters become."""

    snapshot: Snapshot
    dots: Dots
    becomes: dict[int, int]


@dataclass(frozen=True)
class Reading:
    """The result of one read-out of the contributions: what is drawn and listed for it."""

    way: type[ServerReadOut]
    clusters: list[Cluster]
    dots: Dots
    n_nodes: int
    labels: Integers

    def style(self, label: int) -> ClusterStyle:
        """Return the colour and shape of a cluster."""
        return next((c.style for c in self.clusters if c.label == label), ClusterStyle(10**6))


@dataclass(frozen=True)
class Comparison:
    """A second read-out of the same contributions.

    Attributes
    ----------
    other : Reading
    rows : dict of (cluster, other's cluster) to rows
    agreement : float
        Adjusted Rand index between the two clusterings of the rows.
    """

    other: Reading
    rows: dict[tuple[int, int], int]
    agreement: float


@dataclass(frozen=True)
class ReportData:
    """What the page shows. Raw rows and coordinates of more than three digits do not leave this object."""

    read: Reading
    projection: Projection
    feature_names: list[str]
    n_rows: int
    n_sent_nodes: int
    sites: list[SiteData]
    round_names: list[int]
    rounds: list[RoundData] | None
    events: list[Event]
    privacy: PrivacyStatement
    federation: bool
    exact_counts: bool
    novelty: Novelty | None = None
    comparison: Comparison | None = None

    @property
    def released(self) -> bool:
        """Whether every node shown came from a private release."""
        return all(group.guarantee == "central" for group in self.privacy.groups)


def gather(
    model: FCAC | Server,
    *,
    rows: Any = None,
    compare: FCAC | Server | None = None,
    feature_names: Sequence[str] | None = None,
    federation: bool | None = None,
) -> ReportData:
    """Compute the data of a report; for the parameters see :func:`fcac.report.write_report`."""
    server, estimator = _server_of(model, "model")
    in_federation = estimator is None if federation is None else bool(federation)
    _check_rows_allowed(server, estimator, rows, in_federation)
    d = server.n_features
    assert d is not None
    names = _feature_names(feature_names, estimator, d)
    known = material(server.latest(), d)
    basis = (server.nodes, server.counts) if len(server.nodes) else (known.nodes, known.counts)
    projection = fit_projection(basis[0], basis[1], names) if len(basis[0]) else _empty_projection(d, names)
    counted = None if rows is None else _count_rows(server, rows, estimator and estimator.novelty_reach())
    read = _read_out(server, known, projection, names, counted)
    snapshots = replay(server) if server.n_rounds > 1 else None
    comparison = None if compare is None else _compare(server, read, known, projection, names, compare)
    history = server.history
    return ReportData(
        read=read,
        projection=projection,
        feature_names=names,
        n_rows=int(known.counts.sum()),
        n_sent_nodes=len(known.nodes),
        sites=_sites(server, history),
        round_names=[max(entry.round for entry in batch) for batch in history],
        rounds=None if snapshots is None else _rounds(server, snapshots, projection),
        events=_told_lineage(server) or events(snapshots or []),
        privacy=make_statement(
            history,
            list(server.latest().values()),
            None if estimator is None else estimator.privacy,
            federation=in_federation,
        ),
        federation=in_federation,
        exact_counts=not any(may_be_shared(entry.privacy) for batch in history for entry in batch),
        novelty=None if counted is None else counted.novelty,
        comparison=comparison,
    )


def _server_of(model: FCAC | Server, field: str) -> tuple[Server, FCAC | None]:
    if isinstance(model, FCAC):
        if not hasattr(model, "server_"):
            raise ValueError(f"{field} is not fitted: call fit or partial_fit before writing a report")
        server, estimator = model.server_, model
    elif isinstance(model, Server):
        server, estimator = model, None
    else:
        raise TypeError(f"{field} must be a fitted FCAC or a Server, got {type(model).__name__}")
    if not server.n_rounds:
        raise ValueError(f"{field} has no contributions yet: run a round before writing a report")
    return server, estimator


def _mechanism(item: Any) -> str:
    return str(item.privacy.get("mechanism", "none"))


def _check_rows_allowed(server: Server, estimator: FCAC | None, rows: Any, federation: bool) -> None:
    if rows is None:
        return
    if federation:
        raise ValueError("rows are not read for the report of a federation: leave rows out")
    if estimator is None:
        raise ValueError(
            "rows need the FCAC model, which knows that it ran in one process: pass it instead of a Server"
        )
    private = estimator.privacy is not None or any(_mechanism(i) != "none" for batch in server.history for i in batch)
    if private:
        raise ValueError("rows are not read for a report where privacy is set: leave rows out")


def _feature_names(given: Sequence[str] | None, estimator: FCAC | None, d: int) -> list[str]:
    names = given if given is not None else getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"feature {j}" for j in range(d)]
    if len(names) != d:
        raise ValueError(f"feature_names must name each of the {d} features, got {len(names)} names")
    return [str(name) for name in names]


def _empty_projection(d: int, names: list[str]) -> Projection:
    return Projection(np.eye(d, 2), np.zeros(d), np.ones(d), names[0], names[1] if d > 1 else "")


# ------------------------------------------------------------ clusters


def _read_out(
    server: Server, known: Material, projection: Projection, names: list[str], counted: _Counted | None
) -> Reading:
    labels = labels_of(server, known)
    estimated = rows_by_cluster(labels, known.counts)
    rows = estimated if counted is None else counted.by_cluster
    node_labels, n_nodes = np.unique(server.node_labels, return_counts=True)
    nodes_in = {int(label): int(n) for label, n in zip(node_labels, n_nodes, strict=True)}
    order = sorted({*estimated, *rows, *nodes_in}, key=lambda label: (-rows.get(label, 0), label))
    total = sum(rows.values())
    differ = _differences(known, labels, names)
    clusters = [
        Cluster(
            label,
            ClusterStyle(rank),
            rows.get(label, 0),
            rows.get(label, 0) / total if total else 0.0,
            nodes_in.get(label, 0),
            _site_shares(known, labels == label),
            differ[label] if estimated.get(label, 0) >= MIN_ROWS else None,
        )
        for rank, label in enumerate(order)
    ]
    dots = _dots(server, projection.project(server.nodes), server.counts, server.node_labels, server.edges, _MAX_DOTS)
    return Reading(type(server.readout), clusters, dots, len(server.nodes), labels)


def _dots(server: Server, points: Floats, counts: Integers, labels: Integers, edges: Integers, most: int) -> Dots:
    """Return the dots of a picture; the sites' own nodes are merged unless released, since a node can be a row."""
    if server.readout.nodes_are_contributed and not server.released:
        return condense(points, counts, labels, edges, min_rows=MIN_ROWS, cells=40 if most == _MAX_DOTS else 24)
    if len(points) > most:
        return condense(points, counts, labels, edges, cells=40 if most == _MAX_DOTS else 24)
    return plain_dots(points, counts, labels, edges)


def _site_shares(known: Material, inside: NDArray[np.bool_]) -> dict[SiteName, float]:
    mass = np.bincount(known.site[inside], weights=known.counts[inside], minlength=len(known.sites))
    order = np.argsort(-mass, kind="stable")
    return {known.sites[s]: float(mass[s] / mass.sum()) for s in order if mass[s] > 0}


def _differences(known: Material, labels: Integers, names: list[str]) -> dict[int, list[Difference]]:
    """Return the distance of every cluster's mean from the overall mean, in standard deviations, largest first."""
    if not len(labels):
        return {}
    weights = known.counts / known.counts.sum()
    centre = weights @ known.nodes
    spread = np.sqrt(weights @ (known.nodes - centre) ** 2)
    spread[spread == 0] = np.inf
    result = {}
    for label in np.unique(labels):
        inside = labels == label
        mean = np.average(known.nodes[inside], axis=0, weights=known.counts[inside])
        units = (mean - centre) / spread
        order = np.argsort(-np.abs(units), kind="stable")
        result[int(label)] = [Difference(names[j], round(float(units[j]), 2)) for j in order if np.isfinite(spread[j])]
    return result


# ------------------------------------------------------------ sites and rounds


def _sites(server: Server, history: list[list[Entry]]) -> list[SiteData]:
    participation: dict[SiteName, dict[int, Participation]] = {site: {} for site in server.sites}
    for position, batch in enumerate(history):
        newest = max(entry.round for entry in batch)
        for entry in batch:
            late = entry.round < newest and position not in participation[entry.site]
            participation[entry.site][position] = Participation(entry.n_nodes, entry.n_rows, late)
    return [
        SiteData(site, int(item.counts.sum()), len(item.counts), participation[site])
        for site, item in server.latest().items()
    ]


def _rounds(server: Server, snapshots: list[Snapshot], projection: Projection) -> list[RoundData]:
    return [
        RoundData(s, _dots(server, projection.project(s.nodes), s.counts, s.labels, s.edges, _MAX_SMALL_DOTS), becomes)
        for s, becomes in zip(snapshots, descendants(snapshots), strict=True)
    ]


def _told_lineage(server: Server) -> list[Event]:
    """Return the lineage of clusters that the read-out itself records, if it does."""
    told = []
    for change in server.readout.lineage:
        own = (int(change.cluster),)
        others = tuple(int(label) for label in change.others)
        before, after = {"merged": (others, own), "split": (own, others), "born": ((), own)}.get(
            change.kind, (own, own)
        )
        rows = (round(change.mass_before), round(change.mass_after))
        told.append(Event(min(int(change.round), server.n_rounds), str(change.kind), before, after, rows))
    return told


# ------------------------------------------------------------ rows


@dataclass(frozen=True)
class _Counted:
    by_cluster: dict[int, int]
    novelty: Novelty


def _count_rows(server: Server, rows: Any, limit: float | None) -> _Counted:
    """Label rows block by block; only counts are kept."""
    from fcac._rows import Rows

    threshold = server.threshold if limit is None else limit
    is_same = limit is not None or bool((server.reach == threshold).all())
    # if thresholds differ between nodes, a node of few rows must not stretch the histogram
    usual = threshold if is_same else float(np.average(server.reach, weights=server.counts))
    reach = _REACH * usual if 0 < usual < np.inf else 1.0
    edges = np.linspace(0.0, reach, _N_BINS + 1)
    bars = np.zeros((2, _N_BINS), np.int64)
    by_cluster: dict[int, int] = {}
    for piece in _pieces(rows):
        table = Rows(piece, "report", allow_empty=True)
        if table.n_features != server.n_features:
            raise ValueError(f"rows have {table.n_features} features, the model has {server.n_features}")
        for block in table.blocks():
            labels, distance, novel = server.label_rows(block, reach=limit)
            distance = np.minimum(distance, reach)
            bars[0] += np.histogram(distance[~novel], edges)[0]
            bars[1] += np.histogram(distance[novel], edges)[0]
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
                by_cluster[int(label)] = by_cluster.get(int(label), 0) + int(n)
    if not by_cluster:
        raise ValueError("rows are empty: leave rows out, or pass the rows the model has learned")
    return _Counted(by_cluster, Novelty(edges, bars[0], bars[1], threshold if is_same else None))


def _pieces(rows: Any) -> Iterator[Any]:
    if isinstance(rows, Mapping):
        yield from rows.values()
    elif hasattr(rows, "__next__"):
        for item in rows:
            yield item[1] if isinstance(item, tuple) else item
    else:
        yield rows


# ------------------------------------------------------------ two read-outs


def _compare(
    server: Server, read: Reading, known: Material, projection: Projection, names: list[str], compare: FCAC | Server
) -> Comparison:
    other, _ = _server_of(compare, "compare")
    if _keys(other) != _keys(server):
        raise ValueError("compare must have absorbed the same contributions as model: these differ")
    second = _read_out(other, known, projection, names, None)
    pairs, place = np.unique(np.column_stack([read.labels, second.labels]), axis=0, return_inverse=True)
    mass = np.bincount(place.ravel(), weights=known.counts, minlength=len(pairs))
    rows = {(int(a), int(b)): round(m) for (a, b), m in zip(pairs, mass, strict=True)}
    return Comparison(_matching_styles(second, read, rows), rows, adjusted_rand(rows))


def _matching_styles(second: Reading, first: Reading, rows: Mapping[tuple[int, int], int]) -> Reading:
    """Give each cluster of the second read-out the style of the first's cluster with which it shares most rows."""
    free = len(first.clusters)
    taken: set[int] = set()
    clusters = []
    for cluster in second.clusters:
        shared = [(n, -first.style(a).rank) for (a, b), n in rows.items() if b == cluster.label]
        rank = -max(shared)[1] if shared else free
        if rank in taken or not shared:
            rank, free = free, free + 1
        taken.add(rank)
        clusters.append(replace(cluster, style=ClusterStyle(rank)))
    return replace(second, clusters=clusters)


def _keys(server: Server) -> set[tuple[SiteName, int, str]]:
    return {(item.site, item.round, item.digest()) for item in server.latest().values()}


def adjusted_rand(table: Mapping[tuple[int, int], int]) -> float:
    """Return the adjusted Rand index of two clusterings, from the number of rows in each pair of clusters.

    Examples
    --------
    >>> from fcac.report.data import adjusted_rand
    >>> adjusted_rand({(0, 7): 10, (1, 5): 4})
    1.0
    """

    def pairs(sizes: Iterable[int]) -> float:
        return float(sum(n * (n - 1) / 2 for n in sizes))

    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for (a, b), n in table.items():
        first[a] = first.get(a, 0) + n
        second[b] = second.get(b, 0) + n
    both, one, two = pairs(table.values()), pairs(first.values()), pairs(second.values())
    total = pairs([sum(table.values())])
    expected = one * two / total if total else 0.0
    most = (one + two) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
