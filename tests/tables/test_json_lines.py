"""JSON lines: columns from keys, gaps, and errors that name the line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from fcac.exceptions import DataError
from fcac.tables import ReadOptions, Schema, open_tables
from fcac.tables.find_tables import open_table


def write(path, rows, encoding="utf-8"):
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(encoding)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["north.jsonl", "north.ndjson", "north.jsonl.gz"])
def test_rows_in_order_with_site_and_categories(tmp_path, name, monkeypatch):
    from fcac.tables import table_file

    monkeypatch.setattr(table_file, "_MOST_ROWS", 64)
    rows = [{"age": i, "flag": i % 2 == 0, "ward": "ä" if i % 3 else "b", "note": {"x": 1}} for i in range(500)]
    path = write(tmp_path / name, rows)
    schema = Schema.from_toml('fcac_schema = 1\n[columns]\nage = {}\nflag = {}\nward = { categories = ["ä", "b"] }\n')
    seen = []
    tables = open_tables([path], schema)
    pieces = list(tables.pieces(lambda done, share: seen.append(share)))
    block = schema.unscaled(np.concatenate([block for _, block in pieces]))
    assert {site for site, _ in pieces} == {"north"}
    assert block[:, 0].tolist() == list(range(500))
    assert block[:3].tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [2, 1, 1, 0]]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_gaps_are_null_absent_or_a_word(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"a": 1, "b": 2.5}, {"a": None, "b": "n/a"}, {"b": "4"}])
    table = open_table(path)
    assert [str(field.type) for field in table.schema] == ["double", "string"]
    assert [batch.to_pydict() for batch, _ in open_table(path).batches(["a"], [])] == [{"a": [1.0, None, None]}]
    path = write(tmp_path / "y.jsonl", [{"a": 1}, {"a": "lost"}])
    table = open_table(path, ReadOptions(gaps=("lost",)))
    assert [batch.to_pydict() for batch, _ in table.batches(["a"], [])] == [{"a": [1.0, None]}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b'{"a": 1}\n{"a": SECRET}\n', "line 2 is not a JSON object"),
        (b"[1, 2]\n", "line 1 is not a JSON object: every line must be one"),
        (b'{"a": ' + b"[" * 100_000, "line 1"),
        ('{"ä": 1}\n'.encode("latin-1"), r"is not UTF-8 text.*--read encoding=latin-1"),
        (b'{"a": 1}\n' * 1500 + b'{"a": "SECRET"}\n{"a": {}}\n', r"column a \(2\).*--read gaps=WORD"),
    ],
)
def test_errors_name_the_line_and_quote_nothing(tmp_path, data, words):
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(DataError, match=words) as caught:
        for _ in open_tables([path]).pieces():
            pass
    assert "SECRET" not in str(caught.value)
