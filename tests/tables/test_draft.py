"""Drafts of schemas, guesses from frames, and checks of data against a schema."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import FCAC
from fcac.exceptions import DataError
from fcac.tables.column import Column
from fcac.tables.draft import draft_schema, guess_tables
from fcac.tables.fit_check import check_fit
from fcac.tables.guess import Seen
from fcac.tables.schema import Schema
from testing.tables import hospital

KINDS = {
    "patient_id": "id",
    "age": "number",
    "sex": "category",
    "diagnosis": "category",
    "haemoglobin": "number",
    "sodium": "number",
    "creatinine": "number",
    "crp": "number",
    "emergency": "boolean",
    "admitted": "ignore",
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return hospital(0, n=600)[0]


def test_a_hospitals_table_is_drafted_with_a_reason_for_every_guess(tmp_path, table):
    table.to_csv(tmp_path / "north.csv", index=False)
    text = draft_schema([tmp_path / "north.csv"], apart=["hospital"])
    schema = Schema.from_toml(text)
    assert {field.name: field.how.name for field in schema.fields} == KINDS
    assert not schema.bounds_are_public
    assert all(field.missing == "native" for field in schema.used)
    assert all("    # " in line for line in text[text.index("[columns]") :].splitlines()[1:])
    for private in ("I10", "2021-", "P0000"):
        assert private not in text


def test_a_frame_is_guessed_like_a_file(table):
    guessed = Schema.guess(table.drop(columns="hospital"))
    assert {field.name: field.how.name for field in guessed.fields} == KINDS


def test_guesses_by_name_where_values_are_not_read(tmp_path, table):
    table.to_csv(tmp_path / "north.csv", index=False)
    text = draft_schema([tmp_path / "north.csv"], apart=["hospital"], suggestions=False)
    schema = Schema.from_toml(text)
    assert {field.name: field.how.name for field in schema.fields} == KINDS
    assert "seen" not in text
    assert "levels" not in text[text.index("[columns]") :]


@pytest.mark.parametrize(
    ("days", "form"),
    [
        (["31.01.2024", "05.02.2024", "n/a"], "%d.%m.%Y"),
        (["12/31/2024", "01/02/2024", "03/04/2024"], "%m/%d/%Y"),
        (["31/12/2024", "01/02/2024", "03/04/2024"], "%d/%m/%Y"),
    ],
)
def test_days_are_left_out_and_their_format_is_told(tmp_path, days, form):
    lines = [f"{day};{i};" for i, day in enumerate(days * 20) if day != "n/a"]
    (tmp_path / "a.csv").write_text("\n".join(["seen;value;empty", *lines]) + "\n")
    text = draft_schema([tmp_path / "a.csv"])
    assert f'dates; write kind = "date", format = "{form}" to use them' in text
    schema = Schema.from_toml(text.replace('{ kind = "ignore" }', f'{{ kind = "date", format = "{form}" }}', 1))
    assert check_fit([tmp_path / "a.csv"], schema).fits
    assert schema.fields[2].how.name == "ignore", "a column without values says nothing"


def test_levels_are_listed_when_asked_for(tmp_path):
    lines = ["channel,value"] + [f"{level},{i}" for i in range(20) for level in ("web", "shop")] + ["rare,1"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert "web" not in draft_schema([tmp_path / "a.csv"])
    schema = Schema.from_toml(draft_schema([tmp_path / "a.csv"], levels=True))
    assert schema.fields[0].categories == ("shop", "web"), "one row is too few for a level"
    assert check_fit([tmp_path / "a.csv"], schema).fits


def test_indices_skewed_numbers_codes_free_text_and_empty_columns():
    n = 60
    frame = pd.DataFrame(
        {
            "Unnamed: 0": range(n),
            "income": [1.5**i for i in range(n)],
            "zip": [10115 + i % 7 for i in range(n)],
            "remark": [f"the patient said something about {i}" for i in range(n)],
            "nothing": [None] * n,
            "agreed": ["Yes", "no"] * (n // 2),
        }
    )
    schema = Schema.guess(frame)
    kinds = {field.name: field.how.name for field in schema.fields}
    assert kinds == {
        "Unnamed: 0": "ignore",
        "income": "number",
        "zip": "category",
        "remark": "ignore",
        "nothing": "ignore",
        "agreed": "boolean",
    }
    assert schema.fields[1].scaling == "log"


def test_a_table_without_anything_to_cluster_says_so(tmp_path):
    (tmp_path / "a.csv").write_text("name\n" + "".join(f"P{i}\n" for i in range(30)))
    with pytest.raises(DataError, match="no column that can be clustered"):
        draft_schema([tmp_path / "a.csv"])


def test_a_check_counts_what_fits_and_what_does_not(tmp_path):
    (tmp_path / "a.csv").write_text("age,dx,grade\n10,x,low\n200,y,high\n,z,odd\n30,x,low\n")
    columns = [
        Column("age", min=0, max=120, missing="native"),
        Column("dx", kind="category", categories=["x", "y"]),
        Column("grade", kind="ordinal", order=["low", "high"]),
    ]
    found = check_fit([tmp_path / "a.csv"], Schema(columns))
    assert (found.n_rows, found.fits) == (4, False)
    said = found.lines(Schema(columns))
    assert "age: number, 1 missing, 1 outside min and max" in said
    assert 'dx: category, 1 not listed, counted as "other"' in said
    assert any(line.startswith("grade: ordinal, PROBLEM: 1 not known to the schema") for line in said)
    lenient = Schema([*columns[:2], Column("grade", kind="ordinal", order=["low", "high"], missing="native")])
    assert check_fit([tmp_path / "a.csv"], lenient).fits
    assert not check_fit([tmp_path / "a.csv"], Schema(["size"])).fits


def test_a_pixel_that_is_always_dark_is_a_pixel_like_its_neighbours():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"pixel_{n}": rng.uniform(1, 9, 60).round(2) for n in range(6)} | {"pixel_6": np.zeros(60)})
    assert [field.how.name for field in Schema.guess(frame).fields] == ["number"] * 7
    assert Schema.guess(frame[["pixel_0", "pixel_6"]]).fields[1].how.name == "ignore"


def reasons(frame: pd.DataFrame) -> dict[str, str]:
    return guess_tables([frame]).reasons


def test_a_measure_of_many_whole_numbers_is_a_number_and_a_permutation_counts_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "price": rng.integers(1, 5_000, size=9_000), "place": rng.permutation(9_000), "weight": rng.normal(size=9_000),
        "town": rng.choice([f"town{i}" for i in range(2_500)], size=9_000),
    })  # fmt: skip
    said = reasons(frame)
    assert said["price"] == "numbers"
    assert "count the rows" in said["place"]
    assert said["town"].startswith("text of over 2,000 values")


def test_what_is_guessed_does_not_depend_on_batches():
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.permutation(30_000)[:15_000], rng.permutation(30_000)[:15_000]]) + 0.0
    for values in (numbers, numbers.astype(int).astype(str)):
        whole, parts = Seen(), Seen()
        whole.add(pa.array(values))
        for part in np.array_split(values, 7):
            parts.add(pa.array(part))
        assert whole.repeated
        assert (whole.repeated, whole.many) == (parts.repeated, parts.many)


def test_names_of_rows_and_of_a_few_things_are_no_numbers():
    n = 60
    frame = pd.DataFrame({
        "rownames": np.arange(n)[::-1] * 3, "index": np.arange(n) % 20, "StoreID": np.arange(n) % 7,
        "patient_id": np.arange(n) % 55, "sales": np.linspace(0.5, 9.5, n) ** 1.1,
    })  # fmt: skip
    found = guess_tables([frame])
    kinds = {guess.column.name: guess.column.how.name for guess in found.guesses}
    assert kinds == {
        "rownames": "ignore", "index": "ignore", "StoreID": "category", "patient_id": "id", "sales": "number"
    }  # fmt: skip


def test_numbers_as_text_durations_and_decimals():
    n = 60
    values = np.random.default_rng(2).normal(size=n).round(3)
    frame = pd.DataFrame({"size": values, "stay": pd.to_timedelta(np.arange(n) % 9, unit="h")})
    text = frame.assign(size=[str(value) if i % 9 else " n/a" for i, value in enumerate(values)])
    found = guess_tables([text])
    assert found.reasons["size"] == "numbers, written as text"
    assert found.reasons["stay"].startswith("times or durations")
    assert found.schema is not None
    block = found.schema.apply(text)[:, 0]
    np.testing.assert_array_equal(block, np.where(np.arange(n) % 9, values, np.nan))
    with pytest.raises(DataError, match="'size' has text, but numbers are needed"):
        found.schema.apply(text.assign(size="much"))
    exact = pa.table({"size": pa.array(values).cast(pa.decimal128(12, 3))})
    assert len(set(FCAC().fit_predict(exact))) == len(set(FCAC().fit_predict(frame[["size"]])))
