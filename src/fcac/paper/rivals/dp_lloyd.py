"""DP-Lloyd: k-means with noised sums and counts (Blum, Dwork, McSherry and Nissim, 2005; Su et al., 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.paper.rivals._base import CentroidClusterer, Points, SiteTable, nearest, server_stream, site_stream
from fcac.privacy.bounds import check_bounds, from_unit, to_unit
from fcac.privacy.zcdp import check_delta, check_epsilon, rho_from_epsilon

# Share of an iteration's budget for the counts; the sums, which have many coordinates, get the rest.
_COUNT_SHARE = 0.12
_TRIES = 200


class DPLloyd(CentroidClusterer):
    """k-means whose every iteration sees the rows only through noised counts and sums.

    Rows are clipped to public bounds and mapped to [0, 1]. The first centres do not depend on the rows: they are points
    of the box as far from each other as can be packed (Su et al.). In each of a fixed number of iterations, counts and
    sums of the clusters' rows get noise, and their quotients are the new centres. The papers use Laplace noise; here it
    is Gaussian and accounted in zCDP, which needs far less noise where there are many features, so that the comparison
    with this package's mechanism is fair to the rival.

    With one site this is central DP-Lloyd. With several, each site runs it on its own rows with the whole epsilon (rows
    of different sites are different records), and the server runs k-means on the centres, weighted by their noised
    counts.

    The noise comes from a repeatable generator, for comparisons. **It protects nobody.**

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
    bounds : array-like of shape (d, 2)
        Public bounds of every feature; None for [0, 1].
    delta : float, default=1e-6
    max_iter : int, default=5
        Number of iterations; five is what Su et al. found best.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, d)
    labels_ : ndarray of shape (n,)
        Nearest centre of each row given to ``fit``.

    References
    ----------
    A. Blum, C. Dwork, F. McSherry, K. Nissim. Practical Privacy: The SuLQ Framework. PODS, 128-138, 2005.

    D. Su, J. Cao, N. Li, E. Bertino, H. Jin. Differentially Private k-Means Clustering. CODASPY, 26-37, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals.dp_lloyd import DPLloyd
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.02, size=(2000, 2)) for c in (0.25, 0.75)])
    >>> model = DPLloyd(n_clusters=2, epsilon=2.0, bounds=[[0, 1], [0, 1]], random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_[:, 0]).round(1).tolist()
    [0.2, 0.8]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: float = 1.0,
        bounds: Any = None,
        delta: float = 1e-6,
        max_iter: int = 5,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.bounds = bounds
        self.delta = delta
        self.max_iter = max_iter
        self.random_state = random_state

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        d = table.X.shape[1]
        bounds = check_bounds(np.tile([0.0, 1.0], (d, 1)) if self.bounds is None else self.bounds)
        rho = rho_from_epsilon(check_epsilon(self.epsilon), check_delta(self.delta))
        found = [
            self._site_centers(
                to_unit(np.asarray(table.points(s), dtype=np.float64), bounds), rho, site_stream(base, s)
            )
            for s in table.rows
        ]
        centers, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if len(table.rows) > 1:
            from sklearn.cluster import KMeans

            seed = int(server_stream(base).integers(2**31 - 1))
            centers = (
                KMeans(self.n_clusters, n_init=10, random_state=seed)
                .fit(centers, sample_weight=counts)
                .cluster_centers_
            )
        return from_unit(centers, bounds)

    def _site_centers(self, rows: Floats, rho: float, generator: np.random.Generator) -> tuple[Floats, Floats]:
        k, d = self.n_clusters, rows.shape[1]
        centers = packed_centers(k, d, generator)
        share = rho / self.max_iter
        # one record changes one count by 1, and one sum of rows less the middle of the box by half its diagonal at most
        count_scale = np.sqrt(1.0 / (2 * share * _COUNT_SHARE))
        sum_scale = 0.5 * np.sqrt(d) * np.sqrt(1.0 / (2 * share * (1 - _COUNT_SHARE)))
        counts = np.ones(k)
        for _ in range(self.max_iter):
            own = nearest(rows, centers)
            sums = np.zeros((k, d))
            np.add.at(sums, own, rows - 0.5)
            counts = np.bincount(own, minlength=k) + generator.normal(0.0, count_scale, k)
            sums += generator.normal(0.0, sum_scale, (k, d))
            filled = counts >= 1.0
            moved = 0.5 + sums / np.maximum(counts, 1.0)[:, None]
            centers = np.where(filled[:, None], np.clip(moved, 0.0, 1.0), centers)
        return centers, np.maximum(counts, 1.0)


def packed_centers(n_centers: int, n_features: int, generator: np.random.Generator) -> Floats:
    """Return random points of the unit box that keep apart from each other, and half as much from its sides.

    The distance is the largest that random trials allow, found by bisection (Su et al., section 4.2).

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals.dp_lloyd import packed_centers
    >>> packed_centers(4, 2, np.random.default_rng(0)).shape
    (4, 2)
    """
    low, high = 0.0, 0.5
    best: Floats = generator.uniform(size=(n_centers, n_features))
    for _ in range(12):
        middle = 0.5 * (low + high)
        found = _packed(n_centers, n_features, middle, generator)
        if found is None:
            high = middle
        else:
            low, best = middle, found
    return best


def _packed(n_centers: int, n_features: int, radius: float, generator: np.random.Generator) -> Floats | None:
    placed = np.empty((0, n_features))
    for _ in range(n_centers):
        tried = generator.uniform(radius, 1.0 - radius, (_TRIES, n_features))
        gaps = ((tried[:, None] - placed[None]) ** 2).sum(axis=2).min(axis=1, initial=np.inf)
        free = np.flatnonzero(gaps >= (2.0 * radius) ** 2)
        if not len(free):
            return None
        placed = np.vstack([placed, tried[free[0]]])
    return placed
