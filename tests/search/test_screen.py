"""Searches among points of many features: exact, whatever their spread."""

from __future__ import annotations

import numpy as np
import pytest

from fcac import FCAC
from fcac.search.exact import Searcher


def in_order(points, query, k, own=-1):
    """The nearest by sums taken feature by feature, equal ones by position."""
    squared = np.zeros(len(points))
    for j in range(points.shape[1]):
        gap = query[j] - points[:, j]
        squared += gap * gap
    if own >= 0:
        squared[own] = np.inf
    nearest = np.lexsort((np.arange(len(points)), squared))[:k]
    return nearest, squared[nearest]


SPREADS = {
    "few axes say nearly all": np.geomspace(10, 0.001, 100),
    "all axes alike": np.ones(100),
    "far clusters, wide in every direction": np.r_[np.full(5, 30.0), np.ones(95)],
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("ties", [False, True])
def test_the_nearest_are_exact(spread, ties):
    generator = np.random.default_rng(0)
    points = generator.normal(size=(8200, 100)) * SPREADS[spread]
    if ties:
        points = np.rint(points / 4)
    searcher = Searcher(points)
    own = np.arange(1500)
    found, squared = searcher.nearest(points[:1500], 12, own)
    for row in range(0, 1500, 60):
        expected, sums = in_order(points, points[row], 12, row)
        assert np.array_equal(found[row], expected)
        assert np.array_equal(squared[row], sums)
    # few queries are answered as many are
    again, _ = Searcher(points).nearest(points[:50], 12, own[:50])
    assert np.array_equal(again, found[:50])


def test_rows_that_are_nodes_have_the_labels_that_predict_gives_them():
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(900, 30)) + 1.2 * np.eye(30)[generator.integers(3, size=900)]
    model = FCAC(random_state=0, n_clusters=3).fit(rows, groups=np.arange(900) % 3)
    assert np.array_equal(model.labels_, model.predict(rows))
