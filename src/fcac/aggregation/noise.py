"""Shares of noise: what every site adds, so that the sum protects even if some sites vanish or collude.

A sum of discrete Gaussians is not a discrete Gaussian. Kairouz, Liu and Steinke, *The Distributed Discrete Gaussian
Mechanism for Federated Learning with Secure Aggregation* (2021), bound the difference: the probabilities of a sum of n
shares of scale s, in every component, differ from those of one discrete Gaussian of scale sqrt(n) s by a factor of at
most exp(tau / 2), where

    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k+1)).

With small shares tau is not negligible: with s = 1/2 and two sites it is 0.8. All totals are therefore in units so
small (:data:`fcac.privacy.cell_statistics.WEIGHT`) that shares are wide, and a share below :data:`LEAST_SCALE` is
widened to it; a million components of ten thousand sites then differ by a factor of at most 1 + 1e-56. The accounting
of one Gaussian leaves room for a factor of 1 + 1e-9 in delta (:mod:`fcac.privacy.zcdp`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

#: The smallest scale of a share.
LEAST_SCALE = 4.0

# What the accounting of one Gaussian has room for.
_NEGLIGIBLE = 1e-12


def distance_to_gaussian(scale: float, n_shares: int, n_components: int = 1) -> float:
    """Return the largest log-ratio of probabilities between a sum of shares and one discrete Gaussian, rounded up.

    Each share has this scale, at least 1/2, and noises a vector of `n_components`.

    >>> distance_to_gaussian(4.0, 10_000, 1_000_000) < 1e-50
    True
    >>> round(distance_to_gaussian(0.5, 2), 2)  # small shares are no Gaussian
    0.42
    """
    if scale < 0.5 or n_shares < 1:
        raise ValueError("the bound needs at least one share, of scale at least 1/2")
    half_tau = 5.0 * math.fsum(math.exp(-2.0 * math.pi**2 * scale**2 * k / (k + 1.0)) for k in range(1, n_shares))
    return half_tau * n_components * (1.0 + 1e-9)


@lru_cache(maxsize=4096)
def share_scale(total_scale: float, n_shares: int, n_components: int) -> float:
    """Return the scale of one share such that ``n_shares`` of them are as good as one Gaussian of ``total_scale``.

    Only shares count that are certainly in the sum and unknown to the observer.

    >>> share_scale(900.0, 9, 24), share_scale(1.0, 9, 24)
    (300.0, 4.0)
    """
    scale = max(LEAST_SCALE, total_scale / math.sqrt(n_shares))
    while Fraction(scale) ** 2 * n_shares < Fraction(total_scale) ** 2:
        scale = math.nextafter(scale, math.inf)
    if distance_to_gaussian(scale, n_shares, n_components) > _NEGLIGIBLE:
        raise AssertionError("shares of noise this small do not add up to a Gaussian")
    return scale
