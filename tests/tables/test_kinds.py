"""Kinds of columns: what they become, what they refuse, and what they say about it."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from fcac.exceptions import DataError, SchemaError
from fcac.tables import kinds
from fcac.tables.column import Column
from fcac.tables.kind import RANGE_SPREAD
from fcac.tables.schema import Schema


def encode(column: Column, values: list) -> np.ndarray:
    return column.encode(pa.array(values)).features.T


def test_every_file_of_the_folder_is_a_kind():
    assert set(kinds.names()) >= {"boolean", "category", "date", "id", "ignore", "number", "ordinal", "text"}
    assert all(kinds.find(name).name == name for name in kinds.names())


def test_numbers_are_clipped_scaled_and_come_back():
    column = Column("x", min=1.0, max=100.0, scaling="log", clip=True, missing="native")
    features = encode(column, [0.5, 10.0, 1000.0, None])
    np.testing.assert_allclose(column.unscaled(features)[:3, 0], [1.0, 10.0, 100.0])
    assert np.isnan(features[3, 0])
    np.testing.assert_allclose(column.bounds, [(0.0, np.log(100.0))])
    assert np.isnan(encode(Column("x", scaling="log"), [-1.0])).all()


def test_weights_count_in_squared_distances_and_come_back():
    light, heavy = Column("x"), Column("x", weight=4.0)
    np.testing.assert_allclose(encode(heavy, [1.0, 3.0]), 2.0 * encode(light, [1.0, 3.0]))
    np.testing.assert_allclose(heavy.unscaled(encode(heavy, [1.0, 3.0])), [[1.0], [3.0]])
    assert heavy.block == (1, "number", 4.0)


def test_an_ordinal_column_has_equal_steps_and_gaps_for_what_is_not_in_its_order():
    column = Column("x", kind="ordinal", order=["low", "mid", "high"], missing="native")
    features = encode(column, ["high", "low", "mid", "odd", None])
    np.testing.assert_allclose(features[:3, 0], [1.0, 0.0, 0.5])
    assert np.isnan(features[3:, 0]).all()
    assert column.encode(pa.array(["odd", "low"])).unknown == 1


@pytest.mark.parametrize("n_levels", [2, 5, 40])
def test_a_listed_category_spreads_like_a_number_whatever_its_number_of_levels(n_levels):
    levels = [f"level {number}" for number in range(n_levels)]
    column = Column("x", kind="category", categories=levels)
    features = encode(column, levels * 10)
    assert features.shape[1] == n_levels
    assert features.var(axis=0).sum() == pytest.approx(RANGE_SPREAD**2)


def test_levels_that_are_not_listed_are_other_or_have_codes():
    listed = Column("x", kind="category", categories=["a", "b"])
    assert listed.encode(pa.array(["a", "c", "?"])).other == 1  # a question mark is a gap
    assert encode(listed, ["c"]).tolist() == [[0.0, 0.0]]
    coded = Column("x", kind="category")
    codes = encode(coded, [f"level {number}" for number in range(300)])
    assert codes.shape == (300, 16)
    assert len(np.unique(codes, axis=0)) > 290
    np.testing.assert_array_equal(codes[7], encode(coded, ["level 7"])[0])


def test_codes_are_grouped_by_prefixes():
    short = Column("x", kind="category", prefix=1, categories=["I", "J"])
    assert encode(short, ["I10", "J44"]).argmax(axis=1).tolist() == [0, 1]
    groups = Column("x", kind="category", groups={"heart": ["I"], "stroke": ["I6"], "lung": ["J"]})
    assert groups.feature_names == ["x=heart", "x=stroke", "x=lung"]
    assert encode(groups, ["I10", "I63", "J44"]).argmax(axis=1).tolist() == [0, 1, 2]
    assert groups.encode(pa.array(["Z1"])).other == 1


@pytest.mark.parametrize("values", [[True, False, None], ["Yes", "no", "n/a"], [1, 0, None], [1.0, 0.0, float("nan")]])
def test_booleans_in_all_their_forms(values):
    column = Column("x", kind="boolean", missing="native")
    features = column.unscaled(encode(column, values))
    assert features[:2, 0].tolist() == [1.0, 0.0]
    assert np.isnan(features[2, 0])


def test_dates_are_days_or_points_on_circles():
    days = Column("x", kind="date", since="2020-01-01", min="2020-01-01", max="2021-01-01", scaling="range")
    assert days.min == 0.0
    assert days.max == 366.0
    read = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
    assert (
        encode(days, read)[:, 0].tolist() == encode(days, ["2020-01-01", "2021-01-01 00:00"])[:, 0].tolist() == [0, 1]
    )
    german = Column("x", kind="date", format="%d.%m.%Y", missing="native")
    assert encode(german, ["31.12.1970", "soon"])[0, 0] == 364.0
    assert german.encode(pa.array(["31.12.1970", "soon"])).unknown == 1
    parts = Column("x", kind="date", parts=["month", "weekday", "hour"])
    december, january, july = encode(parts, ["2021-12-15T01:00", "2022-01-15T23:00", "2021-07-15T12:00"])
    assert len(parts.feature_names) == 6
    assert np.linalg.norm(december[:2] - january[:2]) < np.linalg.norm(january[:2] - july[:2])
    assert np.linalg.norm(december[4:] - january[4:]) < np.linalg.norm(january[4:] - july[4:])
    with_zone = encode(Column("x", kind="date"), ["1970-01-02T01:00:00+01:00", "1970-01-02T00:00:00"])
    assert with_zone[0, 0] == with_zone[1, 0] == 1.0


def test_ids_and_ignored_columns_are_no_features_and_need_not_be_there():
    schema = Schema([Column("pid", kind="id"), Column("note", kind="ignore"), "age"])
    assert schema.columns == schema.feature_names == ["age"]
    assert schema.apply(pa.table({"age": [3.0]})).tolist() == [[3.0]]


def test_gaps_stay_gaps_and_everything_is_counted():
    schema = Schema(
        [Column("age", missing="native"), Column("dx", kind="category", missing="native", categories=["a"])]
    )
    converted = schema.convert(pa.table({"age": [1.0, None], "dx": ["b", "a"]}).combine_chunks())
    assert np.isnan(converted.block[1, 0])
    assert converted.gaps == {"age": 1}
    assert converted.other == {"dx": 1}
    assert not converted.missing
    assert not converted.unknown


def test_a_category_wants_no_nested_values():
    with pytest.raises(DataError, match="categories are needed"):
        encode(Column("x", kind="category"), [[1], [2]])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "colour"}, "kind must be one of .*boolean, category"),
        ({"kind": "number", "order": ["a", "b"]}, "does not take order; it uses min"),
        ({"kind": "id", "min": 1}, "does not take min"),
        ({"kind": "ordinal"}, "levels in order"),
        ({"kind": "ordinal", "order": ["a", "a"]}, "listed twice"),
        ({"kind": "category", "prefix": 0}, "whole number of at least 1"),
        ({"kind": "category", "groups": {"a": "I"}}, "list of texts"),
        ({"kind": "category", "groups": {"a": ["I"]}, "prefix": 1}, "prefix or groups"),
        ({"kind": "category", "features": 65}, "2 to 64"),
        ({"kind": "category", "missing": "fill"}, "is for numbers"),
        ({"kind": "boolean", "yes": ["ja"]}, "both yes and no"),
        ({"kind": "date", "since": "yesterday"}, "since must be a day"),
        ({"kind": "date", "parts": ["minute"]}, "month, weekday, hour"),
        ({"kind": "date", "parts": ["month"], "min": 1}, "min is for days"),
        ({"weight": 0}, "weight must be a number above 0"),
        ({"clip": True}, "clip = true needs min or max"),
        ({"clip": 1}, "true or false"),
        ({"scaling": "log", "min": 0}, "min above 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_fix(settings, words):
    with pytest.raises(SchemaError, match=words):
        Column("x", **settings)


def test_every_kind_comes_back_from_its_file():
    schema = Schema(
        [
            Column("a", min=1, max=2, scaling="log", clip=True, weight=2.5, missing="native"),
            Column("b", kind="ordinal", order=("x", "y")),
            Column("c", kind="category", groups={"heart disease": ("I",)}, missing="native"),
            Column("d", kind="category", prefix=3, features=8),
            Column("e", kind="boolean", yes=("ja",), no=("nein",)),
            Column("f", kind="date", since="2000-01-01", min="2000-01-01", max="2030-01-01", scaling="range"),
            Column("g", kind="date", parts=("month",), format="%d.%m.%Y"),
            Column("h", kind="id"),
            Column("i", kind="ignore"),
        ]
    )
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


def test_defaults_of_the_file_reach_the_kinds_they_mean_something_to():
    schema = Schema.from_toml(
        'fcac_schema = 1\nscaling = "range"\nmin = 0\nmax = 9\nmissing = "native"\n[columns]\n'
        'a = {}\nb = { kind = "category" }\nc = { kind = "date", min = 1990-01-01, max = "2020-01-01" }\n'
        'd = { kind = "id" }\n'
    )
    a, b, c, _ = schema.fields
    assert (a.min, a.max, a.missing) == (0.0, 9.0, "native")
    assert (b.min, b.scaling, b.missing) == (None, "range", "native")
    assert c.max - c.min == 10957.0


def test_a_release_gives_levels_and_dates_room():
    column = Column("sex", kind="boolean")
    (low, high), (least, most) = column.bounds[0], column.value_bounds[0]
    assert (high - low) / (most - least) == pytest.approx(10 / 3)
    assert low + high == pytest.approx(least + most)
    assert Column("age", min=0, max=110).bounds == Column("age", min=0, max=110).value_bounds
    schema = Schema([Column("age", min=0, max=110), column], bounds_are_public=True)
    np.testing.assert_allclose(schema.value_bounds, [[0, 110], [least, most]])
    np.testing.assert_allclose(schema.require_bounds(), [[0, 110], [low, high]])
