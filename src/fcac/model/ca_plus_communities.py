"""CAPlusCommunities: a continual clusterer for one machine that finds the number of clusters itself."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Integral, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac._rows import Rows
from fcac._typing import Floats, Integers
from fcac.art.clusterers import CAPlus
from fcac.clusters.model import Communities
from fcac.clusters.tracking import Change


class CAPlusCommunities(ClusterMixin, BaseEstimator):
    """Condense rows with CA+ in one pass, then read clusters from the nodes as communities of a graph.

    The idea: :class:`fcac.CAPlus` keeps a set of nodes that stands for all rows seen, however many;
    :class:`fcac.clusters.Communities` links nodes to their nearest neighbours and finds the groups. Data may keep
    coming (``partial_fit``), nothing seen is forgotten, clusters keep their names, and nobody says how many there are.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters, if it is known.
    neighbors : {"auto", "exact", "approximate"}, default="auto"
        How neighbours among very many nodes are found.

    Attributes
    ----------
    nodes_ : ndarray of shape (K, d)
        Nodes of CA+.
    counts_ : ndarray of shape (K,)
        Rows behind each node.
    node_labels_ : ndarray of shape (K,)
        Cluster of each node.
    n_clusters_ : int
    labels_ : ndarray
        Clusters of the rows of the last call of fit or partial_fit.
    lineage_ : list of Change
        What became of clusters between readings: born, grew, merged, split, died.
    communities_ : Communities
        The read-out itself.
    n_samples_seen_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.model import CAPlusCommunities
    >>> rng = np.random.default_rng(0)
    >>> X = rng.permutation(np.concatenate([rng.normal(c, 0.5, size=(4000, 4)) for c in (0, 5, 10)]))
    >>> model = CAPlusCommunities().fit(X)
    >>> model.n_clusters_
    3
    >>> labels, confidence = model.predict([[5] * 4, [7.5] * 4], return_confidence=True)
    >>> bool(confidence[0] == 1.0)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "neighbors": [StrOptions({"auto", "exact", "approximate"})],
    }

    _plus: CAPlus
    _communities: Communities

    def __init__(self, n_clusters: int | None = None, *, neighbors: str = "auto") -> None:
        self.n_clusters = n_clusters
        self.neighbors = neighbors

    # ------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start anew and learn the rows of X once, in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        return self._learn(X, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on learning with the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        return self._learn(X, reset=not hasattr(self, "_plus"))

    def _learn(self, X: Any, *, reset: bool) -> Self:
        self._validate_params()
        rows = Rows(X, self)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self.n_features_in_ = rows.n_features
            plus, communities = CAPlus(), Communities(self.n_clusters, self.neighbors)  # type: ignore[arg-type]
        else:
            self._check_width(rows)
            plus, communities = self._plus, self._communities
        for block in rows.blocks():
            plus.partial_fit(block)
        self._plus, self._communities = plus, communities
        self._communities.set_site(0, plus.nodes_, plus.counts_).fit()
        self.labels_: Integers = np.concatenate([self._communities.predict(block) for block in rows.blocks()])
        return self

    def _check_width(self, rows: Rows) -> None:
        if rows.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {rows.n_features} features, but CAPlusCommunities "
                f"is expecting {self.n_features_in_} features as input."
            )

    # ------------------------------------------------------------ reading

    def _rows_to_read(self, X: Any) -> Rows:
        check_is_fitted(self, "_plus")
        rows = Rows(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        self._check_width(rows)
        return rows

    def predict(self, X: Any, return_confidence: bool = False, novelty: bool = False) -> Any:
        """Return the cluster of the node nearest to each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_confidence : bool, default=False
            Also return how firmly each row belongs, between 0 and 1.
        novelty : bool, default=False
            Label rows unlike anything seen -1.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        confidence : ndarray of shape (n_samples,), if asked for
        """
        rows = self._rows_to_read(X)
        parts = [self._communities.predict(block, True, novelty) for block in rows.blocks()]
        labels, confidence = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return (labels, confidence) if return_confidence else labels

    def score_samples(self, X: Any) -> Floats:
        """Return minus the distance of each row to the nearest node, in scaled features: low means novel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        return -self.label_rows(X)[1]

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Tell for each row whether it is unlike anything seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        novel : ndarray of bool, shape (n_samples,)
        """
        return self.label_rows(X)[2]

    def label_rows(self, X: Any) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        rows = self._rows_to_read(X)
        parts = [self._communities.label_rows(block) for block in rows.blocks()]
        label, distance, novel = (np.concatenate(part) for part in zip(*parts, strict=True))
        return label, distance, novel

    def clusters_at(self, level: int) -> Integers:
        """Return a label for every node at another cut of the same tree, of ``level`` clusters."""
        return self.communities_.clusters_at(level)

    @property
    def communities_(self) -> Communities:
        """The read-out."""
        check_is_fitted(self, "_plus")
        return self._communities

    @property
    def nodes_(self) -> Floats:
        """Nodes of CA+, of shape (K, d)."""
        return self.communities_.nodes

    @property
    def counts_(self) -> Floats:
        """Rows behind each node."""
        return self.communities_.counts

    @property
    def node_labels_(self) -> Integers:
        """Cluster of each node."""
        return self.communities_.node_labels

    @property
    def n_clusters_(self) -> int:
        """Number of clusters."""
        return self.communities_.n_clusters

    @property
    def lineage_(self) -> list[Change]:
        """What became of clusters from call to call."""
        return self.communities_.lineage

    @property
    def n_samples_seen_(self) -> int:
        """Rows learned so far."""
        check_is_fitted(self, "_plus")
        return self._plus.n_samples_seen_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_plus")

    # ------------------------------------------------------------ storage

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        check_is_fitted(self, "_plus")
        plus_meta, plus_arrays = self._plus._to_parts()
        meta, arrays = self._communities.to_parts()
        names = getattr(self, "feature_names_in_", None)
        header = {
            "plus": plus_meta,
            "communities": meta,
            "feature_names": None if names is None else [str(name) for name in names],
        }
        parts = {f"plus.{name}": array for name, array in plus_arrays.items()}
        return header, parts | {f"communities.{name}": array for name, array in arrays.items()}

    def _storable_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.get_params(deep=False)
        return params

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        plus = CAPlus()
        plus._restore(meta["plus"], {n.removeprefix("plus."): a for n, a in arrays.items() if n.startswith("plus.")})
        held = {n.removeprefix("communities."): a for n, a in arrays.items() if n.startswith("communities.")}
        communities = Communities.from_parts(meta["communities"], held)
        if communities.sites != [0] or not np.array_equal(communities.nodes, plus.nodes_):
            raise ValueError("the communities in this file are not those of its nodes")
        if meta["feature_names"] is not None:
            if len(meta["feature_names"]) != plus.n_features_in_:
                raise ValueError("the feature names in this file do not fit its nodes")
            self.feature_names_in_ = np.array([str(name) for name in meta["feature_names"]], dtype=object)
        self.n_features_in_ = plus.n_features_in_
        self._plus, self._communities = plus, communities
