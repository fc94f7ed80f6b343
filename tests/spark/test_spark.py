"""fcac on a real standalone cluster of Spark: the same model, whatever becomes of tasks and partitions."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac import FCAC, load, save
from fcac import spark as fcac_spark
from fcac.exceptions import DataError
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.spark import jobs
from fcac.tables.column import Column
from fcac.tables.schema import Schema
from testing.commands import fcac
from testing.spark_cluster import MISSING, cluster, session_on

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    # pyspark warns of pandas 3 and leaves sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.xdist_group("spark"),
]

COLUMNS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def spark():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster() as address, session_on(address) as session:
            yield session


@pytest.fixture(scope="module")
def table():
    """Three sites, of which two have more rows than they may have nodes (500), and a category."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=3000)
    centres = rng.uniform(-30, 30, (5, 3))
    frame = pd.DataFrame(centres[y] + rng.normal(size=(len(y), 3)), columns=COLUMNS)
    frame["ward"] = np.where(rng.random(len(y)) < 0.8, y, rng.integers(5, size=len(y))).astype(str)
    frame["clinic"] = rng.choice(["north", "south", "west"], len(y), p=[0.7, 0.2, 0.1])
    frame["id"] = np.arange(len(y))
    return frame, y


def on(spark, frame, partitions=3):
    return spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).repartition(partitions)


def same(a, b):
    np.testing.assert_array_equal(a.server_.nodes, b.server_.nodes)
    np.testing.assert_array_equal(a.server_.node_labels, b.server_.node_labels)
    assert list(a.sites_) == list(b.sites_)


def rows_behind(model):
    return sum(int(item.counts.sum()) for item in model.server_.log[-1])


def test_sites_give_the_model_of_one_process(spark, table):
    frame, _ = table
    schema = Schema([*COLUMNS, Column("ward", kind="category", categories=["0", "1", "2", "3"])])
    times = 1 + frame["id"] % 3  # the next round is one without weights
    local = FCAC(random_state=0, max_nodes=500)
    local.fit(frame.drop(columns="id"), groups="clinic", schema=schema, sample_weight=times)
    there = on(spark, frame.assign(times=times), 5)
    model = fcac_spark.fit(there, schema, "clinic", order_by="id", weight_column="times", max_nodes=500, random_state=0)
    same(local, model)
    later = frame.iloc[:900]
    local.partial_fit(later.drop(columns="id"), groups="clinic")
    fcac_spark.update(model, on(spark, later), order_by="id")
    assert model.n_rounds_ == 2
    same(local, model)
    found = pd.DataFrame([row.asDict() for row in fcac_spark.predict(model, there).collect()])
    found = found.sort_values("id", ignore_index=True)
    label, distance, novel = local.label_rows(frame)
    np.testing.assert_array_equal(found["label"], label)
    np.testing.assert_array_equal(found["distance"], distance)
    np.testing.assert_array_equal(found["novel"], novel)
    np.testing.assert_array_equal(found["confidence"], local.predict_with_confidence(frame)[1])
    assert found["clinic"].tolist() == frame["clinic"].tolist()


def test_partitions_are_merged_whatever_happens_to_tasks(spark, table, tmp_path, monkeypatch):
    frame, y = table
    monkeypatch.setattr(jobs, "_MERGED_AT_ONCE", 3)  # so that ten partitions make a tree of three levels
    # some partitions are empty, and one has most of the rows
    rows = frame[COLUMNS].assign(place=np.where(np.arange(len(frame)) < 2000, 0, np.arange(len(frame)) % 9))
    there = spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))
    skewed = there.repartition(10, "place").sortWithinPartitions(*COLUMNS)
    seen = []
    model = fcac_spark.fit(skewed.drop("place"), random_state=0, max_nodes=500, progress=seen.append)
    assert len(model.server_.nodes) <= 500
    assert rows_behind(model) == len(frame)
    assert adjusted_mutual_info_score(y, model.predict(frame[COLUMNS])) > 0.9
    assert (seen[-1].rows, seen[-1].tasks > 10) == (len(frame), True)
    marker = tmp_path / "killed"

    def unlucky(batches):
        """The first partition fails twice; the executor of the last is killed, once."""
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 0 and context.attemptNumber() < 2:
            raise RuntimeError("lost")
        if context.partitionId() == 9:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return
            # the parent of a Python worker is a daemon, whose parent is the executor
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGKILL)

    again = skewed.mapInArrow(unlucky, skewed.schema).drop("place")
    same(model, fcac_spark.fit(again, random_state=0, max_nodes=500))
    assert marker.exists()
    fcac_spark.update(model, skewed.drop("place"))
    assert rows_behind(model) == 2 * len(frame)
    save(model, tmp_path / "m.fcac")
    assert load(tmp_path / "m.fcac").n_rounds_ == 2


def test_a_release_is_that_of_one_owner(spark, table, tmp_path):
    frame, _ = table
    frame = frame[COLUMNS].assign(patient=[f"P{i % 750}" for i in range(len(frame))])  # four rows each
    schema, bounds = Schema(COLUMNS), [[-40.0, 40.0]] * 3

    def mechanism(ledger=None):
        return NodeRelease(2.0, bounds, ledger=ledger, sampler=InsecureTestSampler(0))

    local = FCAC(privacy=mechanism(), random_state=0).fit(frame[COLUMNS])
    model = fcac_spark.fit(on(spark, frame, 4), schema, privacy=mechanism(), random_state=0)
    same(local, model)
    ledgers = [Ledger(tmp_path / f"{name}.db", 5.0) for name in "ab"]
    local = FCAC(privacy=mechanism(ledgers[0]), random_state=0)
    local.fit(frame[COLUMNS], record_ids=frame["patient"].tolist())
    model = fcac_spark.fit(
        on(spark, frame, 4), schema, privacy=mechanism(ledgers[1]), record_id="patient", random_state=0
    )
    same(local, model)
    assert len(ledgers[1].entries()) == 1
    assert ledgers[0].summary_line() == ledgers[1].summary_line()
    with pytest.raises(ValueError, match="leave out the column of sites"):
        fcac_spark.fit(on(spark, frame), schema, "patient", privacy=mechanism())


def test_errors_of_executors_come_as_one_line(spark):
    gaps = spark.createDataFrame(pa.table({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0]}))
    with pytest.raises(DataError, match="column a") as error:
        fcac_spark.fit(gaps)
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="columns s are not numbers"):
        fcac_spark.fit(spark.createDataFrame(pa.table({"a": [1.0, 2.0], "s": ["x", None]})))
    with pytest.raises(ValueError, match="site_column"):
        fcac_spark.fit(gaps, server="cae-fc")
    with pytest.raises(DataError, match="no rows"):
        fcac_spark.fit(gaps.limit(0))

    def lacks_a_module(batches):
        import a_module_that_is_nowhere  # noqa: F401

        yield from batches

    with pytest.raises(DataError, match="cannot import a_module_that_is_nowhere: install fcac") as error:
        fcac_spark.fit(gaps.mapInArrow(lacks_a_module, gaps.schema))
    assert "\n" not in str(error.value)


def test_commands(spark, table, tmp_path, capfd):
    frame, _ = table
    frame.drop(columns=["id", "ward"]).to_parquet(tmp_path / "lake.parquet")
    lake = (tmp_path / "lake.parquet").as_uri()
    model = tmp_path / "model.fcac"
    said = fcac(capfd, "fit", "--engine", "spark", lake, "--site-column", "clinic", "--out", model)
    assert "3,000 rows" in said
    fcac(capfd, "update", "--engine", "spark", model, lake)
    assert load(model).n_rounds_ == 2
    labels = tmp_path / "labels"
    fcac(capfd, "predict", "--engine", "spark", model, lake, "--out", labels)
    assert len(pd.read_parquet(labels)) == 3000
    said = fcac(capfd, "fit", "--engine", "spark", lake, "--site", "s", "--out", tmp_path / "x.fcac", code=2)
    assert "--site is not for --engine spark" in said
    said = fcac(capfd, "fit", "--engine", "spark", f"{lake}-none", "--out", tmp_path / "x.fcac", code=1)
    assert "PATH_NOT_FOUND" in said
    columns = [Column(name, min=-40, max=40) for name in COLUMNS]
    schema = Schema(columns, bounds_are_public=True)
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    private = tmp_path / "private.fcac"
    said = fcac(
        capfd, "fit", "--engine", "spark", lake, "--schema", tmp_path / "schema.toml", "--epsilon", "2",
        "--ledger", tmp_path / "a.db", "--budget", "5", "--out", private,
    )  # fmt: skip
    assert "about" in said
    assert "eps = 2.00 at delta = 1e-6 per record, budget 5" in said
    fcac(capfd, "update", "--engine", "spark", private, lake)
    assert len(Ledger.open(tmp_path / "a.db").entries()) == 2


@pytest.mark.soak
def test_a_thousand_partitions(spark, table):
    frame, _ = table
    model = fcac_spark.fit(on(spark, frame[COLUMNS], 1000), random_state=0)
    assert rows_behind(model) == len(frame)
    local = FCAC(random_state=0).fit(frame[COLUMNS])
    np.testing.assert_array_equal(model.server_.nodes, local.server_.nodes)
    np.testing.assert_array_equal(model.predict(frame[COLUMNS]), local.predict(frame[COLUMNS]))


@pytest.mark.soak
def test_eight_partitions_find_what_one_table_shows(spark):
    """The bars of one table: far Gaussians, moons and rings, through the tree of merges."""
    from sklearn.datasets import make_blobs, make_circles, make_moons

    rng = np.random.default_rng(0)
    far = [make_blobs(6000, d, centers=rng.uniform(-20 * d**0.5, 20 * d**0.5, (k, d)), random_state=k) for k, d in
           ((3, 2), (8, 10), (20, 20))]  # fmt: skip
    shapes = [make_moons(6000, noise=0.07, random_state=0), make_circles(6000, noise=0.04, factor=0.5, random_state=0)]
    scores = []
    for x, y in [*far, *shapes]:
        frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
        model = fcac_spark.fit(on(spark, frame, 8), random_state=0)
        scores.append(adjusted_rand_score(y, model.predict(frame)))
    print(json.dumps(scores))
    assert min(scores) > 0.99
