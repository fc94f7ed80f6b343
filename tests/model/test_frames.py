"""Frames of mixed columns in `FCAC`: through a schema, with gaps, at several sites, in every form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_mutual_info_score as ami

import fcac
from fcac import FCAC
from fcac.cli import run
from fcac.exceptions import DataError, ReadWarning
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


@pytest.mark.slow
def test_without_a_schema_the_same_is_guessed_in_python_and_in_the_shell(table, model, tmp_path, capfd):
    rows = table[0]
    guessed = FCAC(random_state=0).fit(rows, groups="hospital")
    assert np.array_equal(guessed.labels_, model.labels_)
    said = str(guessed.summary())
    assert "Left out: patient_id (text, every value different: it names records), admitted (dates" in said
    assert "Taken as categories: sex (2 levels), diagnosis (9 levels)" in said
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert run(["fit", str(tmp_path / "rows.csv"), "--site-column", "hospital", "-o", str(tmp_path / "m.fcac")]) == 0
    told = capfd.readouterr().out
    for line in guessed.summary().taken:
        assert line in told
    assert guessed.verdict_.headline in told
    again = fcac.load(tmp_path / "m.fcac")
    assert again.schema_ == guessed.schema_
    assert dict(again.guessed_) == dict(guessed.guessed_)
    assert np.array_equal(again.predict(rows), guessed.predict(rows))


@pytest.mark.slow
def test_what_is_told_of_columns_replaces_the_guess(table):
    rows = table[0].drop(columns="hospital")
    model = FCAC().fit(rows, columns={"sex": "ignore", "admitted": "date", "diagnosis": {"prefix": 1}})
    assert "sex" not in model.schema_.columns
    assert "admitted" in model.schema_.columns
    assert next(field for field in model.schema_.fields if field.name == "diagnosis").prefix == 1
    with pytest.raises(DataError, match="no column 'sxe'"):
        FCAC().fit(rows, columns={"sxe": "category"})
    with pytest.raises(ValueError, match="beside a schema"):
        FCAC().fit(rows, columns={"sex": "category"}, schema=model.schema_)
    with pytest.raises(TypeError, match="no columns with names"):
        FCAC().fit(np.zeros((9, 2)), columns={"sex": "category"})


def test_plain_numbers_need_no_schema_and_are_clustered_as_the_array_is():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["a", "b", "c"])
    model = FCAC().fit(rows)
    assert model.schema_ is None
    assert np.array_equal(model.labels_, FCAC().fit(rows.to_numpy()).labels_)


@pytest.mark.slow
def test_ids_dates_years_and_constants_change_nothing():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        np.concatenate([rng.normal(place, 1, size=(300, 3)) for place in (0.0, 8.0)]), columns=["a", "b", "c"]
    )
    wide = rows.assign(
        id=rng.permutation(600) + 5000,
        visit_number=rng.permutation(10_000)[:600],
        seen=pd.date_range("2024-01-01", periods=600, freq="h"),
        year=rng.choice([1999, 2005, 2011], size=600),
        unit="mm",
        scale=7.3,
        order=np.arange(600) * 3,
    )
    model = FCAC().fit(wide)
    assert model.schema_.columns == ["a", "b", "c"]
    assert np.array_equal(model.labels_, FCAC().fit(rows).labels_)


@pytest.mark.slow
def test_levels_unknown_to_the_model_are_counted(table, model, tmp_path, capfd):
    rows = table[0].head(50).assign(sex="x")
    with pytest.warns(ReadWarning, match=r"count as other: sex \(50\)"):
        model.predict(rows)
    model.save(tmp_path / "m.fcac")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert run(["predict", str(tmp_path / "m.fcac"), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "l.csv")]) == 0
    assert "count as other: sex (50)" in capfd.readouterr().err


def test_under_privacy_nothing_is_guessed(table):
    rows = table[0].drop(columns=["hospital", "patient_id"])
    private = FCAC(privacy=NodeRelease(4, [[0, 1]] * 8))
    with pytest.raises(ValueError, match="'sex', 'diagnosis', 'admitted' hold text"):
        private.fit(rows)
    with pytest.raises(ValueError, match="under privacy nothing is guessed"):
        private.fit(rows, columns={"sex": "category"})


def test_a_column_that_is_there_twice_is_refused():
    rows = pd.DataFrame(np.arange(120.0).reshape(40, 3), columns=["a", "b", "a"])
    with pytest.raises(DataError, match="column a appears more than once"):
        FCAC().fit(rows)


def test_values_of_several_types_are_read_as_text():
    rows = pd.DataFrame({"size": np.tile([1.0, 9.0], 60), "code": ["a", 1, 2.5] * 40})
    model = FCAC().fit(rows)
    assert model.schema_.fields[1].categories == ("1", "2.5", "a")


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
