"""k-means on merged data: what is reached when the rows need not stay at their sites."""

from __future__ import annotations

from typing import Any

from fcac.paper.rivals._base import CentroidClusterer, Points, SiteTable, kmeans, legacy_seed, server_stream


class KMeansMerged(CentroidClusterer):
    """k-means over the rows of all sites together.

    The rows of all sites are pooled, and scikit-learn's k-means with its k-means++ start runs on the pool,
    keeping the best of ``n_init`` runs. This is not a federated algorithm: it shows what moving all data to one
    place would give.

    Parameters
    ----------
    n_clusters : int, default=8
    max_iter : int, default=100
        Largest number of Lloyd iterations per run.
    n_init : int, default=10
        Number of runs; the one with the smallest sum of squared distances is kept.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.
    n_iter_ : int
        Iterations of the run that was kept.

    References
    ----------
    S. P. Lloyd. Least Squares Quantization in PCM. IEEE Transactions on Information Theory 28 (2), 129-137, 1982.

    D. Arthur, S. Vassilvitskii. k-means++: The Advantages of Careful Seeding. Proceedings of the 18th Annual ACM-SIAM
    Symposium on Discrete Algorithms, 1027-1035, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import KMeansMerged
    >>> X = {"north": np.array([[0.0], [0.2]]), "south": np.array([[8.0], [8.2]])}
    >>> model = KMeansMerged(n_clusters=2, random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_.ravel()).round(1).tolist()
    [0.1, 8.1]
    """

    def __init__(self, n_clusters: int = 8, *, max_iter: int = 100, n_init: int = 10, random_state: Any = None) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def _whole_numbers(self) -> tuple[str, ...]:
        return "n_clusters", "max_iter", "n_init"

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        self.bytes_sent_ = 8 * table.X.size
        centers, self.n_iter_ = kmeans(
            table.X,
            self.n_clusters,
            n_init=self.n_init,
            max_iter=self.max_iter,
            seed=legacy_seed(server_stream(base)),
        )
        return centers
