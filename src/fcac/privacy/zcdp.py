"""Costs of Gaussian noise that add up (rho), and their exact conversion to (epsilon, delta).

Gaussian noise of standard deviation s on a value of sensitivity D costs rho = D^2 / (2 s^2), and costs simply add up.
The ledger therefore accounts in rho. People read epsilon at a delta, so rho is converted for display.

Releases by Gaussian noise, composed adaptively, are exactly as private as one Gaussian release of the summed rho
(Gaussian differential privacy with mu = sqrt(2 rho); Dong, Roth and Su, 2022), and :func:`epsilon_from_rho` follows
that trade-off curve (Balle and Wang, 2018).

Our noise is discrete. A discrete Gaussian of scale s is, up to a factor of 1 + 1e-25 in any probability, what becomes
of continuous noise of variance s^2 - ``SMOOTHING`` when it is rounded to integers at random (docs/privacy/proof.md). So
:func:`gaussian_scale` and :func:`gaussian_rho` count on s^2 - ``SMOOTHING`` only, and the curve of the continuous
Gaussian is proved for what is drawn. All rounding is conservative: a converted epsilon is never too small, an allowed
rho never too large.

Examples
--------
>>> from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
>>> rho = rho_from_epsilon(4.0, delta=1e-6)
>>> round(rho, 3), epsilon_from_rho(rho, delta=1e-6) <= 4.0
(0.351, True)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from scipy.special import erfcx

#: Largest delta allowed: beyond it, a guarantee per record means little in a data set of ordinary size.
MAX_DELTA = 1e-5

#: Variance that discrete noise gives up in the comparison with continuous noise, in squared integer steps. With it, the
#: probabilities of a million noised values differ from those of rounded continuous noise by a factor of 1 + 1e-19.
SMOOTHING = 3

# Covers the rounding errors in the floating-point evaluation of the bounds, and the factor of the discrete noise.
_ROUND_UP = 1.0 + 1e-12
_LESS_DELTA = 1.0 - 1e-9
# Relative error allowed for in scaled complementary error functions; scipy's are better than this.
_ERFCX_ERROR = 1e-14


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


def gaussian_delta(epsilon: float, rho: float) -> float:
    """Return the delta of Gaussian noise of cost rho at this epsilon, rounded up.

    With mu = sqrt(2 rho), delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2), written with Mills
    ratios so that nothing is lost in the difference.
    """
    mu = separation(rho)
    near, far = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    if near < -5.0:
        return 1.0
    ratios = (1.0 + _ERFCX_ERROR) * float(erfcx(near / math.sqrt(2.0))) - (1.0 - _ERFCX_ERROR) * float(
        erfcx(far / math.sqrt(2.0))
    )
    return 0.5 * math.exp(-0.5 * near * near) * ratios


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Return the smallest epsilon at this delta for Gaussian noise that costs rho altogether."""
    rho, delta = _check_rho(rho), check_delta(delta)
    if rho == 0:
        return 0.0
    # the bound for zCDP of order 1 + sqrt(log(1/delta) / rho) is above the exact value
    low, high = 0.0, rho + 2.0 * math.sqrt(-rho * math.log(delta))
    for _ in range(100):
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low < 1e-14 * high:
            break
        if gaussian_delta(middle, rho) <= delta * _LESS_DELTA:
            high = middle
        else:
            low = middle
    return high * _ROUND_UP


@lru_cache(maxsize=1024)
def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest rho of Gaussian noise whose epsilon at this delta does not exceed the given one.

    Rounded down: :func:`epsilon_from_rho` of the result is never above ``epsilon``.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    low, high = 0.0, epsilon + 1.0  # delta is far above 1e-5 where rho exceeds epsilon by 1
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if gaussian_delta(epsilon, middle) <= delta * _LESS_DELTA:
            low = middle
        else:
            high = middle
    while epsilon_from_rho(low, delta) > epsilon:
        low *= 1.0 - 1e-12
    return low


@lru_cache(maxsize=4096)
def gaussian_rho(squared_sensitivity: int, scale: float) -> float:
    """Return the cost of discrete Gaussian noise of this scale: D^2 / (2 (s^2 - SMOOTHING)), rounded up."""
    if not scale * scale > SMOOTHING:
        raise ValueError(f"a scale of {scale:g} is too small: discrete noise of that scale is not like Gaussian noise")
    exact = Fraction(squared_sensitivity) / (2 * (Fraction(scale) ** 2 - SMOOTHING))
    cost = float(exact)
    return cost if Fraction(cost) >= exact else math.nextafter(cost, math.inf)


@lru_cache(maxsize=4096)
def gaussian_scale(squared_sensitivity: int, rho: float) -> float:
    """Return the smallest standard deviation (up to rounding) whose cost does not exceed rho.

    The squared sensitivity is that of the most by which one record can change the value, in integer units.
    """
    if squared_sensitivity <= 0 or not rho > 0:
        raise ValueError("a noised value needs a positive sensitivity and a positive part of the budget")
    scale = math.sqrt(squared_sensitivity / (2.0 * rho) + SMOOTHING)
    while Fraction(squared_sensitivity) > 2 * Fraction(rho) * (Fraction(scale) ** 2 - SMOOTHING):
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


def up(epsilon: float) -> str:
    """Return an epsilon with two digits, rounded up: the one way in which spending is shown.

    >>> up(1.4501), up(1.0)
    ('1.46', '1.00')
    """
    return "inf" if math.isinf(epsilon) else f"{math.ceil(epsilon * 100 - 1e-6) / 100:.2f}"


def separation(rho: float) -> float:
    """Return mu = sqrt(2 rho): how far apart, in standard deviations, a Gaussian release puts two neighbours."""
    return math.sqrt(2.0 * rho)


def _check_rho(rho: float) -> float:
    number = _number(rho, "rho")
    if number < 0 or math.isinf(number):
        raise ValueError(f"rho must be finite and not negative, got {rho!r}")
    return number


def _number(value: float, field: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{field} must be a number, got {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"{field} must be a number, got NaN")
    return number
