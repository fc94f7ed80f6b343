"""Broken files of every format: whatever their bytes are, reading them ends well or in one DataError without values."""

from __future__ import annotations

import json
import sqlite3
import warnings

import numpy as np
import pytest

from fcac.exceptions import DataError, ReadWarning
from fcac.tables import open_tables
from testing.data import write_table

pytestmark = pytest.mark.slow

_PIECES = [
    b'"',
    b";",
    b",",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"1,5",
    b"n/a",
    b"=",
    b"{",
    b"]",
    b"\xe9",
]


def _intact(folder, ending):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    path = folder / f"x{ending}"
    if ending == ".jsonl":
        path.write_text("".join(json.dumps({"a": a, "b": b, "c": "z"}) + "\n" for a, b, _ in rows.tolist()))
    elif ending == ".xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in [["a", "b"], *rows[:5, :2].tolist()]:
            book.active.append(row)
        book.save(path)
    elif ending == ".sqlite":
        with sqlite3.connect(path) as connection:
            connection.execute("create table t (a real, b real)")
            connection.executemany("insert into t values (?, ?)", rows[:, :2].tolist())
        connection.close()
    elif ending == ".duckdb":
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(path)) as connection:
            connection.execute("create table t as select i as a, i / 3 as b from range(60) r(i)")
    else:
        write_table(path, rows, ["a", "b", "c"])
    return path


def _broken(data: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(random.integers(1, 6)):
        at = int(random.integers(0, len(changed) + 1))
        kind = random.integers(0, 4)
        if kind == 0:
            changed[at : at + int(random.integers(1, 40))] = b""
        elif kind == 1:
            changed[at:at] = _PIECES[int(random.integers(len(_PIECES)))]
        elif kind == 2:
            changed[at : at + 4] = random.bytes(4)
        else:
            del changed[at:]
    return bytes(changed)


@pytest.mark.parametrize(
    ("ending", "n"),
    [
        (".csv", 600), (".jsonl", 300), (".npz", 150), (".parquet", 150), (".feather", 150), (".xlsx", 100),
        (".sqlite", 40), (".duckdb", 10),
    ],
)  # fmt: skip
def test_only_data_errors(tmp_path, ending, n):
    data = _intact(tmp_path, ending).read_bytes()
    path = tmp_path / f"broken{ending}"
    random = np.random.default_rng(1)
    refused = 0
    for number in range(n):
        # half of the text files are much shorter, where a change matters more
        start = data[:80] if number % 2 and ending in (".csv", ".jsonl") else data
        path.write_bytes(_broken(start, random))
        said = _read(path)
        assert "\n" not in said
        assert not said or path.name in said
        refused += bool(said)
    assert refused > n // 4


def _read(path):
    """Read a file to its end and return the error, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            for _, block in open_tables([path]).pieces():
                assert np.isfinite(block).all()
    except DataError as error:
        return str(error)
    return ""
