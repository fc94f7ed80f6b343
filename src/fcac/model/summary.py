"""What a fitted federation found, in a table that can be printed."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.clusters.stability import DOUBTFUL
from fcac.federation import readouts
from fcac.federation.replay import labels_of, material, rows_by_cluster

if TYPE_CHECKING:
    from fcac.federation import Server
    from fcac.tables.schema import Schema

_MAX_FEATURES = 6
_MAX_TELLING = 3
_MAX_CLUSTERS = 50
_MAX_TOLD = 10


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
    stability : float or None
        Between 0 (arbitrary) and 1, where the server tells.
    centre : dict of feature to float
        Mean of its rows, in the units of the table the model was made from.
    differences : dict of feature to float
        How far its mean lies from the mean of all rows, in spreads (standard deviations) of all; most telling first.
    """

    cluster: int
    rows: int
    share: float
    stability: float | None
    centre: Mapping[str, float]
    differences: Mapping[str, float]


@dataclass(frozen=True)
class Summary:
    """All clusters, in the order of their ids; ``print`` shows a table.

    Attributes
    ----------
    clusters : tuple of ClusterSummary
    headline : str
    caution : str
        What must not be relied on, in a sentence; empty if there is nothing to say.
    """

    clusters: tuple[ClusterSummary, ...]
    headline: str
    caution: str = ""

    def __len__(self) -> int:
        return len(self.clusters)

    def __iter__(self) -> Iterator[ClusterSummary]:
        return iter(self.clusters)

    def __getitem__(self, position: int) -> ClusterSummary:
        return self.clusters[position]

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row per cluster and the centre in a column per feature."""
        import pandas as pd

        rows = [
            {"rows": c.rows, "share": c.share, "stability": c.stability, "apart": _apart(c), **c.centre} for c in self
        ]
        return pd.DataFrame(rows, index=pd.Index([c.cluster for c in self], name="cluster"))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the lines of the table, as words."""
        shown = sorted(sorted(self.clusters, key=lambda c: -c.rows)[:_MAX_CLUSTERS], key=lambda c: c.cluster)
        told = any(c.stability is not None for c in shown)
        head = ["cluster", "rows", "share", *(["stability"] if told else []), "centre", "what sets it apart"]
        lines = [
            [
                str(c.cluster),
                f"{c.rows:,}",
                f"{100 * c.share:.1f} %",
                *(["" if c.stability is None or c.stability != c.stability else f"{c.stability:.2f}"] if told else []),
                _centre(c),
                _apart(c),
            ]
            for c in shown
        ]
        return head, lines

    def _below(self, n_shown: int) -> list[str]:
        """Return what is said below a table of so many clusters."""
        more = len(self.clusters) - n_shown
        return [
            *([f"and {counted(more, 'smaller cluster')}"] if more else []),
            *([self.caution] if self.caution else []),
        ]

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        head, lines = self._table()
        rows = ["".join(f"<th>{word}</th>" for word in head)]
        rows += ["".join(f"<td>{html.escape(word)}</td>" for word in line) for line in lines]
        table = "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
        return f"<p>{html.escape(self.headline)}</p>{table}" + "".join(
            f"<p>{html.escape(line)}</p>" for line in self._below(len(lines))
        )

    def __str__(self) -> str:
        head, lines = self._table()
        widths = [max(len(line[j]) for line in [head, *lines]) for j in range(len(head))]
        n_right = len(head) - 2
        text = [self.headline]
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

    def summary(self) -> Summary:
        """Return what was found as a table that can be printed.

        For every cluster: its rows and their share, how stable it is (where the server can tell), its centre in the
        units of the table, and what sets it apart: the features whose mean in the cluster differs most from the mean
        of all rows, in standard deviations of all rows. It is computed from nodes and counts, so that it works in a
        federation and under privacy, where the figures are approximate.

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
        >>> first.rows, first.share, list(first.differences)[0]
        (500, 0.5, 'x0')
        """
        ids, centres = self.cluster_ids_, self.cluster_centers_
        server, d = self.server_, self.server_.n_features or 0
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
        known = material(server.latest(), d)
        rows = rows_by_cluster(labels_of(server, known), known.counts)
        n_rows = sum(rows.values())
        weights = known.counts / max(known.counts.sum(), 1)
        mean = weights @ known.nodes
        spread = np.sqrt(weights @ (known.nodes - mean) ** 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.where(spread > 0, (centres - mean) / spread, 0.0)
        own = centres if self.schema_ is None else self.schema_.unscaled(centres)
        stability = _by_cluster(getattr(server.readout, "stability", None), ids)
        clusters = tuple(
            ClusterSummary(
                int(k),
                rows.get(int(k), 0),
                rows.get(int(k), 0) / max(n_rows, 1),
                stability.get(int(k)),
                dict(zip(names, map(float, own[i]), strict=True)),
                {names[j]: float(units[i, j]) for j in np.argsort(-np.abs(units[i]), kind="stable")},
            )
            for i, k in enumerate(ids)
        )
        counts = (
            counted(len(server.nodes), "node"),
            counted(len(server.sites), "site"),
            counted(server.n_rounds, "round"),
        )
        headline = f"{counted(len(ids), 'cluster')} in {counted(n_rows, 'row')} ({', '.join(counts)})"
        return Summary(clusters, headline, caution(stability))

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


def caution(stability: Mapping[int, float]) -> str:
    """Return a sentence on clusters that must not be relied on, given the stability of each; empty if there are none.

    >>> caution({0: 0.95, 1: 0.41, 2: 0.2})
    'Clusters 1 and 2 are not stable (below 0.6): they might as well be split or joined to others.'
    >>> caution({0: 0.95})
    ''
    """
    doubtful = [str(k) for k, value in sorted(stability.items()) if value < DOUBTFUL]
    if not doubtful:
        return ""
    more = len(doubtful) - _MAX_TOLD
    told = doubtful if more <= 0 else [*doubtful[:_MAX_TOLD], f"{more} more"]
    names = told[0] if len(told) == 1 else ", ".join(told[:-1]) + " and " + told[-1]
    if len(doubtful) == 1:
        return f"Cluster {names} is not stable (below {DOUBTFUL}): it might as well be split or joined to others."
    return f"Clusters {names} are not stable (below {DOUBTFUL}): they might as well be split or joined to others."


def _by_cluster(found: Any, ids: Integers) -> dict[int, float]:
    if found is None:
        return {}
    if isinstance(found, Mapping):
        return {int(k): float(value) for k, value in found.items()}
    return {int(k): float(value) for k, value in zip(ids, found, strict=True)}


def _centre(cluster: ClusterSummary) -> str:
    shown = [f"{name} {_number(value)}" for name, value in list(cluster.centre.items())[:_MAX_FEATURES]]
    return ", ".join(shown) + (", ..." if len(cluster.centre) > _MAX_FEATURES else "")


def _apart(cluster: ClusterSummary) -> str:
    """The features that differ by at least half a spread, at most three."""
    telling = [(name, value) for name, value in cluster.differences.items() if abs(value) >= 0.5]
    return ", ".join(f"{name} {value:+.1f}" for name, value in telling[:_MAX_TELLING])


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
