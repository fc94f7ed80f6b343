"""Families of tables that nothing in fcac was chosen or fitted on, to test it and its peers alike.

They were written once, before any clusterer had seen them, and differ in kind from the families that the judge of
clusters is fitted on (``benchmarks/judge``). Published sets that were not at hand either come as files:
``benchmarks/unseen_sets.py`` writes them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def frequencies(rng: np.random.Generator) -> Table:
    """Waves of five frequencies and any phase, sampled at 30 times: each kind is a circle in 30 features."""
    y = rng.integers(5, size=1500)
    at = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    X = np.sin((y[:, None] + 1) * at + rng.uniform(0, 2 * np.pi, (1500, 1)))
    return X + 0.25 * rng.normal(size=X.shape), y


def compositions(rng: np.random.Generator) -> Table:
    """Shares of eight parts that sum to one, around six recipes."""
    recipes, y = rng.dirichlet(np.ones(8), 6), rng.integers(6, size=1500)
    return np.array([rng.dirichlet(60 * recipes[k] + 0.3) for k in y]), y


def zero_inflated(rng: np.random.Generator) -> Table:
    """Amounts that are often nothing at all: four kinds differ in how often and how much, in 12 features."""
    y = rng.integers(4, size=1600)
    often, much = rng.uniform(0.1, 0.95, (4, 12)), rng.uniform(0.5, 4, (4, 12))
    X = rng.gamma(4.0, much[y] / 4.0) * (rng.random((1600, 12)) < often[y])
    return X, y


def cube_corners(rng: np.random.Generator) -> Table:
    """Sixteen corners of a cube of four features; every cluster points inwards with exponential tails."""
    y = rng.integers(16, size=3200)
    corners = np.array([[int(bit) for bit in f"{k:04b}"] for k in range(16)], np.float64)
    return corners[y] + rng.exponential(0.09, (3200, 4)) * np.where(corners[y] > 0, -1.0, 1.0), y


def shells(rng: np.random.Generator) -> Table:
    """Three spheres around one point in four features."""
    y = np.repeat([0, 1, 2], [200, 900, 2200])
    directions = rng.normal(size=(len(y), 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * (np.array([0.3, 2.0, 4.0])[y] + rng.normal(0, 0.12, len(y)))[:, None], y


def on_a_sphere(rng: np.random.Generator) -> Table:
    """Directions of unit length in ten features, around seven of them, of unequal numbers."""
    middles = rng.normal(size=(7, 10))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    y = rng.choice(7, 1800, p=np.arange(1, 8) / 28)
    X = middles[y] + 0.16 * rng.normal(size=(1800, 10))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def knots(rng: np.random.Generator) -> Table:
    """A trefoil knot with a ring through one of its loops."""
    y = np.repeat([0, 1], [1500, 700])
    t = rng.uniform(0, 2 * np.pi, len(y))
    trefoil = np.c_[np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)]
    ring = np.c_[1.2 * np.cos(t), -3 + 0 * t, 1.2 * np.sin(t)]
    return np.where(y[:, None] == 0, trefoil, ring) + 0.08 * rng.normal(size=(len(y), 3)), y


def one_wedge(rng: np.random.Generator) -> Table:
    """A single cloud, dense at its tip and thinning out along five features: nothing to be split."""
    along = rng.exponential(1.0, (1500, 1))
    return np.hstack([along, 0.2 * (1 + along) * rng.normal(size=(1500, 4))]), np.zeros(1500, np.int64)


FAMILIES: dict[str, Callable[[np.random.Generator], Table]] = {
    "waves of five frequencies": frequencies,
    "compositions": compositions,
    "zero-inflated amounts": zero_inflated,
    "corners of a cube": cube_corners,
    "shells": shells,
    "directions on a sphere": on_a_sphere,
    "a knot and a ring": knots,
    "a single wedge": one_wedge,
}
