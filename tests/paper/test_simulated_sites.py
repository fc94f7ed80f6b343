"""The splits: every row once, and the promised mixes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcac.paper import simulated_sites as partition
from fcac.paper.simulated_sites import (
    as_groups,
    by_column,
    classes_per_site,
    dirichlet,
    iid,
    site_names,
)
from fcac.paper.splits import paper_dirichlet, paper_iid

LABELS = np.repeat([0, 1, 2, 3], [90, 60, 30, 20])

SPLITS = {
    "iid": lambda y, sites: iid(y, sites, seed=3),
    "dirichlet": lambda y, sites: dirichlet(y, sites, alpha=0.5, seed=3),
    "classes_per_site": lambda y, sites: classes_per_site(y, sites, n_classes=2, seed=3),
    "the paper's iid": paper_iid,
    "the paper's dirichlet": lambda y, sites: paper_dirichlet(y, sites, min_rows=5),
}


def counts_per_site(parts, y=LABELS):
    return np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in parts])


@pytest.mark.parametrize("name", SPLITS)
def test_every_row_goes_to_exactly_one_site(name):
    parts = SPLITS[name](LABELS, 5)
    assert len(parts) == 5
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(LABELS)))


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_repeats_itself_and_leaves_numpys_global_generator_alone(name):
    np.random.seed(11)
    before = np.random.get_state()[1].copy()
    first, second = SPLITS[name](LABELS, 5), SPLITS[name](LABELS, 5)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.mark.parametrize("name", SPLITS)
def test_label_names_do_not_matter(name):
    texts = np.array(["a", "b", "c", "d"])[LABELS]
    for a, b in zip(SPLITS[name](LABELS, 5), SPLITS[name](texts, 5), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("split", [iid, lambda y, n, s: dirichlet(y, n, 0.5, s)])
def test_another_seed_gives_another_split(split):
    first, second = split(LABELS, 5, 0), split(LABELS, 5, 1)
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    sites=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_iid_is_level_in_every_label_and_in_total(counts, sites, seed):
    y = np.repeat(np.arange(len(counts)), counts)
    sites = min(sites, len(y))
    table = counts_per_site(iid(y, sites, seed), y)
    assert (np.ptp(table, axis=0) <= 1).all()
    assert np.ptp(table.sum(axis=1)) <= 1


def test_dirichlet_follows_alpha():
    def unevenness(alpha):
        shares = counts_per_site(dirichlet(LABELS, 5, alpha, seed=0, min_rows=0)) / np.bincount(LABELS)
        return shares.std(axis=0).mean()

    # shares of Dirichlet(alpha) over C sites have variance (1/C)(1 - 1/C)/(C alpha + 1)
    assert unevenness(1000.0) < 0.02 < unevenness(0.5) < unevenness(0.01)


def test_dirichlet_keeps_min_rows():
    sizes = [len(rows) for rows in dirichlet(LABELS, 5, alpha=0.3, seed=1, min_rows=30)]
    assert min(sizes) >= 30


def test_classes_per_site_are_few_and_all_are_covered():
    y = np.repeat(np.arange(10), 30)
    table = counts_per_site(classes_per_site(y, 7, n_classes=3, seed=5), y)
    assert ((table > 0).sum(axis=1) == 3).all()
    holders = (table > 0).sum(axis=0)
    assert holders.min() >= 2
    assert holders.max() <= 3
    for label in range(10):
        held = table[table[:, label] > 0, label]
        assert np.ptp(held) <= 1


def test_by_column_sorts_numbers_as_numbers_and_keeps_row_order():
    column = np.array([10, 9, 100, 9, 10])
    assert site_names(column) == [9, 10, 100]
    assert [rows.tolist() for rows in by_column(column)] == [[1, 3], [0, 4], [2]]
    assert site_names(["b", 10, "a", 9]) == [9, 10, "a", "b"]
    assert [rows.tolist() for rows in by_column(["b", 10, "a", 9])] == [[3], [1], [2], [0]]


def test_as_groups_keeps_the_order_within_sites():
    rows, groups = as_groups([np.array([3, 1]), np.array([2, 0])], names=["x", "y"])
    assert rows.tolist() == [3, 1, 2, 0]
    assert groups.tolist() == ["x", "x", "y", "y"]
    with pytest.raises(ValueError, match="names has 1 entries for 2 sites"):
        as_groups([np.array([0]), np.array([1])], names=["x"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid([], 2, 0), "one label per row"),
        (lambda: iid([[1, 2]], 2, 0), "one label per row"),
        (lambda: iid(LABELS, 0, 0), "n_sites must be a whole number"),
        (lambda: iid(LABELS, 2.5, 0), "n_sites must be a whole number"),
        (lambda: iid([1, 2], 3, 0), "3 sites need at least 3 rows; there are 2"),
        (lambda: dirichlet(LABELS, 5, 0.0, 0), "alpha must be a positive number"),
        (lambda: dirichlet(LABELS, 5, 1.0, 0, min_rows=41), "needs 205 rows; there are 200"),
        (lambda: dirichlet(LABELS, 5, 1.0, 0, min_rows=-1), "must not be negative"),
        (lambda: dirichlet(LABELS, 20, 0.01, 0, min_rows=10), "lower min_rows"),
        (lambda: classes_per_site(LABELS, 5, 5, 0), "between 1 and the number of labels, 4"),
        (lambda: classes_per_site(LABELS, 3, 1, 0), "cannot cover all 4 labels"),
        (lambda: classes_per_site([0, 0, 1], 3, 2, 0), "too few for the 3 sites"),
        (lambda: by_column([]), "one site per row"),
        (lambda: by_column([[1, 2], [3, 4]]), "one site per row"),
        (lambda: by_column(7), "one site per row"),
        (lambda: by_column([1.0, float("nan")]), "1 missing entries, the first in row 1"),
        (lambda: by_column(["a", None]), "1 missing entries"),
        (lambda: as_groups([]), "there is no site"),
    ],
)
def test_impossible_demands_are_named(call, message, monkeypatch):
    monkeypatch.setattr(partition, "MAX_DRAWS", 50)  # how long it tries is not what this test is about
    with pytest.raises(ValueError, match=message):
        call()
