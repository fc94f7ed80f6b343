"""Rows condensed partition by partition: the model is that of one process, whatever the engine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import FCAC
from fcac.exceptions import DataError
from fcac.model import partitions
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.column import Column
from fcac.tables.schema import Schema
from testing.tables import mixed


def batches(frame, n):
    whole = pa.Table.from_pandas(frame, preserve_index=False)
    size = -(-len(frame) // n)
    return [whole.slice(at, size).combine_chunks().to_batches()[0] for at in range(0, len(frame), size)]


def fit(model, frame, schema, n_partitions, site_column=None, weight_column=None):
    """An engine that has one worker: sites are sorted, or partitions merged in a tree."""
    plan = partitions.plan_for(model, schema, site_column, weight_column)
    before = partitions.states_of(model, plan)
    if site_column is not None:
        ordered = frame.sort_values(site_column, kind="stable")
        found = list(partitions.condense(plan, batches(ordered, n_partitions), before))
        return partitions.play(model, plan, [*found, found[0]], schema, keep_schema=True)
    parts = [item for batch in batches(frame, n_partitions) for item in partitions.condense(plan, [batch])]
    states = [item.state for item in parts]
    while len(states) > 1:
        states = [partitions.merge(states[at : at + 3]) for at in range(0, len(states), 3)]
    rows = sum(item.n_rows for item in parts)
    whole = partitions.Condensed(partitions.WHOLE, states[0], rows, 0, 0)
    return partitions.play(model, plan, [whole], schema, keep_schema=True)


@pytest.fixture(scope="module")
def table():
    frame, y = mixed("both", seed=3, n=900)
    frame["clinic"] = np.random.default_rng(0).choice(["north", "south"], len(frame))
    columns = [Column(str(name)) if frame[name].dtype.kind == "f" else category(frame, name) for name in frame if
               name != "clinic"]  # fmt: skip
    return frame, y, Schema(columns)


def category(frame, name):
    return Column(str(name), kind="category", categories=sorted(map(str, frame[name].unique())))


@pytest.mark.slow
def test_sites_with_categories_give_the_model_of_one_process(table):
    frame, _, schema = table
    local = FCAC(random_state=0).fit(frame, groups="clinic", schema=schema)
    model = fit(FCAC(random_state=0), frame, schema, 7, "clinic")
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    np.testing.assert_array_equal(local.server_.node_labels, model.server_.node_labels)
    np.testing.assert_array_equal(local.predict(frame), model.predict(frame))
    local.partial_fit(frame[:100], groups="clinic")
    fit(model, frame[:100], schema, 2, "clinic")
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    assert model.n_rounds_ == 2


@pytest.mark.slow
def test_merged_partitions_count_every_row_once(table):
    frame, _, schema = table
    numbers = Schema([name for name in schema.columns if frame[name].dtype.kind == "f"])
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(9000, numbers.n_features)), columns=numbers.columns)
    model = fit(FCAC(random_state=0, max_nodes=300), rows, numbers, 10)
    (sent,) = model.server_.log[-1]
    assert len(sent.nodes) <= 300
    assert sent.counts.sum() == len(rows)
    # sums of rows are in the nodes, wherever the rows were
    np.testing.assert_allclose(sent.counts @ sent.nodes / len(rows), rows.mean(), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n_partitions", [1, 8, 100])
def test_a_small_table_gives_the_nodes_of_one_process_in_any_partitions_and_order(n_partitions):
    """Up to 4,000 distinct rows every row is a node, so that nothing is left for partitions to change."""
    rng = np.random.default_rng(7)
    y = rng.integers(5, size=3000)
    rows = rng.uniform(-30, 30, (5, 3))[y] + rng.normal(size=(len(y), 3))
    frame, schema = pd.DataFrame(rows, columns=list("abc")), Schema(list("abc"))
    local = FCAC(random_state=0).fit(frame)
    model = fit(FCAC(random_state=0), frame.sample(frac=1, random_state=n_partitions), schema, n_partitions)
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    np.testing.assert_array_equal(local.server_.node_labels, model.server_.node_labels)
    assert len(np.unique(model.server_.node_labels)) == 5


@pytest.mark.parametrize("site_column", [None, "clinic"])
def test_weights_of_rows_count_as_in_one_process(site_column):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(700, 2)), columns=list("ab")).assign(times=rng.integers(4, size=700))
    frame["clinic"] = np.where(frame["a"] < 0, "north", "south")
    schema, given = Schema(list("ab")), frame["times"].to_numpy(float)
    groups = None if site_column is None else frame["clinic"]
    local = FCAC(random_state=0).fit(frame[["a", "b"]], groups=groups, sample_weight=given)
    model = fit(FCAC(random_state=0), frame, schema, 5, site_column, "times")
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    counts = np.concatenate([sent.counts for sent in model.server_.log[-1]])
    np.testing.assert_array_equal(np.concatenate([sent.counts for sent in local.server_.log[-1]]), counts)
    assert counts.sum() == given.sum()


def test_wrong_weights_are_named():
    frame, schema = pd.DataFrame({"a": [1.0, 2.0], "w": [1.0, None], "t": ["x", "y"], "n": [1.0, -1.0]}), Schema(["a"])
    for column, said in (("w", "1 rows have no weight"), ("t", "are numbers"), ("n", "not below zero")):
        with pytest.raises(DataError, match=said):
            fit(FCAC(), frame, schema, 1, None, column)
    mechanism = NodeRelease(1.0, [[0.0, 3.0]], sampler=InsecureTestSampler(0))
    with pytest.raises(ValueError, match="counts every row once"):
        partitions.plan_for(FCAC(privacy=mechanism), schema, None, "w")


def test_what_cannot_be_condensed_is_said(table):
    frame, _, schema = table
    broken = frame.copy()
    broken.loc[3, "clinic"] = None
    with pytest.raises(DataError, match="1 rows have no site in column 'clinic'"):
        fit(FCAC(), broken, schema, 1, "clinic")
    mixed_up = pd.concat([frame[frame["clinic"] == "north"], frame[frame["clinic"] == "south"], frame[:50]])
    plan = partitions.plan_for(FCAC(), schema, "clinic")
    with pytest.raises(DataError, match="are not next to each other"):
        list(partitions.condense(plan, batches(mixed_up, 3)))
    with pytest.raises(ValueError, match="site_column"):
        partitions.plan_for(FCAC(server="cae-fc"), schema, None)
    with pytest.raises(DataError, match="no rows to learn"):
        partitions.play(FCAC(), plan, [], schema, keep_schema=True)
    with pytest.raises(DataError, match="text or whole numbers"):
        partitions.site_name(1.5, "clinic")
