"""What a fitted federation found, in a table that can be printed."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.federation.replay import labels_of, material, rows_by_cluster
from fcac.model.verdict import Verdict
from fcac.tables.shown_column import ShownColumn, figure, percent

if TYPE_CHECKING:
    from fcac.federation import Server

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


def summary_of(server: Server, verdict: Verdict, columns: Sequence[ShownColumn], taken: Sequence[str] = ()) -> Summary:
    """Return what a server has found, cluster by cluster, in the words and units of a table's columns.

    `taken` says how columns were taken, where that was guessed.
    """
    known = material(server.latest(), server.n_features or 0)
    labels = labels_of(server, known)
    rows = rows_by_cluster(labels, known.counts)
    n_rows = max(sum(rows.values()), 1)
    told = [_Told.of(column, known.nodes, known.counts) for column in columns]
    clusters = []
    for k in np.unique(server.node_labels):
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
    return Summary(tuple(clusters), verdict, tuple(taken), server.scaling.sentence)


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
        # of two levels that differ alike, the one that the cluster has more of says more
        top, column = int(np.argmax(np.abs(apart) * (1.0 + 0.05 * (apart > 0)))), self.column
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


def _centre(cluster: ClusterSummary) -> str:
    shown = [f"{name} {_value(value)}" for name, value in list(cluster.centre.items())[:_MAX_FEATURES]]
    return ", ".join(shown) + (", ..." if len(cluster.centre) > _MAX_FEATURES else "")


def _value(value: Any) -> str:
    if isinstance(value, float):
        return figure(value)
    return "–" if value is None else str(value)
