"""Families of tables that nothing was chosen on: as large as they say, repeatable, and of the kinds they name."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.paper.config import read_config
from fcac.paper.one_table import load, n_classes
from fcac.paper.unseen import FAMILIES


def test_the_comparison_runs_all_of_them_and_knows_which_were_seen():
    config = read_config("one-table")
    assert {name for name in config.unseen if name in config.sets} == set(FAMILIES)
    assert set(config.unseen) <= {*config.sets, *config.file_sets}
    assert set(config.sets) - set(config.unseen)


@pytest.mark.parametrize(
    ("name", "shape", "k"),
    [
        ("waves of five frequencies", (1500, 30), 5),
        ("compositions", (1500, 8), 6),
        ("zero-inflated amounts", (1600, 12), 4),
        ("corners of a cube", (3200, 4), 16),
        ("shells", (3300, 4), 3),
        ("directions on a sphere", (1800, 10), 7),
        ("a knot and a ring", (2200, 3), 2),
        ("a single wedge", (1500, 5), 1),
    ],
)
def test_each_is_drawn_from_its_trial(name, shape, k):
    X, y = load(name, 3, None)
    assert X.shape == shape
    assert n_classes(y) == k
    np.testing.assert_array_equal(load(name, 3, None)[0], X)
    assert not np.array_equal(load(name, 4, None)[0], X)


def test_kinds_are_what_they_are_called():
    rng = np.random.default_rng(0)
    X, _ = FAMILIES["compositions"](rng)
    np.testing.assert_allclose(X.sum(axis=1), 1.0)
    X, _ = FAMILIES["directions on a sphere"](rng)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    X, y = FAMILIES["shells"](rng)
    np.testing.assert_allclose([np.linalg.norm(X[y == k], axis=1).mean() for k in range(3)], [0.3, 2, 4], atol=0.05)
    X, _ = FAMILIES["zero-inflated amounts"](rng)
    assert 0.2 < np.mean(X == 0) < 0.8
