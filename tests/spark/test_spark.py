"""fcac on a real standalone cluster of Spark: the same model, whatever becomes of tasks and partitions."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac import FCAC, load
from fcac import spark as fcac_spark
from fcac.exceptions import DataError
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
    """Three sites, one of them with more rows than it may have nodes."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=9000)
    centres = rng.uniform(-30, 30, (5, 3))
    frame = pd.DataFrame(centres[y] + rng.normal(size=(len(y), 3)), columns=COLUMNS)
    frame["clinic"] = rng.choice(["north", "south", "west"], len(y), p=[0.7, 0.2, 0.1])
    frame["id"] = np.arange(len(y))
    return frame, y


def on(spark, frame, partitions=4):
    return spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).repartition(partitions)


def same(a, b):
    np.testing.assert_array_equal(a.server_.nodes, b.server_.nodes)
    np.testing.assert_array_equal(a.server_.node_labels, b.server_.node_labels)
    assert list(a.sites_) == list(b.sites_)


def test_sites_give_the_model_of_one_process(spark, table):
    frame, _ = table
    local = FCAC(random_state=0).fit(frame.drop(columns="id"), groups="clinic")
    for partitions in (3, 11):
        there = on(spark, frame, partitions)
        model = fcac_spark.fit(there, Schema(COLUMNS), "clinic", order_by="id", random_state=0)
        same(local, model)
    later = frame.iloc[:2500]
    local.partial_fit(later.drop(columns="id"), groups="clinic")
    fcac_spark.update(model, on(spark, later, 5), order_by="id")
    assert model.n_rounds_ == 2
    same(local, model)


def test_without_sites_partitions_are_merged(spark, table, tmp_path):
    frame, y = table
    wide = on(spark, frame[COLUMNS], 60)  # two levels of merging; some partitions may be empty
    model = fcac_spark.fit(wide, random_state=0)
    assert model.server_.nodes.shape[0] <= 4000
    assert sum(int(item.counts.sum()) for item in model.server_.log[-1]) == len(frame)
    assert adjusted_mutual_info_score(y, model.predict(frame[COLUMNS])) > 0.99
    fcac_spark.update(model, wide)
    assert sum(int(item.counts.sum()) for item in model.server_.log[-1]) == 2 * len(frame)
    from fcac import save

    save(model, tmp_path / "m.fcac")
    assert load(tmp_path / "m.fcac").n_rounds_ == 2


def test_labels_are_those_of_one_process(spark, table):
    frame, _ = table
    model = FCAC(random_state=0).fit(frame[COLUMNS])
    found = pd.DataFrame([row.asDict() for row in fcac_spark.predict(model, on(spark, frame)).collect()])
    found = found.sort_values("id", ignore_index=True)
    label, distance, novel = model.label_rows(frame[COLUMNS])
    np.testing.assert_array_equal(found["label"], label)
    np.testing.assert_array_equal(found["distance"], distance)
    np.testing.assert_array_equal(found["novel"], novel)
    np.testing.assert_array_equal(found["confidence"], model.predict_with_confidence(frame[COLUMNS])[1])
    assert found["clinic"].tolist() == frame["clinic"].tolist()


def test_a_task_that_fails_twice_counts_once(spark, table):
    frame, _ = table
    there = on(spark, frame[COLUMNS])

    def fails_twice(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() < 2:
            raise RuntimeError("lost")

    model = fcac_spark.fit(there.mapInArrow(fails_twice, there.schema), random_state=0)
    assert sum(int(item.counts.sum()) for item in model.server_.log[-1]) == len(frame)


def test_errors_of_executors_come_as_one_line(spark):
    gaps = spark.createDataFrame(pa.table({"a": [1.0, None, 3.0], "b": [1.0, 2.0, 3.0]}))
    with pytest.raises(DataError, match="column a") as error:
        fcac_spark.fit(gaps)
    assert "\n" not in str(error.value)
    siteless = spark.createDataFrame(pa.table({"a": [1.0, 2.0], "s": ["x", None]}))
    with pytest.raises(DataError, match="no site in column 's'"):
        fcac_spark.fit(siteless, site_column="s")
    with pytest.raises(DataError, match="are not numbers"):
        fcac_spark.fit(siteless)
    with pytest.raises(ValueError, match="site_column"):
        fcac_spark.fit(gaps, server="cae-fc")
    with pytest.raises(DataError, match="no rows"):
        fcac_spark.fit(gaps.limit(0))


def test_pipeline(spark, table, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler

    frame, y = table
    there = on(spark, frame)
    stages = [VectorAssembler(inputCols=COLUMNS, outputCol="features"), fcac_spark.FCACEstimator(predictionCol="found")]
    fitted = Pipeline(stages=stages).fit(there)
    fitted.write().save((tmp_path / "pipeline").as_uri())
    again = PipelineModel.load((tmp_path / "pipeline").as_uri())
    rows = again.transform(there).select("id", "found").collect()
    labels = np.array([row.found for row in sorted(rows, key=lambda row: row.id)])
    assert adjusted_rand_score(y, labels) > 0.98


def test_commands(spark, table, tmp_path, capfd):
    frame, _ = table
    frame.drop(columns="id").to_parquet(tmp_path / "lake.parquet")
    lake = (tmp_path / "lake.parquet").as_uri()
    model = tmp_path / "model.fcac"
    said = fcac(capfd, "fit", "--engine", "spark", lake, "--site-column", "clinic", "--out", model)
    assert "9,000 rows" in said
    fcac(capfd, "update", "--engine", "spark", model, lake)
    assert load(model).n_rounds_ == 2
    labels = tmp_path / "labels"
    fcac(capfd, "predict", "--engine", "spark", model, lake, "--out", labels)
    assert len(pd.read_parquet(labels)) == 9000
    said = fcac(capfd, "fit", "--engine", "spark", lake, "--epsilon", "1", "--out", tmp_path / "x.fcac", code=2)
    assert "--epsilon is not for --engine spark" in said


@pytest.mark.soak
def test_a_killed_executor_loses_nothing(spark, table):
    frame, _ = table
    there = on(spark, frame[COLUMNS], 30)
    killed = there.sparkSession.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()

    def slow(batches):
        import time

        time.sleep(0.3)
        yield from batches

    import threading

    timer = threading.Timer(3.0, lambda: os.kill(killed[0], signal.SIGKILL))
    timer.start()
    model = fcac_spark.fit(there.mapInArrow(slow, there.schema), random_state=0)
    timer.join()
    assert sum(int(item.counts.sum()) for item in model.server_.log[-1]) == len(frame)


@pytest.mark.soak
def test_a_thousand_partitions(spark, table):
    frame, y = table
    model = fcac_spark.fit(on(spark, frame[COLUMNS], 1000), random_state=0)
    assert adjusted_mutual_info_score(y, model.predict(frame[COLUMNS])) > 0.99
