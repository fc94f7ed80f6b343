"""The label of the nearest point equals that of a search, whether it is certain at once or not."""

import numpy as np
import pytest

from fcac.search.exact import LabelSearch, Searcher


@pytest.mark.parametrize("n_features", [1, 3, 30])
@pytest.mark.parametrize("apart", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_labels_are_those_of_the_search(n_features, apart, shift):
    rng = np.random.default_rng(n_features)
    centres = apart * rng.normal(size=(5, n_features))
    group = rng.integers(5, size=800)
    points = shift + centres[group] + rng.normal(size=(800, n_features))
    rows = shift + centres[rng.integers(5, size=5000)] + rng.normal(size=(5000, n_features))
    # on the border, and far away
    rows[:50] = (points[:50] + points[50:100]) / 2
    rows[50:60] += 1e8
    searcher = Searcher(points)
    assert np.array_equal(LabelSearch(searcher, group).of(rows), group[searcher.nearest(rows, 1)[0][:, 0]])


def test_most_rows_of_clusters_that_are_apart_are_not_searched():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
    group = rng.integers(3, size=600)
    searcher = Searcher(centres[group] + rng.normal(size=(600, 2)))
    plain, searched = searcher.nearest, []
    searcher.nearest = lambda rows, k: searched.append(len(rows)) or plain(rows, k)
    rows = centres[rng.integers(3, size=20_000)] + rng.normal(size=(20_000, 2))
    found = LabelSearch(searcher, group).of(rows)
    assert sum(searched) < 100
    assert np.array_equal(found, group[plain(rows, 1)[0][:, 0]])


def test_many_labels_and_few_rows_are_searched():
    points = np.arange(100.0)[:, None]
    assert LabelSearch(Searcher(points), np.arange(100)).of(np.array([[3.2]])).tolist() == [3]
    assert LabelSearch(Searcher(points), np.zeros(100, int)).of(np.full((3000, 1), 7.0)).max() == 0
