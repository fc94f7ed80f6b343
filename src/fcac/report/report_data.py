"""The data shown in a report, computed from contributions, and from rows only where that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._sites import SiteName
from fcac._typing import Floats
from fcac.aggregation.pooled import POOLED
from fcac.federation import Server
from fcac.federation.replay import material
from fcac.model.fcac import FCAC
from fcac.model.verdict import Verdict, verdict_of
from fcac.privacy.mechanisms import may_be_shared
from fcac.report.clustering import Clustering, Comparison, compared, make_clustering, with_probabilities
from fcac.report.dendrogram import Dendrogram, make_dendrogram
from fcac.report.dots import MIN_ROWS
from fcac.report.layout import Views, make_views
from fcac.report.novelty_histogram import CountedRows, Novelty, count_rows
from fcac.report.privacy_statement import PrivacyStatement, make_statement
from fcac.report.profiles import Profiles, make_profiles, with_words, words_of_texts
from fcac.report.provenance import Provenance, provenance_of
from fcac.report.round_history import History, make_history
from fcac.tables.guess import taken_for
from fcac.tables.shown_column import ShownColumn, columns_of, figure

# Columns described for each cluster: fewer where there are many clusters, so that the file stays small.
_N_TELLING, _N_TELLING_OF_MANY, MANY_CLUSTERS = 6, 3, 60
# Columns told when pointing at a dot, and columns for which means of clusters are computed.
_N_HOVER, _N_HOVER_OF_MANY, _N_LISTED = 5, 3, 10
# A cluster's size is uncertain if noise leaves it open by more than this share, in 95 of 100 cases.
_NOISY = 0.3


@dataclass(frozen=True)
class ReportData:
    """What the page shows. Raw rows and coordinates of more than three digits do not leave this object."""

    found: Clustering
    verdict: Verdict | None
    views: Views
    other_points: Floats
    dot_values: Floats
    cluster_values: dict[int, list[float]]
    columns: list[ShownColumn]
    #: What columns were taken for, where that was guessed.
    guessed: list[str]
    profiles: Profiles
    tree: Dendrogram | None
    provenance: Provenance
    n_rows: int
    n_sent_nodes: int
    history: History
    privacy: PrivacyStatement
    federation: bool
    exact_counts: bool
    novelty: Novelty | None
    comparison: Comparison | None
    released: bool

    @property
    def probabilities(self) -> dict[int, float]:
        """How probable each number of clusters is, as far as the server tells."""
        if self.verdict is None:
            return {}
        own = {} if self.verdict.probability is None else {self.verdict.n_clusters: self.verdict.probability}
        return own | {other.n_clusters: other.probability for other in self.verdict.alternatives}

    @property
    def hover_columns(self) -> list[ShownColumn]:
        """The columns whose values are told when pointing at a dot."""
        most = _N_HOVER if len(self.found.clusters) <= MANY_CLUSTERS else _N_HOVER_OF_MANY
        return [column for column, _ in self.profiles.importance[:most]]

    @property
    def n_sites(self) -> int:
        """Number of sites, those that were summed included."""
        return sum(site.n_sites for site in self.history.sites)

    @property
    def summed(self) -> bool:
        """Whether the sites were summed before anyone saw: nothing is known of a single one."""
        return any(site.name == POOLED for site in self.history.sites)

    @property
    def axis_labels(self) -> tuple[str, str]:
        """What the axes of the projection are."""
        projection = self.views.projection
        labels = [self._axis_column(axis) for axis in (0, 1)]
        first, second = (
            given if column is None else f"{column.name} ({column.unit})" if column.unit else column.name
            for given, column in zip((projection.x_label, projection.y_label), labels, strict=True)
        )
        return first, second

    def axis_value(self, axis: int, value: float) -> str:
        """Return a value of an axis of the projection as text, in the table's units."""
        column = self._axis_column(axis)
        if column is None:
            return figure(value)
        node = np.zeros((1, max(self.views.projection.directions.shape[0], 1)))
        node[0, axis] = value
        return column.shown(float(column.values(node)[0]))

    def _axis_column(self, axis: int) -> ShownColumn | None:
        """The column that an axis shows as it is."""
        if self.views.projection.is_reduced:
            return None
        return next((c for c in self.columns if c.features == (axis,) and c.kind != "category"), None)


def gather(
    model: FCAC | Server,
    rows: Any = None,
    *,
    compare: FCAC | Server | None = None,
    feature_names: Sequence[str] | None = None,
    federation: bool | None = None,
    schema: Any = None,
    facts: Mapping[str, Any] | None = None,
) -> ReportData:
    """Compute the data of a report; for the parameters see :func:`fcac.report.write_report`."""
    server, estimator = _server_of(model, "model")
    in_federation = estimator is None if federation is None else bool(federation)
    history = make_history(server)
    _check_rows_allowed(history, estimator, rows, in_federation)
    d = server.n_features
    assert d is not None
    schema = _schema(schema, estimator, d)
    names = _feature_names(feature_names, estimator, schema, d)
    columns = columns_of(schema, names)
    latest = server.latest()
    known = material(latest, d)
    weights = known.counts.astype(np.float64)
    noise = _known_noise(server)
    views = make_views(server, names, d)
    counted = None if rows is None else _count_rows(server, estimator, rows)
    found = make_clustering(
        server,
        known,
        views,
        None if counted is None else counted.by_cluster,
        None if noise is None else noise[0],
    )
    provenance = provenance_of(server, estimator, schema, facts, federation=in_federation)
    verdict = None
    if len(known.nodes):
        verdict = _verdict(server, schema, names, found, provenance, None if counted is None else counted.novelty)
        found = with_probabilities(found, verdict.of_cluster)
    profiles = make_profiles(
        columns,
        known.nodes,
        weights,
        found.labels,
        _described(found, weights),
        None if noise is None else noise[1],
        _N_TELLING if len(found.clusters) <= MANY_CLUSTERS else _N_TELLING_OF_MANY,
    )
    words = words_of_texts(schema, known.nodes, weights, found.labels, [c.label for c in found.clusters])
    profiles = with_words(profiles, words)
    return ReportData(
        found=found,
        verdict=verdict,
        views=views,
        other_points=found.dots.means(views.other_places(server.nodes), server.counts.astype(np.float64)),
        dot_values=_dot_values(server, found, profiles),
        cluster_values=_cluster_values(known.nodes, weights, found, profiles),
        columns=columns,
        guessed=taken_for(schema, estimator.guessed_) if estimator is not None and estimator.guessed_ else [],
        profiles=profiles,
        tree=make_dendrogram(server),
        provenance=provenance,
        n_rows=round(float(known.counts.sum())),
        n_sent_nodes=len(known.nodes),
        history=history.drawn(server, views),
        privacy=make_statement(
            history.entries,
            list(latest.values()),
            None if estimator is None else estimator.privacy,
            federation=in_federation,
            distances=None if estimator is None or estimator._measured is None else estimator._measured.epsilon,
            columns=columns,
        ),
        federation=in_federation,
        exact_counts=not any(may_be_shared(entry.privacy) for batch in history.entries for entry in batch),
        novelty=None if counted is None else counted.novelty,
        comparison=None if compare is None else _compare(server, found, views, compare),
        released=server.released,
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


def _check_rows_allowed(history: History, estimator: FCAC | None, rows: Any, federation: bool) -> None:
    if rows is None:
        return
    if federation:
        raise ValueError("rows are not read for the report of a federation: leave rows out")
    if estimator is None:
        raise ValueError(
            "rows need the FCAC model, which knows that it ran in one process: pass it instead of a Server"
        )
    used = {str(entry.privacy.get("mechanism", "none")) for batch in history.entries for entry in batch}
    if estimator.privacy is not None or used != {"none"}:
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
        return [f"x{j}" for j in range(d)]
    if len(names) != d:
        raise ValueError(f"feature_names must name each of the {d} features, got {len(names)} names")
    return [str(name) for name in names]


def _known_noise(server: Server) -> tuple[Floats, Floats] | None:
    """Standard deviations of the noise in counts and in values of the sites' latest nodes; None unless all state it."""
    items = list(server.latest().values())
    if not items or any(item.deviation is None or item.count_deviation is None for item in items):
        return None
    counts = np.concatenate([np.asarray(item.count_deviation, np.float64) for item in items])
    return counts, np.concatenate([np.asarray(item.deviation, np.float64) for item in items])


def _count_rows(server: Server, estimator: FCAC | None, rows: Any) -> CountedRows:
    assert estimator is not None
    # a schema says what columns mean and whether gaps are allowed
    read = None if estimator.schema_ is None else estimator._rows_to_read
    return count_rows(server, rows, estimator.novelty_reach(), read)


def _verdict(
    server: Server, schema: Any, names: list[str], found: Clustering, done: Provenance, novelty: Novelty | None
) -> Verdict:
    noisy = [c.label for c in found.clusters if c.rows_error and c.rows and 2 * c.rows_error / c.rows > _NOISY]
    return verdict_of(
        server,
        schema,
        names,
        n_read=done.n_read,
        n_dropped=done.n_dropped,
        n_judged=0 if novelty is None else novelty.n_rows,
        n_novel=0 if novelty is None else novelty.n_novel,
        noisy=noisy,
    )


def _described(found: Clustering, counts: Floats) -> list[int]:
    """Clusters that stand for enough rows to be described."""
    labels, place = np.unique(found.labels, return_inverse=True)
    mass = dict(zip(labels.tolist(), np.bincount(place.ravel(), weights=counts).tolist(), strict=True))
    return [c.label for c in found.clusters if mass.get(c.label, 0) >= MIN_ROWS]


def _dot_values(server: Server, found: Clustering, profiles: Profiles) -> Floats:
    """Values of the columns that matter most at every dot, in the table's units; categories as the leading one."""
    counts = server.counts.astype(np.float64)
    parts = []
    for column, _ in profiles.importance[:_N_HOVER]:
        values = column.values(server.nodes)
        if column.kind == "category":
            parts.append(found.dots.means(values, counts).argmax(axis=1).astype(np.float64))
        else:
            parts.append(found.dots.means(values[:, None], counts)[:, 0])
    return np.column_stack(parts) if parts else np.zeros((len(found.dots.points), 0))


def _cluster_values(nodes: Floats, counts: Floats, found: Clustering, profiles: Profiles) -> dict[int, list[float]]:
    """Means of the columns that matter most, in the table's units; of categories the number of the leading one."""
    means: dict[int, list[float]] = {label: [] for label in profiles.clusters}
    for column, _ in profiles.importance[:_N_LISTED]:
        values = column.values(nodes)
        for label, listed in means.items():
            inside = found.labels == label
            mean = np.average(values[inside], axis=0, weights=counts[inside])
            listed.append(float(mean.argmax()) if column.kind == "category" else float(mean))
    return means


def _compare(server: Server, found: Clustering, views: Views, compare: FCAC | Server) -> Comparison:
    other, _ = _server_of(compare, "compare")
    if _keys(other) != _keys(server):
        raise ValueError("compare must have absorbed the same contributions as model: these differ")
    known = material(server.latest(), server.n_features or 1)
    return compared(found, make_clustering(other, known, views, own=False), known.counts.astype(np.float64))


def _keys(server: Server) -> set[tuple[SiteName, int, str]]:
    return {(item.site, item.round, item.digest()) for item in server.latest().values()}
