"""The paper's clusterers CA+, CAE and CAE_FC as scikit-learn estimators."""

from __future__ import annotations

from fcac.art.network import Rules
from fcac.art.network_clusterer import NetworkClusterer, TopologicalClusterer


class CAPlus(NetworkClusterer):
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


class CAEFC(TopologicalClusterer):
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


class CAE(TopologicalClusterer):
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
