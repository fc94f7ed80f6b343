"""FedFCM: federated fuzzy c-means (Stallmann and Wilbik, 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac.paper.rivals._base import _FLOATS, CentroidClusterer, Points, SiteTable, server_stream


class FedFCM(CentroidClusterer):
    """Fuzzy c-means at every site; the server averages centres with the same index.

    In fuzzy c-means a row belongs to every cluster to some degree. The server sends ``n_clusters`` centres,
    drawn uniformly from the unit cube, to every site. Each site updates them on its own rows and sends them back
    with their support, the sum of the memberships in each. The server's new centre j is the mean of the sites'
    centres j, weighted by support. Centres of different sites are never matched to each other: only the common
    start keeps index j meaning the same cluster everywhere.

    The starting centres ignore the range of the data. Rows far from the unit cube belong equally to all of them, and
    the results are poor; scale such data first. One round comes closest to the numbers that the FCAC paper prints
    for this algorithm, so that is the default.

    Parameters
    ----------
    n_clusters : int, default=8
    max_iter : int, default=100
        Largest number of iterations at a site in one round.
    max_rounds : int, default=1
        Largest number of rounds between server and sites.
    fuzzifier : float, default=2.0
        The exponent m > 1; close to 1 gives hard clusters.
    tol : float, default=1e-4
        A site stops when its memberships change by less than this (Frobenius norm), the server when its centres do.
    init : array-like of shape (n_clusters, d) or RandomState, optional
        Starting centres, or the generator that draws them; ``None`` draws them with `random_state`.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, d)
    labels_ : ndarray of shape (n,)
        Nearest centre of each row given to ``fit``, which is also the one it belongs to most.
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.
    n_iter_ : int
        Largest number of iterations that a site needed in one round.
    n_rounds_ : int
        Number of rounds.
    n_features_in_ : int

    References
    ----------
    M. Stallmann, A. Wilbik. Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). 2022.
    https://arxiv.org/abs/2201.07316

    J. C. Bezdek. Pattern Recognition with Fuzzy Objective Function Algorithms. Plenum Press, 1981.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import FedFCM
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.05, size=(50, 2)) for c in (0.2, 0.8)])
    >>> model = FedFCM(n_clusters=2, random_state=0).fit(X, groups=np.arange(100) % 2)
    >>> model.memberships(X[:3]).sum(axis=1).round(12).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 100,
        max_rounds: int = 1,
        fuzzifier: float = 2.0,
        tol: float = 1e-4,
        init: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.max_rounds = max_rounds
        self.fuzzifier = fuzzifier
        self.tol = tol
        self.init = init
        self.random_state = random_state

    def memberships(self, X: Any) -> NDArray[np.float64]:
        """Return the degree to which each row belongs to each cluster; every row sums to one.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_clusters)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_FLOATS)
        return fuzzy_memberships(X, self.cluster_centers_, self.fuzzifier)

    def _whole_numbers(self) -> tuple[str, ...]:
        return "n_clusters", "max_iter", "max_rounds"

    def _check_parameters(self, n_rows: int) -> None:
        super()._check_parameters(n_rows)
        if not self.fuzzifier > 1:
            raise ValueError(f"fuzzifier must be greater than 1; it is {self.fuzzifier!r}")
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative; it is {self.tol!r}")

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        centers = self._first_centers((self.n_clusters, table.X.shape[1]), base)
        self.n_rounds_ = self.n_iter_ = 0
        while self.n_rounds_ < self.max_rounds:
            self.n_rounds_ += 1
            before = centers
            weighted, support = np.zeros_like(centers), np.zeros(self.n_clusters)
            for site in table.rows:
                found, degrees, n_iter = fuzzy_c_means(
                    table.points(site), before, self.fuzzifier, self.max_iter, self.tol
                )
                self.n_iter_ = max(self.n_iter_, n_iter)
                of_site = degrees.sum(axis=0)
                weighted += of_site[:, None] * found
                support += of_site
            centers = _divided(weighted, support, instead=before)
            if np.linalg.norm(centers - before) < self.tol:
                break
        self.bytes_sent_ = 8 * self.n_rounds_ * len(table.rows) * (centers.size + len(centers))
        return centers

    def _first_centers(self, shape: tuple[int, int], base: int) -> Points:
        if self.init is None:
            return server_stream(base).random(shape)
        if isinstance(self.init, np.random.RandomState):
            drawn: Points = self.init.random_sample(shape)
            return drawn
        given: Points = np.array(self.init, dtype=np.float64)
        if given.shape != shape or not np.isfinite(given).all():
            raise ValueError(f"init must be an array of finite numbers of shape {shape}; its shape is {given.shape}")
        return given


def fuzzy_c_means(
    X: Points, centers: Points, fuzzifier: float, max_iter: int, tol: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Run fuzzy c-means on the rows of one site, from given centres.

    Memberships and centres are computed from each other in turn. Neither step increases the objective, the sum of
    ``membership**fuzzifier * squared distance``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    centers : ndarray of shape (k, d)
        Starting centres.
    fuzzifier : float
    max_iter : int
    tol : float
        Stop when the memberships change by less than this (Frobenius norm).

    Returns
    -------
    centers : ndarray of shape (k, d)
    memberships : ndarray of shape (n, k)
    n_iter : int
    """
    # Distances come from a matrix product; subtracting the mean first keeps its rounding error small.
    shift = X.mean(axis=0, dtype=np.float64)
    X = X - shift
    norms = np.einsum("ij,ij->i", X, X)
    centers = centers - shift
    degrees = _memberships(X, norms, centers, fuzzifier)
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - returned
        weights = degrees**fuzzifier
        centers = _divided(weights.T @ X, weights.sum(axis=0), instead=centers)
        before, degrees = degrees, _memberships(X, norms, centers, fuzzifier)
        if np.linalg.norm(degrees - before) < tol:
            break
    return centers + shift, degrees, n_iter


def fuzzy_memberships(X: Points, centers: Points, fuzzifier: float) -> NDArray[np.float64]:
    """Return each row's membership in each centre.

    Membership falls with distance as ``distance ** (-2 / (fuzzifier - 1))`` and sums to one over the centres.
    A row that lies on a centre belongs to it alone, or in equal parts to all centres at that point.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals.fedfcm import fuzzy_memberships
    >>> fuzzy_memberships(np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [3.0]]), 2.0).round(2).tolist()
    [[1.0, 0.0], [0.8, 0.2], [0.2, 0.8]]
    """
    shift = X.mean(axis=0, dtype=np.float64)
    X = X - shift
    return _memberships(X, np.einsum("ij,ij->i", X, X), centers - shift, fuzzifier)


def _memberships(X: Points, norms: NDArray[np.float64], centers: Points, fuzzifier: float) -> NDArray[np.float64]:
    squared = norms[:, None] - 2 * (X @ centers.T) + np.einsum("ij,ij->i", centers, centers)
    np.maximum(squared, 0, out=squared)
    nearest = squared.min(axis=1, keepdims=True)
    # Relative to the nearest centre every term lies in [0, 1]: nothing overflows, and 0 / 0 never arises.
    degrees: NDArray[np.float64] = np.ones_like(squared)
    np.divide(nearest, squared, out=degrees, where=squared > nearest)
    if fuzzifier != 2:
        degrees **= 1 / (fuzzifier - 1)
    degrees /= degrees.sum(axis=1, keepdims=True)
    return degrees


def _divided(sums: Points, weights: NDArray[np.float64], instead: Points) -> NDArray[np.float64]:
    """Return weighted means; a centre that nothing supports stays where it was."""
    means: NDArray[np.float64] = np.divide(
        sums, weights[:, None], out=instead.astype(np.float64), where=weights[:, None] > 0
    )
    return means
