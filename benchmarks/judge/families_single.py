"""Families of a single cluster: Gaussians, tails, filled and bent shapes, curves, sheets."""

from __future__ import annotations

import numpy as np

from .parts import (
    MOST_VALUES,
    Generator,
    Labels,
    Rows,
    Table,
    along,
    arc,
    dimensions,
    directions,
    disc,
    family,
    hexagon,
    length,
    lobed,
    log_uniform,
    polygon_mask,
    rotation,
    rows,
    smooth_path,
    square,
    triangle,
)


def one(X: Rows) -> tuple[Rows, Labels]:
    return X, np.zeros(len(X), dtype=np.int64)


# ---- round ----


@family("single_round")
def single_gaussian(rng: Generator) -> Table:
    d = dimensions(rng)
    return one(rng.normal(size=(rows(rng), d)))


@family("single_round", stretch=False)
def single_gaussian_high(rng: Generator) -> Table:
    d = int(log_uniform(rng, 5, 40))
    n = min(rows(rng), MOST_VALUES // d)
    return one(rng.normal(size=(n, d)) * (1 if rng.random() < 0.5 else np.exp(-rng.uniform(0, 1.5, d))))


@family("single_round")
def single_gaussian_small(rng: Generator) -> Table:
    """Ten to a hundred rows."""
    return one(rng.normal(size=(int(log_uniform(rng, 10, 100)), int(log_uniform(rng, 1, 15)))))


@family("single_round", outliers=False)
def single_small(rng: Generator) -> Table:
    """Ten to a hundred rows of a cube, a ball, heavy tails or skewed columns."""
    n, d = int(log_uniform(rng, 10, 100)), int(log_uniform(rng, 1, 9))
    kind = rng.integers(5)
    if kind == 0:
        return one(rng.random((n, d)))
    if kind == 1:
        return one(disc(rng, n, d))
    if kind == 2:
        return one(rng.standard_t(rng.uniform(3, 6), (n, d)))
    return one(np.exp(0.6 * rng.normal(size=(n, d))) if kind == 3 else rng.exponential(size=(n, d)))


@family("single_round")
def single_anisotropic(rng: Generator) -> Table:
    d = max(2, dimensions(rng))
    scale = np.exp(-np.arange(d) / max(d - 1, 1) * rng.uniform(0.7, 2.7))
    return one(rng.normal(size=(rows(rng), d)) * scale)


@family("single_round", outliers=False)
def single_student(rng: Generator) -> Table:
    n, d, f = rows(rng), dimensions(rng, 30), rng.uniform(2, 8)
    if rng.random() < 0.5:
        return one(rng.standard_t(f, (n, d)))
    return one(rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(f, (n, 1)) / f))


@family("single_round")
def single_skewed(rng: Generator) -> Table:
    """Lognormal, exponential or Laplace columns."""
    n, d = rows(rng), dimensions(rng, 30)
    kind = rng.integers(4)
    if kind < 2:
        return one(np.exp(rng.uniform(0.3, 1.2) * rng.normal(size=(n, d))))
    return one(rng.exponential(size=(n, d)) if kind == 2 else rng.laplace(size=(n, d)))


@family("single_round", outliers=False)
def single_with_outliers(rng: Generator) -> Table:
    n, d = rows(rng, 20), dimensions(rng, 6)
    m = max(1, int(n * rng.uniform(0.01, 0.1)))
    X = rng.normal(size=(n, d)) if rng.random() < 0.7 else disc(rng, n, d) * 2
    far = rng.uniform(-1, 1, (m, d)) * rng.uniform(5, 12)
    return np.vstack([X, far]), np.r_[np.zeros(n, int), np.full(m, -1)]


@family("single_round")
def single_scale_mixture(rng: Generator) -> Table:
    """One centre, a narrow and a broad part: peaked, but one cluster."""
    n, d = rows(rng), dimensions(rng, 5)
    return one(rng.normal(size=(n, d)) * np.exp(rng.uniform(0.2, 0.7) * rng.normal(size=(n, 1))))


@family("single_round")
def single_close_pair(rng: Generator) -> Table:
    """Two Gaussians so near that their sum has one mode: nobody could tell."""
    n, d = rows(rng, 30), dimensions(rng, 5)
    X = rng.normal(size=(n, d))
    X[: int(n * rng.uniform(0.3, 0.7)), 0] += rng.uniform(0.2, 1.4)
    return one(X)


@family("single_round", turn=False, stretch=False)
def single_correlated(rng: Generator) -> Table:
    """Columns that follow a few factors, some skewed, standardised: a table without groups."""
    d, n = int(rng.integers(2, 15)), rows(rng, 20)
    q = int(rng.integers(1, 4))
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + rng.uniform(0.2, 1.2) * rng.normal(size=(n, d))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return one(np.where(rng.random(d) < 0.3, np.exp(0.6 * X), X))


# ---- filled shapes ----


@family("single_shape")
def single_cube(rng: Generator) -> Table:
    return one(rng.random((rows(rng), dimensions(rng, 8))))


@family("single_shape")
def single_ball(rng: Generator) -> Table:
    return one(disc(rng, rows(rng), max(2, dimensions(rng, 8))))


@family("single_shape")
def single_simplex(rng: Generator) -> Table:
    """Shares that add to one; triangles in the plane."""
    n, d = rows(rng), int(rng.choice([3, 3, 4, 6, 10]))
    X = rng.dirichlet(np.full(d, rng.choice([1, 1, rng.uniform(1, 3)])), n)
    return one(triangle(rng, n) if rng.random() < 0.4 else X)


@family("single_shape")
def single_lobed(rng: Generator) -> Table:
    return one(lobed(rng, rows(rng, 60)))


@family("single_shape")
def single_bent_shape(rng: Generator) -> Table:
    """L, U, plus, T and wedge: filled, not convex, thick."""
    n, a = rows(rng, 80), rng.uniform(-0.3, 0.3)
    kind = rng.integers(5)

    def inside(u: Rows) -> np.ndarray:
        x, y = u.T
        if kind == 0:
            return (x < a) | (y < a)
        if kind == 1:
            return (np.abs(x) > 0.35) | (y < -0.3 + a)
        if kind == 2:
            return (np.abs(x) < 0.4) | (np.abs(y) < 0.4)
        if kind == 3:
            return (np.abs(x) < 0.35) | (y > 0.3 + a / 2)
        return np.abs(np.arctan2(y, x)) > 0.5 + a

    return one(polygon_mask(rng, n, inside))


@family("single_shape")
def single_star(rng: Generator) -> Table:
    """Three to seven blunt rays."""
    k, depth = int(rng.integers(3, 8)), rng.uniform(0.1, 0.3)
    phase = rng.uniform(0, 2 * np.pi)

    def inside(u: Rows) -> np.ndarray:
        t = np.arctan2(u[:, 1], u[:, 0])
        return np.linalg.norm(u, axis=1) < 1 - depth + depth * np.cos(k * t + phase)

    return one(polygon_mask(rng, rows(rng, 100), inside))


@family("single_shape")
def single_banana(rng: Generator) -> Table:
    n, d = rows(rng, 60), int(rng.choice([2, 2, 2, 3, 4]))
    X = rng.normal(size=(n, d)) * np.r_[1.0, np.full(d - 1, rng.uniform(0.3, 0.8))]
    X[:, 1] += rng.uniform(0.2, 0.8) * X[:, 0] ** 2
    return one(X)


@family("single_shape")
def single_slope(rng: Generator) -> Table:
    """A filled square, disc or hexagon whose density rises from one side to the other, up to tenfold."""
    n = rows(rng, 60)
    X = (square, disc, hexagon)[rng.integers(3)](rng, 12 * n)
    steep = log_uniform(rng, 1.5, 10)
    kept = X[rng.random(len(X)) < steep ** ((X[:, 0] - X[:, 0].max()) / 2)]
    return one(kept[:n])


@family("single_shape")
def single_long_box(rng: Generator) -> Table:
    """A rectangle two to fifteen times longer than wide."""
    return one(rng.random((rows(rng, 60), 2)) * [rng.uniform(2, 15), 1])


@family("single_shape")
def single_disc_with_hole(rng: Generator) -> Table:
    n, inner = rows(rng, 80), rng.uniform(0.2, 0.75)
    return one(directions(rng, n, 2) * np.sqrt(rng.uniform(inner**2, 1, (n, 1))))


# ---- curves and sheets ----


@family("single_curve")
def single_ring(rng: Generator) -> Table:
    return one(along(rng, arc(0, 2 * np.pi), rows(rng, 80), log_uniform(rng, 0.01, 0.2), rng.choice([0, 0, 0.6])))


@family("single_curve")
def single_spiral(rng: Generator) -> Table:
    n = rows(rng, 120)
    turns = rng.uniform(0.6, np.clip(0.12 * np.sqrt(n), 0.8, 3))
    t = np.linspace(0.12, 1, 300)
    path = np.column_stack([t * np.cos(2 * np.pi * turns * t), t * np.sin(2 * np.pi * turns * t)])
    return one(along(rng, path, n, rng.uniform(0.01, 0.1) / turns, rng.choice([0, 0, 0.6])))


@family("single_curve")
def single_path(rng: Generator) -> Table:
    """A smooth path that may cross itself."""
    path = smooth_path(rng, log_uniform(rng, 0.3, 4))
    n = rows(rng, 100) if rng.random() < 0.8 else int(log_uniform(rng, 3000, 12000))
    return one(along(rng, path, n, log_uniform(rng, 0.004, 0.08), rng.choice([0, 0, 0.5, 1.0])))


@family("single_curve")
def single_uneven_s(rng: Generator) -> Table:
    """An S, a C or a wave along which the density rises and falls."""
    x = np.linspace(-1, 1, 120)
    s = np.column_stack([np.sin(rng.uniform(1, 3.5) * x), x * rng.uniform(0.7, 1.5)])
    path = s if rng.random() < 0.6 else arc(0, rng.uniform(0.8, 1.7) * np.pi)
    return one(along(rng, path, rows(rng, 120), log_uniform(rng, 0.01, 0.12), rng.uniform(0.4, 1.4)))


@family("single_curve")
def single_gappy_curve(rng: Generator) -> Table:
    """A line, an arc or a wave so thinly sampled that chance leaves gaps."""
    n, x = int(log_uniform(rng, 15, 150)), np.linspace(0, 3, 100)
    wave = np.column_stack([x, rng.uniform(0.1, 0.5) * np.sin(rng.uniform(1, 4) * x)])
    path = (np.array([[0.0, 0], [2, 0]]), arc(0, rng.uniform(1, 2) * np.pi), wave)[rng.integers(3)]
    return one(along(rng, path, n, rng.uniform(0, 0.3) * length(path) / n))


@family("single_curve")
def single_stroke_crossing(rng: Generator) -> Table:
    """A thick cross or Y of strokes, or a loop: one connected figure."""
    n, w, k = rows(rng, 120), rng.uniform(0.08, 0.2), int(rng.integers(3, 6))
    t = np.arange(k) * 2 * np.pi / k + rng.uniform(-0.3, 0.3, k)
    if rng.random() < 0.3:
        a = np.linspace(0, 2 * np.pi, 150)
        return one(along(rng, np.column_stack([np.sin(a), np.sin(2 * a) / 2]), n, w / 2))
    return one(np.vstack([along(rng, np.array([[0, 0], [np.cos(s), np.sin(s)]]), n // k + 1, w) for s in t]))


@family("single_curve", stretch=False)
def single_sheet(rng: Generator) -> Table:
    """A flat or wavy sheet in 3 to 60 dimensions."""
    n, d = min(rows(rng, 100), 6000), int(log_uniform(rng, 3, 60))
    u = rng.uniform(-1, 1, (n, 2))
    wave = rng.uniform(0, 0.5) * np.sin(2 * u @ rng.normal(size=(2, 1)))
    X = np.column_stack([u * [1, rng.uniform(0.3, 1)], wave]) @ rotation(rng, d)[:3]
    return one(X + rng.uniform(0, 0.1) / np.sqrt(d) * rng.normal(size=X.shape))


@family("single_curve")
def single_rolled_sheet(rng: Generator) -> Table:
    """A sheet rolled up in three dimensions."""
    n = rows(rng, 300)
    turns = rng.uniform(0.8, np.clip(0.045 * np.sqrt(n), 0.9, 1.8))
    t = np.sqrt(rng.uniform(0.1, 1, n))
    a = 2 * np.pi * turns * t
    X = np.column_stack([t * np.cos(a), t * np.sin(a), rng.uniform(-0.6, 0.6, n)])
    return one(X + rng.uniform(0, 0.04) / turns * rng.normal(size=X.shape))


@family("single_curve")
def single_surface(rng: Generator) -> Table:
    """The surface of a ball or of a ring in three dimensions, or part of the first."""
    n, w = rows(rng, 150), rng.uniform(0, 0.1)
    if rng.random() < 0.6:
        X = directions(rng, 3 * n, 3)
        X = X[X[:, 2] > rng.choice([-2, -2, 0])][:n]
        return one(X + w * rng.normal(size=X.shape))
    a, b = rng.uniform(0, 2 * np.pi, (2, n))
    r = 1 + rng.uniform(0.25, 0.5) * np.cos(b)
    X = np.column_stack([r * np.cos(a), r * np.sin(a), rng.uniform(0.25, 0.5) * np.sin(b)])
    return one(X + w * rng.normal(size=X.shape))
