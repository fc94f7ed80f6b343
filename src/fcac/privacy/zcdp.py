"""Zero-concentrated differential privacy (zCDP) and its conversion to (epsilon, delta).

Gaussian noise of standard deviation s on a value of sensitivity D costs rho = D^2 / (2 s^2), and costs simply add up.
The ledger therefore accounts in rho. People read epsilon at a delta, so rho is converted for display, by the tight
bound over all Renyi orders (see docs/privacy/proof.md). All rounding is conservative: a converted epsilon is never too
small, an allowed rho never too large.

Examples
--------
>>> from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
>>> rho = rho_from_epsilon(4.0, delta=1e-6)
>>> round(rho, 3), epsilon_from_rho(rho, delta=1e-6) <= 4.0
(0.311, True)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

#: Largest delta allowed: beyond it, a guarantee per record means little in a data set of ordinary size.
MAX_DELTA = 1e-5

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Covers the rounding errors in the floating-point evaluation of the bound.
_ROUND_UP = 1.0 + 1e-12


def check_epsilon(epsilon: float, field: str = "epsilon") -> float:
    """Return epsilon as a float, or raise an error that says what is wrong with it."""
    number = _number(epsilon, field)
    if not number > 0 or math.isinf(number):
        raise ValueError(f"{field} must be a positive, finite number, got {epsilon!r}; try {field}=4")
    return number


def check_delta(delta: float, field: str = "delta") -> float:
    """Return delta as a float, or raise an error that says what is wrong with it."""
    number = _number(delta, field)
    if not 0 < number <= MAX_DELTA:
        raise ValueError(f"{field} must lie in (0, {MAX_DELTA:g}], got {delta!r}; try {field}=1e-6")
    return number


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Return the smallest epsilon that can be proved at this delta for a rho-zCDP mechanism.

    For every order a > 1, rho-zCDP gives
    ``epsilon = a rho + log(1 - 1/a) - (log delta + log a) / (a - 1)``; every order gives a valid bound, and the best
    one found is returned.

    Parameters
    ----------
    rho : float
        Total cost, non-negative.
    delta : float

    Returns
    -------
    float
    """
    rho, delta = _number(rho, "rho"), check_delta(delta)
    if rho < 0 or math.isinf(rho):
        raise ValueError(f"rho must be finite and not negative, got {rho!r}")
    if rho == 0:
        return 0.0
    log_delta = math.log(delta)

    def bound(log_order_minus_one: float) -> float:
        beyond = math.exp(log_order_minus_one)
        order = 1.0 + beyond
        return order * rho + math.log(beyond / order) - (log_delta + math.log(order)) / beyond

    # The best order lies near sqrt(log(1/delta) / rho); searching more than two decades around it on a log scale is
    # enough, and missing the optimum would only make the answer larger, never invalid.
    centre = 0.5 * math.log(-log_delta / rho)
    low, high = centre - 6.0, centre + 6.0
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
    for _ in range(80):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
    return max(0.0, min(at_left, at_right)) * _ROUND_UP


@lru_cache(maxsize=1024)
def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest rho whose epsilon at this delta does not exceed the given one (rounded down).

    Parameters
    ----------
    epsilon : float
    delta : float

    Returns
    -------
    float
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    low, high = 0.0, epsilon  # epsilon_from_rho(rho) > rho, so epsilon itself is too much
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if epsilon_from_rho(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=4096)
def gaussian_rho(squared_sensitivity: int, scale: float) -> float:
    """Return the cost of Gaussian noise of this standard deviation on an integer: D^2 / (2 s^2), rounded up."""
    exact = Fraction(squared_sensitivity) / (2 * Fraction(scale) ** 2)
    cost = float(exact)
    return cost if Fraction(cost) >= exact else math.nextafter(cost, math.inf)


@lru_cache(maxsize=4096)
def gaussian_scale(squared_sensitivity: int, rho: float) -> float:
    """Return the smallest standard deviation (up to rounding) whose cost does not exceed rho.

    Parameters
    ----------
    squared_sensitivity : int
        Squared L2 sensitivity: the square of the most by which one record can change the value, in integer units.
    rho : float
        Cost that may be spent on the value.
    """
    if squared_sensitivity <= 0 or not rho > 0:
        raise ValueError("a noised value needs a positive sensitivity and a positive part of the budget")
    scale = math.sqrt(squared_sensitivity / (2.0 * rho))
    while Fraction(squared_sensitivity) > 2 * Fraction(rho) * Fraction(scale) ** 2:
        scale = math.nextafter(scale, math.inf)
    return scale


def show(number: float) -> str:
    """Return a number as people write it: 1e-6, not 1e-06.

    >>> show(1e-6), show(4.0)
    ('1e-6', '4')
    """
    text = f"{number:g}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text


def separation(rho: float) -> float:
    """Return mu = sqrt(2 rho): how far apart, in standard deviations, a Gaussian release puts two neighbours."""
    return math.sqrt(2.0 * rho)


def _number(value: float, field: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{field} must be a number, got {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"{field} must be a number, got NaN")
    return number
