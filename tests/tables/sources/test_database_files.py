"""SQLite and DuckDB files as sources: types, gaps, read-only, new rows, and errors without values."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from fcac.exceptions import DataError, RequestError
from fcac.tables import ReadOptions, Schema, open_tables
from fcac.tables.find_tables import open_table
from fcac.tables.new_rows import NewRowFinder
from fcac.tables.sources import is_database_file

pytest.importorskip("adbc_driver_sqlite")
duckdb = pytest.importorskip("duckdb")


class Database:
    """A file of one of the two kinds."""

    def __init__(self, folder, kind):
        self.kind = kind
        self.path = folder / f"north.{kind}"

    def run(self, *statements):
        connection = sqlite3.connect(self.path) if self.kind == "sqlite" else duckdb.connect(str(self.path))
        for statement in statements:
            connection.execute(statement)
        if self.kind == "sqlite":
            connection.commit()
        connection.close()

    def rows(self, query=None, **more):
        tables = open_tables([self.path], options=ReadOptions(query=query), **more)
        return {site: block.tolist() for site, block in tables.pieces()}


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request, tmp_path):
    found = Database(tmp_path, request.param)
    found.run("create table visits (id integer, age real, ward text)")
    found.run(*(f"insert into visits values ({i}, {i}.5, 'ward {i % 2}')" for i in range(6)))
    return found


@pytest.mark.slow
def test_the_only_table_or_a_query(database):
    assert is_database_file(database.path)
    assert database.rows(columns=["age"]) == {"north": [[i + 0.5] for i in range(6)]}
    query = "select avg(age) as mean, ward from visits group by ward order by ward; "
    assert database.rows(query, site_column="ward") == {"ward 0": [[2.5]], "ward 1": [[3.5]]}
    database.run("create table other (a int)")
    with pytest.raises(RequestError, match=r"2 tables \(other, visits\).*--query 'select \* from other'"):
        database.rows()
    assert [f.name for f in open_table(database.path, ReadOptions(query="select * from other")).schema] == ["a"]
    with pytest.raises(DataError, match="no rows"):
        database.rows("select * from other")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nope from visits", "cannot be used: .*nope"),
        ("delete from visits", "cannot be used|would change"),
        ("select 1; delete from visits", "cannot be used|would change"),
        ("selec", "cannot be used"),
    ],
)
def test_queries_that_cannot_be_used(database, query, words):
    with pytest.raises(RequestError, match=words):
        database.rows(query, columns=["id"])
    assert len(database.rows(columns=["id"])["north"]) == 6


@pytest.mark.slow
def test_new_rows_by_a_column_that_grows(database):
    finder = NewRowFinder(database.path, Schema(["age"]), options=ReadOptions(new_by="id"))
    finder.check_columns()
    parts = finder.find({})
    assert np.concatenate(list(finder.rows(parts))).ravel().tolist() == [i + 0.5 for i in range(6)]
    cursor = finder.advance({}, parts)
    assert finder.find(cursor) == []
    database.run("insert into visits values (6, 60, 'ward 0')")
    assert [block.tolist() for block in finder.rows(finder.find(cursor))] == [[[60.0]]]


def test_sqlite_columns_of_several_types(tmp_path):
    database = Database(tmp_path, "sqlite")
    database.run("create table t (a, b, c)")
    # the first rows show nothing: the driver alone would take the columns for whole numbers
    database.run("insert into t with recursive r(i) as (select 1 union all select i + 1 from r where i < 20000) "
                 "select case when i < 15000 then null else i / 4.0 end, case when i % 9 then i else 'n/a' end, "
                 "case when i > 12000 then 'x' end from r")  # fmt: skip
    schema = Schema.from_toml('fcac_schema = 1\nmissing = "drop"\n[columns]\na = {}\nb = {}\n')
    tables = open_tables([database.path], schema)
    rows = np.concatenate([block for _, block in tables.pieces()])
    assert rows.tolist() == [[i / 4, i] for i in range(15000, 20001) if i % 9]
    batches = [batch for batch, _ in open_table(database.path).batches([], ["c"])]
    assert sum(batch.column(0).null_count for batch in batches) == 12000
    database.run("insert into t values (1, 'SECRET', 'x')")
    with pytest.raises(DataError, match=r"text where numbers are expected in column b \(1\)") as caught:
        list(open_tables([database.path], schema).pieces())
    assert "SECRET" not in str(caught.value)


@pytest.mark.slow
def test_duckdb_types_and_failures_while_reading(tmp_path):
    database = Database(tmp_path, "duckdb")
    database.run("create table t as select 1::hugeint as h, 2.5::decimal(9, 2) as d, 'p'::enum('p', 'q') as e, "
                 "date '2024-05-01' as day, [1, 2] as list, 'SECRET' as s")  # fmt: skip
    table = open_table(database.path)
    assert [str(field.type) for field in table.schema][2:] == ["string", "date32[day]", "string", "string"]
    ((batch, _),) = table.batches(["h", "d"], ["e"])
    assert batch.to_pylist() == [{"h": 1.0, "d": 2.5, "e": "p"}]
    with pytest.raises(DataError, match="the query failed") as caught:
        database.rows("select s::int as a from t")
    assert "SECRET" not in str(caught.value)


def test_other_names_and_broken_files(tmp_path, database):
    renamed = database.path.rename(tmp_path / "clinic.db")
    assert set(open_tables([renamed], columns=["age"]).pieces().__next__()[1].ravel()) == {i + 0.5 for i in range(6)}
    # many programs call their own files .db, so such a file in a directory is not taken for a table
    with pytest.raises(RequestError, match="contains no table"):
        open_tables([tmp_path])
    (tmp_path / "x.sqlite").write_bytes(b"nothing")
    with pytest.raises(RequestError, match="neither a SQLite nor a DuckDB database"):
        open_tables([tmp_path / "x.sqlite"])
    kind = renamed.read_bytes()[:16]
    (tmp_path / "y.sqlite").write_bytes(kind + b"\x00" * 5000)
    with pytest.raises(DataError, match="cannot be read as a"):
        list(open_tables([tmp_path / "y.sqlite"]).pieces())
