"""k-means from noised totals over all sites: what private rivals share whose server never sees what one site sent."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._typing import Floats, Positions
from fcac.paper.rivals._base import CentroidClusterer, Points, SiteTable, nearest, server_stream
from fcac.privacy.bounds import check_bounds, from_unit, to_unit
from fcac.privacy.zcdp import check_delta, check_epsilon, rho_from_epsilon

# Share of an iteration's budget for the counts; the sums, which have many coordinates, get the rest.
_COUNT_SHARE = 0.12


@dataclass
class NoisedSums:
    """Totals over the rows of all sites, with Gaussian noise added once, as secure aggregation gives them.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        In a box of side one around zero.
    weights : ndarray of shape (n,)
        What a row counts: 1 if rows are protected. If groups are, one over the rows of its group: then everything a
        group sends is a mean over its rows, and the group changes a total by no more than one row would.
    generator : numpy.random.Generator
    least : float
        A cluster with a noised count below this is taken to be empty.
    spent : float
        Cost (rho) of all totals so far.
    n_numbers : int
        Numbers that a site has sent so far.
    """

    rows: Floats
    weights: Floats
    generator: np.random.Generator
    least: float
    spent: float = 0.0
    n_numbers: int = 0

    @property
    def half_diagonal(self) -> float:
        """Length that no row exceeds."""
        return 0.5 * float(np.sqrt(self.rows.shape[1]))

    def moments(self, rho: float) -> Floats:
        """Return the noised sum of the rows' outer products; the noise is symmetric, too."""
        exact = self.rows.T @ (self.rows * self.weights[:, None])
        noise = np.triu(self._noise(exact.shape, self.half_diagonal**2, rho))
        self.n_numbers += len(exact) * (len(exact) + 1) // 2
        noised: Floats = exact + noise + np.triu(noise, 1).T
        return noised

    def counts(self, own: Positions, n_clusters: int, rho: float) -> Floats:
        """Return the noised weight of each cluster; rows of cluster -1 are left out."""
        held = own >= 0
        exact = np.bincount(own[held], self.weights[held], minlength=n_clusters)
        self.n_numbers += n_clusters
        noised: Floats = exact + self._noise(exact.shape, 1.0, rho)
        return noised

    def means(self, own: Positions, values: Floats, reach: float, instead: Floats, rho: float) -> Floats:
        """Return the noised means by cluster of values no longer than `reach`; `instead` where a cluster is empty."""
        counts = self.counts(own, len(instead), _COUNT_SHARE * rho)
        held, sums = own >= 0, np.zeros_like(instead)
        np.add.at(sums, own[held], values[held] * self.weights[held, None])
        sums += self._noise(sums.shape, reach, (1 - _COUNT_SHARE) * rho)
        self.n_numbers += sums.size
        filled = counts >= self.least
        means: Floats = np.where(filled[:, None], sums / np.where(filled, counts, 1.0)[:, None], instead)
        return means

    def _noise(self, shape: tuple[int, ...], reach: float, rho: float) -> Floats:
        self.spent += rho
        return self.generator.normal(0.0, reach / np.sqrt(2.0 * rho), shape)


class PrivateBySums(CentroidClusterer):
    """Base class of k-means whose server sees noised totals only; subclasses choose which."""

    def __init__(
        self, n_clusters: int, epsilon: float, bounds: Any, delta: float, unit: str, max_iter: int, random_state: Any
    ) -> None:
        self.n_clusters, self.epsilon, self.bounds, self.delta = n_clusters, epsilon, bounds, delta
        self.unit, self.max_iter, self.random_state = unit, max_iter, random_state

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        d = table.X.shape[1]
        bounds = check_bounds(np.tile([0.0, 1.0], (d, 1)) if self.bounds is None else self.bounds)
        rho = rho_from_epsilon(check_epsilon(self.epsilon), check_delta(self.delta))
        if self.unit not in ("row", "group"):
            raise ValueError(f"unit must be what is protected, 'row' or 'group'; it is {self.unit!r}")
        weights, least = np.ones(len(table.X)), 1.0
        if self.unit == "group":
            least = len(table.rows) / (10 * self.n_clusters)  # a tenth of an equal share
            for rows in table.rows.values():
                weights[rows] = 1.0 / len(rows)
        sums = NoisedSums(boxed(table.X, bounds), weights, server_stream(base), least)
        centers = self._private_centers(sums, bounds, rho)
        self.n_iter_, self.rho_, self.bytes_sent_ = self.max_iter, sums.spent, 8 * sums.n_numbers * len(table.rows)
        return from_unit(centers + 0.5, bounds)

    @abstractmethod
    def _private_centers(self, sums: NoisedSums, bounds: Floats, rho: float) -> Floats:
        """Return centres in the box, from totals that cost `rho` altogether."""


def boxed(X: Points, bounds: Floats) -> Floats:
    """Map rows from their bounds to a box of side one around zero; values outside are clipped."""
    return to_unit(np.asarray(X, dtype=np.float64), bounds) - 0.5


def noised_lloyd(sums: NoisedSums, centers: Floats, n_iter: int, rho: float, radius: float | None = None) -> Floats:
    """Run Lloyd's iterations on noised counts and sums.

    Without a radius the sums are of the rows. With one they are of the ways from the centre to its rows, none longer
    than the radius, so that the noise shrinks with it.
    """
    for _ in range(n_iter):
        own = nearest(sums.rows, centers)
        if radius is None or radius >= sums.half_diagonal:
            centers = sums.means(own, sums.rows, sums.half_diagonal, centers, rho / n_iter)
        else:
            ways = sums.rows - centers[own]
            ways *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(ways, axis=1), 1e-300))[:, None]
            centers = centers + sums.means(own, ways, radius, np.zeros_like(centers), rho / n_iter)
        centers = np.clip(centers, -0.5, 0.5)
    return centers
