"""CA+, CAE and CAE_FC as scikit-learn estimators over one network state."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac._parallel import n_cores
from fcac._rows import Rows, as_arrow_table, is_arrow
from fcac._typing import Floats, Integers
from fcac.art.network import Network, Rules
from fcac.exceptions import DegenerateBandwidthWarning
from fcac.novelty import is_novel

# From this many rows on, a call learns on a copy that replaces the network at the end, so that an interrupt cannot
# leave a call half learned; for fewer rows there is a single kernel call, which cannot be interrupted.
_COPY_FROM = 4096

# Rows per thread below which starting threads costs more than it saves.
_THREAD_FROM = 4096


class _NetworkClusterer(TransformerMixin, ClusterMixin, BaseEstimator):
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
        parts = [network.nearest(block, _threads(len(block))) for block in rows.blocks()]
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
        return np.concatenate([network.distances(block, _threads(len(block))) for block in rows.blocks()])

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


class _TopologicalClusterer(_NetworkClusterer):
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


class CAPlus(_NetworkClusterer):
    """CA+: condense a stream of points into prototype nodes, in one pass and without parameters.

    The idea: a point that is similar enough to a node moves that node a little; any other point becomes a new node. How
    similar is enough is learned from the data: points are collected as nodes until they are diverse (the determinant of
    their similarity matrix vanishes), and the mean distance between these nodes and their nearest neighbours becomes
    the threshold V. Similarity is correntropy, the mean over features of a Gaussian kernel, and distance is the
    correntropy-induced metric CIM = sqrt(1 - correntropy), between 0 and 1; the kernel's bandwidth follows Silverman's
    rule over the most recently used nodes. The nearest node, winning for the M-th time, moves 1/M of the way to the
    point; the second nearest, if it is within V too, moves 1/(100 M) of the way.

    This is what a site of a federation runs; it sends the nodes with their winning counts. Every node is a cluster of
    its own.

    Parameters
    ----------
    diversity_threshold : float, default=1e-6
        Determinant below which the initial nodes count as diverse.
    min_nodes : int, default=10
        Minimum number of initial nodes.

    Attributes
    ----------
    nodes_ : ndarray of shape (K, d)
        Positions, in order of creation.
    counts_ : ndarray of shape (K,)
        Winning counts; they sum to the number of points learned.
    bandwidths_ : ndarray of shape (K,)
    threshold_ : float
        V; 1.0 until set.
    n_active_, deletion_interval_ : float
        Size of the active set, and twice that; infinite until set.
    recency_ : ndarray of shape (K,)
        Positions, most recently used first.
    node_labels_ : ndarray of shape (K,)
    n_clusters_ : int
    labels_ : ndarray
        Nearest nodes of the rows of the last call.
    n_samples_seen_ : int

    References
    ----------
    N. Masuyama et al., "Privacy-preserving Continual Federated Clustering via Adaptive Resonance Theory".

    Examples
    --------
    >>> import numpy as np
    >>> from fcac import CAPlus
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> model = CAPlus().fit(X)
    >>> len(model.nodes_) < 200, int(model.counts_.sum())
    (True, 1000)
    >>> model.score_samples([[50.0, 50.0]]) < -model.threshold_   # unlike anything seen
    array([ True])
    """

    def __init__(self, *, diversity_threshold: float = 1e-6, min_nodes: int = 10) -> None:
        self.diversity_threshold = diversity_threshold
        self.min_nodes = min_nodes

    def _rules(self) -> Rules:
        return Rules(False, False, int(self.min_nodes), float(self.diversity_threshold))


class CAEFC(_TopologicalClusterer):
    """CAE_FC: grow a topological network whose connected components are the clusters.

    The idea: as in :class:`CAPlus`, but with edges. The two nodes nearest to a point are linked by an edge if both are
    within the threshold V. The edges of a winning node grow older unless they are renewed; an edge of the winner whose
    age is an outlier (beyond the upper quartile by a fraction of the interquartile range, combined with the mean age of
    edges deleted before) is removed. Every `deletion_interval_` points, nodes without edges are removed: noise
    disappears, while regions that keep being visited remain. When a winner is updated, its linked neighbours move 1/(10
    M) of the way.

    This is what the server of a federation runs, on the nodes that the sites send.

    Parameters
    ----------
    age_iqr_factor : float, default=0.1
        An edge is too old if its age exceeds the upper quartile by this many interquartile ranges. The paper's tables
        were made with 0.1; its text says 1.0.
    diversity_threshold : float, default=1e-6
        Determinant below which the initial nodes count as diverse.
    min_nodes : int, default=10
        Minimum number of initial nodes.

    Attributes
    ----------
    nodes_, counts_, bandwidths_, threshold_, n_active_, recency_, labels_, n_samples_seen_
        As in :class:`CAPlus`.
    deletion_interval_ : float
        Points between two deletions of isolated nodes (lambda); infinite until set.
    edges_ : ndarray of shape (m, 2)
        Pairs of linked positions with i < j, sorted.
    edge_ages_ : ndarray of shape (m,)
    n_deleted_edges_ : int
    mean_deleted_age_ : float
    node_labels_ : ndarray of shape (K,)
        Connected component of each node, numbered in the order of their first nodes.
    n_clusters_ : int

    References
    ----------
    N. Masuyama et al., "Privacy-preserving Continual Federated Clustering via Adaptive Resonance Theory".

    Examples
    --------
    >>> import numpy as np
    >>> from fcac import CAEFC
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(2000, 2)) for c in (0.0, 5.0)])
    >>> model = CAEFC().fit(rng.permutation(X))
    >>> a, b = model.predict([[0.0, 0.0], [5.0, 5.0]])
    >>> bool(a != b)
    True
    """

    def __init__(self, *, age_iqr_factor: float = 0.1, diversity_threshold: float = 1e-6, min_nodes: int = 10) -> None:
        self.age_iqr_factor = age_iqr_factor
        self.diversity_threshold = diversity_threshold
        self.min_nodes = min_nodes

    def _rules(self) -> Rules:
        return Rules(True, False, int(self.min_nodes), float(self.diversity_threshold), float(self.age_iqr_factor))


class CAE(_TopologicalClusterer):
    """CAE: the topological clusterer from which :class:`CAEFC` was derived; it keeps more nodes.

    It differs from CAE_FC in three ways: the diversity matrix contains 1 - CIM instead of correntropy (so that more
    nodes are collected before the threshold is set), two initial nodes are enough, and an edge is too old only if its
    age exceeds the upper quartile by a full interquartile range.

    Parameters
    ----------
    age_iqr_factor : float, default=1.0
        An edge is too old if its age exceeds the upper quartile by this many interquartile ranges.
    diversity_threshold : float, default=1e-6
        Determinant below which the initial nodes count as diverse.
    min_nodes : int, default=2
        Minimum number of initial nodes.

    Attributes
    ----------
    nodes_, counts_, bandwidths_, threshold_, n_active_, deletion_interval_, recency_, edges_, edge_ages_, \
n_deleted_edges_, mean_deleted_age_, node_labels_, n_clusters_, labels_, n_samples_seen_
        As in :class:`CAEFC`.

    References
    ----------
    N. Masuyama et al., "Privacy-preserving Continual Federated Clustering via Adaptive Resonance Theory", Section III.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac import CAE, CAEFC
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> len(CAE().fit(X).nodes_) > len(CAEFC().fit(X).nodes_)
    True
    """

    def __init__(self, *, age_iqr_factor: float = 1.0, diversity_threshold: float = 1e-6, min_nodes: int = 2) -> None:
        self.age_iqr_factor = age_iqr_factor
        self.diversity_threshold = diversity_threshold
        self.min_nodes = min_nodes

    def _rules(self) -> Rules:
        return Rules(True, True, int(self.min_nodes), float(self.diversity_threshold), float(self.age_iqr_factor))


def _threads(n_rows: int) -> int:
    if n_rows < 2 * _THREAD_FROM:
        return 1
    return min(n_cores(), n_rows // _THREAD_FROM)


def _has_shape(X: Any) -> bool:
    """Whether X is something other than an Arrow table."""
    return not is_arrow(X)
