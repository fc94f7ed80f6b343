"""Families of round, long, overlapping, unequal, heavy-tailed, nested and hierarchical clusters."""

from __future__ import annotations

import numpy as np

from .parts import (
    Generator,
    Labels,
    Rows,
    Table,
    assemble,
    centres,
    count,
    dimensions,
    disc,
    family,
    gaussians,
    labels,
    log_uniform,
    rotation,
    round_axes,
    rows,
    sizes,
    square,
)


def long_axes(rng: Generator, k: int, d: int, ratio: float) -> Rows:
    """Axes of clusters up to `ratio` times longer than wide, each turned its own way."""
    scales = np.exp(-rng.uniform(0, np.log(ratio), (k, d)))
    scales[:, 0] = 1.0
    return np.stack([np.diag(s) @ rotation(rng, d) for s in scales])


def overlap(rng: Generator) -> float:
    """Distance of neighbours in standard deviations: about one in ten below what anyone could tell."""
    return float(rng.uniform(1.5, 2.4) if rng.random() < 0.1 else rng.uniform(2.4, 6))


def round_mixture(rng: Generator, k: int, d: int, apart: float, of: Labels, scattered: bool = False) -> Table:
    axes = round_axes(np.ones(k), d)
    return gaussians(rng, centres(rng, axes, apart, scattered=scattered), axes, of)


@family("round")
def round_apart(rng: Generator) -> Table:
    k = count(rng)
    return round_mixture(rng, k, dimensions(rng), rng.uniform(5, 14), sizes(rng, k), rng.random() < 0.5)


@family("round")
def round_near(rng: Generator) -> Table:
    k = count(rng)
    return round_mixture(rng, k, dimensions(rng), rng.uniform(3, 5.5), sizes(rng, k))


@family("round")
def round_small(rng: Generator) -> Table:
    """Two to four clusters of 5 to 25 rows."""
    k = count(rng, 2, 4)
    of = rng.integers(5, int(log_uniform(rng, 7, 26)), size=k)
    return round_mixture(rng, k, dimensions(rng), rng.uniform(4.5, 11), of)


@family("round")
def round_few_rows(rng: Generator) -> Table:
    """Two to six clusters of 15 to 60 rows, unequal in number."""
    k = count(rng, 2, 6)
    return round_mixture(rng, k, dimensions(rng), rng.uniform(3.4, 8), rng.integers(15, 61, size=k))


@family("round")
def round_caps(rng: Generator) -> Table:
    """Balls filled evenly, in two to five dimensions."""
    k, d = count(rng, 2, 7), int(rng.choice([2, 2, 3, 5]))
    C = centres(rng, round_axes(np.ones(k), d), rng.uniform(2.1, 4))
    return assemble([c + disc(rng, m, d) for c, m in zip(C, sizes(rng, k, least=10), strict=True)])


@family("elliptic")
def elliptic_apart(rng: Generator) -> Table:
    k, d = count(rng), max(2, dimensions(rng, 6))
    axes = long_axes(rng, k, d, rng.uniform(2, 8))
    return gaussians(rng, centres(rng, axes, rng.uniform(3.8, 8)), axes, sizes(rng, k))


@family("elliptic")
def elliptic_near(rng: Generator) -> Table:
    k = count(rng)
    axes = long_axes(rng, k, 2, rng.uniform(1.5, 5))
    return gaussians(rng, centres(rng, axes, rng.uniform(2.6, 4.6)), axes, sizes(rng, k))


@family("elliptic")
def elliptic_parallel(rng: Generator) -> Table:
    """Cigars side by side, all long the same way."""
    k = count(rng, 2, 6)
    axes = np.tile(np.diag([1.0, rng.uniform(3, 12)]), (k, 1, 1))
    C = np.column_stack([np.cumsum(rng.uniform(1, 1.3, k)) * rng.uniform(2.6, 6), rng.normal(size=k)])
    return gaussians(rng, C, axes, sizes(rng, k, low=40, least=15))


@family("elliptic")
def elliptic_common(rng: Generator) -> Table:
    """One covariance for all, as discriminant analysis supposes."""
    k, d = count(rng, 2, 6), int(rng.choice([2, 2, 2, 3, 4]))
    axes = np.repeat(long_axes(rng, 1, d, rng.uniform(2, 6)), k, axis=0)
    return gaussians(rng, centres(rng, axes, rng.uniform(2.5, 6)), axes, sizes(rng, k))


@family("many_tight")
def many_tight(rng: Generator) -> Table:
    k, d = int(rng.integers(9, 31)), int(rng.choice([2, 2, 2, 3, 5]))
    return round_mixture(rng, k, d, rng.uniform(5, 12), sizes(rng, k, 200, 8), scattered=rng.random() < 0.6)


@family("many_tight")
def many_near(rng: Generator) -> Table:
    k = int(rng.integers(8, 26))
    radii = np.exp(rng.uniform(0, 0.4) * rng.normal(size=k))
    axes = round_axes(radii, 2)
    return gaussians(rng, centres(rng, axes, rng.uniform(2.8, 5.5)), axes, sizes(rng, k, 300, 12))


@family("many_tight")
def many_high(rng: Generator) -> Table:
    k, d = int(rng.integers(8, 26)), int(log_uniform(rng, 5, 40))
    of = sizes(rng, k, 200, 8, high=4000)
    C = rng.normal(size=(k, d)) * rng.uniform(6, 12) / np.sqrt(2 * min(d, 15))
    return gaussians(rng, C, round_axes(np.ones(k), d), of)


@family("overlapping")
def overlapping_pair(rng: Generator) -> Table:
    d = int(rng.choice([1, 2, 2, 2, 2, 3, 5, 10]))
    of = np.maximum(log_uniform(rng, 30, 2000) * np.exp([0, 0.4 * rng.normal()]), 15).astype(int)
    axes = round_axes(np.array([1.0, np.exp(rng.choice([0, 0.3]) * rng.normal())]), d)
    return gaussians(rng, centres(rng, axes, overlap(rng), slack=0.01), axes, of)


@family("overlapping")
def overlapping_groups(rng: Generator) -> Table:
    """Four to nine round groups of 50 to 300 rows in the plane."""
    k = int(rng.integers(4, 10))
    of = (log_uniform(rng, 50, 300) * np.exp(rng.choice([0, 0.3]) * rng.normal(size=k))).astype(int)
    return round_mixture(rng, k, 2, max(2.3, overlap(rng)), of)


@family("overlapping")
def overlapping_squares(rng: Generator) -> Table:
    """Three to nine evenly filled squares whose margins overlap or just miss."""
    k, d = int(rng.integers(3, 10)), int(rng.choice([2, 2, 2, 2, 3]))
    of = (log_uniform(rng, 50, 300) * np.exp(rng.choice([0, 0.3]) * rng.normal(size=k))).astype(int)
    side, C = rng.uniform(0.72, 1.15), [np.zeros(d)]
    while len(C) < k:
        step = rng.uniform(-0.5, 0.5, d)
        step[rng.integers(d)] = rng.choice([-1, 1]) * rng.uniform(1, 1.1)
        c = C[rng.integers(len(C))] + 2 * side * step
        if all(np.abs(c - o).max() > 1.99 * side for o in C):
            C.append(c)
    return assemble([c + rng.uniform(-1, 1, (m, d)) for c, m in zip(C, of, strict=True)])


@family("overlapping")
def overlapping_lattice(rng: Generator) -> Table:
    """Round or square groups on a lattice of two by two to three by three."""
    a, b = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    of = (log_uniform(rng, 40, 300) * np.ones(a * b)).astype(int)
    C = np.array([[i, j] for i in range(a) for j in range(b)], dtype=float)
    if rng.random() < 0.6:
        C *= max(2.5, overlap(rng))
        return gaussians(rng, C + 0.2 * rng.normal(size=C.shape), round_axes(np.ones(a * b), 2), of)
    C *= rng.uniform(1.7, 2.4)
    return assemble([c + square(rng, m) for c, m in zip(C, of, strict=True)])


@family("overlapping")
def overlapping_long(rng: Generator) -> Table:
    k = count(rng, 2, 6)
    axes = long_axes(rng, k, 2, rng.uniform(2, 5))
    return gaussians(rng, centres(rng, axes, rng.uniform(2.3, 4)), axes, sizes(rng, k, 60, 25))


@family("overlapping")
def overlapping_mixed(rng: Generator) -> Table:
    """Groups of unequal width and number that overlap, one to ten dimensions."""
    k, d = count(rng, 2, 7), dimensions(rng)
    axes = round_axes(np.exp(rng.uniform(0.1, 0.5) * rng.normal(size=k)), d)
    return gaussians(rng, centres(rng, axes, max(2.2, overlap(rng))), axes, sizes(rng, k, 60, 20))


@family("overlapping")
def overlapping_discs(rng: Generator) -> Table:
    """Three to nine evenly filled discs or balls whose margins overlap or just miss."""
    k, d = int(rng.integers(3, 10)), int(rng.choice([2, 2, 2, 2, 3]))
    of = (log_uniform(rng, 50, 300) * np.exp(rng.choice([0, 0.3]) * rng.normal(size=k))).astype(int)
    radii = np.exp(rng.choice([0, 0.25]) * rng.normal(size=k))
    C = centres(rng, round_axes(radii, d), rng.uniform(1.45, 2.15), slack=0.12)
    return assemble([c + r * disc(rng, m, d) for c, r, m in zip(C, radii, of, strict=True)])


@family("overlapping")
def overlapping_densities(rng: Generator) -> Table:
    """Three to nine groups of 40 to 300 rows that overlap, narrow dense ones beside broad sparse ones."""
    k = int(rng.integers(3, 10))
    of = np.exp(rng.uniform(np.log(40), np.log(300), k)).astype(int)
    axes = long_axes(rng, k, 2, rng.uniform(1, 2.5)) * np.exp(rng.uniform(0, np.log(4), (k, 1, 1)))
    return gaussians(rng, centres(rng, axes, rng.uniform(2.3, 4.2), slack=0.15), axes, of)


@family("overlapping")
def overlapping_cloud(rng: Generator) -> Table:
    """Three to eight groups whose centres are themselves normal: some apart, some one upon the other."""
    k, d = int(rng.integers(3, 9)), int(rng.choice([2, 2, 2, 3, 4]))
    while True:
        C = rng.normal(size=(k, d)) * rng.uniform(2.5, 6)
        if np.linalg.norm(C[:, None] - C, axis=2)[np.triu_indices(k, 1)].min() > 2.1:
            return gaussians(rng, C, round_axes(np.ones(k), d), sizes(rng, k, 100, 25))


@family("unequal")
def unequal_numbers(rng: Generator) -> Table:
    """Many rows in one cluster, few in others, the same width."""
    k, d = count(rng, 2, 7), dimensions(rng, 5)
    n = rows(rng, 80)
    of = np.maximum(n * rng.dirichlet(np.full(k, rng.uniform(0.5, 2))), 8).astype(int)
    return round_mixture(rng, k, d, rng.uniform(3.2, 8), of)


@family("unequal")
def unequal_widths(rng: Generator) -> Table:
    k, d = count(rng, 2, 7), dimensions(rng, 5)
    axes = round_axes(np.exp(rng.uniform(0.4, 1) * rng.normal(size=k)), d)
    return gaussians(rng, centres(rng, axes, rng.uniform(2.8, 6)), axes, sizes(rng, k, 60, 12))


@family("unequal")
def unequal_both(rng: Generator) -> Table:
    """Width, length and number all differ; one density or one number of rows for all."""
    k = count(rng, 2, 8)
    axes = long_axes(rng, k, 2, 4) * np.exp(rng.uniform(0.3, 0.8) * rng.normal(size=(k, 1, 1)))
    of = sizes(rng, k, 80, 12)
    if rng.random() < 0.5:
        area = np.abs(np.linalg.det(axes))
        of = np.maximum(of.sum() * area / area.sum(), 12).astype(int)
    return gaussians(rng, centres(rng, axes, rng.uniform(2.7, 5.5)), axes, of)


@family("unequal")
def large_beside_small(rng: Generator) -> Table:
    """One broad cluster with one to four small ones around its edge."""
    k = int(rng.integers(2, 6))
    of = np.maximum(rows(rng, 150) * np.r_[1, rng.uniform(0.05, 0.35, k - 1)], 10).astype(int)
    axes = round_axes(np.r_[rng.uniform(2, 5), rng.uniform(0.5, 1.2, k - 1)], 2)
    return gaussians(rng, centres(rng, axes, rng.uniform(3.2, 6), slack=0.1), axes, of)


@family("heavy_tailed", outliers=False)
def tails_student(rng: Generator) -> Table:
    k, d = count(rng, 2, 6), dimensions(rng, 5)
    C = centres(rng, round_axes(np.ones(k), d), rng.uniform(4, 11))
    of = sizes(rng, k, least=8)
    return np.repeat(C, of, axis=0) + rng.standard_t(rng.uniform(2.2, 6), (of.sum(), d)), labels(of)


@family("heavy_tailed")
def tails_skewed(rng: Generator) -> Table:
    """Lognormal or exponential clusters, each leaning its own way."""
    k, d = count(rng, 2, 6), dimensions(rng, 4)
    C = centres(rng, round_axes(np.ones(k), d), rng.uniform(3.5, 9))
    pieces = []
    for c, m in zip(C, sizes(rng, k, least=8), strict=True):
        x = (
            np.exp(rng.uniform(0.4, 0.8) * rng.normal(size=(m, d)))
            if rng.random() < 0.5
            else rng.exponential(size=(m, d))
        )
        pieces.append(c + rng.choice([-1, 1], d) * x)
    return assemble(pieces)


@family("heavy_tailed")
def tails_laplace(rng: Generator) -> Table:
    k, d = count(rng, 2, 7), dimensions(rng, 4)
    C = centres(rng, round_axes(np.ones(k), d), rng.uniform(3.8, 9))
    of = sizes(rng, k, least=8)
    return np.repeat(C, of, axis=0) + rng.laplace(size=(of.sum(), d)), labels(of)


@family("density")
def density_contrast(rng: Generator) -> Table:
    """Clusters of the same number of rows, up to ten times as wide."""
    k = count(rng, 2, 6)
    axes = round_axes(np.exp(rng.uniform(0, np.log(10), k)), 2)
    return gaussians(rng, centres(rng, axes, rng.uniform(2.7, 5.5)), axes, sizes(rng, k, 100, 20))


@family("density")
def density_nested(rng: Generator) -> Table:
    """Narrow Gaussians upon a broad one; a row belongs to the narrow one where that is the denser."""
    k, n = int(rng.integers(1, 4)), rows(rng, 150)
    share = rng.uniform(0.3, 0.6)
    m = np.maximum((1 - share) * n / k, 20).astype(int)
    C, s = rng.uniform(-1.3, 1.3, (k, 2)), rng.uniform(0.05, 0.2, k)
    X = np.vstack(
        [
            rng.normal(size=(int(share * n), 2)),
            np.repeat(C, m, axis=0) + rng.normal(size=(k * m, 2)) * np.repeat(s, m)[:, None],
        ]
    )
    broad = share * n * np.exp(-(X**2).sum(axis=1) / 2)
    narrow = m / s**2 * np.exp(-((X[:, None] - C) ** 2).sum(axis=2) / (2 * s**2))
    return X, np.where(narrow.max(axis=1) > broad, 1 + narrow.argmax(axis=1), 0)


@family("density")
def density_steps(rng: Generator) -> Table:
    """Evenly filled discs or squares apart, of densities from one to thirty."""
    k = count(rng, 2, 6)
    of, radii = sizes(rng, k, 100, 20), np.exp(rng.uniform(0, np.log(5), k))
    C = centres(rng, round_axes(radii, 2), rng.uniform(2.2, 3.5))
    fill = disc if rng.random() < 0.5 else lambda r, m: square(r, m) / np.sqrt(2)
    return assemble([c + r * fill(rng, m) for c, r, m in zip(C, radii, of, strict=True)])


def clusters_of_clusters(rng: Generator, inner: float, outer: float) -> tuple[Rows, Labels, Labels]:
    groups, d = count(rng, 2, 5), int(rng.choice([2, 2, 2, 3, 5]))
    parts = rng.integers(2, 5, size=groups)
    of = sizes(rng, int(parts.sum()), 200, 12)
    small = [centres(rng, round_axes(np.ones(p), d), inner, slack=0.1) for p in parts]
    radius = max(float(np.linalg.norm(c - c.mean(axis=0), axis=1).max()) for c in small) + 1
    large = centres(rng, round_axes(np.full(groups, radius), d), outer)
    C = np.vstack([g + c - c.mean(axis=0) for g, c in zip(large, small, strict=True)])
    X, y = gaussians(rng, C, round_axes(np.ones(len(C)), d), of)
    return X, y, np.repeat(np.arange(groups), parts)[y]


@family("hierarchical")
def nested_fine(rng: Generator) -> Table:
    """Clusters of clusters whose parts are apart: the parts are the truth."""
    X, y, _ = clusters_of_clusters(rng, rng.uniform(3.4, 6.5), rng.uniform(2, 4))
    return X, y


@family("hierarchical")
def nested_coarse(rng: Generator) -> Table:
    """Clusters of clusters whose parts run into one another: the whole groups are the truth."""
    X, _, groups = clusters_of_clusters(rng, rng.uniform(0.8, 2), rng.uniform(2.8, 5))
    return X, groups
