"""FedDP-KMeans: private federated k-means that starts from public rows at the server (Scott and others, 2025)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.utils import check_array

from fcac._typing import Floats
from fcac.paper.rivals._base import legacy_seed, nearest
from fcac.paper.rivals._noised_sums import NoisedSums, PrivateBySums, boxed, noised_lloyd
from fcac.paper.rivals.dp_lloyd import packed_centers

# Parts of the budget for the projection, the weights of the public rows and the first centres; Lloyd gets the rest.
_PROJECTION, _WEIGHTS, _START = 0.2, 0.2, 0.3


class FedDPKMeans(PrivateBySums):
    """k-means from noised totals over sites, with a start for which the server has a few public rows.

    The server asks for three totals, each with noise. From the sum of outer products of all rows it takes the
    ``n_clusters`` leading directions. Into these, sites and server project their rows, and sites count how many of
    theirs are nearest to each public row; k-means of the public rows, weighted by the counts, gives centres of the
    projection. Last, the sites sum and count, in all dimensions, the rows that belong to each of these, and the
    quotients are the first centres. One or a few of Lloyd's iterations on noised sums follow.

    Without public rows the first centres are packed into the box without looking at a row.

    The noise comes from a repeatable generator, for comparisons. **It protects nobody.**

    Parameters
    ----------
    n_clusters : int, default=8
    public : array-like of shape (m, d) or None, default=None
        Rows that the server knows. They need not come from the same distribution.
    epsilon, bounds, delta, unit, random_state
        As in :class:`SummedLloyd`.
    margin : float, default=1.0
        A row helps to find a first centre if it is so many times nearer to it than to any other, in the projection. The
        paper's proof needs 3.
    max_iter : int, default=1
        Number of Lloyd's iterations.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, d)
        Fewer, if fewer different public rows have a positive count.
    labels_, n_iter_, rho_, bytes_sent_
        As in :class:`SummedLloyd`.

    Notes
    -----
    Differences from the paper:

    - All noise is Gaussian, with costs added up in zCDP; the paper's counts have Laplace noise.
    - The paper chooses how to divide epsilon by search. Here .2 of the cost goes to the projection, .2 to the counts of
      public rows, .3 to the first centres, and the rest to Lloyd. Of two such divisions, 1, 2 or 5 iterations and
      margins 1 and 3, the defaults did best on the sets of the private comparison.
    - How the paper bounds what a client sends, where clients are protected, was not at hand: here everything that a
      group sends is divided by its number of rows, so that it weighs as much as one row.
    - With no more features than clusters nothing is projected and nothing spent on it.

    References
    ----------
    J. Scott, C. H. Lampert, D. Saulpic. Differentially Private Federated k-Means Clustering with Server-Side Data.
    Proceedings of the 42nd International Conference on Machine Learning, PMLR 267, 53757-53790, 2025.
    https://arxiv.org/abs/2506.05408

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import FedDPKMeans
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.02, size=(2000, 2)) for c in (0.2, 0.7)])
    >>> model = FedDPKMeans(2, public=X[::200], epsilon=2.0, random_state=0).fit(X, groups=np.arange(4000) % 5)
    >>> np.sort(model.cluster_centers_[:, 0]).round(1).tolist()
    [0.2, 0.7]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        public: Any = None,
        epsilon: float = 1.0,
        bounds: Any = None,
        delta: float = 1e-6,
        unit: str = "row",
        margin: float = 1.0,
        max_iter: int = 1,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_clusters, epsilon, bounds, delta, unit, max_iter, random_state)
        self.public = public
        self.margin = margin

    def _check_parameters(self, n_rows: int) -> None:
        super()._check_parameters(n_rows)
        if not self.margin >= 1:
            raise ValueError(f"margin must be at least 1; it is {self.margin!r}")

    def _private_centers(self, sums: NoisedSums, bounds: Floats, rho: float) -> Floats:
        k, d = self.n_clusters, sums.rows.shape[1]
        if self.public is None:
            start = packed_centers(k, d, sums.generator) - 0.5
        else:
            public = check_array(self.public, dtype=np.float64, input_name="public")
            if public.shape[1] != d or len(public) < k:
                raise ValueError(f"public must have {d} features and at least {k} rows; its shape is {public.shape}")
            start = self._start(sums, np.unique(boxed(public, bounds), axis=0), rho)
        return noised_lloyd(sums, start, self.max_iter, rho - sums.spent)

    def _start(self, sums: NoisedSums, public: Floats, rho: float) -> Floats:
        k, d = self.n_clusters, sums.rows.shape[1]
        directions = np.eye(d)
        if d > k:
            directions = np.linalg.eigh(sums.moments(_PROJECTION * rho))[1][:, -k:]
        projected, known = sums.rows @ directions, public @ directions
        weights = np.maximum(sums.counts(nearest(projected, known), len(known), _WEIGHTS * rho), 0.0)
        if not weights.any():
            weights[:] = 1.0
        rough = KMeans(min(k, np.count_nonzero(weights)), n_init=10, random_state=legacy_seed(sums.generator))
        centers = rough.fit(known, sample_weight=weights).cluster_centers_
        own = np.zeros(len(projected), np.intp)
        if len(centers) > 1:
            distance = cdist(projected, centers)
            own, two_smallest = distance.argmin(axis=1), np.partition(distance, 1, axis=1)
            own[self.margin * two_smallest[:, 0] > two_smallest[:, 1]] = -1
        means = sums.means(own, sums.rows, sums.half_diagonal, centers @ directions.T, _START * rho)
        return np.clip(means, -0.5, 0.5)
