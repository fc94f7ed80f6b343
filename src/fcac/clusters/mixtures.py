"""Mixtures of Gaussians over atoms: round and elliptic clusters that overlap, where density shows no valley.

Expectation and maximisation run on the atoms' moments (mass, mean, covariance) in place of their nodes, which is some
thirty times less work (Bradley, Reina and Fayyad 1998), from the cuts of Ward's tree. The number of components, and
whether they are round or of any covariance, is the one with the best Bayesian information criterion.

References
----------
P. S. Bradley, C. A. Reina, U. M. Fayyad, "Clustering very large databases using EM mixture models", Microsoft Research
Technical Report MSR-TR-98-35 (1998).
G. Schwarz, "Estimating the dimension of a model", Annals of Statistics 6 (1978).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._parallel import one_blas_thread
from fcac._typing import Floats, Integers

# Means and spreads are compared along so many principal axes at most, components of a mixture along fewer.
MOST_AXES = 20
_COMPONENT_AXES = 10
# Numbers of components that are tried, until the criterion has been worse this often.
_NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50)
_WORSE = 3
_STEPS = 30
# The same on nodes, from what was found on atoms.
_LAST_STEPS = 8


class Moments(NamedTuple):
    """Mass, sum and sum of products of groups of nodes along some axes, from the mean of all."""

    mass: Floats
    sums: Floats
    products: Floats

    @classmethod
    def of(cls, axes: Floats, mass: Floats, group: Integers) -> Moments:
        p, q = int(group.max()) + 1, axes.shape[1]
        points = axes - np.average(axes, axis=0, weights=mass)
        order = np.argsort(group, kind="stable")
        starts = np.r_[0, np.cumsum(np.bincount(group, minlength=p))].tolist()
        total, sums, products = np.zeros(p), np.zeros((p, q)), np.zeros((p, q, q))
        mass, points = mass[order], points[order]
        weighted = points * mass[:, None]
        for i in range(p):
            some = slice(starts[i], starts[i + 1])
            total[i], sums[i] = mass[some].sum(), weighted[some].sum(axis=0)
            np.matmul(weighted[some].T, points[some], out=products[i])
        return cls(total, sums, products)


def principal_axes(points: Floats, mass: Floats) -> Floats:
    """Points along their principal axes, if they have many features."""
    if points.shape[1] <= MOST_AXES:
        return np.ascontiguousarray(points)
    with one_blas_thread():
        centred = points - np.average(points, axis=0, weights=mass)
        if points.shape[1] <= 200:
            axes = np.linalg.eigh((centred * mass[:, None]).T @ centred)[1][:, ::-1][:, :MOST_AXES]
        else:
            start = np.cos(np.arange(points.shape[1] * MOST_AXES, dtype=np.float64)).reshape(-1, MOST_AXES)
            axes = np.linalg.qr(start)[0]
            for _ in range(6):
                axes = np.linalg.qr(centred.T @ (mass[:, None] * (centred @ axes)))[0]
        return np.ascontiguousarray(centred @ axes)


def shares_of_nodes(
    axes: Floats,
    mass: Floats,
    moments: Moments,
    atom_of: Integers,
    cut_into: Callable[[int], Integers],
    wanted: int | None = None,
) -> Floats:
    """Return the share of every node in each component of the best mixture.

    `cut_into` gives the component of every atom that the search for so many starts from; `wanted` is the number, if it
    is known.
    """
    weight = moments.mass * (len(axes) / moments.mass.sum())
    mean = moments.sums / moments.mass[:, None]
    covariance = moments.products / moments.mass[:, None, None] - mean[:, :, None] * mean[:, None, :]
    points = axes - np.average(axes, axis=0, weights=mass)
    with one_blas_thread():
        if axes.shape[1] > _COMPONENT_AXES:
            turn = np.linalg.eigh(moments.products.sum(axis=0))[1][:, ::-1][:, :_COMPONENT_AXES]
            mean, covariance, points = mean @ turn, turn.T @ covariance @ turn, points @ turn
        mean, covariance, points = (np.ascontiguousarray(of) for of in (mean, covariance, points))
        part, full = _best(weight, mean, covariance, cut_into, wanted)
        start = np.unique(part, return_inverse=True)[1][atom_of]
        share: Floats = refined(points, mass * (len(mass) / mass.sum()), start, int(start.max()) + 1, full)
    return share


def _best(
    weight: Floats, mean: Floats, covariance: Floats, cut_into: Callable[[int], Integers], wanted: int | None
) -> tuple[Integers, bool]:
    """Component of every atom, and whether components have covariances of their own."""
    p = len(weight)
    best = np.inf, np.zeros(p, dtype=np.int64), False
    for full in (False, True):
        worse, least = 0, np.inf
        for number in _NUMBERS if wanted is None else (wanted,):
            if number > p or worse >= _WORSE:
                break
            criterion, found = _fitted(weight, mean, covariance, cut_into(number), number, full, _STEPS)
            if criterion < best[0]:
                best = criterion, found, full
            worse = 0 if criterion < least else worse + 1
            least = min(least, criterion)
    return best[1], best[2]


@kernel
def _fitted(weight: Any, mean: Any, covariance: Any, part: Any, k: int, full: bool, steps: int) -> Any:
    """Bayesian information criterion of a mixture of `k` Gaussians, and the likeliest component of every atom."""
    p, d = mean.shape
    share = np.zeros((p, k))
    for i in range(p):
        share[i, part[i]] = 1.0
    n = weight.sum()
    whole = _spread(weight, mean, covariance)
    prior, centre, inverse, log_det = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)), np.zeros(k)
    before = -np.inf
    total = before
    for _ in range(steps):
        _maximised(weight, mean, covariance, share, full, whole, prior, centre, inverse, log_det)
        total = _expected(weight, mean, covariance, prior, centre, inverse, log_det, full, share)
        if total - before < 1e-4 * n:
            break
        before = total
    found = np.zeros(p, dtype=np.int64)
    for i in range(p):
        found[i] = np.argmax(share[i])
    parameters = k * (1 + d + (d * (d + 1) // 2 if full else 1)) - 1
    return -2 * total + parameters * np.log(n), found


@inner_kernel
def _spread(weight: Any, mean: Any, covariance: Any) -> float:
    """Mean variance of all in one along an axis."""
    p, d = mean.shape
    n = weight.sum()
    total = 0.0
    for j in range(d):
        centre = 0.0
        for i in range(p):
            centre += weight[i] * mean[i, j] / n
        for i in range(p):
            total += weight[i] * ((mean[i, j] - centre) ** 2 + covariance[i, j, j]) / n
    return float(max(total / d, 1e-300))


@inner_kernel
def _maximised(
    weight: Any, mean: Any, covariance: Any, share: Any, full: bool, whole: float,
    prior: Any, centre: Any, inverse: Any, log_det: Any,
) -> None:  # fmt: skip
    """Set the likeliest components for the shares of atoms in them; small ones are drawn towards a sphere."""
    p, d = mean.shape
    k = share.shape[1]
    n = weight.sum()
    for c in range(k):
        held = 1e-9
        for i in range(p):
            held += weight[i] * share[i, c]
        prior[c] = held / n
        for j in range(d):
            centre[c, j] = 0.0
        for i in range(p):
            if share[i, c] > 1e-9:
                for j in range(d):
                    centre[c, j] += weight[i] * share[i, c] * mean[i, j] / held
        spread = np.zeros((d, d))
        trace = 0.0
        for i in range(p):
            if share[i, c] > 1e-9:
                part = weight[i] * share[i, c] / held
                for j in range(d):
                    a = mean[i, j] - centre[c, j]
                    trace += part * (a * a + covariance[i, j, j])
                    if full:
                        for m in range(j + 1):
                            spread[j, m] += part * (a * (mean[i, m] - centre[c, m]) + covariance[i, j, m])
        variance = max(trace / d, 1e-4 * whole)
        if not full:
            log_det[c] = d * np.log(variance)
            inverse[c, 0, 0] = 1 / variance
            continue
        towards = (d + 1) / (d + 1 + held)
        for j in range(d):
            for m in range(j):
                spread[j, m] *= 1 - towards
                spread[m, j] = spread[j, m]
            spread[j, j] = (1 - towards) * spread[j, j] + towards * variance + 1e-4 * variance
        lower = np.linalg.cholesky(spread)
        log_det[c] = 2 * np.log(np.diag(lower)).sum()
        inverse[c] = np.linalg.inv(spread)


@inner_kernel
def _expected(
    weight: Any, mean: Any, covariance: Any, prior: Any, centre: Any, inverse: Any, log_det: Any, full: bool, share: Any
) -> float:
    """Set the shares of atoms in components, and return the log likelihood."""
    p, d = mean.shape
    k = share.shape[1]
    total = 0.0
    off = np.empty(d)
    for i in range(p):
        largest = -np.inf
        for c in range(k):
            apart = 0.0
            if full:
                for j in range(d):
                    off[j] = mean[i, j] - centre[c, j]
                for j in range(d):
                    row = 0.0
                    for m in range(d):
                        row += inverse[c, j, m] * off[m]
                        apart += inverse[c, j, m] * covariance[i, j, m]
                    apart += row * off[j]
            else:
                for j in range(d):
                    apart += ((mean[i, j] - centre[c, j]) ** 2 + covariance[i, j, j]) * inverse[c, 0, 0]
            share[i, c] = np.log(prior[c]) - 0.5 * (d * np.log(2 * np.pi) + log_det[c] + apart)
            largest = max(largest, share[i, c])
        held = 0.0
        for c in range(k):
            share[i, c] = np.exp(share[i, c] - largest)
            held += share[i, c]
        for c in range(k):
            share[i, c] /= held
        total += weight[i] * (largest + np.log(held))
    return total


@kernel
def refined(points: Any, weight: Any, start: Any, k: int, full: bool) -> Any:
    """Shares of nodes in components, from the component that each node's atom is in."""
    n, d = points.shape
    share = np.zeros((n, k))
    for i in range(n):
        share[i, start[i]] = 1.0
    alone = np.zeros((n, d, d))
    whole = _spread(weight, points, alone)
    prior, centre, inverse, log_det = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)), np.zeros(k)
    for _ in range(_LAST_STEPS):
        _maximised(weight, points, alone, share, full, whole, prior, centre, inverse, log_det)
        _expected(weight, points, alone, prior, centre, inverse, log_det, full, share)
    return share
