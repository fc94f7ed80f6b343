"""Columns are matched by name, one may name the site, and errors say which column is wrong and what to do."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import FCAC, CAPlus, load, save
from fcac.privacy import LocalNoise
from testing.data import labelled_blobs


def frame(seed: int = 0, n: int = 300) -> pd.DataFrame:
    X, _ = labelled_blobs(n, seed)
    return pd.DataFrame({"width": X[:, 0], "height": 100 * X[:, 1]})


def as_arrow(table: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(table, preserve_index=False)


def as_polars(table: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars.from_pandas(table)


FORMS = {"pandas": lambda table: table, "arrow": as_arrow, "polars": as_polars}


# ------------------------------------------------------------ names


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_names_are_kept_whatever_the_table(form: str) -> None:
    table = frame()
    for X in (FORMS[form](table), {"a": FORMS[form](table), "b": FORMS[form](table + 1)}):
        model = FCAC().fit(X)
        assert model.feature_names_in_.tolist() == ["width", "height"]
        assert model.n_features_in_ == 2
    assert not hasattr(model.fit(table.to_numpy()), "feature_names_in_")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_permuted_columns_are_matched_by_name(form: str) -> None:
    make, first, second = FORMS[form], frame(1), frame(2)
    model = FCAC().fit({"a": make(first), "b": make(second[["height", "width"]])})
    same = FCAC().fit({"a": make(first), "b": make(second)})
    np.testing.assert_array_equal(model.server_.nodes, same.server_.nodes)
    np.testing.assert_array_equal(model.labels_, same.labels_)
    turned = make(frame(3)[["height", "width"]])
    for method in ("predict", "is_novel", "score_samples", "transform"):
        np.testing.assert_array_equal(getattr(model, method)(turned), getattr(model, method)(make(frame(3))))
    model.partial_fit({"a": turned})
    same.partial_fit({"a": make(frame(3))})
    np.testing.assert_array_equal(model.server_.nodes, same.server_.nodes)


@pytest.mark.parametrize("form", FORMS)
def test_other_columns_are_refused_and_change_nothing(form: str) -> None:
    make, table = FORMS[form], frame()
    model = FCAC().fit(make(table))
    nodes = model.server_.nodes.copy()
    wrong = make(table.rename(columns={"height": "depth"}))
    words = r"match those .* fit.\n.*unseen at fit time:\n- depth\n.*now missing:\n- height"
    for call in (model.predict, model.partial_fit, model.is_novel):
        with pytest.raises(ValueError, match=words):
            call(wrong)
    with pytest.raises(ValueError, match=r"^site b: .*\n.*\n- depth"):
        model.partial_fit({"a": make(table), "b": wrong})
    with pytest.raises(ValueError, match="unseen at fit time:\n- more"):
        model.predict(make(table.assign(more=1.0)))
    np.testing.assert_array_equal(model.server_.nodes, nodes)
    with pytest.raises(ValueError, match=r"^site b: "):
        FCAC().fit({"a": make(table), "b": wrong})


def test_names_that_are_there_twice_cannot_be_matched() -> None:
    model = FCAC().fit(frame())
    twice = frame()
    twice.columns = ["width", "width"]
    with pytest.raises(ValueError, match="there twice:\n- width"):
        model.predict(twice)
    twice.columns = ["width", 2]
    with pytest.raises(TypeError, match="astype"):
        FCAC().fit(twice)


@pytest.mark.slow
def test_tables_without_names_are_taken_as_they_are_with_a_warning() -> None:
    named, plain = FCAC().fit(frame()), FCAC().fit(frame().to_numpy())
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        labels = named.predict(frame().to_numpy())
    np.testing.assert_array_equal(labels, named.labels_)
    with pytest.warns(UserWarning, match="X has feature names, but FCAC was fitted without"):
        plain.predict(frame())
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        named.partial_fit({"a": frame().to_numpy()})
    numbered = pd.DataFrame(frame().to_numpy())
    np.testing.assert_array_equal(plain.predict(numbered), plain.labels_)


# ------------------------------------------------------------ the column of sites


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_column_names_the_site(form: str, tmp_path: Any) -> None:
    table = frame()
    clinic = np.array(["north", "south", "west"])[np.arange(len(table)) % 3]
    X = FORMS[form](table.assign(clinic=clinic)[["width", "clinic", "height"]])
    model = FCAC().fit(X, groups="clinic")
    expected = FCAC().fit(table, groups=clinic)
    assert list(model.sites_) == ["north", "south", "west"]
    assert model.feature_names_in_.tolist() == ["width", "height"]
    np.testing.assert_array_equal(model.server_.nodes, expected.server_.nodes)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    # the column is no feature: it may be there or not when the model is read
    np.testing.assert_array_equal(model.predict(X), expected.labels_)
    np.testing.assert_array_equal(model.predict(FORMS[form](table)), expected.labels_)
    save(model, tmp_path / "m.fcac")
    np.testing.assert_array_equal(load(tmp_path / "m.fcac").predict(X), expected.labels_)
    model.partial_fit(X, groups="clinic")
    assert model.n_rounds_ == 2


@pytest.mark.parametrize("form", FORMS)
def test_numbers_name_sites_too(form: str) -> None:
    table = frame().assign(site=np.arange(300) % 2 + 7)
    assert list(FCAC().fit(FORMS[form](table), groups="site").sites_) == [7, 8]


@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_sites_that_cannot_be_used(form: str) -> None:
    make, table = FORMS[form], frame().assign(clinic=["a", None, "b"] * 100, number=[1.0, np.nan, 2.0] * 100)
    with pytest.raises(ValueError, match="no column 'hospital'; its columns are width, height"):
        FCAC().fit(make(frame()), groups="hospital")
    with pytest.raises(ValueError, match="column 'clinic' has missing values"):
        FCAC().fit(make(table[["width", "height", "clinic"]]), groups="clinic")
    with pytest.raises(ValueError, match="missing values"):
        FCAC().fit(make(table[["width", "height", "number"]]), groups="number")
    with pytest.raises(ValueError, match="has no column names"):
        FCAC().fit(frame().to_numpy(), groups="clinic")
    with pytest.raises(ValueError, match="pass one of the two"):
        FCAC().fit({"a": make(frame())}, groups="clinic")


# ------------------------------------------------------------ errors that name the column


SECRET = "Jane Roe"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"name": [SECRET, "x", "y"] * 100}, "'name' holds text.*OneHotEncoder"),
    "dates": ({"day": pd.date_range("2026-01-01", periods=300)}, "'day' holds dates or times.*days since"),
    "days as objects": ({"day": [datetime.date(2026, 1, 1)] * 300}, "'day' holds dates or times"),
    "both": (
        {"name": [SECRET] * 300, "city": ["x"] * 300, "day": pd.date_range("2026-01-01", periods=300)},
        "'name', 'city' hold text; column 'day' holds dates",
    ),
    "a category": ({"kind": pd.Categorical([SECRET, "b", "c"] * 100)}, "'kind' holds text"),
    "gaps": ({"age": [1.0, np.nan, 2.0] * 100}, "contains NaN: column 'age' has missing values.*SimpleImputer"),
    "gaps in whole numbers": ({"age": pd.array([1, None, 2] * 100, dtype="Int64")}, "column 'age' has missing"),
    "infinity": ({"age": [1.0, np.inf, 2.0] * 100}, "contains infinity: column 'age' has infinite"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", WRONG)
def test_errors_name_the_column_and_the_fix_but_no_value(form: str, what: str) -> None:
    columns, words = WRONG[what]
    X = FORMS[form](frame().assign(**columns))
    with pytest.raises(ValueError, match=words) as raised:
        CAPlus().fit(X)
    assert SECRET not in str(raised.value)
    # under privacy nothing is guessed from values
    for rows in (X, {"a": X}):
        with pytest.raises(ValueError, match=words) as raised:
            FCAC(privacy=LocalNoise(1.0, [[0, 1]] * X.shape[1])).fit(rows)
        assert SECRET not in str(raised.value)


def test_columns_of_arrays_are_counted() -> None:
    X = frame().to_numpy(copy=True)
    X[17, 1] = np.nan
    with pytest.raises(ValueError, match=r"column 1 \(counted from 0\) has missing values"):
        FCAC().fit(X)


@pytest.mark.slow
def test_numbers_kept_as_objects_are_numbers() -> None:
    table = frame().astype({"width": object})
    np.testing.assert_array_equal(FCAC().fit(table).labels_, FCAC().fit(frame()).labels_)
