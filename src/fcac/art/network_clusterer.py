"""What CA+, CAE and CAE_FC have in common as scikit-learn estimators over one network state."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac._parallel import threads_for
from fcac._rows import Rows, as_arrow_table, is_arrow
from fcac._typing import Floats, Integers
from fcac.art.network import Network, Rules
from fcac.exceptions import DegenerateBandwidthWarning
from fcac.novelty import is_novel

# From this many rows on, a call learns on a copy that replaces the network at the end, so that an interrupt cannot
# leave a call half learned; for fewer rows there is a single kernel call, which cannot be interrupted.
_COPY_FROM = 4096


class NetworkClusterer(TransformerMixin, ClusterMixin, BaseEstimator):
    """Base of the three clusterers: learning in one pass, prediction, and the attributes of the state."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "diversity_threshold": [Interval(Real, 0, np.inf, closed="neither")],
        "min_nodes": [Interval(Integral, 1, 2**31, closed="both")],
        "age_iqr_factor": [Interval(Real, 0, np.inf, closed="left")],
    }

    _network: Network

    def _rules(self) -> Rules:
        raise TypeError("use CAPlus, CAE or CAEFC")

    # ------------------------------------------------------------ learning

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget what was learned before and learn the rows of X once, in order.

        Parameters
        ----------
        X : array-like, DataFrame, Arrow table or memory map of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        return self._learn(X, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue learning with the rows of X; how rows are divided among calls does not matter.

        Parameters
        ----------
        X : array-like, DataFrame, Arrow table or memory map of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        return self._learn(X, reset=not hasattr(self, "_network"))

    def _learn(self, X: Any, *, reset: bool) -> Self:
        self._validate_params()
        rows = Rows(X, self)
        self._check_features(X, reset=reset)
        if reset:
            network = Network(rows.n_features, self._rules())
        else:
            network = self._network if rows.n_rows < _COPY_FROM else self._network.copy()
        for block in rows.blocks():
            network.learn(block)
            del block  # otherwise it would be kept while the next one is made
        self._network = network
        self._last_rows: Any = X
        self._last_labels: Integers | None = None
        self._read_cache: dict[str, Any] = {}
        self._warn_if_degenerate(reset)
        return self

    def _check_features(self, X: Any, *, reset: bool) -> None:
        """Record or compare the number and the names of the features, with scikit-learn's error messages."""
        table = as_arrow_table(X) if is_arrow(X) else X  # scikit-learn finds no names in a record batch
        validate_data(self, table, reset=reset, skip_check_array=True)

    def _warn_if_degenerate(self, reset: bool) -> None:
        if reset:
            self._warned = False
        if self._warned:
            return
        settled = self._settled()
        # Silverman's factor lies between 0.9 and 1.06, and the number of nodes only makes it smaller
        if settled.n_nodes > 1 and settled.last_bandwidth < 1.1e-6:
            nodes = settled.nodes
            constant = np.flatnonzero((nodes == nodes[0]).all(axis=0))
            if 2 * len(constant) < settled.n_features:
                return
            self._warned = True
            names = getattr(self, "feature_names_in_", None)
            named = [str(names[j]) if names is not None else str(j) for j in constant[:8]]
            more = f" and {len(constant) - 8} more" if len(constant) > 8 else ""
            warnings.warn(
                f"{len(constant)} of {settled.n_features} features do not vary (features {', '.join(named)}{more}): "
                "the bandwidth is close to zero, and similarity merely counts equal features. "
                "Remove constant features.",
                DegenerateBandwidthWarning,
                stacklevel=4,
            )

    # ------------------------------------------------------------ prediction

    def _settled(self) -> Network:
        """Return the network as it would be if the data ended here, including rows held back at the start."""
        check_is_fitted(self, "_network")
        if "settled" not in self._read_cache:
            self._read_cache["settled"] = self._network.settled()
        settled: Network = self._read_cache["settled"]
        return settled

    def _node_clusters(self) -> Integers:
        if "labels" not in self._read_cache:
            self._read_cache["labels"] = self._settled().readable_labels()
        labels: Integers = self._read_cache["labels"]
        return labels

    def _rows_to_read(self, X: Any) -> Rows:
        check_is_fitted(self, "_network")
        rows = Rows(X, self)
        self._check_features(X, reset=False)
        return rows

    def _nearest(self, X: Any) -> tuple[Integers, Floats]:
        rows, network = self._rows_to_read(X), self._settled()
        parts = [network.nearest(block, threads_for(len(block))) for block in rows.blocks()]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def predict(self, X: Any) -> Integers:
        """Return the cluster of the node nearest to each row.

        If the last point learned deleted every node, the nodes that existed before that deletion are used, each as a
        cluster of its own.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        position, _ = self._nearest(X)
        return self._node_clusters()[position]

    def score_samples(self, X: Any) -> Floats:
        """Return the negative CIM to the nearest node; low scores mean novelty.

        A row whose score is below ``-threshold_`` is unlike anything seen: learning it would create a new node.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,)
            Between -1 (nothing in common) and 0 (equal to a node).
        """
        return -self._nearest(X)[1]

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Return whether each row is unlike anything seen, that is, whether learning it would create a new node.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        novel : ndarray of bool, shape (n_samples,)
        """
        return self.label_rows(X)[2]

    def label_rows(self, X: Any) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Return the cluster, the distance to the nearest node and the novelty of every row, from one search."""
        position, distance = self._nearest(X)
        labels = self._node_clusters()
        reach = np.full(len(labels), self._settled().threshold)
        return labels[position], distance, is_novel(position, distance, reach)

    def transform(self, X: Any) -> Floats:
        """Return the CIM of each row to every node.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_nodes)
        """
        rows, network = self._rows_to_read(X), self._settled()
        return np.concatenate([network.distances(block, threads_for(len(block))) for block in rows.blocks()])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return a name for every column of :meth:`transform`."""
        prefix = type(self).__name__.lower()
        n = len(self._settled().readable_labels())
        return np.array([f"{prefix}{k}" for k in range(n)], dtype=object)

    # ------------------------------------------------------------ what was learned

    @property
    def nodes_(self) -> Floats:
        """Positions of the nodes, in order of creation, of shape (K, d)."""
        return self._settled().nodes

    @property
    def counts_(self) -> Integers:
        """Winning count of each node."""
        return self._settled().counts

    @property
    def bandwidths_(self) -> Floats:
        """Kernel bandwidth of every node."""
        return self._settled().bandwidths

    @property
    def threshold_(self) -> float:
        """Similarity threshold V; 1.0 until it is set."""
        return self._settled().threshold

    @property
    def n_active_(self) -> float:
        """Number of active nodes; infinite until the diversity test has fired."""
        return self._settled().n_active

    @property
    def deletion_interval_(self) -> float:
        """Points between two deletions of isolated nodes (lambda); infinite until set."""
        return 2 * self._settled().n_active

    @property
    def recency_(self) -> Integers:
        """Positions of the nodes, most recently used first."""
        return self._settled().recency

    @property
    def node_labels_(self) -> Integers:
        """Cluster of every node."""
        return self._settled().components()

    @property
    def n_clusters_(self) -> int:
        """Number of clusters."""
        labels = self.node_labels_
        return int(labels.max()) + 1 if len(labels) else 0

    @property
    def n_samples_seen_(self) -> int:
        """Rows learned so far."""
        check_is_fitted(self, "_network")
        return self._network.n_seen

    @property
    def labels_(self) -> Integers:
        """Clusters of the rows of the last call of fit or partial_fit.

        Computed on first access from the rows that were passed: do not modify them in place before that.
        """
        check_is_fitted(self, "_network")
        if self._last_labels is None:
            if self._last_rows is None:
                raise AttributeError(f"this {type(self).__name__} was loaded from a file, which holds no labels_")
            self._last_labels, self._last_rows = self.predict(self._last_rows), None
        return self._last_labels

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Integers:
        """Learn X and return the cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return self.fit(X).labels_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")

    # ------------------------------------------------------------ storage

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        check_is_fitted(self, "_network")
        meta, arrays = self._network.to_parts()
        names = getattr(self, "feature_names_in_", None)
        return {"network": meta, "feature_names": None if names is None else [str(n) for n in names]}, arrays

    def _storable_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.get_params(deep=False)
        return params

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        network = Network.from_parts(meta["network"], arrays)
        if network.rules != self._rules():
            raise ValueError("the network in this file was grown with parameters other than those stored with it")
        names = meta["feature_names"]
        if names is not None:
            if not isinstance(names, list) or len(names) != network.n_features:
                raise ValueError("the feature names in this file do not match its nodes")
            self.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
        self.n_features_in_ = network.n_features
        self._network, self._read_cache, self._warned = network, {}, True
        self._last_rows = self._last_labels = None

    def __getstate__(self) -> dict[str, Any]:
        # copies and pickles contain labels, not the caller's rows
        if getattr(self, "_last_rows", None) is not None:
            _ = self.labels_
        state: dict[str, Any] = super().__getstate__()
        return state


class TopologicalClusterer(NetworkClusterer):
    """Base of the clusterers with edges; adds their attributes."""

    @property
    def edges_(self) -> Integers:
        """Edges as pairs of positions (i, j) with i < j, sorted, of shape (m, 2)."""
        return self._settled().edges_with_ages()[0]

    @property
    def edge_ages_(self) -> Integers:
        """Age of every edge."""
        return self._settled().edges_with_ages()[1]

    @property
    def n_deleted_edges_(self) -> int:
        """Number of edges deleted so far."""
        return self._settled().n_deleted_edges

    @property
    def mean_deleted_age_(self) -> float:
        """Mean age of the edges deleted so far; 0.0 if there are none."""
        return self._settled().mean_deleted_age
