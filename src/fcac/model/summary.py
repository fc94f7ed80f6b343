"""What a fitted federation found, in a table that can be printed."""

from __future__ import annotations

import datetime
import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.federation import readouts
from fcac.federation.replay import labels_of, material, rows_by_cluster
from fcac.model.run_log import Run
from fcac.model.verdict import Verdict, verdict_of
from fcac.tables.guess import taken_for
from fcac.tables.shown_column import ShownColumn, columns_of, figure, percent

if TYPE_CHECKING:
    from fcac.federation import Server
    from fcac.tables.schema import Schema

_MAX_FEATURES = 6
_MAX_TELLING = 3
_MAX_CLUSTERS = 50
# A difference below this many standard deviations of all rows is not worth a word.
_TELLING = 0.5
_FIRST_DAY = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class ClusterSummary:
    """One cluster.

    Attributes
    ----------
    cluster : int
        Its id.
    rows : int
        Rows behind its nodes; under privacy about as many.
    share : float
        Of all rows.
    sure : float or None
        How sure it is that this is one cluster, between 0 and 1, where the server tells.
    centre : dict of column to value
        In the units of the table: the mean of a number, the mean day of a date, the share of yes, the most frequent
        level of a category.
    differences : dict of column to float
        How far its mean lies from the mean of all rows, in spreads (standard deviations) of all; most telling first.
        Of a category the level that differs most counts.
    apart : tuple of str
        The columns that set it apart, in words.
    """

    cluster: int
    rows: int
    share: float
    sure: float | None
    centre: Mapping[str, Any]
    differences: Mapping[str, float]
    apart: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """All clusters, in the order of their ids; ``print`` shows a table.

    Attributes
    ----------
    clusters : tuple of ClusterSummary
    verdict : Verdict
        How many clusters, how probable, and what to beware of; printed first.
    taken : tuple of str
        What columns were taken for, where that was guessed.
    scaling : str
        How columns were made comparable.
    """

    clusters: tuple[ClusterSummary, ...]
    verdict: Verdict
    taken: tuple[str, ...] = ()
    scaling: str = ""

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        return self.verdict.headline

    def __len__(self) -> int:
        return len(self.clusters)

    def __iter__(self) -> Iterator[ClusterSummary]:
        return iter(self.clusters)

    def __getitem__(self, position: int) -> ClusterSummary:
        return self.clusters[position]

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row per cluster, and its centre column by column."""
        import pandas as pd

        rows = [
            {"rows": c.rows, "share": c.share, "sure": c.sure, "apart": ", ".join(c.apart), **c.centre} for c in self
        ]
        return pd.DataFrame(rows, index=pd.Index([c.cluster for c in self], name="cluster"))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the lines of the table, as words."""
        shown = sorted(sorted(self.clusters, key=lambda c: -c.rows)[:_MAX_CLUSTERS], key=lambda c: c.cluster)
        told = any(c.sure is not None for c in shown)
        head = ["cluster", "rows", "share", *(["sure"] if told else []), "centre", "what sets it apart"]
        lines = [
            [
                str(c.cluster),
                f"{c.rows:,}",
                f"{100 * c.share:.1f} %",
                *(["" if c.sure is None else f"{100 * c.sure:.0f} %"] if told else []),
                _centre(c),
                ", ".join(c.apart),
            ]
            for c in shown
        ]
        return head, lines

    def _below(self, n_shown: int) -> list[str]:
        """Return what is said below a table of so many clusters."""
        more = len(self.clusters) - n_shown
        scaling = [f"{self.scaling[0].upper()}{self.scaling[1:]}."] if self.scaling else []
        return [*([f"and {counted(more, 'smaller cluster')}"] if more else []), *self.taken, *scaling]

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        head, lines = self._table()
        rows = ["".join(f"<th>{word}</th>" for word in head)]
        rows += ["".join(f"<td>{html.escape(word)}</td>" for word in line) for line in lines]
        table = "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
        above = "".join(f"<p>{html.escape(line)}</p>" for line in self.verdict.lines())
        return above + table + "".join(f"<p>{html.escape(line)}</p>" for line in self._below(len(lines)))

    def __str__(self) -> str:
        head, lines = self._table()
        widths = [max(len(line[j]) for line in [head, *lines]) for j in range(len(head))]
        n_right = len(head) - 2
        text = self.verdict.lines()
        for line in [head, *lines]:
            cells = [
                cell.rjust(w) if j < n_right else cell.ljust(w)
                for j, (cell, w) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *self._below(len(lines))])

    __repr__ = __str__


class Described:
    """Reading a fitted federation as a whole; for `fcac.FCAC`."""

    server: str
    server_: Server
    schema_: Schema | None
    runs_: tuple[Run, ...]
    guessed_: Mapping[str, str]

    @property
    def cluster_ids_(self) -> Integers:
        """Ids of the clusters, sorted."""
        check_is_fitted(self, "server_")
        return np.unique(self.server_.node_labels)

    @property
    def cluster_centers_(self) -> Floats:
        """Mean of each cluster's nodes, weighted by their counts; clusters in the order of ``cluster_ids_``."""
        nodes, counts, labels = self.server_.nodes, self.server_.counts, self.server_.node_labels
        centres = [np.average(nodes[labels == k], axis=0, weights=counts[labels == k]) for k in self.cluster_ids_]
        return np.array(centres).reshape(len(centres), nodes.shape[1])

    @property
    def verdict_(self) -> Verdict:
        """How many clusters, how probable, the next best number, and what to beware of; ``print`` shows it."""
        check_is_fitted(self, "server_")
        return verdict_of(
            self.server_,
            self.schema_,
            self._names(),
            n_read=sum(run.rows_read for run in self.runs_),
            n_dropped=sum(run.rows_dropped for run in self.runs_),
        )

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.server_.n_features or 0)] if names is None else [str(n) for n in names]

    def summary(self) -> Summary:
        """Return what was found as a table that can be printed, the verdict first.

        For every cluster: its rows and their share, how sure it is (where the server can tell), its centre in the
        words and units of the table, and what sets it apart: the columns whose mean in the cluster differs most from
        the mean of all rows. It is computed from nodes and counts, so that it works in a federation and under privacy,
        where the figures are approximate.

        Returns
        -------
        Summary
            Iterable; ``to_frame()`` gives a pandas data frame.

        Examples
        --------
        >>> import numpy as np
        >>> from fcac import FCAC
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(c, 0.1, size=(500, 2)) for c in ([0, 0], [9, 0])])
        >>> first, second = FCAC().fit(X).summary()
        >>> first.rows, first.share, first.apart
        (500, 0.5, ('x0 −1.0',))
        """
        verdict, server = self.verdict_, self.server_
        columns = columns_of(self.schema_, self._names())
        known = material(server.latest(), server.n_features or 0)
        labels = labels_of(server, known)
        rows = rows_by_cluster(labels, known.counts)
        n_rows = max(sum(rows.values()), 1)
        told = [_Told.of(column, known.nodes, known.counts) for column in columns]
        clusters = []
        for k in self.cluster_ids_:
            inside = labels == k
            centre, apart = {}, []
            for column in told:
                value, difference, words = column.in_cluster(inside)
                centre[column.column.name] = value
                apart.append((column.column.name, difference, words))
            apart.sort(key=lambda one: -abs(one[1]))
            clusters.append(
                ClusterSummary(
                    int(k),
                    rows.get(int(k), 0),
                    rows.get(int(k), 0) / n_rows,
                    verdict.of_cluster.get(int(k)),
                    centre,
                    {name: difference for name, difference, _ in apart},
                    tuple(words for _, difference, words in apart[:_MAX_TELLING] if abs(difference) >= _TELLING),
                )
            )
        taken = taken_for(self.schema_, self.guessed_) if self.guessed_ and self.schema_ is not None else []
        return Summary(tuple(clusters), verdict, tuple(taken), server.scaling.sentence)

    @property
    def cluster_stability_(self) -> dict[int, float]:
        """How far each cluster can be trusted, by id: near 1 if it is found again in every half of the nodes.

        Below 0.6 a cluster might as well be split, or joined to another. Computed from nodes when first asked for; NaN
        where these are too few. Servers that cannot tell do not have it.
        """
        self._check_tells("cluster_stability_")
        return _by_cluster(self.server_.readout.stability, self.cluster_ids_)  # type: ignore[attr-defined]

    @property
    def stability_(self) -> float:
        """Mean of ``cluster_stability_``, each cluster counted by its rows: ``score()``."""
        self._check_tells("stability_")
        return self._score()

    def _check_tells(self, name: str) -> None:
        if self.server not in readouts.names() or not hasattr(readouts.find(self.server), "stability_score"):
            raise AttributeError(f'{name}: server="{self.server}" does not tell how stable clusters are')

    @property
    def score(self) -> Callable[..., float]:
        """``score(X=None, y=None)``: how stable the clusters are in all, between 0 (arbitrary) and 1.

        It is computed from the nodes; rows are not looked at. Servers that cannot tell have no score.
        """
        self._check_tells("score")
        return self._score

    def _score(self, X: Any = None, y: Any = None) -> float:
        check_is_fitted(self, "server_")
        if X is not None:
            self._rows_to_read(X)  # type: ignore[attr-defined]  # rows of another kind are an error here too
        return float(self.server_.readout.stability_score)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Told:
    """One column, ready to be told cluster by cluster."""

    column: ShownColumn
    values: Floats
    weights: Floats
    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, column: ShownColumn, nodes: Floats, counts: Integers) -> _Told:
        values = column.values(nodes).reshape(len(nodes), -1)
        weights = counts.astype(np.float64)
        there = ~np.isnan(values)
        total = np.maximum(weights @ there, 1e-300)
        mean = weights @ np.where(there, values, 0.0) / total
        spread = np.sqrt(weights @ np.where(there, values - mean, 0.0) ** 2 / total)
        # what is left over when equal numbers are averaged is not a spread
        return cls(column, values, weights, mean, np.where(spread > 1e-9 * np.maximum(np.abs(mean), 1e-12), spread, 0))

    def in_cluster(self, inside: Any) -> tuple[Any, float, str]:
        """Return the centre of a cluster, its difference from all rows in spreads, and that difference in words."""
        own, weights = self.values[inside], self.weights[inside]
        there = ~np.isnan(own)
        total = weights @ there
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(total > 0, weights @ np.where(there, own, 0.0) / total, np.nan)
        apart = np.where((self.spread > 0) & (total > 0), mean - self.mean, 0.0) / np.where(
            self.spread > 0, self.spread, 1
        )
        top, column = int(np.argmax(np.abs(apart))), self.column
        difference = float(apart[top])
        name = column.name
        if column.kind == "category":
            centre: Any = None if np.isnan(mean).all() else column.categories[int(np.nanargmax(mean))]
            words = f"{name} {column.categories[top]} {percent(mean[top])} (of all {percent(self.mean[top])})"
        elif column.kind == "share":
            centre = float(mean[0])
            words = f"{name} {percent(mean[0])} (of all {percent(self.mean[0])})"
        elif column.kind == "date":
            centre = None if np.isnan(mean[0]) else _FIRST_DAY + datetime.timedelta(days=int(np.floor(mean[0])))
            words = f"{name} {column.shown(mean[0])}"
        elif column.kind == "ordinal":
            centre = column.shown(mean[0]) if np.isfinite(mean[0]) else None
            words = f"{name} {centre}"
        else:
            centre = float(mean[0])
            words = f"{name} {difference:+.1f}".replace("-", "\N{MINUS SIGN}")
        return centre, difference, words


def _by_cluster(found: Any, ids: Integers) -> dict[int, float]:
    if found is None:
        return {}
    if isinstance(found, Mapping):
        return {int(k): float(value) for k, value in found.items()}
    return {int(k): float(value) for k, value in zip(ids, found, strict=True)}


def _centre(cluster: ClusterSummary) -> str:
    shown = [f"{name} {_value(value)}" for name, value in list(cluster.centre.items())[:_MAX_FEATURES]]
    return ", ".join(shown) + (", ..." if len(cluster.centre) > _MAX_FEATURES else "")


def _value(value: Any) -> str:
    if isinstance(value, float):
        return figure(value)
    return "–" if value is None else str(value)
