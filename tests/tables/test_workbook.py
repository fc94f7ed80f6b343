"""Workbooks: sheets, names, gaps, dates; and errors whose advice leads through."""

from __future__ import annotations

import datetime

import pytest

from fcac.exceptions import DataError, RequestError
from fcac.tables import ReadOptions, open_tables
from fcac.tables.find_tables import open_table

openpyxl = pytest.importorskip("openpyxl")


def write(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def rows_of(path, *read, **more):
    return [b.tolist() for _, b in open_tables([path], options=ReadOptions.parse(read), **more).pieces()]


def test_a_sheet_is_a_table(tmp_path):
    day = datetime.datetime(2024, 5, 1)
    path = write(
        tmp_path / "x.xlsx",
        Sheet1=[["", "age", "bmi", "ward", "day"], [1, 71, "n/a", "a", day], [2, 38.5, 22, 7, None], [None] * 5],
        Empty=[],
    )
    table = open_table(path)
    assert [str(field.type) for field in table.schema] == ["double", "double", "string", "timestamp[us]"]
    assert table.n_rows == 2
    assert [batch.to_pydict() for batch, _ in table.batches(["age", "bmi"], ["ward", "day"])] == [
        {"age": [71.0, 38.5], "bmi": [None, 22.0], "ward": ["a", "7"], "day": [day, None]}
    ]


def test_advice_leads_through(tmp_path):
    path = write(tmp_path / "x.xlsx", North=[["a"], [1]], South=[["a"], [2]])
    with pytest.raises(RequestError, match=r"2 sheets \(North, South\).*--read 'sheet=North'"):
        rows_of(path)
    assert rows_of(path, "sheet=North") == [[[1.0]]]
    with pytest.raises(RequestError, match=r"no sheet 'West'; it has North, South"):
        rows_of(path, "sheet=West")
    assert rows_of(write(tmp_path / "y.xlsx", S=[[1, 2], [3, 4]]), "header=no") == [[[1, 2], [3, 4]]]
    with pytest.raises(DataError, match="column 2 has no name"):
        rows_of(write(tmp_path / "z.xlsx", S=[["a", None], [3, 4]]))
    with pytest.raises(DataError, match=r"ward \(text\) is not numeric"):
        rows_of(write(tmp_path / "w.xlsx", S=[["a", "ward"], [3, "SECRET"]]))
    with pytest.raises(DataError, match="is empty"):
        rows_of(write(tmp_path / "v.xlsx", S=[]))
    (tmp_path / "u.xlsx").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="cannot be read as a workbook"):
        rows_of(tmp_path / "u.xlsx")
