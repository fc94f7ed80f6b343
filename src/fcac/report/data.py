"""The data shown in a report, computed from contributions, and from rows only where that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcac._sites import SiteName, in_reading_order
from fcac._typing import Floats
from fcac.aggregation.pooled import POOLED
from fcac.clusters.tracking import Move
from fcac.federation import Server
from fcac.federation.log import Entry
from fcac.federation.pooled import sites_behind
from fcac.federation.replay import Event, Snapshot, descendants, events, material, replay
from fcac.model.fcac import FCAC
from fcac.privacy.mechanisms import may_be_shared
from fcac.report.cautions import cautions
from fcac.report.comparison import Comparison, compared
from fcac.report.counting import Counted, Novelty, count_rows
from fcac.report.done import Done, what_was_done
from fcac.report.dots import MIN_ROWS, Dots
from fcac.report.noise import node_noise
from fcac.report.privacy_statement import PrivacyStatement, make_statement
from fcac.report.profiles import Profiles, make_profiles
from fcac.report.reading import Cluster, Reading, read_out, stability_of
from fcac.report.text_words import cluster_words, with_words
from fcac.report.tree import TreeData, make_tree
from fcac.report.views import Views, make_dots, make_views
from fcac.tables.shown_column import ShownColumn, columns_of

__all__ = ["Cluster", "Comparison", "Novelty", "Reading", "ReportData", "gather"]

# Columns described for each cluster: fewer where there are many clusters, so that the file stays small.
_N_TELLING, _N_TELLING_OF_MANY, _MANY_CLUSTERS = 6, 3, 60
# Columns told when pointing at a dot, and columns for which means of clusters are computed.
_N_HOVER, _N_HOVER_OF_MANY, _N_LISTED = 5, 3, 10
# Of more nodes it is not found out how stable clusters are: it would take minutes.
_MOST_JUDGED = 20_000
_NOT_JUDGED = (
    f"How stable the clusters are was not worked out, because there are more than {_MOST_JUDGED:,} nodes. In Python, "
    "model.summary() works it out."
)


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
    #: How many sites it stands for: more than one where they were summed before anyone saw.
    n_sites: int = 1


@dataclass(frozen=True)
class RoundData:
    """One round shown in the report: its picture, and what its clusters become."""

    snapshot: Snapshot
    dots: Dots
    becomes: dict[int, int]


@dataclass(frozen=True)
class ReportData:
    """What the page shows. Raw rows and coordinates of more than three digits do not leave this object."""

    read: Reading
    views: Views
    other_points: Floats
    dot_values: Floats
    cluster_values: dict[int, list[float]]
    columns: list[ShownColumn]
    profiles: Profiles
    tree: TreeData | None
    cautions: list[str]
    done: Done
    n_rows: int
    n_sent_nodes: int
    sites: list[SiteData]
    round_names: list[int]
    rounds: list[RoundData] | None
    events: list[Event]
    moves: list[Move]
    privacy: PrivacyStatement
    federation: bool
    exact_counts: bool
    stability: float | None = None
    novelty: Novelty | None = None
    comparison: Comparison | None = None
    released: bool = False
    feature_names: list[str] = field(default_factory=list)

    @property
    def hover_columns(self) -> list[ShownColumn]:
        """The columns whose values are told when pointing at a dot."""
        most = _N_HOVER if len(self.read.clusters) <= _MANY_CLUSTERS else _N_HOVER_OF_MANY
        return [column for column, _ in self.profiles.importance[:most]]

    @property
    def n_sites(self) -> int:
        """Number of sites, those that were summed included."""
        return sum(site.n_sites for site in self.sites)

    @property
    def summed(self) -> bool:
        """Whether the sites were summed before anyone saw: nothing is known of a single one."""
        return any(site.name == POOLED for site in self.sites)


def gather(
    model: FCAC | Server,
    *,
    rows: Any = None,
    compare: FCAC | Server | None = None,
    feature_names: Sequence[str] | None = None,
    federation: bool | None = None,
    schema: Any = None,
    facts: Mapping[str, Any] | None = None,
    stability: bool = True,
) -> ReportData:
    """Compute the data of a report; for the parameters see :func:`fcac.report.write_report`.

    `stability` says whether to find out how stable clusters are, which takes several fits of half of the nodes.
    """
    server, estimator = _server_of(model, "model")
    in_federation = estimator is None if federation is None else bool(federation)
    _check_rows_allowed(server, estimator, rows, in_federation)
    d = server.n_features
    assert d is not None
    schema = _schema(schema, estimator, d)
    names = _feature_names(feature_names, estimator, schema, d)
    columns = columns_of(schema, names)
    known = material(server.latest(), d)
    noise = node_noise(server)
    views = make_views(server, names, d)
    # a schema says what columns mean and whether gaps are allowed
    by_schema = estimator is not None and estimator.schema_ is not None
    read_table = estimator._rows_to_read if estimator is not None and by_schema else None
    counted = None if rows is None else count_rows(server, rows, estimator and estimator.novelty_reach(), read_table)
    exact = None if counted is None else counted.by_cluster
    judged = stability and len(server.nodes) <= _MOST_JUDGED
    read = read_out(
        server,
        known,
        views,
        exact,
        None if noise is None else noise.counts,
        stability=stability_of(server) if judged else None,
    )
    profiles = make_profiles(
        columns,
        known.nodes,
        known.counts.astype(np.float64),
        read.labels,
        _described(read, known.counts.astype(np.float64)),
        None if noise is None else noise.values,
        _N_TELLING if len(read.clusters) <= _MANY_CLUSTERS else _N_TELLING_OF_MANY,
    )
    weights = known.counts.astype(np.float64)
    words = cluster_words(schema, known.nodes, weights, read.labels, [c.label for c in read.clusters])
    profiles = with_words(profiles, words)
    snapshots = replay(server) if server.n_rounds > 1 else None
    history = server.history
    sites = _sites(server, history)
    n_rows = round(float(known.counts.sum()))
    done = what_was_done(server, estimator, schema, facts, federation=in_federation)
    return ReportData(
        read=read,
        views=views,
        other_points=read.dots.means(views.other_places(server.nodes), server.counts.astype(np.float64)),
        dot_values=_dot_values(server, read, profiles),
        cluster_values=_cluster_values(known.nodes, known.counts.astype(np.float64), read, profiles),
        columns=columns,
        profiles=profiles,
        tree=make_tree(server),
        cautions=_cautions(server, read, columns, counted, sites, len(known.nodes) / max(n_rows, 1), done, views)
        + ([_NOT_JUDGED] if stability and not judged and hasattr(server.readout, "stability_score") else []),
        done=done,
        n_rows=n_rows,
        n_sent_nodes=len(known.nodes),
        sites=sites,
        round_names=[max(entry.round for entry in batch) for batch in history],
        rounds=None if snapshots is None else _rounds(server, snapshots, views),
        events=_told_lineage(server) or events(snapshots or []),
        moves=list(server.readout.moves),
        privacy=make_statement(
            history,
            list(server.latest().values()),
            None if estimator is None else estimator.privacy,
            federation=in_federation,
            distances=None if estimator is None or estimator._measured is None else estimator._measured.epsilon,
        ),
        federation=in_federation,
        exact_counts=not any(may_be_shared(entry.privacy) for batch in history for entry in batch),
        stability=overall_stability(server) if judged else None,
        novelty=None if counted is None else counted.novelty,
        comparison=None if compare is None else _compare(server, read, views, compare),
        released=server.released,
        feature_names=names,
    )


def overall_stability(server: Server) -> float | None:
    """Return the server's own number for how sure the clusters are, between 0 and 1; None if it has none."""
    found = getattr(server.readout, "stability_score", None)
    return float(found) if isinstance(found, int | float) and np.isfinite(found) else None


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


def _schema(given: Any, estimator: FCAC | None, d: int) -> Any:
    schema = given if given is not None else getattr(estimator, "schema_", None)
    if schema is not None and schema.n_features != d:
        raise ValueError(f"schema: it has {schema.n_features} features, the model has {d}")
    return schema


def _feature_names(given: Sequence[str] | None, estimator: FCAC | None, schema: Any, d: int) -> list[str]:
    names = given if given is not None else getattr(estimator, "feature_names_in_", None)
    if names is None and schema is not None:
        names = schema.feature_names
    if names is None:
        return [f"feature {j}" for j in range(d)]
    if len(names) != d:
        raise ValueError(f"feature_names must name each of the {d} features, got {len(names)} names")
    return [str(name) for name in names]


def _described(read: Reading, counts: Floats) -> list[int]:
    """Clusters that stand for enough rows to be described."""
    labels, place = np.unique(read.labels, return_inverse=True)
    mass = dict(zip(labels.tolist(), np.bincount(place.ravel(), weights=counts).tolist(), strict=True))
    return [c.label for c in read.clusters if mass.get(c.label, 0) >= MIN_ROWS]


def _dot_values(server: Server, read: Reading, profiles: Profiles) -> Floats:
    """Values of the columns that matter most at every dot, in the table's units; categories as the leading one."""
    counts = server.counts.astype(np.float64)
    parts = []
    for column, _ in profiles.importance[:_N_HOVER]:
        values = column.values(server.nodes)
        if column.kind == "category":
            shares = read.dots.means(values, counts)
            parts.append(shares.argmax(axis=1).astype(np.float64))
        else:
            parts.append(read.dots.means(values[:, None], counts)[:, 0])
    return np.column_stack(parts) if parts else np.zeros((len(read.dots.points), 0))


def _cluster_values(nodes: Floats, counts: Floats, read: Reading, profiles: Profiles) -> dict[int, list[float]]:
    """Means of the columns that matter most, in the table's units; of categories the number of the leading one."""
    found: dict[int, list[float]] = {label: [] for label in profiles.clusters}
    for column, _ in profiles.importance[:_N_LISTED]:
        values = column.values(nodes)
        for label, listed in found.items():
            inside = read.labels == label
            mean = np.average(values[inside], axis=0, weights=counts[inside])
            listed.append(float(mean.argmax()) if column.kind == "category" else float(mean))
    return found


def _cautions(
    server: Server,
    read: Reading,
    columns: list[ShownColumn],
    counted: Counted | None,
    sites: list[SiteData],
    nodes_per_row: float,
    done: Done,
    views: Views,
) -> list[str]:
    nodes = server.nodes
    variances = np.zeros(server.n_features or 0)
    # where distances are measured through a map, columns are in balance
    if len(nodes) and views.layout.metric.ndim == 1:
        scaled = nodes * views.layout.metric
        weights = server.counts / max(int(server.counts.sum()), 1)
        variances = weights @ (scaled - weights @ scaled) ** 2
    return cautions(
        read.clusters,
        n_sites=len(sites),
        site_rows={site.name: site.rows for site in sites},
        novelty=None if counted is None else counted.novelty,
        columns=columns,
        variances=variances,
        nodes_per_row=0.0 if server.released else nodes_per_row,
        n_dropped=done.n_dropped,
        n_read=done.n_read,
    )


# ------------------------------------------------------------ sites and rounds


def _sites(server: Server, history: list[list[Entry]]) -> list[SiteData]:
    participation: dict[SiteName, dict[int, Participation]] = {site: {} for site in server.sites}
    for position, batch in enumerate(history):
        newest = max(entry.round for entry in batch)
        for entry in batch:
            late = entry.round < newest and position not in participation[entry.site]
            participation[entry.site][position] = Participation(entry.n_nodes, round(entry.n_rows), late)
    latest = server.latest()
    return [
        SiteData(site, round(float(latest[site].counts.sum())), len(latest[site].counts), participation[site], behind)
        for site, behind in ((site, sites_behind(latest[site])) for site in in_reading_order(latest))
    ]


def _rounds(server: Server, snapshots: list[Snapshot], views: Views) -> list[RoundData]:
    return [
        RoundData(s, make_dots(server, views.places(s.nodes), s.counts, s.labels, s.edges, small=True), becomes)
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


def _compare(server: Server, read: Reading, views: Views, compare: FCAC | Server) -> Comparison:
    other, _ = _server_of(compare, "compare")
    if _keys(other) != _keys(server):
        raise ValueError("compare must have absorbed the same contributions as model: these differ")
    known = material(server.latest(), server.n_features or 1)
    second = read_out(other, known, views, None, None, own=False)
    return compared(read, second, known.counts.astype(np.float64))


def _keys(server: Server) -> set[tuple[SiteName, int, str]]:
    return {(item.site, item.round, item.digest()) for item in server.latest().values()}
