"""One table in every format and database: the same kinds are drafted from it, and the same rows are read."""

from __future__ import annotations

import datetime
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fcac.tables import Schema, open_tables
from fcac.tables.draft import draft_schema

NAMES = ["day", "at", "flag", "ward", "dose"]
ROWS = [
    (
        datetime.date(2024, 5, 1) + datetime.timedelta(i),
        datetime.datetime(2024, 5, 1, 10) + datetime.timedelta(hours=i),
        i % 2 == 0,
        f"ward {i % 3}",
        None if i % 5 == 4 else i / 4,
    )
    for i in range(30)
]
SCHEMA = """
fcac_schema = 1
missing = "native"
[columns]
day = { kind = "date" }
at = { kind = "date" }
flag = { kind = "boolean" }
ward = { kind = "category", categories = ["ward 0", "ward 1", "ward 2"] }
dose = {}
"""


def _in_text(value):
    """Return moments as text, as formats without a type for them hold them."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, datetime.date) else value


def _write(folder, ending):
    path = folder / f"x.{ending}"
    table = pa.table(dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True)))
    plain = [[_in_text(value) for value in row] for row in ROWS]
    if ending == "csv":
        pyarrow.csv.write_csv(table, path)
    elif ending == "parquet":
        pq.write_table(table, path)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in plain))
    elif ending == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in [NAMES, *ROWS]:
            book.active.append(row)
        book.save(path)
    elif ending == "sqlite":
        with sqlite3.connect(path) as connection:
            connection.execute(f"create table t ({', '.join(NAMES)})")
            connection.executemany("insert into t values (?, ?, ?, ?, ?)", plain)
        connection.close()
    else:
        with pytest.importorskip("duckdb").connect(str(path)) as connection:
            connection.register("held", table)
            connection.execute("create table t as select * from held")
            connection.unregister("held")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl", "xlsx", "sqlite", "duckdb"])
def test_a_table_means_the_same_wherever_it_is_kept(tmp_path, ending):
    schema = Schema.from_toml(SCHEMA)
    there, expected = _write(tmp_path, ending), _write(tmp_path, "parquet")
    drafts = [Schema.from_toml(draft_schema([path])) for path in (there, expected)]
    assert [(field.name, field.kind) for field in drafts[0].fields] == [(f.name, f.kind) for f in drafts[1].fields]
    blocks = [np.concatenate([rows for _, rows in open_tables([path], schema).pieces()]) for path in (there, expected)]
    assert np.isnan(blocks[0]).sum() == 6
    np.testing.assert_array_equal(*blocks)
