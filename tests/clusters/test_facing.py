"""Thin curves of few rows are told apart, and nothing smooth is."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fcac import FCAC
from fcac.clusters.facing import facing_parts
from fcac.clusters.snn_graph import neighbours_for
from fcac.search.exact import Searcher, build_lists


def spirals(arms, per_arm, turns=1.1):
    t = 1 + (np.arange(per_arm) + 0.5) / per_arm * 2 * turns * np.pi
    angles = [t + a * 2 * np.pi / arms for a in range(arms)]
    return np.concatenate([np.c_[t * np.cos(a), t * np.sin(a)] for a in angles]), np.repeat(np.arange(arms), per_arm)


def lines(per_line):
    along = (np.arange(per_line) + 0.5) / per_line * 8
    return np.concatenate([np.c_[along, np.full(per_line, float(at))] for at in range(4)]), np.repeat(
        np.arange(4), per_line
    )


def parts_of(points, mass=None):
    mass = np.ones(len(points)) if mass is None else mass
    near, _ = build_lists(Searcher(points), neighbours_for(len(points)))
    return facing_parts(points, mass, near, 1.2)


@pytest.mark.parametrize(("rows", "y"), [spirals(3, 100), lines(50)], ids=["three spirals", "four lines"])
def test_thin_curves_are_clusters(rows, y):
    order = np.random.default_rng(0).permutation(len(rows))
    model = FCAC(random_state=0).fit(rows[order])
    assert adjusted_rand_score(y[order], model.predict(rows[order])) == 1.0


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_smooth_clusters_stay_whole(dimension):
    rng = np.random.default_rng(dimension)
    for rows in (rng.normal(size=(400, dimension)), rng.uniform(size=(400, dimension))):
        assert not parts_of(rows).any()


def test_a_chance_gap_across_a_curve_is_no_border():
    # half of the curve lies behind a gap of many steps, but only its end faces the other half
    along = np.concatenate([np.arange(60.0), np.arange(75.0, 135.0)])
    rows = np.c_[along, np.sin(along / 15) * 20]
    assert not parts_of(rows).any()


def test_only_few_rows_that_are_nodes_are_looked_at():
    rows, _ = spirals(3, 100)
    assert len(np.unique(parts_of(rows))) == 3
    assert not parts_of(rows, np.full(len(rows), 5.0)).any()
    assert not parts_of(rows[:40]).any()
