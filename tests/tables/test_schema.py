"""The schema: what it says, what it does to rows, and how it explains mistakes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fcac.exceptions import DataError, RequestError, SchemaError
from fcac.tables.schema import Column, Schema

TEXT = """
fcac_schema = 1
bounds_are_public = true
missing = "drop"

[columns]
age = { min = 0, max = 100, scaling = "range" }
"body mass" = { min = 10, max = 60, scaling = "standard", center = 25, spread = 5, missing = "fill", fill = 25 }
ward = { categories = ["surgery", "medicine"] }
"""


def table(**columns: list) -> pa.Table:
    return pa.table({name.replace("_", " "): values for name, values in columns.items()})


def test_columns_features_and_bounds_come_out_in_order_and_in_scaled_units():
    schema = Schema.from_toml(TEXT)
    assert schema.columns == ["age", "body mass", "ward"]
    assert schema.feature_names == ["age", "body mass", "ward=surgery", "ward=medicine"]
    np.testing.assert_allclose(schema.bounds[:2], [[0, 1], [-3, 7]])


def test_rows_are_scaled_filled_dropped_and_encoded():
    schema = Schema.from_toml(TEXT)
    rows = table(
        body_mass=[30.0, None, 20.0, 20.0],
        ward=["medicine", "surgery", "surgery", None],
        age=[50, 100, None, 1],
        other=["a", "b", "c", "d"],
    )
    level = 6**-0.5  # levels count as much as a number between 0 and 1
    np.testing.assert_allclose(schema.apply(rows), [[0.5, 1.0, 0.0, level], [1.0, 0.0, level, 0.0]])
    assert schema.convert(rows.combine_chunks()).kept.tolist() == [True, True, False, False]


def test_a_data_frame_and_a_record_batch_give_the_same_rows():
    frame = pytest.importorskip("pandas").DataFrame({"b": [1.5, 2.5], "a": [True, False]})
    schema = Schema(["a", "b"])
    batch = pa.RecordBatch.from_pandas(frame)
    assert schema.apply(frame).tolist() == schema.apply(batch).tolist() == [[1.0, 1.5], [0.0, 2.5]]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(30, 2), pa.bool_(), pa.int64()]
)
def test_every_numeric_type_is_read_and_nulls_are_missing(kind):
    column = pa.array([1, 0, None]).cast(kind) if kind != pa.float16() else pa.array(np.float16([1, 0, np.nan]))
    result = Schema(["a"]).convert(pa.RecordBatch.from_arrays([column], ["a"]))
    assert result.missing == {"a": 1}
    assert result.block[:2, 0].tolist() == [1.0, 0.0]


def test_missing_and_infinite_values_are_named_by_column_and_count():
    with pytest.raises(DataError, match=r"column a \(2\), b \(1\).*schema"):
        Schema(["a", "b"]).apply(table(a=[1.0, None, float("inf")], b=[float("nan"), 1.0, 1.0]))


def test_values_that_mean_nothing_are_counted_and_not_quoted():
    with pytest.raises(DataError, match=r"column ward \(2\)") as caught:
        Schema([Column("ward", kind="ordinal", order=("a", "b"))]).apply(table(ward=["a", "secret", "secret"]))
    assert "secret" not in str(caught.value)
    counted = Schema([Column("ward", categories=("a",))]).convert(
        table(ward=["a", "secret", "secret"]).combine_chunks()
    )
    assert counted.other == {"ward": 2}


def test_text_where_numbers_are_needed_and_a_column_that_is_not_there():
    with pytest.raises(DataError, match="column 'a' has text"):
        Schema(["a"]).apply(table(a=["x"]))
    with pytest.raises(RequestError, match="no column b"):
        Schema(["b"]).apply(table(a=[1.0]))
    with pytest.raises(TypeError, match="pyarrow Table"):
        Schema(["b"]).apply([[1.0]])


def test_the_file_comes_back_as_it_was(tmp_path):
    for schema in (
        Schema.from_toml(TEXT),
        Schema(["plain", "with space", 'quote " and \\ back', "ünï"], bounds_are_public=False),
        Schema([Column("a", min=-1e-30, max=1e300), Column("b", categories=('x"', "y"), missing="drop")]),
    ):
        schema.save(tmp_path / "schema.toml")
        assert Schema.load(tmp_path / "schema.toml") == schema
        assert Schema.from_dict(schema.to_dict()) == schema


def test_bounds_are_given_only_when_all_are_known_and_confirmed():
    half = Schema([Column("a", min=0, max=1), "b"], bounds_are_public=True)
    assert half.bounds is None
    with pytest.raises(SchemaError, match="no bounds for b"):
        half.require_bounds()
    unconfirmed = Schema([Column("a", min=0, max=1)])
    assert unconfirmed.bounds is None
    with pytest.raises(SchemaError, match="bounds_are_public = true"):
        unconfirmed.require_bounds()


def test_a_release_takes_the_schema_for_its_bounds():
    from fcac.privacy.bounds import check_bounds

    np.testing.assert_allclose(check_bounds(Schema.from_toml(TEXT))[0], [0, 1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("fcac_schema = 2", "fcac_schema = 1"),
        ("fcac_schema = 1", r"\[columns\]"),
        ("fcac_schema = 1\n[columns]", "at least one column"),
        ("fcac_schema = 1\ncolour = 3\n[columns]\na = {}", "unknown field colour"),
        ("fcac_schema = 1\nbounds_are_public = 1\n[columns]\na = {}", "true or false"),
        ("fcac_schema = 1\n[columns]\na = 3", "a = { }"),
        ("fcac_schema = 1\n[columns]\na = { low = 3 }", "unknown field low"),
        ("fcac_schema = 1\n[columns]\na = { min = 'x' }", "'a': min must be a finite number"),
        ("fcac_schema = 1\n[columns]\na = { min = nan }", "'a': min must be a finite number"),
        ("fcac_schema = 1\n[columns]\na = { min = 2, max = 1 }", "'a': min must be below max"),
        ("fcac_schema = 1\n[columns]\na = { scaling = 'cube' }", "'a': scaling must be one of"),
        ("fcac_schema = 1\n[columns]\na = { scaling = 'range', min = 1 }", "needs min and max"),
        ("fcac_schema = 1\n[columns]\na = { scaling = 'standard', center = 1, spread = 0 }", "center and spread"),
        ("fcac_schema = 1\n[columns]\na = { missing = 'guess' }", "'a': missing must be one of"),
        ("fcac_schema = 1\n[columns]\na = { missing = 'fill' }", "needs fill"),
        ("fcac_schema = 1\n[columns]\na = { categories = [] }", "list of texts"),
        ("fcac_schema = 1\n[columns]\na = { categories = ['x', 'x'] }", "twice"),
        ("fcac_schema = 1\n[columns]\na = { categories = ['x'], missing = 'fill' }", "is for numbers"),
        ("fcac_schema = 1\n[columns]\n'a=x' = {}\na = { categories = ['x'] }", "appears twice"),
        ("fcac_schema = 1\n[columns\n", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_names_file_field_and_fix(tmp_path, change, words):
    path = tmp_path / "schema.toml"
    path.write_text(change)
    with pytest.raises(SchemaError, match=words) as caught:
        Schema.load(path)
    assert str(path) in str(caught.value)


def test_no_file_and_no_text(tmp_path):
    with pytest.raises(RequestError, match="fcac schema DATA"):
        Schema.load(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.load(tmp_path / "odd.toml")
