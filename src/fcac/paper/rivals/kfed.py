"""k-FED: one-shot federated clustering (Dennis, Li and Smith, ICML 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.utils.extmath import randomized_svd

from fcac.paper.rivals._base import (
    CentroidClusterer,
    Points,
    SiteTable,
    d2_seeds,
    legacy_seed,
    lloyd,
    site_stream,
)


class KFed(CentroidClusterer):
    """Every site clusters its rows once; the server clusters the sites' centres.

    A site projects its rows onto their ``n_clusters`` leading singular directions, picks seeds there as
    k-means++ does, keeps for each seed only the rows that are clearly its own (three times nearer to it than
    to any other seed), and starts k-means on the full features from the means of those rows. The server
    starts k-means from the centres of the first site and runs it over the centres of all sites; each centre counts
    once, however many rows it stands for. Communication is one message per site.

    A site with no more than ``n_clusters`` rows sends the rows themselves. Where the first site has fewer
    than ``n_clusters`` distinct centres, the start is filled up with those centres of other sites that are
    farthest from the ones chosen so far.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centres, at each site and at the server.
    max_iter : int, default=100
        Largest number of Lloyd iterations, at each site and at the server.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, d)
        There are fewer only if all sites together sent fewer distinct centres.
    site_centers_ : dict of site to ndarray
        What each site sent.
    labels_ : ndarray of shape (n,)
        Nearest centre of each row given to ``fit``.
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.
    n_iter_ : int
        Lloyd iterations at the server.
    n_features_in_ : int

    References
    ----------
    D. K. Dennis, T. Li, V. Smith. Heterogeneity for the Win: One-Shot Federated Clustering. Proceedings of the 38th
    International Conference on Machine Learning, PMLR 139, 2611-2620, 2021. https://arxiv.org/abs/2103.00697

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import KFed
    >>> rng = np.random.default_rng(1)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(40, 3)) for c in (1, 4)])
    >>> model = KFed(n_clusters=2, random_state=0).fit(X, groups=np.arange(80) % 2)
    >>> np.sort(model.cluster_centers_.round(), axis=0).tolist()
    [[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]]
    """

    def __init__(self, n_clusters: int = 8, *, max_iter: int = 100, random_state: Any = None) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.random_state = random_state

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        self.site_centers_ = {
            site: local_centers(table.points(site), self.n_clusters, self.max_iter, site_stream(base, site))
            for site in table.rows
        }
        sent = list(self.site_centers_.values())
        everything = np.concatenate(sent)
        self.bytes_sent_ = 8 * everything.size
        start = _server_start(sent[0], everything, self.n_clusters)
        centers, self.n_iter_ = lloyd(everything, start, self.max_iter)
        return centers


def local_centers(X: Points, n_clusters: int, max_iter: int, generator: np.random.Generator) -> Points:
    """Cluster the rows of one site: project, seed, keep what is clearly separated, then k-means.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    n_clusters : int
    max_iter : int
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of shape (k, d)
        ``n_clusters`` centres, or fewer if there are fewer distinct rows.
    """
    if len(X) <= n_clusters:
        return X.copy()
    _, _, directions = randomized_svd(
        X,
        n_components=min(n_clusters, X.shape[1]),
        power_iteration_normalizer="QR",
        random_state=legacy_seed(generator),
    )
    projected = X @ directions.T
    seeds = projected[d2_seeds(projected, n_clusters, generator)]
    owner = clearly_owned(projected, seeds)
    start = np.stack([projected[owner == seed].mean(axis=0) for seed in range(len(seeds))]) @ directions
    return lloyd(X, start, max_iter)[0]


def clearly_owned(points: Points, seeds: Points) -> NDArray[np.intp]:
    """Assign to a seed the points that are three times nearer to it than to any other seed.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    seeds : ndarray of shape (k, d)
        Distinct.

    Returns
    -------
    ndarray of shape (n,)
        Index r of the seed with ``3 * d(x, seed_r) <= d(x, seed_s)`` for all other s; -1 where there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals.kfed import clearly_owned
    >>> clearly_owned(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([[0.0], [4.0]])).tolist()
    [0, 0, -1, 1]
    """
    distance = cdist(points, seeds)
    nearest: NDArray[np.intp] = distance.argmin(axis=1)
    if len(seeds) == 1:
        return nearest
    two_smallest = np.partition(distance, 1, axis=1)
    return np.where(3 * two_smallest[:, 0] <= two_smallest[:, 1], nearest, -1)


def _server_start(first: Points, everything: Points, n_clusters: int) -> Points:
    """Start from the first site's distinct centres; add the centre farthest from all of them until there are enough."""
    _, positions = np.unique(first, axis=0, return_index=True)
    start = list(first[np.sort(positions)])
    gap = cdist(everything, np.array(start)).min(axis=1)
    while len(start) < n_clusters and gap.max() > 0:
        start.append(everything[gap.argmax()])
        gap = np.minimum(gap, cdist(everything, start[-1][None])[:, 0])
    return np.array(start)
