"""Groups of nodes whose noise is known: greedy Bayesian merging, without a number of groups.

A released node is its true place plus Gaussian noise of public variance. The model behind the merging: true places of
a cluster are normal around its centre, centres are normal around the middle of everything, and the partition has the
prior of the Chinese restaurant process. Both integrals over true places and centres have a closed form, so the evidence
of a cluster needs only three sums over its nodes, and two clusters are merged by adding them. This is Bayesian
hierarchical clustering (Heller and Ghahramani, "Bayesian hierarchical clustering", ICML 2005; the greedy merging of
a partition by its evidence as in Heard, Holmes and Stephens, JASA 101, 2006) with the known noise of every node in its
likelihood, as in extreme deconvolution (Bovy, Hogg and Roweis, Annals of Applied Statistics 5, 2011).

How wide a cluster is, nobody knows, so its evidence is averaged over several widths, either in proportion to the spread
along each axis or the same along all. Two nodes that differ by no more than their noise thus cost nothing to merge, and
a node that is mostly noise neither founds a cluster nor moves one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fcac._typing import Floats, Integers

#: Variance inside a cluster as a share of the variance of all true places.
WIDTHS = (0.003, 0.01, 0.03, 0.08, 0.2, 0.4, 0.65)
#: Concentration of the Chinese restaurant process: the larger, the more clusters.
CONCENTRATION = 3.0
# Centres vary at least by this share of the variance of all true places, however wide clusters are.
_LEAST_BETWEEN = 1e-3
# Axes along which true places vary less than this share of the most are left out: there is nothing but noise in them.
_LEAST_SIGNAL = 1e-9
# More nodes than this are merged in chunks first: the sums of a group say all about it, so nothing is lost by it but
# the order of merging.
_CHUNK = 400
# Seed of the shuffle into chunks; public, as everything here.
_SEED = 20_10


class Axes(NamedTuple):
    """The principal axes of the true places behind noisy nodes: only those along which true places vary.

    The rows of `basis` are orthonormal; `signal` is the variance of the true places along each, that of the nodes less
    what noise adds.
    """

    middle: Floats
    basis: Floats
    signal: Floats


def principal_axes(nodes: Floats, variance: Floats, counts: Floats) -> Axes:
    """Return the axes of true places, every node weighted by how well it is known.

    `variance` is of the noise in every value; the iteration for the weights starts from the counts.
    """
    weight = counts / counts.sum()
    middle = weight @ nodes
    noise = variance.mean(axis=1)
    for _ in range(3):
        spread = weight @ ((nodes - middle) ** 2).mean(axis=1) - weight @ noise
        # by inverse variance: noise, and the spread of true places around the middle
        weight = 1.0 / (max(float(spread), 1e-6) + noise)
        weight /= weight.sum()
        middle = weight @ nodes
    _, singular, basis = np.linalg.svd((nodes - middle) * np.sqrt(weight)[:, None], full_matrices=False)
    added = (basis**2) @ (weight @ variance)
    signal = singular**2 / max(1.0 - float((weight**2).sum()), 0.1) - added
    varies = signal > _LEAST_SIGNAL * max(float(signal.max(initial=0.0)), 1e-12)
    return Axes(middle, basis[varies], signal[varies])


@dataclass(frozen=True)
class Groups:
    """What merging found: the group of every node, and the place where each is most likely to be.

    That is between its noisy position and the centre of its group. `joins` are between units, each node one unless
    there are very many: in order down to one, the second vanishing into the first; `n_joined` of them raised the
    evidence, the others are for users who ask for fewer groups. `stability`, between 0 and 1 for every group, says how
    sure it is that joining it to another would lower the evidence, and that so would taking back its last join.
    """

    labels: Integers
    places: Floats
    unit_of: Integers
    joins: list[tuple[int, int]]
    n_joined: int
    stability: Floats


def merge_noisy(nodes: Floats, variance: Floats, counts: Floats) -> Groups:
    """Merge nodes into groups as long as that raises the evidence.

    `variance` is of the noise in every value, 0 where a value is exact; counts are above zero.

    >>> rng = np.random.default_rng(0)
    >>> true = np.repeat([[0.0, 0.0], [1.0, 0.0]], 6, axis=0)
    >>> found = merge_noisy(true + rng.normal(0, 0.1, (12, 2)), np.full((12, 2), 0.01), np.ones(12))
    >>> found.labels.tolist()
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    >>> bool(np.abs(found.places - true).max() < 0.1)
    True
    """
    axes = principal_axes(nodes, variance, counts)
    n = len(nodes)
    if n == 1 or not len(axes.signal):
        stays = np.arange(n)
        return Groups(
            np.zeros(n, dtype=np.int64), nodes.copy(), stays, [(0, int(i)) for i in stays[1:]], n - 1, np.ones(1)
        )
    model = _Evidence(axes, nodes, variance)
    unit_of: Integers = np.arange(n)
    # nodes in an order of their own, so that nothing depends on the order of sites
    order = np.lexsort(nodes.T)
    while len(order) > _CHUNK:
        shuffled = np.random.default_rng(_SEED).permutation(order)
        before = len(order)
        order = np.sort(
            np.concatenate([model.merge(part)[0] for part in np.array_split(shuffled, -(-before // _CHUNK))])
        )
        if len(order) > 0.9 * before:
            break
    if len(order) < n:
        unit_of = model.root_of()
    units, unit_of = np.unique(unit_of, return_inverse=True)
    place = np.zeros(n, dtype=np.int64)
    place[units] = np.arange(len(units))
    roots, gains, best = model.merge(units)
    labels = model.root_of()
    made = [(int(place[into]), int(place[gone])) for into, gone, _ in gains]
    # the evidence of a last join, and of the best join that was not made, are log odds
    last = {into: gain for into, _, gain in gains}
    odds = np.array([min(last.get(int(root), np.inf), -loss) for root, loss in zip(roots, best, strict=True)])
    places = model.places(labels)
    labels = np.unique(labels, return_inverse=True)[1]
    more = [(int(place[into]), int(place[gone])) for into, gone, _ in model.merge(roots, to_one=True)[1]]
    return Groups(labels, places, unit_of, made + more, len(made), -np.expm1(-np.maximum(odds, 0.0)))


class _Evidence:
    """The sums of every cluster, and what they say: mutable, a cluster is known by one of its nodes."""

    def __init__(self, axes: Axes, nodes: Floats, variance: Floats) -> None:
        self.axes = axes
        shares, signal = np.array(WIDTHS)[:, None], axes.signal
        # of all axes in proportion, and the same for all axes
        self.inside = np.concatenate([shares * signal, np.minimum(shares * signal.mean(), 0.9 * signal)])
        self.between = np.maximum(signal - self.inside, _LEAST_BETWEEN * signal)[:, None, :]
        self.at = (nodes - axes.middle) @ axes.basis.T
        self.noise = variance @ (axes.basis**2).T
        precision = 1.0 / (self.inside[:, None, :] + self.noise[None])
        self.weight, self.pull = precision, precision * self.at
        self.inner = 0.5 * (np.log(precision) - self.pull * self.at).sum(axis=2)
        self.size = np.ones(len(nodes))
        self.parent: Integers = np.arange(len(nodes))
        self.own = self._log(self.weight, self.pull, self.inner)

    def _each(self, weight: Floats, pull: Floats, inner: Floats) -> Floats:
        """Log evidence of clusters for every width."""
        by_axis = pull * pull / (weight + 1.0 / self.between) - np.log1p(self.between * weight)
        each: Floats = inner + 0.5 * by_axis.sum(axis=2)
        return each

    def _log(self, weight: Floats, pull: Floats, inner: Floats) -> Floats:
        """Log evidence of clusters, averaged over widths."""
        each = self._each(weight, pull, inner)
        top = each.max(axis=0)
        log: Floats = top + np.log(np.exp(each - top).mean(axis=0))
        return log

    def _gains(self, one: int, others: Integers) -> Floats:
        """What joining one cluster to each of some others adds to the log evidence of the partition."""
        joined = self._log(*(s[:, [one]] + s[:, others] for s in (self.weight, self.pull, self.inner)))
        size, sizes = self.size[one], self.size[others]
        prior = gammaln(size + sizes) - gammaln(size) - gammaln(sizes) - np.log(CONCENTRATION)
        gains: Floats = joined - self.own[one] - self.own[others] + prior
        return gains

    def merge(
        self, clusters: Integers, to_one: bool = False
    ) -> tuple[Integers, list[tuple[int, int, float]], NDArray[np.float64]]:
        """Merge clusters, best pair first, while that raises the evidence or until one is left.

        Returns what is left, the joins with their gains, and for each that is left the gain of its best join.
        """
        n = len(clusters)
        gains = np.full((n, n), -np.inf)
        for i in range(n - 1):
            gains[i, i + 1 :] = self._gains(clusters[i], clusters[i + 1 :])
        alive = np.ones(n, dtype=bool)
        joins: list[tuple[int, int, float]] = []
        for _ in range(n - 1):
            i, j = divmod(int(np.argmax(gains)), n)
            if gains[i, j] <= 0 and not to_one:
                break
            into, gone = int(clusters[i]), int(clusters[j])
            joins.append((into, gone, float(gains[i, j])))
            for sums in (self.weight, self.pull, self.inner):
                sums[:, into] += sums[:, gone]
            self.size[into] += self.size[gone]
            self.own[into] = self._log(*(s[:, [into]] for s in (self.weight, self.pull, self.inner)))[0]
            self.parent[gone] = into
            alive[j] = False
            gains[j, :] = gains[:, j] = -np.inf
            others = np.flatnonzero(alive)
            others = others[others != i]
            if len(others):
                gains[np.minimum(i, others), np.maximum(i, others)] = self._gains(into, clusters[others])
        best = np.maximum(gains.max(axis=0), gains.max(axis=1))
        return clusters[alive], joins, best[alive]

    def root_of(self) -> Integers:
        """Cluster of every node, by the node that stands for it."""
        root = self.parent
        while not np.array_equal(root, root[root]):
            root = root[root]
        return root

    def places(self, root: Integers) -> Floats:
        """Where nodes are most likely to be, given their clusters: each shrunk towards its centre by its noise."""
        width = self._each(self.weight, self.pull, self.inner).argmax(axis=0)
        chosen = width, np.arange(len(root))
        centre = (self.pull[chosen] / (self.weight[chosen] + 1.0 / self.between[width, 0]))[root]
        inside = self.inside[width][root]
        places: Floats = centre + (self.at - centre) * inside / (inside + self.noise)
        return self.axes.middle + places @ self.axes.basis
