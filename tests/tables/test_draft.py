"""Drafts of schemas, guesses from frames, and checks of data against a schema."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcac.exceptions import DataError
from fcac.tables.column import Column
from fcac.tables.draft import draft_schema
from fcac.tables.fit_check import check_fit
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
