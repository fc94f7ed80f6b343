"""Tables of levels only: latent classes, told by what goes together."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fcac.clusters import Communities
from fcac.clusters.latent_classes import latent_tree, levels_of
from fcac.tables.kind import Block


def surveys(seed: int, n: int = 1000, classes: int = 3, columns: int = 8, levels: int = 4) -> tuple[np.ndarray, ...]:
    """Categories, one feature for every level, and the class of every row: each has a typical level in every column."""
    rng = np.random.default_rng(seed)
    group = rng.integers(classes, size=n)
    typical = rng.permuted(np.tile(np.arange(levels), (columns, 1)), axis=1).T[group]
    values = np.where(rng.random((n, columns)) < 0.35, rng.integers(levels, size=(n, columns)), typical)
    return (values[:, :, None] == np.arange(levels)).reshape(n, -1).astype(float), group


def coins(seed: int, n: int, d: int, share: float) -> np.ndarray:
    return (np.random.default_rng(seed).random((n, d)) < share).astype(float)


def fitted(rows: np.ndarray, n_clusters: int | None = None, blocks: list[Block] | None = None) -> Communities:
    return Communities(n_clusters, blocks).set_site("a", rows, np.ones(len(rows))).fit()


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_found_and_counted(seed):
    rows, group = surveys(seed)
    model = fitted(rows)
    assert model.n_clusters == 3
    assert adjusted_rand_score(group, model.node_labels) > 0.9
    assert model.scaling.kind == "levels"
    assert min(model.cluster_probability.values()) > 0.9


def test_a_small_class_of_few_rows_is_counted():
    """Six categories and 300 rows, an eighth of them of a class of their own: by BIC half of these tables had fewer."""
    right = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        group = rng.choice(3, size=300, p=[0.6, 0.28, 0.12])
        shares = rng.dirichlet(np.full(4, 0.5), size=(6, 3))
        levels = np.array([[rng.choice(4, p=column[k]) for column in shares] for k in group])
        rows = (levels[:, :, None] == np.arange(4)).reshape(300, -1).astype(float)
        right.append(fitted(rows).n_clusters == 3)
    assert sum(right) == 9


@pytest.mark.parametrize(("n", "d", "share"), [(2000, 20, 0.3), (1000, 100, 0.03), (300, 10, 0.5), (30, 12, 0.4)])
def test_coins_are_one_cluster(n, d, share):
    assert [fitted(coins(seed, n, d, share)).n_clusters for seed in range(3)] == [1, 1, 1]


def test_a_smooth_trait_is_one_cluster():
    """Answers that depend on one ability take several classes to describe, but these overlap."""
    rng = np.random.default_rng(2)
    ability = 0.8 * rng.normal(size=(1500, 1)) + rng.normal(size=16)
    rows = (rng.random((1500, 16)) < 1 / (1 + np.exp(-ability))).astype(float)
    assert fitted(rows).n_clusters == 1


@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_as_many_clusters_as_wanted(k):
    rows, _ = surveys(1)
    assert fitted(rows, k).n_clusters == k
    if k <= 5:
        assert len(np.unique(fitted(rows).clusters_at(k))) == k


def test_cuts_are_nested():
    rows, _ = surveys(4)
    model = fitted(rows)
    coarser = model.clusters_at(2)
    for level in (3, 6, 9):
        finer = model.clusters_at(level)
        assert len(set(zip(finer.tolist(), coarser.tolist(), strict=True))) == level
        coarser = finer


def test_the_order_of_rows_and_their_sites_do_not_matter():
    rows, _ = surveys(0, n=400)
    order = np.random.default_rng(0).permutation(400)
    whole = fitted(rows)
    moved = fitted(rows[order])
    assert np.array_equal(whole.node_labels[order], moved.node_labels)
    halves = Communities().update({"a": (rows[:150], np.ones(150)), "b": (rows[150:], np.ones(250))}).fit()
    assert np.array_equal(halves.node_labels, whole.node_labels)


def test_means_of_rows_are_read_as_their_rows_would_be():
    rows, group = surveys(3, n=3000)
    # rows in pairs of one class and, here and there, alone
    order = np.argsort(group, kind="stable")
    pairs = rows[order][:2000].reshape(1000, 2, -1).mean(axis=1)
    nodes, counts = np.concatenate([pairs, rows[order][2000:]]), np.repeat([2.0, 1.0], 1000)
    model = Communities().set_site("a", nodes, counts).fit()
    assert model.scaling.kind == "levels"
    truth = np.concatenate([group[order][:2000:2], group[order][2000:]])
    assert adjusted_rand_score(truth, model.node_labels) > 0.9


def test_what_counts_as_levels():
    rows, _ = surveys(0, n=200)
    ones = np.ones(200)
    found = levels_of(rows, ones, None)
    assert found is not None
    assert found.shares.shape == (200, 32)
    assert found.n_free == 24
    # scaled levels, and a level of its own for what is none of those listed
    assert levels_of(rows * 7.3, ones, [Block(4, "category")] * 8).n_free == 24
    assert levels_of(np.delete(rows, 0, axis=1), ones, [Block(3, "category"), *[Block(4, "category")] * 7]).n_free == 24
    # no and yes in whatever numbers
    for yes in (coins(0, 100, 5, 0.5), 1 + coins(0, 100, 5, 0.5), 1 - 2 * coins(0, 100, 5, 0.5)):
        assert levels_of(yes, np.ones(100), None).n_free == 5
    for other in (rows + rows[::-1], np.column_stack([rows, np.linspace(0, 1, 200)]), rows[:, :1], rows[:2]):
        assert levels_of(other, np.ones(len(other)), None) is None
    assert levels_of(rows, ones, [Block(4, "category")] * 7 + [Block(4, "numbers")]) is None


def test_a_constant_column_changes_nothing():
    rows, _ = surveys(5, n=500)
    wider = np.column_stack([rows, np.ones(500), np.zeros(500)])
    places, which, mass = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    wide_places = np.unique(wider, axis=0)
    labels = latent_tree(levels_of(places, mass * 1.0, None)).labels()
    wide = latent_tree(levels_of(wide_places, mass * 1.0, None)).labels()
    assert np.array_equal(labels[which.ravel()], wide[which.ravel()])
