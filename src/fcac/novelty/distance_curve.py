"""From noised counts of distances to a calibration of novelty: a smooth curve through bins that hold mostly noise.

The noise of one bin may be as large as all of the rows that a false-alarm rate of 1 % is about, so bins cannot be
trusted one by one. Their counts are fitted by a curve of few parameters. Over the logarithm of the distance its
logarithm rises with one slope, turns and falls with another: the generalised beta distribution of the second kind,
which has the distances of Gaussian rows (generalised gamma) and those of rows with heavy tails (power laws) among its
cases. Where counts stand out from the curve, bumps are added. A second fit then looks at the farther rows alone, so
that what is near nodes, where there is the most to fit, does not bend the tail. In the end a bin whose own count stands
out from all that keeps its count.

Everything here is computed from noised counts and public values. Slopes have weak priors, which decide where noise
hides everything else; docs/results/noisy.md tells how they were chosen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit

from fcac._typing import Floats

# Mean and deviation of the logarithms of the slopes on both sides and of how sharply the curve turns.
_PRIORS = np.array([[1.6, 1.2], [5.0, 2.0], [1.2, 0.6]])
# Deviation of the logarithm of a bump's width from where it was first seen.
_WIDTH_MAY_CHANGE = 0.7
# A bump is added if it holds this many standard deviations, and there are at most so many.
_STANDS_OUT, _MOST_BUMPS = 4.0, 2
# A bin that differs from the curve by this many standard deviations is taken as it is.
_SPEAKS_FOR_ITSELF = 5.0
# All of the counts together must stand out that much for any curve to be fitted.
_IS_THERE = 3.0
# The second fit looks at this share of the rows, the farthest.
_FARTHER = 0.3
# Narrowest bump, as a deviation of the logarithm of the distance.
_NARROWEST = 0.15
# Variance of a count beside its noise and its size, so that empty bins without noise have one.
_LEAST_VARIANCE = 0.25
_LARGEST_EXPONENT = 40.0


class _Bump(NamedTuple):
    """A bump that was found: how far it stands out, and logarithm of its height, place and logarithm of its width."""

    deviations: float
    start: Floats


def smooth_counts(counts: Floats, variance: float, places: Floats) -> Floats | None:
    """Return the expected count of every bin; None if the counts are hidden by their noise.

    Counts of equal bins have noise of this variance; `places` are logarithms of the distance in the middle of every
    bin.
    """
    n, step = len(counts), float(places[1] - places[0])
    flat = np.full(n, variance + 1.0)
    seen = _find_bump(counts, flat, places, np.geomspace(0.7, n / 5, 14))
    if seen is None or seen.deviations < _IS_THERE:
        return None
    height, place, width = seen.start
    # where both slopes are equal and the turn is 2, this is the curvature of the bump
    slope = min(-2.0 * max(width, np.log(0.7 * step)), np.log(300.0))
    first, cost = _solve(np.array([height, place, slope, slope, np.log(2.0)]), counts, variance, places)
    whole = _with_bumps(first, cost, counts, variance, places)
    expected = _curve(whole, places)
    share = np.cumsum(expected[::-1])[::-1] / expected.sum()
    start = int(np.flatnonzero(share >= _FARTHER)[-1])
    if n - start > len(first):
        top = start + int(expected[start:].argmax())
        anew = np.concatenate([[np.log(expected[top]), places[top]], _PRIORS[:, 0]])
        far, where = counts[start:], places[start:]
        best, cost = min((_solve(begin, far, variance, where) for begin in (first, anew)), key=lambda found: found[1])
        expected[start:] = _curve(_with_bumps(best, cost, far, variance, where), where)
    off = np.abs(counts - expected) > _SPEAKS_FOR_ITSELF * np.sqrt(variance + expected + _LEAST_VARIANCE)
    return np.where(off, np.maximum(counts, 0.0), expected)


def _curve(parameters: Floats, places: Floats) -> Floats:
    return _curve_and_slopes(parameters, places)[0]


def _curve_and_slopes(parameters: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Return the expected counts, and their derivatives by every parameter as columns."""
    height, centre = parameters[:2]
    rise, fall, turn = np.exp(np.minimum(parameters[2:5], _LARGEST_EXPONENT))
    both = rise + fall
    apart = places - centre
    top = np.log(rise / fall) / turn  # the curve's highest place, where its derivative is zero
    bent, bent_top = np.logaddexp(0.0, turn * apart), np.logaddexp(0.0, turn * top)
    lies = expit(turn * apart)
    exponent = height + rise * (apart - top) - both / turn * (bent - bent_top)
    main = np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
    # the place of the top drops out: the derivative there is zero
    columns = [
        np.ones(len(places)),
        -rise + both * lies,
        rise * ((apart - top) - (bent - bent_top) / turn),
        -fall * (bent - bent_top) / turn,
        both / turn * (bent - bent_top) - both * (apart * lies - top * expit(turn * top)),
    ]
    expected, slopes = main, [main * column for column in columns]
    for height, centre, width in parameters[5:].reshape(-1, 3):
        wide = np.exp(width)
        off = (places - centre) / wide
        bump = np.exp(np.minimum(height, _LARGEST_EXPONENT) - 0.5 * off**2)
        expected = expected + bump
        slopes += [bump, bump * off / wide, bump * off**2]
    return expected, np.column_stack(slopes)


def _solve(start: Floats, counts: Floats, variance: float, places: Floats) -> tuple[Floats, float]:
    """Fit from a start by least squares; return parameters and cost (minus twice the logarithm of the likelihood)."""
    parameters, cost = start, np.inf
    widths = np.arange(7, len(start), 3)
    narrowed = np.eye(len(start))[[2, 3, 4, *widths]]
    means = np.concatenate([_PRIORS[:, 0], start[widths]])
    deviations = np.concatenate([_PRIORS[:, 1], np.full(len(widths), _WIDTH_MAY_CHANGE)])
    for _ in range(3):  # the variance of counting follows the fit
        deviation = np.sqrt(variance + _curve(parameters, places) + _LEAST_VARIANCE)

        def missing(found: NDArray[Any], deviation: Floats = deviation) -> Floats:
            off = (_curve(found, places) - counts) / deviation
            return np.concatenate([off, (narrowed @ found - means) / deviations])

        def slopes(found: NDArray[Any], deviation: Floats = deviation) -> Floats:
            return np.vstack([_curve_and_slopes(found, places)[1] / deviation[:, None], narrowed / deviations[:, None]])

        solution = least_squares(missing, parameters, jac=slopes, max_nfev=60)
        parameters, cost = solution.x, 2.0 * solution.cost + 2.0 * float(np.log(deviation).sum())
    return parameters, cost


def _with_bumps(parameters: Floats, cost: float, counts: Floats, variance: float, places: Floats) -> Floats:
    """Add bumps as long as one stands out and pays."""
    step = float(places[1] - places[0])
    widths = np.geomspace(max(0.7, _NARROWEST / step), max(len(counts), 80) / 8, 8)
    for _ in range(_MOST_BUMPS):
        expected = _curve(parameters, places)
        seen = _find_bump(counts - expected, variance + expected + _LEAST_VARIANCE, places, widths)
        if seen is None or seen.deviations < _STANDS_OUT:
            break
        tried, lower = _solve(np.concatenate([parameters, seen.start]), counts, variance, places)
        if lower > cost - 0.5 * _STANDS_OUT**2:
            break
        parameters, cost = tried, lower
    return parameters


def _find_bump(counts: Floats, variance: Floats, places: Floats, widths: Floats) -> _Bump | None:
    """Return the bump, of any of these widths (in bins) and at any place, that stands out most."""
    bins, step = np.arange(len(counts)), float(places[1] - places[0])
    best: _Bump | None = None
    for width in widths:
        centres = np.arange(0.0, len(counts), max(0.5, width / 3))
        shapes = np.exp(-0.5 * ((bins - centres[:, None]) / width) ** 2)
        held, size = shapes @ (counts / variance), shapes**2 @ (1.0 / variance)
        deviations = held / np.sqrt(size)
        at = int(deviations.argmax())
        if deviations[at] > (0.0 if best is None else best.deviations):
            place = places[0] + step * centres[at]
            best = _Bump(float(deviations[at]), np.array([np.log(held[at] / size[at]), place, np.log(width * step)]))
    return best
