"""A federated Gaussian mixture with merge and delete moves: nobody says how many components there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from fcac._typing import Floats
from fcac.paper.rivals._base import CentroidClusterer, Points, SiteTable, d2_seeds, site_stream

# Rows of one block when rows or pairs are scored: bounds the memory.
_BLOCK = 2048
# A component with less than this many rows is empty.
_EMPTY = 0.5
# The bound must grow by more than rounding for a move to count.
_LEAST_GAIN = 1e-6


class FederatedMixture(CentroidClusterer):
    """Variational Bayes at every site, and one merging of all sites' components at the server.

    The model is a mixture of Gaussians with independent features: normal-gamma priors for means and precisions, and a
    symmetric Dirichlet prior for the weights, so small that superfluous components empty. Each site starts with
    `max_components` and climbs the variational lower bound (ELBO) by the usual updates, with two further moves. A
    *merge* adds two components' responsibilities; a *delete* gives a component's rows to the others. Either is kept if
    the bound grows. The site then sends the number, sum and sum of squares of the rows of each component. With these
    alone the server knows by how much the bound grows if any two components, of whatever sites, become one, and takes
    the best such merge until none is left.

    Parameters
    ----------
    max_components : int, default=20
        Components at the start, for each site.
    max_iter : int, default=100
        Largest number of updates between two rounds of moves.
    weight_concentration : float, default=0.01
        Parameter of the Dirichlet prior.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
        Posterior means of the components.
    n_clusters_ : int
        Number of components found.
    bytes_sent_ : int
        What all sites sent, at eight bytes a number.
    n_sent_ : int
        Number of components that all sites sent together.
    n_iter_ : int
        Largest number of updates that a site needed between two moves.
    labels_ : ndarray of shape (n,)
    n_features_in_ : int

    Notes
    -----
    The procedure is that of Rao and others (FedMerDel); their model is for binary and categorical data. Differences:

    - Gaussians with independent features take the place of categorical distributions. The updates and the bound are
      the textbook's (Bishop, sections 10.2 and 2.3.6).
    - All sites need one prior, so they send the number, sum and sum of squares of all their rows first. The prior's
      mean is the overall mean, and its variance `_SHARE` of the overall variance of each feature.
    - Sites send the sums of the rows that each component is the most probable for, not sums weighted by
      responsibilities. The assignments then have no entropy, so the bound of a global merge is exact.
    - Merges within a site are tried in the order of their gain, all pairs; theirs are drawn by correlation.

    References
    ----------
    J. Rao, F. L. Crowe, T. Marshall, S. Richardson, P. D. W. Kirk. Federated Variational Inference for Bayesian Mixture
    Models. Proceedings of Machine Learning Research 297, 826-863, 2026. https://arxiv.org/abs/2502.12684

    C. M. Bishop. Pattern Recognition and Machine Learning. Springer, 2006.

    M. C. Hughes, E. B. Sudderth. Memoized Online Variational Inference for Dirichlet Process Mixture Models. Advances
    in Neural Information Processing Systems 26, 1133-1141, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.paper.rivals import FederatedMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(60, 2)) for c in (2, 5, 9)])
    >>> model = FederatedMixture(random_state=0).fit(X, groups=np.arange(180) % 4)
    >>> np.sort(model.cluster_centers_[:, 0]).round().tolist()
    [2.0, 5.0, 9.0]
    """

    def __init__(
        self,
        *,
        max_components: int = 20,
        max_iter: int = 100,
        weight_concentration: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.max_components = max_components
        self.max_iter = max_iter
        self.weight_concentration = weight_concentration
        self.random_state = random_state

    def _whole_numbers(self) -> tuple[str, ...]:
        return "max_components", "max_iter"

    def _check_parameters(self, n_rows: int) -> None:
        self._check_whole_numbers()
        if not self.weight_concentration > 0:
            raise ValueError(f"weight_concentration must be positive; it is {self.weight_concentration!r}")

    def _find_centers(self, table: SiteTable, base: int) -> Points:
        X = np.asarray(table.X, np.float64)
        prior = Prior.from_totals(
            [Components.of_all(X[rows]) for rows in table.rows.values()], float(self.weight_concentration)
        )
        sent, n_iter = zip(
            *(
                site_components(X[rows], prior, self.max_components, self.max_iter, site_stream(base, site))
                for site, rows in table.rows.items()
            ),
            strict=True,
        )
        everything = Components(*(np.concatenate(parts) for parts in zip(*(s.parts() for s in sent), strict=True)))
        self.n_sent_, self.n_iter_ = len(everything.n), max(n_iter)
        self.bytes_sent_ = 8 * (len(sent) + self.n_sent_) * (1 + 2 * X.shape[1])  # first the sites' overall sums
        self._prior, self._components = prior, merge_components(everything, prior)
        self.n_clusters_ = len(self._components.n)
        return Posterior.of(self._components, prior).mean

    def _assign(self, X: Points) -> NDArray[np.intp]:
        posterior = Posterior.of(self._components, self._prior)
        return np.concatenate(
            [
                posterior.log_joint(np.asarray(X[i : i + _BLOCK], np.float64)).argmax(axis=1)
                for i in range(0, len(X), _BLOCK)
            ]
        ).astype(np.intp)


# Share of the overall variance that the prior gives to a component.
_SHARE = 0.1
# Rows that the prior of the mean counts for, and half the rows that the prior of the variance counts for.
_MEAN_ROWS, _SHAPE = 0.01, 1.0


@dataclass(frozen=True)
class Components:
    """Sums over the rows of components: number (k,), sum (k, d) and sum of squares (k, d)."""

    n: Floats
    total: Floats
    squares: Floats

    @classmethod
    def of_all(cls, X: Floats) -> Components:
        """Return all rows as one component."""
        return cls(np.array([float(len(X))]), X.sum(axis=0)[None], (X**2).sum(axis=0)[None])

    @classmethod
    def weighted(cls, X: Floats, weights: Floats) -> Components:
        """Return the sums of rows with weights (n, k)."""
        return cls(weights.sum(axis=0), weights.T @ X, weights.T @ X**2)

    def parts(self) -> tuple[Floats, Floats, Floats]:
        """Return the three arrays."""
        return self.n, self.total, self.squares

    def chosen(self, which: Any) -> Components:
        """Return some of the components."""
        return Components(self.n[which], self.total[which], self.squares[which])

    def joined(self, first: int, second: int) -> Components:
        """Return the components with the second added to the first and removed."""
        n, total, squares = (part.copy() for part in self.parts())
        for part in (n, total, squares):
            part[first] += part[second]
        return Components(n, total, squares).chosen(np.arange(len(n)) != second)


@dataclass(frozen=True)
class Prior:
    """One prior for all components of all sites; features that never vary say nothing and are left out of the bound."""

    mean: Floats
    scale: Floats
    varies: NDArray[np.bool_]
    concentration: float

    @classmethod
    def from_totals(cls, totals: list[Components], concentration: float) -> Prior:
        """Return the prior from the sites' overall sums."""
        n = sum(float(one.n[0]) for one in totals)
        mean = np.sum([one.total[0] for one in totals], axis=0) / n
        variance = np.maximum(np.sum([one.squares[0] for one in totals], axis=0) / n - mean**2, 0.0)
        varies = variance > 1e-12 * np.maximum(1.0, mean**2)
        return cls(mean, np.where(varies, _SHARE * variance, 1.0), varies, concentration)

    def evidence(self, n: Floats, total: Floats, squares: Floats) -> Floats:
        """Return the log evidence of components: the bound's share of each, without their weights.

        Parameters
        ----------
        n : ndarray of shape (..., )
        total, squares : ndarray of shape (..., d)
        """
        wide = n[..., None]
        shift = total - wide * self.mean
        # sum of squares about the prior's mean, less what the posterior mean explains
        spread = squares - 2 * self.mean * total + wide * self.mean**2 - shift**2 / (_MEAN_ROWS + wide)
        rate = _SHAPE * self.scale + 0.5 * np.maximum(spread, 0.0)
        shape = _SHAPE + 0.5 * n
        fixed = gammaln(shape) - gammaln(_SHAPE) + 0.5 * np.log(_MEAN_ROWS / (_MEAN_ROWS + n)) - 0.5 * n * _LOG_2PI
        by_feature = _SHAPE * np.log(_SHAPE * self.scale) - shape[..., None] * np.log(rate)
        found: Floats = fixed * self.varies.sum() + by_feature[..., self.varies].sum(axis=-1)
        return found

    def weights_bound(self, n: Floats) -> float:
        """Return the bound's share of the weights."""
        k, a = len(n), self.concentration
        return float(gammaln(k * a) - gammaln(k * a + n.sum()) + (gammaln(a + n) - gammaln(a)).sum())

    def bound(self, components: Components) -> float:
        """Return the lower bound on the log evidence, without the entropy of the assignments."""
        return float(self.evidence(*components.parts()).sum()) + self.weights_bound(components.n)


_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Posterior:
    """Variational posterior of means, precisions and weights."""

    mean: Floats
    mean_rows: Floats
    shape: Floats
    rate: Floats
    log_weight: Floats
    varies: NDArray[np.bool_]

    @classmethod
    def of(cls, components: Components, prior: Prior) -> Posterior:
        """Return the posterior that maximises the bound for given sums."""
        n, total, squares = components.parts()
        mean_rows = _MEAN_ROWS + n
        shift = total - n[:, None] * prior.mean
        spread = squares - 2 * prior.mean * total + n[:, None] * prior.mean**2 - shift**2 / mean_rows[:, None]
        counts = prior.concentration + n
        return cls(
            prior.mean + shift / mean_rows[:, None],
            mean_rows,
            _SHAPE + 0.5 * n,
            _SHAPE * prior.scale + 0.5 * np.maximum(spread, 0.0),
            digamma(counts) - digamma(counts.sum()),
            prior.varies,
        )

    def log_joint(self, X: Floats) -> Floats:
        """Return the expected log density of each row in each component, with its weight (n, k)."""
        used = self.varies
        rows, mean = X[:, used] - self.mean[:, used].mean(axis=0), self.mean[:, used] - self.mean[:, used].mean(axis=0)
        precision = self.shape[:, None] / self.rate[:, used]
        apart = rows**2 @ precision.T - 2 * rows @ (precision * mean).T + (precision * mean**2).sum(axis=1)
        d = int(used.sum())
        log_precision = d * digamma(self.shape) - np.log(self.rate[:, used]).sum(axis=1)
        result: Floats = self.log_weight + 0.5 * (log_precision - d * _LOG_2PI - d / self.mean_rows - apart)
        return result


# ---------------------------------------------------------------- a site


def site_components(
    X: Floats, prior: Prior, max_components: int, max_iter: int, generator: np.random.Generator
) -> tuple[Components, int]:
    """Return the components of one site's rows, and the largest number of updates between two moves."""
    seeds = X[d2_seeds(X, min(max_components, len(X)), generator)]
    apart = ((X**2).sum(axis=1)[:, None] - 2 * X @ seeds.T) + (seeds**2).sum(axis=1)
    degrees = np.eye(len(seeds))[apart.argmin(axis=1)]
    fit = _climb(X, degrees, prior, max_iter)
    most = fit.n_iter
    while (moved := _merged(X, fit, prior, max_iter) or _deleted(X, fit, prior, max_iter)) is not None:
        fit, most = moved, max(most, moved.n_iter)
    hard = np.eye(fit.degrees.shape[1])[fit.degrees.argmax(axis=1)]
    found = Components.weighted(X, hard)
    return found.chosen(found.n > 0), most


class _Fit(NamedTuple):
    """Responsibilities (n, k), their bound, and how many updates it took."""

    degrees: Floats
    bound: float
    n_iter: int


def _climb(X: Floats, degrees: Floats, prior: Prior, max_iter: int) -> _Fit:
    """Update posterior and responsibilities in turn until the bound stands still; empty components are dropped."""
    bound = -np.inf
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - returned
        components = Components.weighted(X, degrees)
        filled = components.n > _EMPTY
        if not filled.all():
            degrees, components = degrees[:, filled], components.chosen(filled)
        log_joint = Posterior.of(components, prior).log_joint(X)
        log_joint -= log_joint.max(axis=1, keepdims=True)
        degrees = np.exp(log_joint)
        degrees /= degrees.sum(axis=1, keepdims=True)
        before, bound = bound, _bound(X, degrees, prior)
        if bound - before < 1e-5 * abs(bound):
            break
    return _Fit(degrees, bound, n_iter)


def _bound(X: Floats, degrees: Floats, prior: Prior) -> float:
    return prior.bound(Components.weighted(X, degrees)) + _entropy(degrees)


def _entropy(degrees: Floats) -> float:
    return -float((degrees * np.log(np.maximum(degrees, 1e-300))).sum())


def _merged(X: Floats, fit: _Fit, prior: Prior, max_iter: int) -> _Fit | None:
    """Make the merge that the sums promise most of, if the bound does grow; None if no merge helps."""
    degrees, bound, k = fit.degrees, fit.bound, fit.degrees.shape[1]
    if k < 2:
        return None
    components = Components.weighted(X, degrees)
    gains = _pair_gains(components, prior) + _one_less(components.n, prior)
    for flat in np.argsort(-gains, axis=None, kind="stable")[:k]:
        first, second = sorted(int(i) for i in np.unravel_index(flat, gains.shape))
        # the entropy that is lost is not in the sums; it is never gained, so nothing beyond is worth a try
        if gains[first, second] <= _LEAST_GAIN:
            return None
        tried = np.delete(degrees, second, axis=1)
        tried[:, first] += degrees[:, second]
        if _bound(X, tried, prior) > bound + _LEAST_GAIN:
            return _climb(X, tried, prior, max_iter)
    return None


def _deleted(X: Floats, fit: _Fit, prior: Prior, max_iter: int) -> _Fit | None:
    """Give the rows of a component to the others if the bound grows; the smallest are tried first."""
    degrees, bound, k = fit.degrees, fit.bound, fit.degrees.shape[1]
    if k < 2:
        return None
    for out in np.argsort(degrees.sum(axis=0), kind="stable")[: max(1, k // 4)]:
        rest = np.delete(degrees, int(out), axis=1)
        share = rest.sum(axis=1, keepdims=True)
        rest = np.where(share > 1e-8, rest / np.maximum(share, 1e-8), 1.0 / (k - 1))
        tried = _climb(X, rest, prior, max_iter)
        if tried.bound > bound + _LEAST_GAIN:
            return tried
    return None


# ---------------------------------------------------------------- the server


def merge_components(components: Components, prior: Prior) -> Components:
    """Merge components, the best pair first, while the bound grows.

    Parameters
    ----------
    components : Components
        Sums of rows that belong to one component each.
    prior : Prior

    Returns
    -------
    Components
    """
    gains = _pair_gains(components, prior)
    while len(components.n) > 1:
        first, second = sorted(int(i) for i in np.unravel_index(gains.argmax(), gains.shape))
        if gains[first, second] + _one_less(components.n, prior) <= _LEAST_GAIN:
            break
        components = components.joined(first, second)
        gains = np.delete(np.delete(gains, second, axis=0), second, axis=1)
        gains[first] = _gains_with(components, first, prior)
        gains[:, first] = gains[first]
    return components


def _one_less(n: Floats, prior: Prior) -> float:
    """Return what one component less changes in the bound whichever it is: the normaliser of the Dirichlet prior."""
    k, a, total = len(n), prior.concentration, float(n.sum())
    more, fewer = k * a, (k - 1) * a
    return float(gammaln(more + total) - gammaln(fewer + total) - gammaln(more) + gammaln(fewer))


def _pair_gains(components: Components, prior: Prior) -> Floats:
    """Return how much the bound grows if two components become one, without what is the same for all pairs."""
    k = len(components.n)
    gains = np.full((k, k), -np.inf)
    for i in range(k):
        gains[i] = _gains_with(components, i, prior)
    return gains


def _gains_with(components: Components, i: int, prior: Prior) -> Floats:
    n, total, squares = components.parts()
    own = prior.evidence(n, total, squares)
    both = prior.evidence(n + n[i], total + total[i], squares + squares[i])
    a = prior.concentration
    weights = gammaln(a + n + n[i]) - gammaln(a + n) - gammaln(a + n[i]) + gammaln(a)
    gain: Floats = both - own - own[i] + weights
    gain[i] = -np.inf
    return gain
