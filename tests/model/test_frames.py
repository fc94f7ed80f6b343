"""Frames of mixed columns in `FCAC`: through a schema, with gaps, at several sites, in every form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score as ami

import fcac
from fcac import FCAC
from fcac.exceptions import DataError
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.column import Column
from fcac.tables.schema import Schema
from testing.tables import hospital, mixed


@pytest.fixture(scope="module")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    return hospital(3, n=1500)


@pytest.fixture(scope="module")
def schema(table) -> Schema:
    return Schema.guess(table[0].drop(columns="hospital"))


@pytest.fixture(scope="module")
def model(table, schema) -> FCAC:
    return FCAC(random_state=0).fit(table[0], groups="hospital", schema=schema)


@pytest.mark.slow
def test_a_hospitals_table_with_gaps_is_clustered_without_losing_a_row(table, model):
    rows, group = table
    assert len(model.labels_) == len(rows)
    assert sorted(model.sites_) == ["north", "south", "west"]
    assert 2 <= model.n_clusters_ <= 4
    assert ami(group, model.labels_) > 0.85
    assert ami(model.labels_, model.predict(rows)) > 0.9
    assert model.is_novel(rows).mean() < 0.05


@pytest.mark.slow
def test_pandas_polars_arrow_and_a_dict_of_sites_give_the_same_clusters(table, schema, model):
    polars = pytest.importorskip("polars")
    rows = table[0]
    for same in (polars.from_pandas(rows), pa.Table.from_pandas(rows, preserve_index=False)):
        other = FCAC(random_state=0).fit(same, groups="hospital", schema=schema)
        assert np.array_equal(other.labels_, model.labels_)
    by_site = {name: rows[rows["hospital"] == name] for name in ("north", "south", "west")}
    parts = FCAC(random_state=0).fit(by_site, schema=schema)
    assert parts.n_clusters_ == model.n_clusters_


@pytest.mark.slow
def test_a_stored_model_reads_the_same_tables_in_the_same_way(table, schema, model, tmp_path):
    rows = table[0]
    fcac.save(model, tmp_path / "model.fcac")
    again = fcac.load(tmp_path / "model.fcac")
    assert again.schema_ == schema
    assert np.array_equal(again.predict(rows), model.predict(rows))
    again.partial_fit(rows.head(300), groups="hospital")
    assert again.n_rounds_ == 2
    book = model.export()
    assert ami(book.predict(schema.apply(rows)), model.labels_) > 0.85
    fcac.save(book, tmp_path / "book.fcac")
    kept = fcac.load(tmp_path / "book.fcac")
    assert np.array_equal(kept.predict(schema.apply(rows)), book.predict(schema.apply(rows)))


@pytest.mark.slow
@pytest.mark.parametrize("told_by", ["numbers", "categories", "both"])
def test_neither_numbers_nor_categories_drown_the_others(told_by):
    rows, group = mixed(told_by, seed=1, n=1500)
    model = FCAC(random_state=0).fit(rows, schema=Schema.guess(rows))
    assert ami(group, model.labels_) > 0.9


def test_without_a_schema_the_columns_are_named_and_two_lines_help(table):
    rows = table[0].drop(columns=["hospital", "patient_id"])
    with pytest.raises(ValueError, match="'sex', 'diagnosis', 'admitted' hold text") as caught:
        FCAC().fit(rows)
    assert "Schema.guess(X)" in str(caught.value)
    with pytest.raises(ValueError, match="'haemoglobin'") as caught:
        FCAC().fit(rows[["age", "haemoglobin"]])
    assert "fit(X, schema=schema)" in str(caught.value)


def test_what_a_frame_cannot_show_is_an_error():
    frame = pd.DataFrame({"a": [1.0, None, 3.0]})
    with pytest.raises(DataError, match="drops 1 of 3 rows"):
        FCAC().fit(frame, schema=Schema([Column("a", missing="drop")]))
    with pytest.raises(TypeError, match="frame of pandas or polars"):
        FCAC().fit(np.zeros((3, 1)), schema=Schema(["a"]))
    with pytest.raises(TypeError, match="path of a schema file"):
        FCAC().fit(frame, schema=3)


def test_the_papers_server_says_what_to_do_about_gaps():
    frame = pd.DataFrame({"a": [1.0, None, 3.0, 4.0]})
    with pytest.raises(ValueError, match='missing = "drop" or missing = "fill"'):
        FCAC(server="cae-fc").fit(frame, schema=Schema([Column("a", missing="native")]))


def test_a_private_release_takes_rows_with_gaps():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=3000)
    values = np.where(rng.random((3000, 3)) < 0.3, np.nan, rng.normal(0.3 + 0.4 * group[:, None], 0.05, size=(3000, 3)))
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    schema = Schema([Column(name, min=0, max=1, missing="native") for name in frame], bounds_are_public=True)
    release = NodeRelease(4, schema.require_bounds(), sampler=InsecureTestSampler(0))
    model = FCAC(privacy=release, random_state=0).fit(frame, schema=schema)
    whole = ~np.isnan(values).all(axis=1)
    assert ami(group[whole], model.labels_[whole]) > 0.8
