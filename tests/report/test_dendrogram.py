"""The tree of clusters in the report: nested cuts above and below what was found."""

from __future__ import annotations

import numpy as np
import pytest

from fcac import FCAC
from fcac.report.dendrogram import Branch, Dendrogram, make_dendrogram, tree_data
from fcac.report.report_data import gather


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [4, 0], [20, 0], [24, 0], [50, 50]])
    return FCAC(random_state=0).fit(centres[rng.integers(5, size=2500)] + 0.4 * rng.normal(size=(2500, 2)))


@pytest.mark.slow
def test_cuts_are_nested_and_sizes_add_up(model):
    tree = make_dendrogram(model.server_)
    assert tree is not None
    assert tree.n_found == model.n_clusters_ == 5
    assert tree.n_finest > 5
    for number, branch in enumerate(tree.branches):
        if not branch.children:
            assert model.server_.counts[tree.leaf_of == number].sum() == pytest.approx(branch.rows)
        if branch.children:
            assert sum(tree.branches[c].rows for c in branch.children) == pytest.approx(branch.rows)
            assert all(tree.branches[c].born == branch.ends + 1 for c in branch.children)
    for level in range(1, tree.n_finest + 1):
        cut = [b for b in tree.branches if b.born <= level <= b.ends]
        assert len(cut) == level
        assert sum(b.rows for b in cut) == pytest.approx(2500)


def test_the_found_cut_is_the_models(model):
    tree = make_dendrogram(model.server_)
    assert tree is not None
    found = {b.cluster: b.rows for b in tree.branches if b.cluster is not None}
    labels, counts = np.unique(model.labels_, return_counts=True)
    assert found == pytest.approx(dict(zip(labels.tolist(), counts.tolist(), strict=True)))


def test_the_table_says_where_clusters_join_and_split():
    branches = [
        Branch(1, 1, 10.0, -1, (1, 2), None),
        Branch(2, 2, 6.0, 0, (3, 4), 0),
        Branch(2, 3, 4.0, 0, (), 1),
        Branch(3, 3, 5.0, 1, (), None),
        Branch(3, 3, 1.0, 1, (), None),
    ]
    tree = Dendrogram(branches, 2, 3, np.array([3, 4, 2]))
    assert tree.lines() == [("Cluster 0", "6", "60 %", "2", "3"), ("Cluster 1", "4", "40 %", "2", "–")]
    assert [tree.cluster_of(number) for number in range(5)] == [None, 0, 1, 0, 0]
    assert tree.leaves_below(0) == [3, 4, 2]
    assert tree.leaves == [3, 4, 2]
    assert tree.middles({3: 0.0, 4: 2.0, 2: 4.0})[0] == 2.5


@pytest.mark.slow
def test_leaves_of_a_branch_stand_side_by_side(model):
    data = gather(model)
    told = tree_data(data)
    assert told is not None
    assert len(told["heights"]) == told["finest"]
    for level in range(1, told["finest"] + 1):
        spans = sorted((b[2], b[3]) for b in told["branches"] if b[0] <= level <= b[1])
        assert [first for first, _ in spans] == [0, *[last + 1 for _, last in spans[:-1]]]


def test_servers_without_a_hierarchy_have_no_tree():
    model = FCAC(server="cae-fc", random_state=0).fit(np.random.default_rng(0).normal(size=(300, 2)))
    assert make_dendrogram(model.server_) is None
