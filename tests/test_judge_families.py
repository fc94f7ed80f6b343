"""The generated tables on which the judge is fitted: repeatable, finite, within their limits."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from judge.families import FAMILIES, GROUPS, make, tables
from judge.parts import MOST_ROWS


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_is_deterministic_finite_and_within_its_limits(name: str) -> None:
    for seed in range(3):
        X, y = make(name, seed)
        again, labels = make(name, seed)
        np.testing.assert_array_equal(X, again)
        np.testing.assert_array_equal(y, labels)
        assert X.dtype == np.float64
        assert X.ndim == 2
        assert y.shape == (len(X),)
        assert np.isfinite(X).all()
        assert 8 <= len(X) <= MOST_ROWS
        assert 1 <= X.shape[1] <= 200
        of = np.bincount(y[y >= 0])
        assert y.min() >= -1
        assert 1 <= len(of) <= 31
        assert of.min() >= 2
        assert (len(of) == 1) == GROUPS[name].startswith("single")
        assert np.ptp(X, axis=0).max() > 0
    assert not np.array_equal(X[:5], make(name, 1)[0][:5])


def test_there_are_families_of_every_group_and_a_quarter_has_one_cluster() -> None:
    assert set(FAMILIES) == set(GROUPS)
    assert len(FAMILIES) >= 60
    held = Counter(GROUPS.values())
    assert len(held) >= 20
    single = sum(m for group, m in held.items() if group.startswith("single"))
    assert 0.2 < single / len(FAMILIES) < 0.33


def test_tables_can_be_drawn_again_by_family_and_seed() -> None:
    drawn = list(tables(2, 5))
    assert len(drawn) == 2 * len(FAMILIES)
    assert len({(name, seed) for name, _, seed, _, _ in drawn}) == len(drawn)
    for name, group, seed, X, y in drawn[:: len(drawn) // 7]:
        assert group == GROUPS[name]
        again, labels = make(name, seed)
        np.testing.assert_array_equal(X, again)
        np.testing.assert_array_equal(y, labels)
