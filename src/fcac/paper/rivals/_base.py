"""What the rival algorithms share: rows by site, seeding, nearest centres."""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac.paper.simulated_sites import by_column, site_names

Points = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]

_FLOATS = (np.float64, np.float32)
_WIDE = 64


@dataclass(frozen=True)
class SiteTable:
    """All rows, and which of them belong to which site; sites in sorted order."""

    X: Points
    rows: dict[Any, Rows]

    def points(self, site: Hashable) -> Points:
        """Return the rows of one site, without copying them if they are consecutive."""
        return take(self.X, self.rows[site])


class CentroidClusterer(ClusterMixin, BaseEstimator, ABC):
    """Base class of clusterers whose result is a set of centres; subclasses compute them from a :class:`SiteTable`."""

    n_clusters: int
    max_iter: int
    random_state: Any

    def fit(self, X: Any, y: None = None, groups: ArrayLike | None = None) -> Self:
        """Find the centres.

        Parameters
        ----------
        X : array-like of shape (n, d), or dict of site to array-like
            The rows. A dict gives each site's rows under its name.
        y : ignored
        groups : array-like of shape (n,), optional
            Site of each row. ``None``: one site. Sites are taken in sorted order, numbers as numbers.

        Returns
        -------
        self
        """
        table = self._read(X, groups)
        self._check_parameters(len(table.X))
        base = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.cluster_centers_ = self._find_centers(table, base)
        self.labels_ = self._assign(table.X)
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the cluster of each row: for most, that of the nearest centre (Euclidean).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        return self._assign(validate_data(self, X, reset=False, dtype=_FLOATS))

    def _assign(self, X: Points) -> NDArray[np.intp]:
        return nearest(X, self.cluster_centers_)

    @abstractmethod
    def _find_centers(self, table: SiteTable, base: int) -> Points:
        """Return the centres; all random streams are derived from the number ``base``."""

    def _read(self, X: Any, groups: ArrayLike | None) -> SiteTable:
        if isinstance(X, Mapping) and not issparse(X):  # one of SciPy's sparse formats is a mapping
            if groups is not None:
                raise ValueError("give the sites either as the keys of X or as groups, not both")
            X, groups = _stacked(X)
        checked: Points = validate_data(self, X, dtype=_FLOATS)
        if groups is None:
            return SiteTable(checked, {0: np.arange(len(checked))})
        check_consistent_length(checked, groups)
        return SiteTable(checked, dict(zip(site_names(groups), by_column(groups), strict=True)))

    def _check_parameters(self, n_rows: int) -> None:
        self._check_whole_numbers()
        if n_rows < self.n_clusters:
            raise ValueError(
                f"n_clusters={self.n_clusters} needs at least as many rows; got n_samples={n_rows}: lower n_clusters"
            )

    def _check_whole_numbers(self) -> None:
        for name in self._whole_numbers():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; it is {value!r}")

    def _whole_numbers(self) -> tuple[str, ...]:
        return "n_clusters", "max_iter"


def site_stream(base: int, site: Hashable, draw: int = 0) -> np.random.Generator:
    """Return the random stream of one site; it does not depend on which other sites there are, or on their rows."""
    name = hashlib.sha256(repr(site).encode()).digest()[:16]
    return np.random.default_rng([base, 1, draw, *np.frombuffer(name, dtype=np.uint32).tolist()])


def server_stream(base: int) -> np.random.Generator:
    """Return the random stream of the server."""
    return np.random.default_rng([base, 0])


def legacy_seed(generator: np.random.Generator) -> int:
    """Draw an integer seed, the form that scikit-learn's functions accept."""
    return int(generator.integers(2**31 - 1))


def take(X: Points, rows: Rows) -> Points:
    """Return these rows of X: a view where they are consecutive, else a copy."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return X[rows[0] : rows[-1] + 1]
    return X[rows]


def nearest(X: Points, centers: Points) -> NDArray[np.intp]:
    """Return the index of each row's nearest centre."""
    found: NDArray[np.intp] = pairwise_distances_argmin(X, centers.astype(X.dtype, copy=False))
    return found.astype(np.intp, copy=False)


def d2_seeds(points: Points, n_seeds: int, generator: np.random.Generator, kept: Sequence[int] = ()) -> list[int]:
    """Choose seeds among the points as k-means++ does: distant points are more likely.

    The first seed is drawn uniformly; each further one with probability proportional to the squared distance to the
    nearest seed so far. No point is drawn twice, because its distance is then zero. When every point coincides with
    a seed there is nothing left to draw, and fewer seeds are returned.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    n_seeds : int
    generator : numpy.random.Generator
    kept : sequence of int, optional
        Seeds already chosen, in order; drawing continues after them.

    Returns
    -------
    list of int
        Positions of the seeds, in the order drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals._base import d2_seeds
    >>> points = np.array([[0.0], [0.0], [9.0]])
    >>> sorted(points[d2_seeds(points, 3, np.random.default_rng(0)), 0].tolist())
    [0.0, 9.0]
    """
    seeds = list(kept)[:n_seeds]
    if not seeds:
        seeds.append(int(generator.integers(len(points))))
    gap = np.full(len(points), np.inf)
    for seed in seeds:
        gap = np.minimum(gap, _squared_distance(points, points[seed]))
    while len(seeds) < n_seeds:
        reach = np.cumsum(gap)
        if not reach[-1] > 0:
            break
        # side="right" skips points of probability zero, which add nothing to the running sum; scaling first keeps
        # the drawn number below the total even when rounding would not.
        chosen = int(np.searchsorted(reach / reach[-1], generator.random(), side="right"))
        seeds.append(chosen)
        gap = np.minimum(gap, _squared_distance(points, points[chosen]))
    return seeds


def kmeans(
    points: Points, n_clusters: int, *, n_init: int, max_iter: int, seed: int, overwrite: bool = False
) -> tuple[Points, int]:
    """Run k-means with k-means++ starts; return the centres of the best run and its number of iterations.

    With ``overwrite``, scikit-learn may change the points in place, which saves a copy.
    """
    # Elkan's variant gives the same centres and was up to twice as fast with 784 features; with few features its
    # bookkeeping costs more than it saves.
    elkan = n_clusters > 1 and points.shape[1] >= _WIDE
    model = KMeans(
        n_clusters=n_clusters,
        n_init=n_init,
        max_iter=max_iter,
        random_state=seed,
        algorithm="elkan" if elkan else "lloyd",
        copy_x=not overwrite,
    ).fit(points)
    return model.cluster_centers_, int(model.n_iter_)


def lloyd(points: Points, start: Points, max_iter: int) -> tuple[Points, int]:
    """Run k-means from the given centres; return the new ones and the number of iterations."""
    with warnings.catch_warnings():
        # A small site may well have fewer distinct points than centres: not worth a warning.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters=len(start), init=start, n_init=1, max_iter=max_iter).fit(points)
    return model.cluster_centers_, int(model.n_iter_)


def _squared_distance(points: Points, center: Points) -> NDArray[np.float64]:
    # Subtract first: the distance of equal points must be exactly zero.
    difference = points - center
    squared: NDArray[np.float64] = np.einsum("ij,ij->i", difference, difference, dtype=np.float64)
    return squared


def _stacked(X: Mapping[Any, Any]) -> tuple[Points, NDArray[Any]]:
    """Turn a dict of tables into one table and the site of each row."""
    names = site_names(list(X))
    blocks = []
    for name in names:
        try:
            blocks.append(check_array(X[name], dtype=_FLOATS))
        except ValueError as error:
            raise ValueError(f"site {name!r}: {error}") from error
        width, expected = blocks[-1].shape[1], blocks[0].shape[1]
        if width != expected:
            raise ValueError(f"site {name!r} has {width} features, site {names[0]!r} has {expected}")
    groups = np.empty(sum(map(len, blocks)), dtype=object)
    groups[:] = [name for name, block in zip(names, blocks, strict=True) for _ in range(len(block))]
    return np.concatenate(blocks), groups
