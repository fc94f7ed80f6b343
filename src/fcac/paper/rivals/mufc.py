"""MUFC: federated clustering with unlearning (Pan, Sima, Prakash, Rana and Milenkovic, ICLR 2023)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from fcac.paper.rivals._base import (
    CentroidClusterer,
    Points,
    Rows,
    SiteTable,
    d2_seeds,
    kmeans,
    legacy_seed,
    nearest,
    server_stream,
    site_stream,
    take,
)


@dataclass(frozen=True)
class Share:
    """What one site keeps: its rows, which of them are seeds, and how many rows each seed stands for."""

    rows: Rows
    kept: NDArray[np.bool_]
    seeds: list[int]
    counts: NDArray[np.int64]
    draws: int

    @classmethod
    def of(cls, rows: Rows) -> Share:
        """Start with all rows and no seeds."""
        return cls(rows, np.ones(len(rows), dtype=bool), [], np.zeros(0, dtype=np.int64), draws=0)


def with_seeds(share: Share, X: Points, n_seeds: int, generator: np.random.Generator) -> Share:
    """Draw the seeds that are missing and count the rows nearest to each seed."""
    present = np.flatnonzero(share.kept)
    points = take(X, share.rows[present])
    known = np.searchsorted(present, share.seeds).tolist()
    # A full set of seeds, or one for which the distinct rows had run out, comes back as it is.
    found = d2_seeds(points, n_seeds, generator, known)
    counts = np.bincount(nearest(points, points[found]), minlength=len(found))
    return replace(share, seeds=present[found].tolist(), counts=counts)


def without_rows(share: Share, going: Rows) -> Share:
    """Remove rows; if a seed is among them, remove it and every seed drawn after it.

    Once :func:`with_seeds` has drawn the missing ones, the seeds have the same distribution as if those rows had never
    been there. Take the first seed: if it is not among the removed rows, it is uniform over the remaining ones; if it
    is, it is drawn again from the remaining ones. Given the seeds before it, the same argument holds for each further
    seed, with probabilities proportional to squared distance.
    """
    kept = share.kept.copy()
    kept[going] = False
    first_gone = next((i for i, seed in enumerate(share.seeds) if not kept[seed]), None)
    if first_gone is None:
        return replace(share, kept=kept)
    # The new draw must not repeat the random stream that chose the forgotten seeds.
    return replace(share, kept=kept, seeds=share.seeds[:first_gone], draws=share.draws + 1)


class MUFC(CentroidClusterer):
    """Sites send rounded seeds with counts; the server clusters points drawn from them; rows can be forgotten.

    A site picks ``n_clusters`` of its own rows as k-means++ seeds and counts the rows nearest to each. It
    sends the seeds, rounded to a grid, with the counts. For each seed the server draws as many points as the
    count says, uniformly within the seed's cell of the grid, and runs k-means on all of them.

    Forgetting is cheap because seeds are rows. If no forgotten row is a seed, only the counts change. Otherwise the
    seeds drawn before the first forgotten one stay and the rest are drawn again. Either way the model has the same
    distribution as if the rows had never been there, provided that they were not picked because they were seeds. In
    the published system the server learns only the sum of the sites' messages (secure aggregation); that part is not
    implemented here and does not change the result.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of seeds at each site and of centres at the server.
    max_iter : int, default=100
        Largest number of Lloyd iterations per run at the server.
    n_init : int, default=10
        Runs of k-means at the server; the best is kept.
    bin_width : float or None, default=None
        Width of the grid cells. ``None``: one over the square root of the number of rows of all sites. That number
        changes when something is forgotten, and all sites then round their seeds again.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, d)
    site_centers_ : dict of site to ndarray
        The rounded seeds each site sent; fewer than ``n_clusters`` where it has fewer distinct rows.
    site_counts_ : dict of site to ndarray
        The number of rows that each of them stands for.
    bin_width_ : float
    labels_ : ndarray of shape (n,)
        Nearest centre of each row given to ``fit`` and not forgotten since.
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.
    n_iter_ : int
        Iterations of the server's run that was kept.
    n_features_in_ : int

    Notes
    -----
    Forgetting needs the rows, so the model keeps a reference to the array given to ``fit``: do not change that array.

    References
    ----------
    C. Pan, J. Sima, S. Prakash, V. Rana, O. Milenkovic. Machine Unlearning of Federated Clusters. International
    Conference on Learning Representations, 2023. https://arxiv.org/abs/2210.16424

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import MUFC
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(60, 2)) for c in (0, 5, 9)])
    >>> model = MUFC(n_clusters=3, random_state=0).fit(X, groups=np.arange(180) % 4)
    >>> sum(int(counts.sum()) for counts in model.site_counts_.values())
    180
    >>> model.forget_site(3).forget_rows(0, [0, 1, 2])
    MUFC(n_clusters=3, random_state=0)
    >>> sum(int(counts.sum()) for counts in model.site_counts_.values())
    132
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 100,
        n_init: int = 10,
        bin_width: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.n_init = n_init
        self.bin_width = bin_width
        self.random_state = random_state

    def forget_site(self, site: Hashable) -> Self:
        """Forget a site: its message is dropped and the server runs again.

        With an integer ``random_state`` the model equals, bit for bit, one that was fitted without the site.

        Parameters
        ----------
        site : hashable
            Its name in ``groups``, or its key in the dict given to ``fit``.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_held(site)
        rest = {name: share for name, share in self._shares.items() if name != site}
        self._serve(rest)
        return self

    def forget_rows(self, site: Hashable, row_indices: ArrayLike) -> Self:
        """Forget some rows of a site.

        Parameters
        ----------
        site : hashable
        row_indices : array-like of int
            Positions among the site's rows as they were given to ``fit``, from 0. They do not shift when other rows
            are forgotten.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._check_held(site)
        share = self._shares[site]
        changed = without_rows(share, _checked_rows(row_indices, share, site))
        if not changed.kept.any():
            return self.forget_site(site)
        self._serve(self._shares | {site: self._choose(changed, site)})
        return self

    def _whole_numbers(self) -> tuple[str, ...]:
        return "n_clusters", "max_iter", "n_init"

    def _check_parameters(self, n_rows: int) -> None:
        super()._check_parameters(n_rows)
        if self.bin_width is not None and not (np.isfinite(self.bin_width) and self.bin_width > 0):
            raise ValueError(f"bin_width must be a positive number or None; it is {self.bin_width!r}")

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        self._X, self._base = table.X, base
        shares = {}
        for site, rows in table.rows.items():
            shares[site] = self._choose(Share.of(rows), site)
        return self._server_centers(shares)

    def _choose(self, share: Share, site: Hashable) -> Share:
        return with_seeds(share, self._X, self.n_clusters, site_stream(self._base, site, share.draws))

    def _serve(self, shares: dict[Any, Share]) -> None:
        n_rows = sum(int(share.kept.sum()) for share in shares.values())
        if n_rows < self.n_clusters:
            raise ValueError(
                f"forgetting would leave {n_rows} rows, too few for n_clusters={self.n_clusters}: nothing was changed"
            )
        self.cluster_centers_ = self._server_centers(shares)
        left = np.sort(np.concatenate([share.rows[share.kept] for share in shares.values()]))
        self.labels_ = nearest(take(self._X, left), self.cluster_centers_)

    def _server_centers(self, shares: dict[Any, Share]) -> Points:
        """Round the seeds, draw points in their cells, and cluster these."""
        counts = {site: share.counts for site, share in shares.items()}
        n_rows = int(sum(count.sum() for count in counts.values()))
        width = float(1 / np.sqrt(n_rows)) if self.bin_width is None else float(self.bin_width)
        rounded = {site: np.round(self._X[share.rows[share.seeds]] / width) * width for site, share in shares.items()}
        generator = server_stream(self._base)
        sent = np.concatenate(list(rounded.values()))
        self.bytes_sent_ = 8 * (sent.size + len(sent))
        points = np.repeat(sent, np.concatenate(list(counts.values())), axis=0)
        points += width * (generator.random(points.shape, dtype=points.dtype.type) - 0.5)
        centers, self.n_iter_ = kmeans(
            points,
            self.n_clusters,
            n_init=self.n_init,
            max_iter=self.max_iter,
            seed=legacy_seed(generator),
            overwrite=True,
        )
        self._shares, self.site_centers_, self.site_counts_, self.bin_width_ = shares, rounded, counts, width
        return centers

    def _check_held(self, site: Hashable) -> None:
        if site not in self._shares:
            names = ", ".join(map(repr, list(self._shares)[:10]))
            raise ValueError(f"there is no site {site!r} in this model; it holds {names}")


def _checked_rows(row_indices: ArrayLike, share: Share, site: Hashable) -> Rows:
    rows = np.asarray(row_indices)
    if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError("row_indices must be a list of at least one whole number")
    outside = rows[(rows < 0) | (rows >= len(share.rows))]
    if len(outside):
        raise ValueError(f"site {site!r} has rows 0 to {len(share.rows) - 1}, so there is no row {outside[0]}")
    gone = rows[~share.kept[rows]]
    if len(gone):
        raise ValueError(f"row {gone[0]} of site {site!r} has already been forgotten")
    return rows.astype(np.intp)
