"""Which rows count as new."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from fcac.exceptions import DataError, RequestError
from fcac.tables import open_tables
from fcac.tables.new_rows import Cursor, NewRowFinder
from fcac.tables.schema import Column, Schema

SCHEMA = Schema(["x", "y"])


class Reader:
    """Looks again and again, using up what it finds."""

    def __init__(self, path: Path, schema: Schema = SCHEMA, settle: float = 3600.0) -> None:
        self.finder, self.cursor = NewRowFinder(path, schema, settle), Cursor()

    def new(self) -> list[list[float]]:
        parts = self.finder.find(self.cursor)
        rows = [row for block in self.finder.rows(parts) for row in block.tolist()]
        self.cursor = self.finder.advance(self.cursor, parts)
        return rows


def test_lines_at_the_end_are_new_once(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n")
    reader = Reader(tmp_path)
    assert reader.new() == [[1, 2]]
    assert reader.new() == []
    with file.open("a") as stream:
        stream.write("3,4\n5,6\n")
    assert reader.new() == [[3, 4], [5, 6]]
    assert reader.new() == []


def test_new_files_come_in_the_order_of_names_and_other_files_are_left_out(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "b.csv").write_text("x,y\n3,4\n")
    (tmp_path / "a.csv").write_text("y,x,more\n2,1,text\n")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "c.tsv").write_text("x\ty\n5\t6\n")
    for name in ("readme.md", ".hidden.csv", "_draft.csv"):
        (tmp_path / name).write_text("x,y\n9,9\n")
    assert reader.new() == [[1, 2], [3, 4], [5, 6]]
    (tmp_path / "b.csv").unlink()
    assert reader.new() == []


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4")
    reader = Reader(file)
    assert reader.new() == [[1, 2]]
    with file.open("a") as stream:
        stream.write("5\n")
    assert reader.new() == [[3, 45]]


def test_a_last_line_without_a_break_counts_when_the_file_is_at_rest(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4")
    os.utime(file, (time.time() - 7200,) * 2)
    reader = Reader(file)
    assert reader.new() == [[1, 2], [3, 4]]
    with file.open("a") as stream:
        stream.write("\n5,6\n")
    assert reader.new() == [[5, 6]]


@pytest.mark.parametrize("text", ["x,y\n1,2\n", "x,y\n1,9\n3,4\n", "x,y\n7,7\n1,2\n3,4\n"])
def test_a_file_whose_used_lines_changed_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4\n")
    reader = Reader(file)
    reader.new()
    file.write_text(text)
    with pytest.raises(DataError, match=r"a\.csv: rows that were used before have changed"):
        reader.new()


@pytest.mark.slow
def test_a_change_in_the_middle_of_a_large_file_is_noticed_if_its_length_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    rows = [f"{i},{i}\n" for i in range(60_000)]
    file.write_text("x,y\n" + "".join(rows))
    reader = Reader(file)
    assert len(reader.new()) == 60_000
    rows[30_000] = "1,1\n"
    file.write_text("x,y\n" + "".join(rows))
    with pytest.raises(DataError, match="changed"):
        reader.new()


@pytest.mark.parametrize("kind", ["parquet", "feather", "npz", "csv.gz"])
def test_other_tables_grow_when_written_anew(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"a.{kind}"

    def write(rows: list[list[float]]) -> None:
        array = np.array(rows, dtype=np.float64)
        table = pa.table({"x": array[:, 0], "y": array[:, 1]})
        if kind == "parquet":
            pa.parquet.write_table(table, file)
        elif kind == "feather":
            pa.feather.write_feather(table, file)
        elif kind == "npz":
            np.savez(file, X=array, columns=np.array(["x", "y"]))
        else:
            file.write_bytes(gzip.compress(("x,y\n" + "".join(f"{a},{b}\n" for a, b in rows)).encode()))

    write([[1, 2], [3, 4]])
    reader = Reader(file)
    assert reader.new() == [[1, 2], [3, 4]]
    assert reader.new() == []
    write([[1, 2], [3, 4], [5, 6]])
    assert reader.new() == [[5, 6]]
    write([[1, 2], [3, 5], [5, 6], [7, 8]])
    with pytest.raises(DataError, match="changed"):
        reader.new()
    write([[1, 2]])
    with pytest.raises(DataError, match="changed"):
        reader.new()


def test_the_schema_is_applied(tmp_path: Path) -> None:
    schema = Schema.from_toml(
        'fcac_schema = 1\n[columns]\nage = { min = 0, max = 100, scaling = "range", missing = "drop" }\n'
        'ward = { categories = ["a", "b"] }\n'
    )
    (tmp_path / "a.csv").write_text("ward,age\nb,50\na,\na,25\n")
    assert schema.unscaled(np.array(Reader(tmp_path, schema).new())).tolist() == [[50, 0, 1], [25, 1, 0]]


def test_only_a_header_is_nothing_new(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n")
    (tmp_path / "b.csv").write_text("")
    reader = Reader(tmp_path)
    assert reader.new() == []
    with (tmp_path / "a.csv").open("a") as stream:
        stream.write("1,2\n")
    assert reader.new() == [[1, 2]]


@pytest.mark.slow
def test_many_rows_come_in_blocks(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(100_000, 2))
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="x,y", comments="", fmt="%.17g")
    finder = NewRowFinder(tmp_path, SCHEMA)
    blocks = list(finder.rows(finder.find({})))
    assert len(blocks) > 1
    assert np.array_equal(np.concatenate(blocks), rows)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tags_come_with_the_rows_they_belong_to(tmp_path: Path, kind: str) -> None:
    schema = Schema([Column("x", missing="drop"), "y"])
    path = tmp_path / f"rows.{kind}"

    def write(xs: list[float | None], who: list[int]) -> None:
        table = pa.table({"person": who, "x": xs, "y": [1.0] * len(xs)})
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path)

    write([1.0, None, 3.0], [7, 8, 9])
    finder = NewRowFinder(path, schema, tag="person")
    finder.check_columns()
    parts = finder.find({})
    (piece,) = finder.pieces(parts)
    assert (piece.block[:, 0].tolist(), [str(tag) for tag in piece.tags or []]) == ([1.0, 3.0], ["7", "9"])
    assert piece.file == path.name
    write([1.0, None, 3.0, 4.0, 5.0], [7, 8, 9, 7, 6])
    (piece,) = finder.pieces(finder.find(finder.advance({}, parts)))
    assert (piece.block[:, 0].tolist(), [str(tag) for tag in piece.tags or []]) == ([4.0, 5.0], ["7", "6"])


def test_a_missing_column_or_tag_is_named(tmp_path: Path) -> None:
    schema = Schema(["x", "y"])
    (tmp_path / "a.csv").write_text("x,y,person\n1,2,\n")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(RequestError, match=r"a\.csv: no column patient, which was named for the ledger"):
        NewRowFinder(tmp_path, schema, tag="patient").check_columns()
    finder = NewRowFinder(tmp_path, schema, tag="person")
    finder.check_columns()
    with pytest.raises(DataError, match=r"a\.csv: a row has no value in column person"):
        list(finder.pieces(finder.find({})))
    (tmp_path / "b.csv").write_text("x,person\n1,2\n")
    with pytest.raises(RequestError, match=r"b\.csv: no column y, which the schema needs"):
        finder.check_columns()


# ------------------------------------------------------------ one reader for `fcac fit` and for sites

WARDS = Schema([Column("ward", categories=("NA", "EU", "null")), "smoker", "age"])


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
@pytest.mark.parametrize("head", ["", "\n\n", "\ufeff"], ids=["plain", "blank lines first", "byte order mark"])
def test_a_site_reads_a_file_as_fit_does(tmp_path: Path, ending: str, head: str) -> None:
    text = head + 'ward,smoker,age,note\nNA,true,71,"a, b"\nEU,false,38,\nnull,TRUE,2.5,x\n'
    text = text if ending != "tsv" else text.replace(",", "\t")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending == "csv.gz" else text.encode())
    rows = [[1, 0, 0, 1, 71], [0, 1, 0, 0, 38], [0, 0, 1, 1, 2.5]]
    assert [WARDS.unscaled(block).tolist() for _, block in open_tables([path], WARDS).pieces()] == [rows]
    assert WARDS.unscaled(np.array(Reader(path, WARDS).new())).tolist() == rows


def test_rows_added_later_are_read_as_the_first_ones_were(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("ward,smoker,age\nNA,true,71\n")
    reader = Reader(file, WARDS)
    assert WARDS.unscaled(np.array(reader.new())).tolist() == [[1, 0, 0, 1, 71]]
    with file.open("a") as stream:
        stream.write("null,false,38\nNA,1,2.5\nEU,tr")  # the last line is still being written
    assert WARDS.unscaled(np.array(reader.new())).tolist() == [[0, 0, 1, 0, 38], [1, 0, 0, 1, 2.5]]
    with file.open("a") as stream:
        stream.write("ue,5\n")
    assert WARDS.unscaled(np.array(reader.new())).tolist() == [[0, 1, 0, 1, 5]]


def test_a_site_tells_a_missing_category_from_one_called_na(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,smoker,age\nNA,true,1\n,true,2\n")
    with pytest.raises(DataError, match=r"a\.csv: missing or infinite values in column ward \(1\)"):
        Reader(tmp_path, WARDS).new()
    schema = Schema([Column("ward", categories=("NA",), missing="drop"), Column("age", missing="fill", fill=-1)])
    (tmp_path / "a.csv").write_text("ward,smoker,age\nNA,true,1\n,true,2\nNA,false,NA\n")
    assert schema.unscaled(np.array(Reader(tmp_path, schema).new())).tolist() == [[1, 1], [1, -1]]


def test_what_was_remembered_of_files_still_holds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x,y\n5,6\n", mtime=0))
    cursor: Cursor = {
        "a.csv": {
            "rows": 0,
            "bytes": 12,
            "edges": "d28bf1e98155a70450d40591774cc8a5e06afdc38d5b569813e44161a41ab0f5",
        },
        "b.csv.gz": {
            "rows": 1,
            "bytes": 28,
            "stamp": 1,
            "digest": "9bb4833ece80484c0fb4bcbd256d3ad2a68476fdbce3a92298484932837041c7",
        },
    }
    finder = NewRowFinder(tmp_path, SCHEMA)
    assert finder.find(cursor) == []
    with (tmp_path / "a.csv").open("a") as stream:
        stream.write("7,8\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x,y\n5,6\n9,10\n"))
    parts = finder.find(cursor)
    assert [block.tolist() for block in finder.rows(parts)] == [[[7, 8]], [[9, 10]]]


def test_columns_that_are_not_used_may_have_odd_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",x,y,z,z\n0,1,2,5,6\n")
    (tmp_path / "b.csv").write_text("x,y\n3,4\n")
    NewRowFinder(tmp_path, SCHEMA).check_columns()
    assert Reader(tmp_path).new() == [[1, 2], [3, 4]]
    assert [block.tolist() for _, block in open_tables([tmp_path], SCHEMA).pieces()] == [[[1, 2]], [[3, 4]]]
    with pytest.raises(DataError, match=r"a\.csv: column z appears more than once"):
        Reader(tmp_path / "a.csv", Schema(["z"])).new()


def test_an_error_names_the_line_in_the_file_and_not_in_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4\n")
    reader = Reader(file)
    reader.new()
    with file.open("a") as stream:
        stream.write("5,6\n7,8,SECRET\n")
    with pytest.raises(DataError, match=r"a\.csv: a row in line 5 has 3 cells") as caught:
        reader.new()
    assert "SECRET" not in str(caught.value)
    file.write_text("x,y\n1,2\n3,4\n5,SECRET\n")
    with pytest.raises(DataError, match=r"a\.csv: column y has text, but numbers are needed") as caught:
        reader.new()
    assert "SECRET" not in str(caught.value)


@pytest.mark.slow
def test_text_far_down_is_counted_and_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n")
    reader = Reader(file)
    assert len(reader.new()) == 1
    with file.open("a") as stream:
        stream.write("1.25,2.5\n" * 200_000 + "SECRET,2\n" * 3 + "1,2\n")
    with pytest.raises(DataError, match=r"text where numbers are expected in column x \(3\)") as caught:
        reader.new()
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("word", ["", "NA", "null"])
def test_an_id_that_says_there_is_none_is_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.csv").write_text(f"x,y,person\n1,2,p\n3,4,{word}\n")
    finder = NewRowFinder(tmp_path, SCHEMA, tag="person")
    with pytest.raises(DataError, match=r"a\.csv: a row has no value in column person"):
        list(finder.pieces(finder.find({})))


def test_used_rows_are_not_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,y\n1,2\n3,4")
    os.utime(file, (time.time() - 7200,) * 2)
    reader = Reader(file)
    assert reader.new() == [[1, 2], [3, 4]]
    with file.open("a") as stream:  # by a program that forgot the line break: as one line it would have three cells
        stream.write("5,6\n")
    assert reader.new() == [[5, 6]]
