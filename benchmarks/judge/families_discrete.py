"""Families of counts, binary columns and one-hot categories."""

from __future__ import annotations

import numpy as np

from .parts import Generator, Rows, Table, count, family, labels, log_uniform, rows, sizes

DISCRETE = {"turn": False, "units": False, "stretch": False, "grid": False, "outliers": False}


def one_hot(values: Rows, levels: Rows) -> Rows:
    """One column of zeros and ones for every level of every column."""
    return np.column_stack(
        [(column[:, None] == np.arange(m)).astype(float) for column, m in zip(values.T, levels, strict=True)]
    )


def drawn_levels(rng: Generator, P: Rows) -> Rows:
    """A level for every row of probabilities."""
    return (rng.random(len(P))[:, None] > np.cumsum(P, axis=1)).sum(axis=1).clip(0, P.shape[1] - 1)


@family("counts", **DISCRETE)
def word_counts(rng: Generator) -> Table:
    """Bag of words: every topic has words of its own above the common ones."""
    k, d = count(rng, 2, 10), int(log_uniform(rng, 20, 150))
    of = sizes(rng, k, 60, 15, high=3000)
    share = rng.uniform(0.4, 0.9)
    topics = rng.dirichlet(np.full(d, rng.uniform(0.05, 0.3)), size=k)
    P = np.repeat(share * topics + (1 - share) * rng.dirichlet(np.full(d, 1.0)), of, axis=0)
    return rng.poisson(P * log_uniform(rng, 20, 120) * np.exp(0.3 * rng.normal(size=(len(P), 1)))).astype(
        float
    ), labels(of)


@family("counts", **DISCRETE)
def overdispersed_counts(rng: Generator) -> Table:
    """Negative binomial counts, as of genes or visits, in 5 to 60 columns."""
    k, d = count(rng, 2, 7), int(log_uniform(rng, 5, 60))
    of = sizes(rng, k, 60, 15, high=3000)
    base = np.exp(rng.normal(np.log(rng.uniform(3, 20)), 0.8, d))
    told = rng.random((k, d)) < max(0.35, 3 / d)
    rate = np.repeat(base * np.exp(told * rng.normal(size=(k, d)) * rng.uniform(0.9, 2) * (20 / d) ** 0.25), of, axis=0)
    return rng.poisson(rate * rng.gamma(a := rng.uniform(2, 12), 1 / a, rate.shape)).astype(float), labels(of)


@family("counts", **DISCRETE)
def few_count_columns(rng: Generator) -> Table:
    """Two to six columns of Poisson counts."""
    k, d = count(rng, 2, 5), int(rng.integers(2, 7))
    of = sizes(rng, k, 60, 20)
    # on the scale of square roots every Poisson count has a deviation of one half
    while True:
        root = rng.uniform(1, rng.uniform(4, 9), (k, d))
        near = np.linalg.norm(root[:, None] - root, axis=2)[np.triu_indices(k, 1)].min()
        if near > 1.6:
            return rng.poisson(np.repeat(root**2, of, axis=0)).astype(float), labels(of)


@family("counts", **DISCRETE)
def profile_counts(rng: Generator) -> Table:
    """Shares of a fixed total over 5 to 20 columns, as of votes or hours of a week."""
    k, d = count(rng, 2, 6), int(rng.integers(5, 21))
    of, total = sizes(rng, k, 60, 20, high=4000), int(log_uniform(rng, 30, 300))
    P = rng.dirichlet(np.full(d, rng.uniform(0.5, 2)), size=k)
    own = np.vstack([rng.dirichlet(p * rng.uniform(30, 200) + 0.05, m) for p, m in zip(P, of, strict=True)])
    return rng.multinomial(total, own).astype(float), labels(of)


def latent_binary(rng: Generator, k: int, d: int, base: Rows, apart: float) -> Rows:
    """Probabilities of a one by class: about `apart` deviations between two classes."""
    s = min(apart / np.sqrt(2 * (base * (1 - base)).sum()), 3.5)
    return 1 / (1 + np.exp(-(np.log(base / (1 - base)) + s * rng.normal(size=(k, d)))))


@family("binary", **DISCRETE)
def binary_classes(rng: Generator) -> Table:
    k, d = count(rng, 2, 6), int(log_uniform(rng, 8, 80))
    of = sizes(rng, k, 60, 20, high=4000)
    P = latent_binary(rng, k, d, rng.uniform(0.1, 0.9, d), rng.uniform(3.2, 8))
    return (rng.random((of.sum(), d)) < np.repeat(P, of, axis=0)).astype(float), labels(of)


@family("binary", **DISCRETE)
def binary_sparse(rng: Generator) -> Table:
    """Rare ones: baskets of goods, symptoms; each class has goods of its own."""
    k, d = count(rng, 2, 7), int(log_uniform(rng, 20, 120))
    of = sizes(rng, k, 80, 20, high=4000)
    P = np.full((k, d), rng.uniform(0.01, 0.08))
    for p in P:
        p[rng.choice(d, max(3, d // (k + 2)), replace=False)] = rng.uniform(0.25, 0.8)
    return (rng.random((of.sum(), d)) < np.repeat(P, of, axis=0)).astype(float), labels(of)


@family("binary", **DISCRETE)
def binary_blocks(rng: Generator) -> Table:
    """Every class answers a block of columns with yes, the others mostly with no, and some columns say nothing."""
    k, block = count(rng, 2, 6), int(rng.integers(3, 9))
    idle = int(rng.integers(0, 8))
    of, slip = sizes(rng, k, 60, 15, high=4000), rng.uniform(0.02, 0.25)
    yes = np.kron(np.eye(k), np.ones(block))
    P = np.column_stack([np.where(yes, 1 - slip, slip), np.full((k, idle), 0.5)])
    return (rng.random((of.sum(), P.shape[1])) < np.repeat(P, of, axis=0)).astype(float), labels(of)


def category_classes(rng: Generator, k: int, d: int, levels: Rows, sharp: float) -> Table:
    of = sizes(rng, k, 60, 20, high=4000)
    y = labels(of)
    values = np.column_stack([drawn_levels(rng, rng.dirichlet(np.full(m, sharp), k)[y]) for m in levels])
    return one_hot(values, levels), y


@family("categories", **DISCRETE)
def categories_few(rng: Generator) -> Table:
    """Four to eight columns of three to six levels, two to four latent classes."""
    d = int(rng.integers(4, 9))
    return category_classes(rng, count(rng, 2, 4), d, rng.integers(3, 7, d), log_uniform(rng, 0.12, 0.45))


@family("categories", **DISCRETE)
def categories_many(rng: Generator) -> Table:
    """Nine to twenty columns of two to eight levels."""
    d = int(rng.integers(9, 21))
    return category_classes(rng, count(rng, 2, 6), d, rng.integers(2, 9, d), log_uniform(rng, 0.25, 1.0))


@family("categories", **DISCRETE)
def categories_typical(rng: Generator) -> Table:
    """Each class has a typical level in every column and departs from it now and then."""
    k, d, m = count(rng, 2, 5), int(rng.integers(4, 13)), int(rng.integers(3, 6))
    of, slip = sizes(rng, k, 60, 20, high=4000), rng.uniform(0.05, 0.4)
    typical = np.column_stack([rng.permutation(max(k, m))[:k] % m for _ in range(d)])[labels(of)]
    values = np.where(rng.random(typical.shape) < slip, rng.integers(m, size=typical.shape), typical)
    return one_hot(values, np.full(d, m)), labels(of)


# ---- no clusters ----


@family("single_discrete", **DISCRETE)
def single_counts(rng: Generator) -> Table:
    n, d = min(rows(rng), 5000), int(log_uniform(rng, 2, 100))
    # few columns of small counts would leave a handful of distinct rows, far apart
    rate = np.exp(rng.normal(np.log(log_uniform(rng, max(0.3, 12 / d**2), 12)), rng.uniform(0, 1), d))
    size = np.exp(rng.choice([0, 0.3]) * rng.normal(size=(n, 1)))
    return rng.poisson(rate * size).astype(float), np.zeros(n, int)


@family("single_discrete", **DISCRETE)
def single_overdispersed(rng: Generator) -> Table:
    n, d = min(rows(rng), 5000), int(log_uniform(rng, 2, 50))
    a = rng.uniform(1, 8)
    rate = np.exp(rng.normal(np.log(log_uniform(rng, 1, 15)), 0.6, d)) * rng.gamma(a, 1 / a, (n, d))
    return rng.poisson(rate).astype(float), np.zeros(n, int)


@family("single_discrete", **DISCRETE)
def single_binary(rng: Generator) -> Table:
    """Coins, fair or not, rare or not."""
    n, d = min(rows(rng), 5000), int(log_uniform(rng, 8, 100))
    p = rng.uniform(0.02, 0.5) * np.ones(d) if rng.random() < 0.5 else rng.uniform(0.03, 0.97, d)
    return (rng.random((n, d)) < p).astype(float), np.zeros(n, int)


@family("single_discrete", **DISCRETE)
def single_binary_ability(rng: Generator) -> Table:
    """Answers right or wrong, by one smooth ability: correlated columns, no classes."""
    n, d = min(rows(rng, 20), 5000), int(log_uniform(rng, 8, 40))
    z = rng.uniform(0.3, 1.2) * rng.normal(size=(n, 1)) + rng.normal(size=d)
    return (rng.random((n, d)) < 1 / (1 + np.exp(-z))).astype(float), np.zeros(n, int)


@family("single_discrete", **DISCRETE)
def single_categories(rng: Generator) -> Table:
    n, d = min(rows(rng), 5000), int(rng.integers(5, 18))
    levels = rng.integers(2, 8, d)
    even = rng.uniform(0.7, 5)
    values = np.column_stack([rng.choice(m, n, p=rng.dirichlet(np.full(m, even))) for m in levels])
    return one_hot(values, levels), np.zeros(n, int)


@family("single_discrete", turn=False, stretch=False, grid=False, outliers=False)
def single_integers(rng: Generator) -> Table:
    """Whole numbers, uniform or bell-shaped, with ties."""
    n, d = rows(rng), int(rng.choice([1, 2, 2, 2, 3, 4, 6]))
    levels = int(log_uniform(rng, 6 if d > 1 else 12, 60))
    if rng.random() < 0.5:
        return rng.integers(levels, size=(n, d)).astype(float), np.zeros(n, int)
    return np.round(rng.normal(size=(n, d)) * levels / 4), np.zeros(n, int)


@family("single_discrete", units=True, stretch=True, grid=False, outliers=False)
def single_full_grid(rng: Generator) -> Table:
    """Every place of a regular grid once, at times a little moved or with places missing."""
    a, b = int(log_uniform(rng, 4, 70)), int(log_uniform(rng, 4, 70))
    X = np.array([[i, j] for i in range(a) for j in range(b)], dtype=float)
    X = X[rng.random(len(X)) < rng.choice([1.1, rng.uniform(0.6, 1)])]
    if len(X) < 10:
        X = np.array([[i, j] for i in range(4) for j in range(4)], dtype=float)
    return X + rng.choice([0, rng.uniform(0, 0.3)]) * rng.normal(size=X.shape), np.zeros(len(X), int)
