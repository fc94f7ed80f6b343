"""A release of rows that are in partitions: the sum of their totals is noised once, and nothing else differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import FCAC
from fcac.exceptions import BudgetExceeded, DataError
from fcac.model.partition_totals import (
    GridPlan,
    check_release,
    flat_totals,
    play_release,
    weights_of,
    whole_totals,
)
from fcac.model.partitions import plan_for
from fcac.privacy import Ledger, LocalNoise, NodeRelease
from fcac.privacy.cell_statistics import person_weights
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.column import Column
from fcac.tables.schema import Schema

BOUNDS = [[0.0, 10.0], [0.0, 10.0]]
SCHEMA = Schema([Column(name, missing="native") for name in ("a", "b")])


class Batch:
    """Rows of a frame in partitions, added up in one process."""

    def __init__(self, frame, n_partitions, id_column=None):
        self.plan = GridPlan(SCHEMA.to_toml(), np.array(BOUNDS), id_column)
        deal = np.arange(len(frame)) % n_partitions
        tables = [pa.Table.from_pandas(frame[deal == part], preserve_index=False) for part in range(n_partitions)]
        parts = [self.plan.gridded(table.combine_chunks().to_batches()[0]) for table in tables if table.num_rows]
        self.n_passes = 0
        self.left_out = set()
        rows = [row for part in parts for row in part.rows]
        self.rows = np.array(rows).reshape(-1, 2)
        self.people = self.weights = None
        if id_column is not None:
            self._ids = [name for part in parts for name in part.ids]
            self.people = np.array([name for part in parts for name in part.people])
            self.weights = person_weights(list(self.people))
        self.cut = np.array_split(np.arange(len(rows)), n_partitions)

    def ids(self):
        return None if self.people is None else sorted(set(self._ids))

    def leave_out(self, people):
        self.left_out = people

    def totals(self, request):
        self.n_passes += 1
        total = 0
        for places in self.cut:
            weights = None if self.weights is None else self.weights[places]
            rows = self.rows[places]
            if self.left_out:
                kept = ~np.isin(self.people[places], list(self.left_out))
                rows, weights = rows[kept], weights[kept]
            total = total + flat_totals([(rows, weights)], request)
        return whole_totals(enumerate(total.tolist()), request)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    rows = np.repeat([[2.0, 2.0], [8.0, 3.0], [5.0, 9.0]], 400, axis=0) + rng.normal(0, 0.3, (1200, 2))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return pd.DataFrame(rng.permutation(rows), columns=["a", "b"])


def mechanism(ledger=None):
    return NodeRelease(4.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(1))


def release(model, batch):
    return play_release(model, plan_for(model, SCHEMA, None), batch, SCHEMA, keep_schema=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_partitions", [1, 7])
def test_the_release_is_that_of_one_process(frame, n_partitions):
    local = FCAC(privacy=mechanism(), random_state=0).fit(frame, schema=SCHEMA)
    batch = Batch(frame, n_partitions)
    model = release(FCAC(privacy=mechanism(), random_state=0), batch)
    assert batch.n_passes == 5
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    assert local.server_.log[-1][0] == model.server_.log[-1][0]
    local.partial_fit(frame[:600])
    release(model, Batch(frame[:600], n_partitions))
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    assert model.server_.log[-1][0].privacy["rounds"] == 2


@pytest.mark.slow
def test_rows_of_a_person_in_several_partitions_weigh_as_one(frame, tmp_path):
    # four rows each: shares of 1/4 are the same in any order
    frame = frame.assign(patient=[f"P{i % 300}" for i in range(len(frame))])
    ids = frame["patient"].tolist()
    ledgers = [Ledger(tmp_path / f"{name}.db", 7.6) for name in "ab"]
    local = FCAC(privacy=mechanism(ledgers[0]), random_state=0).fit(frame[["a", "b"]], schema=SCHEMA, record_ids=ids)
    model = release(FCAC(privacy=mechanism(ledgers[1]), random_state=0), Batch(frame, 5, "patient"))
    np.testing.assert_array_equal(local.server_.nodes, model.server_.nodes)
    assert round(model.server_.log[-1][0].counts.sum()) < 400  # people, not rows
    assert ledgers[0].summary_line("0") == ledgers[1].summary_line("0")
    # somebody who has spent all is left out of the next round, in every partition
    ledgers[1].charge("elsewhere", ledgers[1].rho_of(6.0), record_ids=["p7"])
    later = Batch(frame, 5, "patient")
    release(model, later)
    assert later.left_out == {"p7"}


def test_the_ledger_is_charged_once_and_before_noise(frame, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 5.0)
    model = release(FCAC(privacy=mechanism(ledger)), Batch(frame, 3))
    assert len(ledger.entries()) == 1
    with pytest.raises(BudgetExceeded):
        release(model, Batch(frame, 3))
    assert model.n_rounds_ == 1
    assert len(ledger.entries()) == 1


def test_rows_that_cannot_be_read_cost_nothing(frame, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 5.0)

    class Broken(Batch):
        def totals(self, request):
            raise DataError("column a: text where numbers were expected")

    with pytest.raises(DataError, match="column a"):
        release(FCAC(privacy=mechanism(ledger)), Broken(frame, 3))
    assert ledger.entries() == []


def test_weights_of_counted_rows_are_those_of_listed_rows():
    people = ["ann", "bob", "ann", "cid", "ann", "bob", "cid", *["dan"] * 1500]
    turns, rows_of = {}, {name: people.count(name) for name in people}
    turn = np.array([turns.update({name: turns.get(name, -1) + 1}) or turns[name] for name in people])
    found = weights_of(turn, np.array([rows_of[name] for name in people]))
    np.testing.assert_array_equal(found, person_weights(people))


def test_requests_that_cannot_be_met_are_refused(frame):
    with pytest.raises(ValueError, match="LocalNoise changes single rows"):
        check_release(FCAC(privacy=LocalNoise(1.0, BOUNDS)), SCHEMA, None)
    with pytest.raises(ValueError, match="leave out the column of sites"):
        check_release(FCAC(privacy=mechanism()), SCHEMA, "clinic")
    with pytest.raises(ValueError, match="bounds describe 2 features, the schema has 3"):
        check_release(FCAC(privacy=mechanism()), Schema(["a", "b", "c"]), None)
    nameless = frame.assign(patient=[None, *range(len(frame) - 1)])
    with pytest.raises(DataError, match="1 rows have no id in column 'patient'"):
        Batch(nameless, 2, "patient")
    with pytest.raises(DataError, match="too many rows"):
        whole_totals([(0, 2**62)], _request())


def _request():
    from fcac.privacy.cell_release import Request

    return Request(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), 10, 1.0, False)
