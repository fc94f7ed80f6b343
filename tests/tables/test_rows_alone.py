"""Where a release is private, no row decides how another is read: adding any row adds it, or nothing."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fcac.exceptions import RequestError
from fcac.tables.kind import as_text
from fcac.tables.new_rows import NewRowFinder
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Schema

SCHEMA = """fcac_schema = 1
bounds_are_public = true
[columns]
x = { min = 0, max = 8, missing = "native" }
ward = { kind = "category", categories = ["3", "é", "ear"], missing = "native" }
day = { kind = "date", min = 2000-01-01, max = 2030-01-01, missing = "native" }
"""
ROWS = [(f"{n % 7}.5", ["ear", "é", "3"][n % 3], f"20{n % 20 + 10}-02-03") for n in range(200)]
ODD = {
    "a quote that is not closed": b'3,"ear,2001-01-01',
    "a quote that is opened late": b'3,e"ar,"2001-01-01',
    "a quote of three": b'3,"""ear,2001-01-01',
    "bytes of another encoding": b"3,\xff\xe9,2001-01-01",
    "zeros": b"3,\x00\x00,2001-01-01",
    "other separators": b"3;4;5;6;7",
    "a decimal comma": b'"3,5",ear,2001-01-01',
    "a number for a level": b"3,3.5,2001-01-01",
    "text for a number": b"three,ear,2001-01-01",
    "no date": b"3,ear,yesterday",
    "the year 0": b"3,ear,0000-01-01",
    "another form of date": b"3,ear,20010101",
    "a carriage return": b"3,ea\rr,2001-01-01",
    "a cell of a million letters": b"3," + b"e" * 1_200_000 + b",2001-01-01",
    "too many cells": b"3,ear,2001-01-01,1,2",
}


def found(path: Path) -> Counter[tuple[str, ...]]:
    finder = NewRowFinder(path, Schema.from_toml(SCHEMA), 0.0, None, ReadOptions(forgiving=True, new_by=new_by(path)))
    rows = [row for block in finder.rows(finder.find({})) for row in np.round(block, 9)]
    return Counter(tuple(map(str, row)) for row in rows)


def new_by(path: Path) -> str | None:
    return "number" if path.suffix == ".sqlite" else None


def check(without: Path, with_row: Path) -> None:
    before, after = found(without), found(with_row)
    assert sum(before.values()) == len(ROWS)
    assert not before - after
    assert sum((after - before).values()) <= 2  # a carriage return ends a line


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 57])
def test_a_line_of_text_changes_no_other(tmp_path: Path, odd: str, place: int, ending: str) -> None:
    lines = [",".join(row).encode() for row in ROWS]
    paths = []
    for name, some in (("without", lines), ("with", [*lines[:place], ODD[odd], *lines[place:]])):
        data = b"\n".join([b"x,ward,day", *some, b""])
        paths.append(tmp_path / f"{name}.{ending}")
        paths[-1].write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    check(*paths)


@pytest.mark.parametrize(
    "odd",
    [b"{", b"[1, 2]", b'{"x": "three", "ward": 3.5, "day": 7}', b'{"x": {"y": 1}, "ward": [1], "day": true}', b"\xff"],
)
def test_a_line_of_json_changes_no_other(tmp_path: Path, odd: bytes) -> None:
    lines = [json.dumps({"x": float(x), "ward": 3 if w == "3" else w, "day": d}).encode() for x, w, d in ROWS]
    paths = tmp_path / "without.jsonl", tmp_path / "with.jsonl"
    for path, some in zip(paths, (lines, [lines[0], odd, *lines[1:]]), strict=True):
        path.write_bytes(b"\n".join([*some, b""]))
    check(*paths)


@pytest.mark.parametrize("odd", [("three", 3.5, 7), (b"\x01", None, "x"), (4.5, b"ear", 2.5)])
def test_a_row_of_sqlite_changes_no_other(tmp_path: Path, odd: tuple[Any, ...]) -> None:
    pytest.importorskip("adbc_driver_sqlite")
    paths = tmp_path / "without.sqlite", tmp_path / "with.sqlite"
    for path, some in zip(paths, (ROWS, [odd, *ROWS]), strict=True):
        connection = sqlite3.connect(path)
        connection.execute("create table t (number integer primary key, x, ward, day)")
        cells = [(float(x) if isinstance(x, str) and x[0].isdigit() else x, w, d) for x, w, d in some]
        connection.executemany("insert into t (x, ward, day) values (?, ?, ?)", cells)
        connection.commit()
        connection.close()
    check(*paths)


def test_a_level_is_spelt_alike_whatever_the_others_are() -> None:
    from fcac.tables.column import Column

    column = Column("ward", kind="category")
    whole = [3.0, 1e10, -0.0]
    alone = as_text(column, pa.array(whole), "levels").to_pylist()
    among = as_text(column, pa.array([*whole, 2.5, float("nan"), float("inf")]), "levels").to_pylist()
    assert alone == among[:3] == ["3", "10000000000", "0"]
    assert among[3:5] == ["2.5", None]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x;ward;day\n3,5;ear;2001-01-01\n", "--read decimal=comma"),
        ("x,ward,day\n3,é,2001-01-01\n".encode("cp1252"), "--read encoding=cp1252"),
    ],
)
def test_how_a_file_is_written_has_to_be_said(tmp_path: Path, text: str | bytes, told: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    schema = Schema.from_toml(SCHEMA)
    with pytest.raises(RequestError, match=told):
        NewRowFinder(path, schema, options=ReadOptions(forgiving=True)).check_columns()
    options = ReadOptions.parse([told.removeprefix("--read ")])
    said = ReadOptions(decimal=options.decimal, encoding=options.encoding, forgiving=True)
    NewRowFinder(path, schema, options=said).check_columns()
    with pytest.raises(RequestError, match="newlines=yes is not for an epsilon"):
        ReadOptions(newlines=True, forgiving=True)
