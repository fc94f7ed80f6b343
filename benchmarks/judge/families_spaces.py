"""Families in many dimensions, and families that look like the tables people bring."""

from __future__ import annotations

import numpy as np

from .parts import (
    MOST_VALUES,
    PLAIN,
    Generator,
    Labels,
    Rows,
    Table,
    assemble,
    centres,
    count,
    directions,
    disc,
    family,
    labels,
    log_uniform,
    rotation,
    round_axes,
    sizes,
)


def fitting_sizes(rng: Generator, k: int, d: int, low: float = 40, least: int = 12) -> Labels:
    """Sizes such that the table keeps within its number of values."""
    return sizes(rng, k, low, least, high=max(MOST_VALUES / d, k * least))


@family("manifolds", stretch=False)
def flat_pieces(rng: Generator) -> Table:
    """Each cluster fills a piece of a plane of one to three dimensions of its own, in 3 to 200."""
    k, d = count(rng, 2, 8), int(log_uniform(rng, 3, 200))
    of = fitting_sizes(rng, k, d)
    noise = rng.uniform(0.02, 0.15) / np.sqrt(d)
    C = centres(rng, round_axes(np.ones(k), min(d, 8)), rng.uniform(1.2, 3.5)) @ rotation(rng, d)[: min(d, 8)]
    pieces = []
    for c, m in zip(C, of, strict=True):
        q = int(rng.integers(1, min(3, d - 1) + 1))
        fill = disc(rng, m, q) if rng.random() < 0.5 else 0.5 * rng.normal(size=(m, q))
        pieces.append(c + fill @ rotation(rng, d)[:q] + noise * rng.normal(size=(m, d)))
    return assemble(pieces)


@family("manifolds", stretch=False)
def bent_sheets(rng: Generator) -> Table:
    """Pieces of bent sheets: a few smooth functions of one or two hidden numbers."""
    k, d = count(rng, 2, 6), int(log_uniform(rng, 3, 100))
    of = fitting_sizes(rng, k, d, 100, 40)
    pieces = []
    for m in of:
        u = rng.uniform(-1, 1, (m, int(rng.integers(1, 3))))
        waves = u @ rng.normal(size=(u.shape[1], 6)) * rng.uniform(0.5, 1.3) + rng.uniform(0, 2 * np.pi, 6)
        pieces.append(
            np.sin(waves) @ rng.normal(size=(6, d)) / np.sqrt(3 * d) + u @ rng.normal(size=(u.shape[1], d)) / np.sqrt(d)
        )
    C = centres(rng, round_axes(np.ones(k), min(d, 6)), rng.uniform(1.2, 3.5)) @ rotation(rng, d)[: min(d, 6)]
    noise = rng.uniform(0.02, 0.12) / np.sqrt(d)
    return assemble([c + p + noise * rng.normal(size=p.shape) for c, p in zip(C, pieces, strict=True)])


@family("manifolds", stretch=False)
def random_covariances(rng: Generator) -> Table:
    """Gaussians of 2 to 50 dimensions, each with its own covariance."""
    k, d = count(rng, 2, 8), int(log_uniform(rng, 2, 50))
    of = fitting_sizes(rng, k, d)
    axes = np.stack(
        [np.exp(-rng.uniform(0, 1.2, d))[:, None] * rotation(rng, d) * rng.uniform(0.7, 1.4) for _ in range(k)]
    )
    C = centres(rng, round_axes(np.ones(k), min(d, 10)), rng.uniform(2.6, 6.5)) @ rotation(rng, d)[: min(d, 10)]
    return assemble([c + rng.normal(size=(m, d)) @ a for c, a, m in zip(C, axes, of, strict=True)])


@family("manifolds", stretch=False)
def round_many_dimensions(rng: Generator) -> Table:
    """Round Gaussians of 10 to 200 dimensions about centres in general position."""
    k, d = count(rng, 2, 9), int(log_uniform(rng, 10, 200))
    of = fitting_sizes(rng, k, d)
    apart = rng.uniform(0.8, 2.2) * np.sqrt(2) * d**0.25 * 2
    X = np.repeat(rng.normal(size=(k, d)) * apart / np.sqrt(2 * d), of, axis=0)
    return X + rng.normal(size=X.shape), labels(of)


EMBEDDED = (
    "two_moons",
    "rings",
    "touching_discs",
    "strands",
    "spiral_pair",
    "overlapping_groups",
    "words",
    "dumbbell",
    "arcs",
)


@family("manifolds", stretch=False, outliers=False)
def embedded_shapes(rng: Generator) -> Table:
    """A shape of the plane in 3 to 60 dimensions, flat or gently bent, with a little noise in all of them."""
    X, y = PLAIN[str(rng.choice(EMBEDDED))](rng)
    d = int(log_uniform(rng, 4, 60))
    X, y = X[: MOST_VALUES // d], y[: MOST_VALUES // d]
    X = (X - X.mean(axis=0)) / X.std()
    if rng.random() < 0.5:
        X = np.column_stack([X, rng.uniform(0, 0.4) * np.sin(X @ rng.normal(size=(X.shape[1], 2)))])
    d = max(d, X.shape[1])
    return X @ rotation(rng, d)[: X.shape[1]] + rng.uniform(0, 0.05) / np.sqrt(d) * rng.normal(size=(len(X), d)), y


@family("manifolds", stretch=False, outliers=False)
def one_subspace_each(rng: Generator) -> Table:
    """Every cluster is told apart by a few columns of its own; the others are noise to it."""
    k, d = count(rng, 2, 6), int(log_uniform(rng, 5, 60))
    of = fitting_sizes(rng, k, d, 60, 20)
    C = np.zeros((k, d))
    for row in C:
        told = rng.choice(d, min(d, int(rng.integers(2, 6))), replace=False)
        row[told] = rng.choice([-1, 1], len(told)) * rng.uniform(1.5, 4) * d**0.15
    X = np.repeat(C, of, axis=0)
    return X + rng.normal(size=X.shape) * np.where(X != 0, rng.uniform(0.5, 1), 1), labels(of)


@family("manifolds", turn=False, stretch=False, grid=False, outliers=False)
def text_embeddings(rng: Generator) -> Table:
    """Sparse word weights of topics, each row of length one; at times projected to fewer dimensions."""
    k, d = count(rng, 2, 10), int(rng.integers(60, 201))
    of = sizes(rng, k, 60, 15, high=2500)
    common = rng.dirichlet(np.full(d, 0.5))
    topics = rng.dirichlet(np.full(d, rng.uniform(0.03, 0.15)), size=k)
    share = rng.uniform(0.35, 0.9)
    P = np.repeat(share * topics + (1 - share) * common, of, axis=0)
    words = rng.poisson(P * rng.lognormal(np.log(log_uniform(rng, 20, 150)), 0.4, (len(P), 1)))
    X = np.log1p(words) * -np.log(np.maximum((words > 0).mean(axis=0), 1 / len(P)))
    y = labels(of)
    some = np.linalg.norm(X, axis=1) > 0
    X, y = X[some] / np.linalg.norm(X[some], axis=1, keepdims=True), y[some]
    if rng.random() < 0.4:
        X = X @ rng.normal(size=(d, 50)) / np.sqrt(50)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, y


@family("manifolds", stretch=False, grid=False, outliers=False)
def directions_on_sphere(rng: Generator) -> Table:
    """Embeddings of length one about mean directions."""
    k, d = count(rng, 2, 10), int(log_uniform(rng, 3, 128))
    of = fitting_sizes(rng, k, d)
    low = int(min(d, rng.integers(3, 20)))
    mean = centres(rng, round_axes(np.ones(k), low), 1.0, scattered=True)
    mean = (mean - mean.mean(axis=0)) / np.linalg.norm(mean - mean.mean(axis=0), axis=1, keepdims=True).clip(0.2)
    near = np.linalg.norm(mean[:, None] - mean, axis=2)[np.triu_indices(k, 1)].min()
    X = np.repeat(mean, of, axis=0) + max(near, 0.1) / rng.uniform(2.8, 6) * rng.normal(size=(of.sum(), low))
    X = X @ rotation(rng, d)[:low] + rng.uniform(0, 0.3) / np.sqrt(d) * near * rng.normal(size=(len(X), d))
    return X / np.linalg.norm(X, axis=1, keepdims=True), labels(of)


@family("manifolds", turn=False, stretch=False, grid=False, outliers=False)
def pixels(rng: Generator) -> Table:
    """Small grey pictures: each class a few soft strokes, moved, faded and noisy."""
    k, side = count(rng, 2, 10), int(rng.choice([6, 8, 10]))
    of = sizes(rng, k, 80, 20, high=3000)
    grid = (np.arange(side) + 0.5) / side
    pieces = []
    for m in of:
        knots = rng.uniform(0.2, 0.8, (int(rng.integers(3, 6)), 2))
        t = np.linspace(0, len(knots) - 1, 14)
        path = np.column_stack([np.interp(t, np.arange(len(knots)), c) for c in knots.T])
        moved = (
            path
            + rng.uniform(0.01, 0.06) * rng.normal(size=(m, 1, 2))
            + rng.uniform(0, 0.03) * rng.normal(size=(m, 14, 2))
        )
        bells = np.exp(-((moved[..., None] - grid) ** 2) / (2 * 0.09**2))
        ink = np.einsum("mtx,mty->mxy", bells[:, :, 0], bells[:, :, 1]).reshape(m, -1)
        pieces.append(np.minimum(ink, 1) * rng.uniform(0.8, 1, (m, 1)))
    X, y = assemble(pieces)
    X = X + rng.uniform(0, 0.12) * rng.normal(size=X.shape)
    return np.round(np.clip(X, 0, 1) * 16), y


# ---- tables as people bring them ----


def correlated(rng: Generator, k: int, d: int, apart: float, of: Labels) -> tuple[Rows, Labels]:
    """Columns that follow a few common factors; the clusters differ along some of these and of the columns."""
    q = min(d, int(rng.integers(1, 4)))
    load = rng.normal(size=(q, d)) * rng.uniform(0.3, 1)
    own = rng.uniform(0.4, 1, d)
    C = centres(rng, round_axes(np.ones(k), d), apart)
    X = np.repeat(C, of, axis=0) * np.sqrt((load**2).sum(axis=0) + own**2)
    return X + rng.normal(size=(len(X), q)) @ load + rng.normal(size=X.shape) * own, labels(of)


def standard(rng: Generator, X: Rows) -> Rows:
    """Mostly standardised, at times in units that differ a little."""
    s = X.std(axis=0)
    return X / np.where(s > 0, s, 1) * (1 if rng.random() < 0.8 else np.exp(rng.uniform(0, np.log(3), X.shape[1])))


@family("tables", turn=False, stretch=False)
def table_correlated(rng: Generator) -> Table:
    k, d = count(rng, 2, 6), int(rng.integers(2, 13))
    X, y = correlated(rng, k, d, rng.uniform(2.4, 5.5), sizes(rng, k, 30, 10))
    return standard(rng, X), y


@family("tables", turn=False, stretch=False)
def table_skewed(rng: Generator) -> Table:
    """Some columns are amounts: lognormal."""
    k, d = count(rng, 2, 5), int(rng.integers(2, 9))
    X, y = correlated(rng, k, d, rng.uniform(2.6, 6), sizes(rng, k, 40, 12))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    skew = rng.random(d) < 0.5
    return standard(rng, np.where(skew, np.exp(rng.uniform(0.3, 0.9) * X), X)), y


@family("tables", turn=False, stretch=False, grid=False)
def table_rounded(rng: Generator) -> Table:
    """Whole numbers with many ties: measurements to the nearest unit, answers on a scale of five to nine."""
    k, d = count(rng, 2, 5), int(rng.integers(2, 11))
    X, y = correlated(rng, k, d, rng.uniform(2.6, 6), sizes(rng, k, 40, 15))
    levels = rng.integers(5, 31, d) if rng.random() < 0.5 else np.full(d, rng.integers(7, 60))
    low, high = X.min(axis=0), X.max(axis=0)
    return standard(rng, np.round((X - low) / (high - low) * levels)), y


@family("tables", turn=False, stretch=False)
def table_irrelevant(rng: Generator) -> Table:
    """Columns that tell nothing beside those that do."""
    k, d = count(rng, 2, 5), int(rng.integers(2, 6))
    X, y = correlated(rng, k, d, rng.uniform(3.2, 7.5), sizes(rng, k, 60, 20))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    m = int(rng.integers(1, d + 2))
    idle = rng.normal(size=(len(X), m)) if rng.random() < 0.6 else rng.uniform(-1.5, 1.5, (len(X), m))
    return np.column_stack([X, rng.uniform(0.3, 1) * idle]), y


@family("tables", turn=False, stretch=False, grid=False)
def table_few_values(rng: Generator) -> Table:
    """Numbers beside one or two columns of few values that differ by cluster only in their shares."""
    k, d = count(rng, 2, 5), int(rng.integers(2, 6))
    X, y = correlated(rng, k, d, rng.uniform(3, 7), sizes(rng, k, 60, 20))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    m = int(rng.integers(1, 3))
    few = np.column_stack(
        [
            (rng.random(len(y))[:, None] > np.cumsum(rng.dirichlet(np.full(3, 2), k), axis=1)[y]).sum(axis=1)
            for _ in range(m)
        ]
    )
    return np.column_stack([X, rng.uniform(0.2, 0.7) * few]), y


@family("tables", turn=False, stretch=False)
def table_two_columns(rng: Generator) -> Table:
    """Two columns, unlike in shape: one skewed, one nearly normal, groups of 30 to 300 rows."""
    k = count(rng, 2, 6)
    X, y = correlated(rng, k, 2, rng.uniform(2.5, 5.5), sizes(rng, k, 60, 30, high=k * 300))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X[:, 0] = np.exp(rng.uniform(0.1, 0.6) * X[:, 0])
    return standard(rng, X), y


@family("tables", stretch=False)
def mixed_shapes(rng: Generator) -> Table:
    """A disc, a ring, a long and a round group, a square, an arc: three to six together."""
    k = int(rng.integers(3, 7))
    C = centres(rng, round_axes(np.ones(k), 2), rng.uniform(1.7, 2.7), scattered=rng.random() < 0.5)
    pieces = []
    for c, m in zip(C, sizes(rng, k, 150, 30), strict=True):
        t = rng.uniform(0, 2 * np.pi, m)
        u = directions(rng, m, 2)
        kind = rng.integers(6)
        shape = (
            disc(rng, m),
            u * rng.uniform(0.8, 1, (m, 1)),
            0.4 * rng.normal(size=(m, 2)) * [1, rng.uniform(0.2, 0.6)],
            rng.uniform(0.2, 0.35) * rng.normal(size=(m, 2)),
            rng.uniform(-0.75, 0.75, (m, 2)),
            np.column_stack([np.cos(t / 2), np.sin(t / 2)]) * rng.uniform(0.8, 1, (m, 1)),
        )[kind]
        pieces.append(c + shape @ rotation(rng, 2))
    return assemble(pieces)
