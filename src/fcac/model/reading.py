"""What a fitted `FCAC` tells: clusters of rows, novelty, confidence, lineage, and what is exported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from fcac._parallel import threads_for
from fcac._rows import Rows, arrow_if_polars, column_names
from fcac._sites import SiteName
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters.cluster_tree import Alternative
from fcac.codebook import Codebook
from fcac.federation import Server, Site, readouts
from fcac.federation.asking import calibrate, samples_of
from fcac.federation.replay import rows_by_cluster
from fcac.model.assembly import Places, labels_by_trail
from fcac.model.frames import features
from fcac.model.lineage import STRUCTURAL, Lineage, rows_of
from fcac.model.site_rows import in_order, is_dict_of_sites, warn_of_names, without_column
from fcac.model.storage import Run
from fcac.model.summary import Summary, summary_of
from fcac.model.verdict import Verdict, verdict_of
from fcac.nodes import Trail
from fcac.nodes.sample import RowSample
from fcac.novelty import Calibration, MeasuredNovelty, check_alpha
from fcac.privacy.mechanism import AnyMechanism, NodeMechanism
from fcac.scaling import Scaling
from fcac.tables.guess import taken_for
from fcac.tables.schema import Schema
from fcac.tables.shown_column import columns_of

# Distances that `transform` holds at a time.
_MOST_DISTANCES = 4_000_000


class FittedFederation(TransformerMixin, ClusterMixin, BaseEstimator):
    """What a fitted `fcac.FCAC` tells; nothing here changes what was learned."""

    server: str

    server_: Server
    sites_: dict[SiteName, Site]
    schema_: Schema | None
    guessed_: Mapping[str, str]
    runs_: tuple[Run, ...]
    n_features_in_: int
    privacy: AnyMechanism | None
    _calibration: tuple[Calibration | Codebook | None] | None
    _measured: MeasuredNovelty | None = None
    _last_labels: Integers | None
    _trails: tuple[dict[SiteName, Trail], Places] | None
    _site_column: str | None
    _last_rows: Any
    _told: tuple[int, int]

    def _rows_to_read(self, X: Any) -> Rows:
        check_is_fitted(self, "server_")
        X, names = arrow_if_polars(X), getattr(self, "feature_names_in_", None)
        schema = self.schema_
        if schema is not None and column_names(X) is not None:
            return Rows(features(X, schema, note=True), self, allow_gaps=True)
        if names is not None:
            if self._site_column not in names:
                X = without_column(X, self._site_column)
            X = in_order(X, list(names))
        rows = Rows(X, self, allow_gaps=schema is not None and schema.allows_gaps, allow_sparse=True)
        if schema is None:
            warn_of_names(self, column_names(X))
        if rows.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {rows.n_features} features, but FCAC is expecting {self.n_features_in_} features as input."
            )
        return rows

    def predict(self, X: Any) -> Integers:
        """Return the cluster of each row, by the server's model.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        labels : ndarray of shape (n,)
        """
        rows = self._rows_to_read(X)
        return np.concatenate([self.server_.predict(b, threads_for(len(b))) for b in rows.blocks()])

    def score_samples(self, X: Any) -> Floats:
        """Return minus the distance of each row to the nearest node: low means novel.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        scores : ndarray of shape (n,)
        """
        rows = self._rows_to_read(X)
        return -np.concatenate(
            [self.server_.readout.distance_to_nearest(b, threads_for(len(b))) for b in rows.blocks()]
        )

    def is_novel(self, X: Any, alpha: float | None = None) -> NDArray[np.bool_]:
        """Tell for each row whether it is unlike anything seen; see :mod:`fcac.novelty`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        alpha : float, optional
            Rate of false alarms, 0.01 by default: of fresh rows from what was learned, about this share is called
            novel. With `NodeRelease` no rows are kept to measure it by: call :meth:`calibrate_novelty`. Without it
            the default is the reach of the server's own nodes, and a rate that is asked for is a guess from nodes;
            with `NodeRelease` there is a warning.

        Returns
        -------
        novel : ndarray of bool, shape (n,)
        """
        return self.label_rows(X, alpha)[2]

    def label_rows(self, X: Any, alpha: float | None = None) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Cluster, distance to the nearest node, and novelty of every row, from one search."""
        rows = self._rows_to_read(X)
        reach = self.novelty_reach(alpha)
        parts = [self.server_.label_rows(b, threads_for(len(b)), reach) for b in rows.blocks()]
        label, distance, novel = (np.concatenate(part) for part in zip(*parts, strict=True))
        return label, distance, novel

    def novelty_reach(self, alpha: float | None = None) -> float | None:
        """Return the distance to the nearest node beyond which a row is novel, at a rate of false alarms.

        Parameters
        ----------
        alpha : float, optional
            As in :meth:`is_novel`.

        Returns
        -------
        reach : float or None
            None where it is another one for every node: that is ``server_.reach``.
        """
        check_is_fitted(self, "server_")
        if self._measured is not None:
            return self._measured.nodes.reach(alpha)
        if alpha is not None and isinstance(self.privacy, NodeMechanism):
            warnings.warn(
                f"alpha = {check_alpha(alpha):g} is a guess: released nodes do not tell how far rows lie from them. "
                "calibrate_novelty(X, epsilon=...) measures it (`fcac calibrate` in the shell)",
                UserWarning,
                stacklevel=3,
            )
        if self._calibration is None:
            samples = self._samples()
            # an export of all nodes measures as the model does
            self._calibration = (
                self.server_.readout.export(True) if samples is None else calibrate(self.server_.readout, samples),
            )
        (found,) = self._calibration
        if isinstance(found, Codebook):
            return None if alpha is None else float(found.reach_for(alpha)[0])
        return None if found is None else found.reach(alpha)

    def _samples(self) -> dict[SiteName, RowSample] | None:
        """Samples of all sites' rows; None unless every site that contributed has one."""
        samples = samples_of(self.sites_)
        return samples if samples is not None and set(samples) >= set(self.server_.sites) else None

    def predict_with_confidence(self, X: Any) -> tuple[Integers, Floats]:
        """Return the cluster of each row and how firmly it belongs; for ``server="communities"``.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        labels : ndarray of shape (n,)
        confidence : ndarray of shape (n,)
            Share of the votes of the nearest nodes for that cluster, between 0 and 1.
        """
        rows = self._rows_to_read(X)
        parts = [self.server_.readout.predict_with_confidence(b) for b in rows.blocks()]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def clusters_at(self, level: int) -> Integers:
        """Return another cut of the hierarchy: a label for every node of the server; for ``server="communities"``.

        Parameters
        ----------
        level : int
            Number of clusters wanted.
        """
        check_is_fitted(self, "server_")
        return self.server_.readout.clusters_at(level)

    @property
    def lineage_(self) -> Lineage:
        """What happened to clusters over rounds; for ``server="communities"``.

        A list of `Change` that prints as a table. ``lineage_.to_frame()`` is a data frame (without pandas, a list of
        dicts) with a row per event: ``round``, ``event`` (born, grew, shrank, split, merged, died or moved),
        ``cluster``, ``others`` (that went into it or came out of it), ``rows_before``, ``rows_after``, and ``moved``:
        how far the cluster's centre has moved, in units of its spread; from a quarter of that on, "moved" has a row.
        """
        check_is_fitted(self, "server_")
        return Lineage(self.server_.readout.lineage, self.server_.readout.moves)

    def changed(self) -> list[Any]:
        """Return the events of the latest call that changed which clusters there are: born, died, split or merged.

        Returns
        -------
        changes : list of Change
            Empty if there are the same clusters as before.
        """
        return [change for change in self.lineage_[self._told[0] :] if change.kind in STRUCTURAL]

    def events_of_latest(self) -> list[dict[str, Any]]:
        """Return the rows of ``lineage_.to_frame()`` that are of the latest call."""
        return rows_of(self.lineage_[self._told[0] :], self.server_.readout.moves[self._told[1] :])

    @property
    def n_rounds_(self) -> int:
        """Rounds played."""
        check_is_fitted(self, "server_")
        return self.server_.n_rounds

    @property
    def n_clusters_(self) -> int:
        """Number of clusters."""
        check_is_fitted(self, "server_")
        return self.server_.n_clusters

    @property
    def scaling_(self) -> Scaling:
        """How columns were made comparable, and why: ``print(model.scaling_)``."""
        check_is_fitted(self, "server_")
        return self.server_.scaling

    @property
    def labels_(self) -> Integers:
        """Clusters of the rows of the last call, computed when first asked for from the rows as passed."""
        check_is_fitted(self, "server_")
        if self._last_labels is None:
            if self._last_rows is None:
                raise AttributeError("labels_ is not kept with a loaded or streamed model: use predict")
            rows = self._last_rows
            parts = [rows[name] for name in rows] if is_dict_of_sites(rows) else [rows]
            followed = None if self._trails is None else labels_by_trail(self.server_, self.sites_, *self._trails)
            if followed is None:
                self._last_labels = np.concatenate([self.predict(part) for part in parts])
            else:
                self._last_labels = self._search_at_borders(parts, *followed)
            self._trails = None
        return self._last_labels

    def _search_at_borders(
        self, parts: Sequence[Any], labels: Integers, sure: Booleans, counting: Integers
    ) -> Integers:
        """Fill in what `predict` says of the rows whose cluster is not sure."""
        start = 0
        nodes = self.server_.nodes
        for block in (block for part in parts for block in self._rows_to_read(part).blocks()):
            doubtful = start + np.flatnonzero(~sure[start : start + len(block)])
            if self.schema_ is None:
                # nothing is nearer to a row than a node at its place; through a schema nodes may share a place
                doubtful = doubtful[(nodes[counting[doubtful]] != block[doubtful - start]).any(axis=1)]
            if len(doubtful):
                labels[doubtful] = self.server_.predict(block[doubtful - start], threads_for(len(doubtful)))
            start += len(block)
        return labels

    def export(self, *, share_nodes: bool = False) -> Codebook:
        """Return only what `predict` needs, without site states, counts or contributions.

        Parameters
        ----------
        share_nodes : bool, default=False
            With ``server="communities"`` the nodes behind the clusters are the sites' own, which can be raw records.
            They are given out only if every contribution came from `NodeRelease` or with ``share_nodes=True``;
            otherwise a condensed codebook is.

        Returns
        -------
        Codebook
        """
        check_is_fitted(self, "server_")
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else [str(n) for n in names]
        measured = self._measured
        book = self.server_.export(share_nodes, columns, self.schema_, self._samples() if measured is None else None)
        if measured is None:
            return book
        readout = self.server_.readout
        whole = share_nodes or self.server_.released or not readout.nodes_are_contributed
        return book.replace(calibration=measured.nodes if whole else measured.means)

    def transform(self, X: Any, *, to: str = "clusters") -> Floats:
        """Return the distance of each row to every cluster: to its nearest node there.

        Parameters
        ----------
        X : array-like of shape (n, d)
        to : {"clusters", "nodes"}, default="clusters"
            "nodes": the distance to every node of the server instead.

        Returns
        -------
        distances : ndarray of shape (n, n_clusters) or (n, n_nodes)
            Clusters in the order of `cluster_ids_`.
        """
        if to not in ("clusters", "nodes"):
            raise ValueError(f'to must be "clusters" or "nodes", got {to!r}')
        rows = self._rows_to_read(X)
        labels = self.server_.node_labels
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], self.cluster_ids_)
        # distances to all nodes are held for a few rows at a time
        size = max(1, _MOST_DISTANCES // max(len(labels), 1))
        parts = []
        for block in rows.blocks():
            for start in range(0, max(len(block), 1), size):
                part = self.server_.readout.distances(block[start : start + size], threads_for(len(block)))
                parts.append(part if to == "nodes" else np.minimum.reduceat(part[:, order], starts, axis=1))
        return np.concatenate(parts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return a name for every column of :meth:`transform`: one for each cluster."""
        check_is_fitted(self, "server_")
        return np.array([f"fcac{k}" for k in self.cluster_ids_], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------ clusters

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
        check_is_fitted(self, "server_")
        taken = taken_for(self.schema_, self.guessed_) if self.guessed_ and self.schema_ is not None else []
        return summary_of(self.server_, self.verdict_, columns_of(self.schema_, self._names()), taken)

    @property
    def cluster_probability_(self) -> dict[int, float]:
        """How probable it is of each cluster, by id, that it is one and apart from the others.

        Below one half a cluster is as likely to be two, or a part of another. Servers that cannot tell do not have it.
        """
        self._check_tells("cluster_probability_")
        check_is_fitted(self, "server_")
        return dict(self.server_.readout.cluster_probability)  # type: ignore[attr-defined]

    def alternatives(self, most: int = 5) -> list[Alternative]:
        """Return the most probable numbers of clusters, the one that was found first.

        Parameters
        ----------
        most : int, default=5

        Returns
        -------
        list of Alternative
            Each has ``n_clusters``, ``probability`` and ``node_labels``, the best partition of ``server_.nodes`` into
            so many. Empty where a private release leaves one reading only.

        Examples
        --------
        >>> import numpy as np
        >>> from fcac import FCAC
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(c, 0.1, size=(500, 2)) for c in ([0, 0], [9, 0])])
        >>> best = FCAC().fit(X).alternatives()[0]
        >>> best.n_clusters, best.probability > 0.5, best.node_labels.shape
        (2, True, (1000,))
        """
        self._check_tells("alternatives")
        check_is_fitted(self, "server_")
        found: list[Alternative] = self.server_.readout.alternatives(most)  # type: ignore[attr-defined]
        return found

    def _check_tells(self, name: str) -> None:
        if self.server not in readouts.names() or not hasattr(readouts.find(self.server), "cluster_probability"):
            raise AttributeError(f'{name}: server="{self.server}" does not tell how probable clusters are')

    @property
    def score(self) -> Callable[..., float]:
        """``score(X=None, y=None)``: how probable the clusters are, each counted by its rows.

        It is computed from the nodes; rows are not looked at. Servers that cannot tell have no score.
        """
        self._check_tells("score")
        return self._score

    def _score(self, X: Any = None, y: Any = None) -> float:
        check_is_fitted(self, "server_")
        if X is not None:
            self._rows_to_read(X)  # rows of another kind are an error here too
        probable = self.cluster_probability_
        if not probable:
            return float("nan")
        rows = rows_by_cluster(self.server_.node_labels, self.server_.counts)
        return float(
            np.average([probable[k] for k in rows if k in probable], weights=[rows[k] for k in rows if k in probable])
        )

    # ------------------------------------------------------------ pictures

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Settings and, once there are clusters, how columns were made comparable."""
        text: str = super().__repr__(N_CHAR_MAX)
        fitted = hasattr(self, "server_") and self.server_.n_rounds
        return f"{text}  # {self.server_.scaling}" if fitted else text

    def plot(self, kind: str = "map", ax: Any = None) -> Any:
        """Draw the clusters with Matplotlib (extra ``plot``).

        Parameters
        ----------
        kind : {"map", "pca", "tree", "profiles"}, default="map"
            A map in which clusters are apart, the principal components, the tree of clusters, or the clusters' means.
        ax : matplotlib Axes, optional

        Returns
        -------
        ax : matplotlib Axes
        """
        from fcac.report.plots import plot

        return plot(self, kind, ax)

    def _html_repr(self) -> str:
        """What a notebook displays: clusters once there are some, before that scikit-learn's diagram of settings."""
        if not hasattr(self, "server_") or not self.server_.n_rounds:
            diagram: str = estimator_html_repr(self)
            return diagram
        from fcac.report.page import notebook_html

        return notebook_html(self)
