"""Text files as people have them: separators, decimal signs, encodings, gap words, headers; and advice that helps."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from fcac.exceptions import DataError, ReadWarning, RequestError
from fcac.tables import ReadOptions, Schema, delimited, open_tables
from fcac.tables.dialect import find_number_forms, number_pattern, read_head
from fcac.tables.draft import draft_schema
from fcac.tables.new_rows import NewRowFinder


def rows_of(path, *read, columns=None):
    tables = open_tables([path], columns=columns, options=ReadOptions.parse(read))
    return tables.feature_names, np.concatenate([block for _, block in tables.pieces()]).tolist()


def write(tmp_path, content, name="x.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a;b\n1,5;2\n-3,25;4\n", [[1.5, 2], [-3.25, 4]]),
        ("a;b\n1.234,5;2\n999,5;4\n", [[1234.5, 2], [999.5, 4]]),
        ('a,b\n"1,234.5",2\n"999",4\n', [[1234.5, 2], [999, 4]]),
        ("a;b\n1 234,5;2\n12\u00a0345\u202f678,5;1e3\n", [[1234.5, 2], [12345678.5, 1000]]),
        ("a;b\n1'234.5;2\n3\u2019000;4\n", [[1234.5, 2], [3000, 4]]),
        # 1.234 beside a column of decimal commas is a thousand; 0.125 is not
        ("a;b\n1.234;0,5\n999;1,5\n", [[1234, 0.5], [999, 1.5]]),
        ("a;b\n0.125;0,5\n999;1,5\n", [[0.125, 0.5], [999, 1.5]]),
        # what could be either follows what the other columns show
        ("a;b\n1,234;0,5\n", [[1.234, 0.5]]),
        ("a;b\n1,234;0.5\n", [[1234, 0.5]]),
        ("a|b\n1|2\n", [[1, 2]]),
        ("a b\n1 2\n", [[1, 2]]),
        ("height in cm\n1\n", [[1]]),
        # a name with commas in a file with semicolons
        ('height, in cm;"weight; in kg, net"\n1;2\n', [[1, 2]]),
        ("sep=;\na;b\n1;2\n", [[1, 2]]),
        ("\r\n\r\na,b\r\n1,2\r\n\r\n3,4\r\n", [[1, 2], [3, 4]]),
        (" a , b\n 1, 2\n", [[1, 2]]),
        # row names of R and pandas, and a separator at the end of every line
        (',a,b\n17,1,2\n"Anna",3,4\n', [[1, 2], [3, 4]]),
        ("a,b,\n1,2,\n3,4,\n", [[1, 2], [3, 4]]),
        ('"a","b"\n"1","2"\n', [[1, 2]]),
        ('a,"b\nc"\n1,2\n', [[1, 2]]),
    ],
)
def test_tables_as_they_are_written_down(tmp_path, content, rows):
    assert rows_of(write(tmp_path, content))[1] == rows


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings(tmp_path, encoding, packed, monkeypatch):
    monkeypatch.setattr(delimited, "_CSV_BLOCK", 4096)
    lines = [f"{i};{i},5;Zürich" for i in range(3000)]
    data = ("größe;länge;ort\n" + "\n".join(lines) + "\n").encode(encoding)
    path = write(tmp_path, gzip.compress(data) if packed else data, "x.csv.gz" if packed else "x.csv")
    if encoding == "cp1252":
        with pytest.warns(ReadWarning, match="read as cp1252"):
            tables = open_tables([path], site_column="ort")
    else:
        tables = open_tables([path], site_column="ort")
    assert tables.feature_names == ["größe", "länge"]
    pieces = list(tables.pieces())
    assert {site for site, _ in pieces} == {"Zürich"}
    assert np.concatenate([block for _, block in pieces]).tolist() == [[i, i + 0.5] for i in range(3000)]


def test_every_usual_word_for_a_gap_is_one_among_numbers(tmp_path):
    words = ["", "n/a", "N/A", "?", "-", "NA", "null", "None", ".", "k.A.", "#DIV/0!", "missing", "nan"]
    path = write(tmp_path, "a,b,c\n1,1,1\n" + "".join(f"1,{word},{word}\n" for word in words))
    schema = Schema.from_toml('fcac_schema = 1\nmissing = "drop"\n[columns]\na = {}\nb = {}\nc = {}\n')
    tables = open_tables([path], schema)
    assert [block.tolist() for _, block in tables.pieces()] == [[[1, 1, 1]]]
    assert tables.n_dropped == len(words)


def test_the_same_words_are_values_among_texts(tmp_path):
    path = write(tmp_path, "a,result\n1,-\n2,+\n3,NA\n")
    schema = Schema.from_toml('fcac_schema = 1\n[columns]\nresult = { categories = ["-", "+", "NA"] }\n')
    blocks = [schema.unscaled(block).tolist() for _, block in open_tables([path], schema).pieces()]
    assert blocks == [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]


def test_what_can_be_read_in_two_ways_is_said(tmp_path):
    path = write(tmp_path, "a;b\n1,234;2\n")
    with pytest.warns(ReadWarning, match=r"column a are read as decimals.*--read decimal=point"):
        assert rows_of(path)[1] == [[1.234, 2]]
    assert rows_of(path, "decimal=point")[1] == [[1234, 2]]
    quoted = write(tmp_path, 'a,b\n"1,234",2\n', "y.csv")
    with pytest.warns(ReadWarning, match=r"column a are read as thousands.*--read decimal=comma"):
        assert rows_of(quoted)[1] == [[1234, 2]]
    assert rows_of(quoted, "decimal=comma")[1] == [[1.234, 2]]


@pytest.mark.parametrize(
    ("content", "columns", "last"),
    [
        ("1.5,2.5\n1,2\n", {}, [1, 2]),
        ("a,b\n" + "1,2\n" * 1000 + "3,lost\n4,5\n", {"schema": "drop"}, [4, 5]),
        ("a,b,s\n" + "1,2,x\n" * 1000 + '3,4,"' + "x\n" * 700 + '"\n', {"site_column": "s"}, [3, 4]),
        (b"a,b,s\n" + b"1,2,x\n" * 1000 + "3,4,\u00e9\n".encode("latin-1"), {"site_column": "s"}, [3, 4]),
    ],
)
def test_advice_that_is_followed_literally_leads_through(tmp_path, content, columns, last, monkeypatch):
    from fcac.tables import dialect

    # what is wrong lies beyond what is looked at first
    monkeypatch.setattr(delimited, "_CSV_BLOCK", 2048)
    monkeypatch.setattr(dialect, "_FIRST_BYTES", 2048)
    path = write(tmp_path, content)
    if "schema" in columns:
        columns = {"schema": Schema.from_toml('fcac_schema = 1\nmissing = "drop"\n[columns]\na = {}\nb = {}\n')}

    def read(*options):
        tables = open_tables([path], options=ReadOptions.parse(options), **columns)
        return [block for _, block in tables.pieces()][-1][-1].tolist()

    with pytest.raises(DataError) as caught:
        read()
    advice = re.search(r"--read ([a-z]+=[A-Za-z0-9-]+)", str(caught.value))[1]
    assert read(advice.replace("WORD", "lost")) == last


def test_mistakes_in_the_options(tmp_path):
    for text, words in (
        ("decimals=comma", "names are separator, decimal"),
        ("decimal", "write NAME=VALUE"),
        ("decimal=x", "decimal=comma or decimal=point"),
        ("encoding=nope", "no such encoding"),
        ("separator=ab", "give one sign"),
        ("header=maybe", "take yes or no"),
    ):
        with pytest.raises(RequestError, match=words):
            ReadOptions.parse([text])
    with pytest.raises(RequestError, match=r"none\.sql: the file cannot be read"):
        ReadOptions.parse(query=str(tmp_path / "none.sql"))
    (tmp_path / "q.sql").write_text("select 1")
    options = ReadOptions.parse(["gaps=x", "separator=tab"], query=str(tmp_path / "q.sql"), new_by="id")
    assert options.query == "select 1"
    assert ReadOptions.from_dict(options.to_dict()) == options
    with pytest.raises(RequestError, match="is not a database: leave out --query"):
        open_tables([write(tmp_path, "a\n1\n")], options=ReadOptions(query="select 1"))


def test_text_in_a_column_with_decimal_commas_is_counted_and_not_quoted(tmp_path):
    path = write(tmp_path, "a;b\n" + "1,5;2\n" * 3000 + "SECRET;2\n1.5;3\n")
    with pytest.raises(DataError, match=r"column a \(2\)") as caught:
        rows_of(path)
    assert "SECRET" not in str(caught.value)


def test_new_lines_of_other_encodings_are_found(tmp_path):
    """Latin-1 is read from a byte offset; UTF-16, where a line break is two bytes, is read as a whole and compared."""
    for encoding in ("latin-1", "utf-16"):
        path = tmp_path / f"{encoding}.csv"
        options = ReadOptions.parse([f"encoding={encoding}"])
        text = "größe;b\n1,5;2\n"
        path.write_bytes(text.encode(encoding))
        finder = NewRowFinder(path, Schema(["größe", "b"]), 0.0, options=options)
        finder.check_columns()
        parts = finder.find({})
        assert [block.tolist() for block in finder.rows(parts)] == [[[1.5, 2]]]
        cursor = finder.advance({}, parts)
        assert finder.find(cursor) == []
        path.write_bytes((text + "2,5;3\n").encode(encoding))
        assert [block.tolist() for block in finder.rows(finder.find(cursor))] == [[[2.5, 3]]]


def test_the_pattern_of_numbers_and_the_head():
    assert not re.fullmatch(number_pattern("."), "1.234,5")
    assert find_number_forms({"a": []}, [], ",", None).decimals == {}
    import io

    head = read_head(io.BytesIO(b"\xef\xbb\xbfa,b\n1,2\n"))
    assert (head.encoding, head.names, head.end, head.lines) == ("utf-8", ["a", "b"], 7, 1)
    assert read_head(io.BytesIO(b"1;2\n"), ReadOptions(header=False)).names == ["x0", "x1"]


def test_a_european_table_needs_no_option(tmp_path):
    """Row names, semicolons, decimal commas, thousands, gap words, dates and umlauts, drafted and read as they are."""
    rows = "".join(
        f"{i};{20 + i % 50};{'k.A.' if i % 4 == 0 else f'{1 + i % 9}.{i:03d},50'};{'-' if i % 3 else f'{i % 2},25'};"
        f"{'Zürich' if i % 2 else 'Köln'};2024-05-{1 + i % 28:02d}\n"
        for i in range(200)
    )
    path = write(tmp_path, ";alter;gehalt;wert;ort;aufnahme\n" + rows)
    schema = Schema.from_toml(draft_schema([path]))
    kinds = {field.name: field.kind or "number" for field in schema.fields}
    assert kinds == {"alter": "number", "gehalt": "number", "wert": "number", "ort": "category", "aufnahme": "ignore"}
    block = np.concatenate([block for _, block in open_tables([path], schema).pieces()])
    assert len(block) == 200
    columns = dict(zip(schema.feature_names, block.T, strict=True))
    assert columns["gehalt"][[1, 2]].tolist() == [2001.5, 3002.5]
    assert np.isnan(columns["gehalt"]).sum() == 50
    assert np.nansum(columns["wert"]) == 34 * 0.25 + 33 * 1.25
