"""One-shot federated clustering by density that finds the number of clusters: micro-clusters, merged at the server."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.utils.validation import check_is_fitted

from fcac.paper.rivals._base import CentroidClusterer, Points, SiteTable, kmeans, legacy_seed, nearest, site_stream


class MergedMicroClusters(CentroidClusterer):
    """Sites send the centres of many small clusters; the server merges them by density and sees where to stop.

    That is how the abstract of Fed-k*-HC (Zhang and others, 2026) describes its steps. **It is not Fed-k*-HC**: the
    equations were not at hand. In their place stand k-means with one cluster for every ``sqrt(n)`` rows of a site, and
    HDBSCAN (Campello, Moulavi and Sander, 2013) over the centres of all sites, at its usual settings. So this is what
    somebody gets who puts that design together from known parts.

    Parameters
    ----------
    min_cluster_size : int, default=5
        Fewest micro-clusters in a cluster.
    max_iter : int, default=100
        Largest number of Lloyd's iterations at a site.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    n_clusters_ : int
    cluster_centers_ : ndarray of shape (n_clusters_, d)
        Means of the micro-clusters' centres.
    prototypes_ : ndarray of shape (m, d)
        Centres of the micro-clusters of all sites.
    prototype_labels_ : ndarray of shape (m,)
        Their clusters. What HDBSCAN calls noise joins the cluster of the nearest centre that is none.
    labels_ : ndarray of shape (n,)
        Cluster of the nearest prototype of each row given to ``fit``.
    n_iter_ : int
        Largest number of iterations at a site.
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.

    References
    ----------
    Y. Zhang, C. Qiu, X. Liao, Y. Zhang. Federated hierarchical clustering with automatic selection of optimal cluster
    numbers. Information Sciences 733, 122957, 2026. https://arxiv.org/abs/2603.12684

    R. J. G. B. Campello, D. Moulavi, J. Sander. Density-Based Clustering Based on Hierarchical Density Estimates.
    PAKDD, 160-172, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import MergedMicroClusters
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(300, 2)) for c in (0, 5, 9)])
    >>> MergedMicroClusters(random_state=0).fit(X, groups=np.arange(900) % 4).n_clusters_
    3
    """

    def __init__(self, *, min_cluster_size: int = 5, max_iter: int = 100, random_state: Any = None) -> None:
        self.min_cluster_size = min_cluster_size
        self.max_iter = max_iter
        self.random_state = random_state

    def _whole_numbers(self) -> tuple[str, ...]:
        return "min_cluster_size", "max_iter"

    def _check_parameters(self, n_rows: int) -> None:
        self._check_whole_numbers()
        if self.min_cluster_size < 2:
            raise ValueError(f"min_cluster_size must be at least 2; it is {self.min_cluster_size}")

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        sent, n_iter = zip(
            *(
                micro_clusters(table.points(site), self.max_iter, legacy_seed(site_stream(base, site)))
                for site in table.rows
            ),
            strict=True,
        )
        self.prototypes_, self.n_iter_ = np.concatenate(sent), max(n_iter)
        self.prototype_labels_ = _merged(self.prototypes_, self.min_cluster_size)
        self.bytes_sent_ = 8 * self.prototypes_.size
        self.n_clusters_ = int(self.prototype_labels_.max()) + 1
        return np.stack([self.prototypes_[self.prototype_labels_ == k].mean(axis=0) for k in range(self.n_clusters_)])

    def _assign(self, X: Points) -> NDArray[np.intp]:
        check_is_fitted(self)
        return self.prototype_labels_[nearest(X, self.prototypes_)]


def micro_clusters(X: Points, max_iter: int, seed: int) -> tuple[Points, int]:
    """Return centres of ``sqrt(n)`` clusters of n rows, fewer if fewer rows are different, and the iterations."""
    distinct = np.unique(X, axis=0)
    wanted = max(1, isqrt(len(X)))
    if len(distinct) <= wanted:
        return distinct, 1
    return kmeans(X, wanted, n_init=1, max_iter=max_iter, seed=seed)


def _merged(points: Points, min_cluster_size: int) -> NDArray[np.intp]:
    labels = np.zeros(len(points), np.intp)
    if len(points) < 2 * min_cluster_size:  # too few for two clusters
        return labels
    found = HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit(points).labels_
    held = found >= 0
    if held.any():
        labels[held] = found[held]
        labels[~held] = found[held][nearest(points[~held], points[held])] if not held.all() else labels[~held]
    return labels
