"""Clusters that one column of levels alone tells apart are one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.clusters.cluster_tree import Tree
from fcac.clusters.single_column import join_single_columns
from fcac.tables.column import Column
from fcac.tables.kind import Block
from fcac.tables.schema import Schema


def tree_of(labels):
    """Return a tree whose clusters are the labels, one atom each."""
    k = int(labels.max()) + 1
    return Tree.of_joins(labels, [(0, a) for a in range(1, k)], 0, np.ones(k))


def clinics(n, seed):
    """Return four kinds of patients: of one all are women, and month, sex and smoking say nothing of the others."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=n)
    frame = pd.DataFrame(
        {
            "age": np.array([62, 50, 74, 29])[kind] + rng.normal(0, 5, n),
            "creatinine": np.array([90, 80, 190, 60])[kind] + rng.normal(0, 12, n),
            "diagnosis": np.array(["E11", "I10", "N18", "O80"])[kind],
            "sex": np.where(kind == 3, "f", rng.choice(["f", "m"], n)),
            "admitted": np.datetime64("2024-01-01") + rng.integers(366, size=n),
            "pain": rng.choice(["none", "some", "much"], n),
        }
    )
    schema = Schema(
        [
            Column("age", kind="number", scaling="standard", center=50, spread=20),
            Column("creatinine", kind="number", scaling="standard", center=100, spread=50),
            Column("diagnosis", kind="category", categories=["E11", "I10", "N18", "O80"]),
            Column("sex", kind="category", categories=["f", "m"]),
            Column("admitted", kind="date", parts=["month"]),
            Column("pain", kind="ordinal", order=["none", "some", "much"]),
        ]
    )
    return frame, kind, schema


@pytest.mark.slow
def test_levels_that_follow_nothing_make_no_clusters():
    frame, kind, schema = clinics(2500, 0)
    model = FCAC(random_state=0).fit(frame, schema=schema)
    # two of the kinds overlap; three clusters are nearly as probable
    assert {3, 4} >= {model.n_clusters_}
    assert adjusted_mutual_info_score(kind, model.predict(frame)) > 0.85


def test_clusters_that_differ_in_one_column_of_levels_are_joined():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 200)
    number = rng.normal(size=600) + 8 * (labels == 2)
    level = (labels == 1).astype(float)
    rows = np.column_stack([number, level])
    blocks = [Block(1, "number"), Block(1, "category")]
    joined = join_single_columns(tree_of(labels), np.arange(600), rows, np.ones(600), blocks)
    assert joined.labels().tolist() == np.repeat([0, 0, 1], 200).tolist()
    # other numbers of clusters can still be asked for
    assert len(np.unique(joined.into(3).labels())) == 3
    assert len(np.unique(joined.into(1).labels())) == 1


def test_clusters_that_differ_in_two_columns_or_in_a_number_stay():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 200)
    number, level = rng.normal(size=400) + 8 * labels, labels.astype(float)
    for rows, blocks in (
        (np.column_stack([number, level]), [Block(1, "number"), Block(1, "category")]),
        (np.column_stack([number, rng.random(400) < 0.5]), [Block(1, "number"), Block(1, "category")]),
        (np.column_stack([level, level]), [Block(1, "category"), Block(1, "category")]),
        (level[:, None], [Block(1, "category")]),
    ):
        assert join_single_columns(tree_of(labels), np.arange(400), rows, np.ones(400), blocks).n_clusters == 2


@pytest.mark.parametrize(("n", "n_clusters"), [(10, 1), (1000, 2)])
def test_a_difference_that_few_rows_show_by_chance_is_none(n, n_clusters):
    """Means of two clusters lie .8 standard deviations apart: ten rows each may show that by chance, 1,000 do not."""
    labels = np.repeat([0, 1], n)
    number = np.tile([-1.0, 1.0], n) + 0.8 * labels
    rows, blocks = np.column_stack([number, labels == 1]), [Block(1, "number"), Block(1, "category")]
    assert join_single_columns(tree_of(labels), np.arange(2 * n), rows, np.ones(2 * n), blocks).n_clusters == n_clusters


@pytest.mark.parametrize("n_sites", [1, 3])
def test_a_number_of_whole_years_beside_levels_that_tell_nothing_is_one_cluster(n_sites):
    """Rows whose levels do not count are at one place; as neighbours of their own they made every year a cluster."""
    rng = np.random.default_rng(1)
    age = np.clip(rng.normal(30, 14, 1300).round(), 0, 80)
    age[rng.random(1300) < 0.2] = np.nan
    frame = pd.DataFrame(
        {"age": age, "sex": rng.choice(["f", "m"], 1300), "class": rng.choice(["1st", "2nd", "3rd"], 1300)}
    )
    model = FCAC().fit(frame, groups=np.arange(1300) % n_sites)
    assert model.n_clusters_ == 1
    assert model.is_novel(frame).mean() < 0.02
    assert model.partial_fit(frame, groups=np.arange(1300) % n_sites).n_clusters_ == 1
    assert [(change.kind, change.cluster) for change in model.lineage_] == [("born", 0), ("grew", 0)]
    np.testing.assert_array_equal(model.export().predict(model.schema_.apply(frame)), model.predict(frame))
