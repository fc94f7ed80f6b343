"""The scale of each feature in a distance: what the condenser of rows and the read-out of nodes both measure with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._kernels import kernel
from fcac._typing import Floats

# Features are put on one scale if the distance would otherwise listen to fewer than this share of them. Above it they
# are brought nearer to each other, in steps of a quarter: the fewer are heard, the more. But not if no more features
# than these go unheard: among few features one of large spread likely is the one that tells clusters apart.
_HEARD_SHARE, _STEP, _UNHEARD = 1 / 3, 1 / 4, 2.5
# From this many nodes on means and variances are summed without copies of all nodes.
_SUMMED_FROM = 20_000


def feature_scales(nodes: Floats, counts: Floats) -> Floats:
    """Return a factor for every feature.

    The effective number of features in a squared distance is (sum of variances) squared over the sum of squared
    variances. If that is less than a third of the features that vary at all, a few of large spread drown out the rest,
    and every feature is divided by its spread. If all are heard nothing is changed, nor if all but one or two are; in
    between every feature is divided by a power of its spread, one half if half of them are heard. Variances are
    rounded to powers of two and that power to quarters, so that a few new nodes hardly ever change the metric.

    Parameters
    ----------
    nodes : ndarray of shape (n, d)
    counts : ndarray of shape (n,)
        Records behind each node.

    Returns
    -------
    factors : ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.scaling import feature_scales
    >>> same = np.random.default_rng(0).normal(size=(50, 6))
    >>> feature_scales(same, np.ones(50)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    >>> feature_scales(same * [1000, 1, 1, 1, 1, 1], np.ones(50)).tolist()
    [0.0009765625, 1.0, 1.0, 1.0, 1.0, 1.0]
    >>> feature_scales(same * [4, 4, 4, 1, 1, 1], np.ones(50)).tolist()
    [0.5, 0.5, 0.5, 1.0, 1.0, 1.0]
    >>> feature_scales(same[:, :3] * [4, 1, 1], np.ones(50)).tolist()
    [1.0, 1.0, 1.0]
    """
    return scales_for(moments(nodes, counts)[1])


def moments(nodes: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of every feature over the records behind nodes."""
    if len(nodes) >= _SUMMED_FROM:
        centre: Floats = _weighted_mean(nodes, counts, np.zeros(nodes.shape[1]), 1)
        return centre, _weighted_mean(nodes, counts, centre, 2)
    centre = np.average(nodes, axis=0, weights=counts)
    return centre, np.average((nodes - centre) ** 2, axis=0, weights=counts)


@kernel
def _weighted_mean(nodes: Any, counts: Any, centre: Any, power: int) -> Any:
    """Weighted mean of each feature's gap to a centre, or of its square."""
    total, weight = np.zeros(nodes.shape[1]), 0.0
    for r in range(nodes.shape[0]):
        weight += counts[r]
        for j in range(nodes.shape[1]):
            gap = nodes[r, j] - centre[j]
            total[j] += counts[r] * (gap if power == 1 else gap * gap)
    return total / weight


def scales_for(variances: Floats) -> Floats:
    """Return a factor for every feature, given their variances; see :func:`feature_scales`."""
    factors = np.ones(len(variances))
    varies = variances > 0
    largest = variances.max(initial=0.0)
    if not varies.any() or not np.isfinite(largest):
        return factors
    shares = variances[varies] / largest
    heard = shares.sum() ** 2 / (shares**2).sum() / varies.sum()
    power = np.rint((1 - heard) / _STEP) * _STEP if (1 - heard) * varies.sum() > _UNHEARD else 0.0
    if heard < _HEARD_SHARE:
        power = 1.0
    log_spread = np.rint(np.log2(variances[varies])) / 2
    # where all spreads are alike distances are left in the units they came in
    if power and np.ptp(log_spread) > 0:
        factors[varies] = np.exp2(-power * log_spread)
    return factors
