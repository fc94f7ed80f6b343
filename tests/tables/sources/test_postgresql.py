"""PostgreSQL as a source, with a real server: types, read-only, credentials, new rows, and a connection that is cut."""

from __future__ import annotations

import datetime
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from fcac import FCAC
from fcac.cli import run as run_command
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import NothingNew, SiteAgent
from fcac.exceptions import DataError, ReadWarning, RequestError
from fcac.tables import ReadOptions, Schema, open_tables
from fcac.tables.new_rows import NewRowFinder
from fcac.tables.sources import as_source, open_database, postgresql
from fcac.tables.sources.database import DatabaseTable
from fcac.tables.sources.postgresql import public_name
from testing.postgres import PASSWORD

pytestmark = pytest.mark.slow  # a real server

VISITS = """
create table visits as select i as id, (20 + i % 60)::int as age, (i % 7)::numeric(8, 2) / 2 as dose, i % 2 = 0 as
smoker, case when i % 5 = 0 then null else i::real end as gap, 'ward ' || i % 3 as ward, date '2024-01-01' + i % 300 as
day from generate_series(1, 1000) i
"""


def rows_of(address, query=None, **more):
    tables = open_tables([address], options=ReadOptions(query=query), **more)
    return np.concatenate([block for _, block in tables.pieces()])


def run(*arguments):
    return run_command([str(argument) for argument in arguments])


def test_types_arrive_as_what_they_are(postgres):
    postgres.run(VISITS, "create type mood as enum ('low', 'high')")
    table = open_database(
        postgres.address,
        ReadOptions(query="select *, 'low'::mood as mood, '{1}'::int[] as list, id::text::uuid is null as odd from "
                    "(select age, dose, smoker, gap, ward, day, id from visits order by id) v where id < 3 -- comment"),
    )  # fmt: skip
    assert table.path == f"postgresql://127.0.0.1:{postgres.port}/postgres"
    assert {field.name: str(field.type) for field in table.schema} == {
        "age": "int32", "dose": "double", "smoker": "bool", "gap": "float", "ward": "string", "day": "date32[day]",
        "id": "int32", "mood": "string", "list": "string", "odd": "bool",
    }  # fmt: skip
    table = open_database(postgres.address, ReadOptions(query="select * from visits where id <= 5;"))
    ((batch, _),) = table.batches(["age", "dose", "smoker", "gap"], ["ward", "day", "id"])
    assert batch.to_pylist()[4] == {
        "age": 25, "dose": 2.5, "smoker": False, "gap": None, "ward": "ward 2", "day": datetime.date(2024, 1, 6),
        "id": 5,
    }  # fmt: skip


def test_the_only_table_needs_no_query_and_several_are_listed(postgres):
    with pytest.raises(RequestError, match="has no table that this user may see"):
        open_database(postgres.address)
    postgres.run(VISITS)
    assert rows_of(postgres.address, columns=["age"]).shape == (1000, 1)
    postgres.run('create table "Odd one" (a int)')
    with pytest.raises(RequestError, match=r"2 tables.*--query 'select \* from \"Odd one\"'"):
        open_database(postgres.address)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nope from visits", 'cannot be used: column "nope" does not exist'),
        ("selec", "cannot be used: syntax error"),
        ("select 1; drop table visits", "cannot be used"),
        ("insert into visits (id) values (1) returning id", "cannot be used"),
        ("with x as (delete from visits returning id) select * from x", "cannot be used|would change the database"),
        ("select id, set_config('transaction_read_only', 'off', false) as x from visits", "would change"),
        ("select ward::int as id from visits", r"failed after 0 rows \(a value could not be converted\).*psql"),
        ("select 1 / (id - 900) as id from visits", "division by zero"),
        ("", "the query is empty"),
    ],
)
def test_queries_that_cannot_be_used(postgres, query, words):
    postgres.run(VISITS)
    with pytest.raises(DataError, match=words) as caught:
        rows_of(postgres.address, query, columns=["id"])
    assert "ward " not in str(caught.value)
    assert caught.value.__suppress_context__ or not query
    assert postgres.run("select count(*) from visits") == [(1000,)]


def test_every_way_not_to_connect_has_its_advice(postgres, monkeypatch, tmp_path):
    where = f"127.0.0.1:{postgres.port}"
    for address, words in (
        (f"postgresql://{where}/none", "no such database"),
        ("postgresql://127.0.0.1:1/postgres", "check host and port"),
        ("oracle://host/x", "oracle:// is not known; databases are postgresql"),
        ("postgresql://[/x", "cannot be read"),
    ):
        with pytest.raises(RequestError, match=words):
            open_tables([address])
    monkeypatch.setenv("PGPASSWORD", "wrong-" + PASSWORD)
    with pytest.raises(
        RequestError, match=r"set PGUSER and PGPASSWORD, or use a password file \(PGPASSFILE\)"
    ) as caught:
        open_tables([postgres.address])
    assert PASSWORD not in str(caught.value)
    # the advice, followed: a password file
    monkeypatch.delenv("PGPASSWORD")
    (tmp_path / "pass").write_text(f"127.0.0.1:{postgres.port}:*:reader:{PASSWORD}\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    postgres.run(VISITS)
    assert len(rows_of(postgres.address, columns=["age"])) == 1000


@pytest.mark.parametrize("address", [f"postgresql://reader:{PASSWORD}@h/d", f"postgresql://h/d?password={PASSWORD}"])
def test_a_password_in_the_address_is_refused_and_not_repeated(address, tmp_path, capfd):
    assert run("fit", address, "--out", tmp_path / "m.fcac") == 2
    said = capfd.readouterr()
    assert "leave the password out of the address" in said.err
    assert PASSWORD not in said.out + said.err


def test_names_for_messages():
    assert public_name("postgresql:///clinic?host=/run/x&user=anna") == "postgresql:///clinic"
    assert public_name("postgres://anna@db:1/clinic") == "postgresql://db:1/clinic"
    assert as_source("duckdb://x.duckdb").name == "x.duckdb"


def test_every_command_reads_a_database_and_leaves_no_credentials(postgres, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    postgres.run(VISITS)
    query = "select id, age, dose, ward from visits"
    (tmp_path / "visits.sql").write_text(query)
    source = [postgres.address, "--query", query]
    drop = ["--drop", "ward", "--drop", "id"]
    assert run("schema", postgres.address, "--query", "visits.sql", *drop, "--out", "s.toml") == 0
    assert "age = " in (tmp_path / "s.toml").read_text()
    assert run("fit", *source, "--schema", "s.toml", "--site-column", "ward", "--out", "m") == 0
    assert run("update", "m", *source[:2], f"{query} where id > 900", "--site-column", "ward") == 0
    assert run("predict", "m", *source[:2], f"{query} where id > 900", "--keep", "id", "--out", "labels.csv") == 0
    assert (tmp_path / "labels.csv").read_text().count("\n") == 101
    # a query that fails, and a password that is not accepted
    assert run("fit", *source[:2], "select x from visits", "--out", "n") == 2
    monkeypatch.setenv("PGPASSWORD", PASSWORD + "!")
    assert run("fit", *source, "--out", "n") == 2
    said = capfd.readouterr()
    found = [said.out, said.err, *(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())]
    assert len(found) == 6
    assert all(PASSWORD not in text for text in found)


def test_a_connection_cut_in_the_middle_leaves_everything_as_it_was(postgres):
    postgres.run("create table many as select i::float8 as a, repeat('x', 500) as t from generate_series(1, 100000) i")
    model = FCAC(random_state=0).fit(np.random.default_rng(0).normal(size=(100, 1)))
    before = model.server_.nodes.copy()
    tables = open_tables([postgres.address], options=ReadOptions(query="select * from many"), site_column="t")

    def cut():
        for number, piece in enumerate(tables.pieces()):
            if number == 0:
                postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'reader'")
            yield piece

    with pytest.raises(
        DataError, match=r"the connection was lost after [0-9,]+ rows: nothing was learned.*Run this again"
    ):
        model.play_stream(cut(), 1)
    np.testing.assert_array_equal(model.server_.nodes, before)
    assert model.n_rounds_ == 1
    assert len(rows_of(postgres.address, "select a from many limit 5")) == 5


def site(tmp_path, address):
    schema, state = tmp_path / "schema.toml", tmp_path / "state"
    schema.write_text("fcac_schema = 1\n[columns]\nage = {}\ndose = {}\n")
    read = ReadOptions(query="select id, age, dose from visits", new_by="id").to_dict()
    SiteSettings("north", address, str(state), str(schema), read=read).save(tmp_path / "settings.json")
    return SiteAgent(SiteSettings.load(tmp_path / "settings.json"))


def test_a_site_learns_every_row_once_by_a_column_that_grows(postgres, tmp_path):
    postgres.run(VISITS)
    agent = site(tmp_path, postgres.address)
    agent.finder().check_columns()
    agent.contribute(1, 0)
    with pytest.raises(NothingNew):
        agent.contribute(2, 1)
    postgres.run("insert into visits (id, age, dose) select 1000 + i, 30, 1 from generate_series(1, 50) i")
    agent.contribute(2, 1)
    assert "50 new rows" in (tmp_path / "state" / "site.log").read_text()
    cursor = json.loads((tmp_path / "state" / "cursor.json").read_text())
    assert cursor["after_round"]["2"]["database"] == {"rows": 1050, "bytes": 0, "key": 1050}
    # what appears below the last value cannot be found by it, and this is said
    postgres.run("insert into visits (id, age, dose) values (-1, 30, 1)")
    with (
        pytest.warns(ReadWarning, match="1 rows have appeared whose value in column 'id' is not above"),
        pytest.raises(NothingNew),
    ):
        agent.contribute(3, 2)
    for path in [tmp_path / "settings.json", *(p for p in (tmp_path / "state").rglob("*") if p.is_file())]:
        assert PASSWORD.encode() not in path.read_bytes()


def test_a_site_whose_connection_is_cut_has_learned_nothing(postgres, tmp_path, monkeypatch):
    postgres.run(VISITS, "insert into visits (id, age, dose) select 1000 + i, 30, 1 from generate_series(1, 200000) i")
    read = DatabaseTable._read

    def cutting(self, numbers, texts):
        for number, piece in enumerate(read(self, numbers, texts)):
            if number == 0:
                postgres.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'reader'")
            yield piece

    monkeypatch.setattr(postgresql, "_BATCH_BYTES", "100000")
    agent = site(tmp_path, postgres.local)
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseTable, "_read", cutting)
        with pytest.raises(DataError, match="connection was lost"):
            agent.contribute(1, 0)
    assert not (tmp_path / "state" / "cursor.json").exists()
    assert not (tmp_path / "state" / "site.fcac").exists()
    agent.contribute(1, 0)
    assert "201000 new rows" in (tmp_path / "state" / "site.log").read_text()


def test_keys_of_other_types_and_mistakes(postgres):
    postgres.run("create table t (moment timestamp, code text, a float8)")
    schema = Schema(["a"])
    for key, first, second in (
        ("moment", "2024-01-01 10:00:00.123456", "2024-01-01 10:00:00.123457"),
        ("code", "a'b", "a'c"),
    ):
        postgres.run("truncate t", f"insert into t ({key}, a) values ('{first.replace(chr(39), chr(39) * 2)}', 1)")
        finder = NewRowFinder(postgres.address, schema, options=ReadOptions(new_by=key))
        parts = finder.find({})
        assert [block.tolist() for block in finder.rows(parts)] == [[[1.0]]]
        cursor = json.loads(json.dumps(finder.advance({}, parts)))
        postgres.run(f"insert into t ({key}, a) values ('{second.replace(chr(39), chr(39) * 2)}', 2)")
        assert [block.tolist() for block in finder.rows(finder.find(cursor))] == [[[2.0]]]
    postgres.run("insert into t (a) values (3)")
    with pytest.raises(DataError, match="1 rows have no value in column 'code', which tells new rows"):
        finder.find({})
    with pytest.raises(RequestError, match=r"a database needs --new-by COLUMN"):
        NewRowFinder(postgres.address, schema)
    with pytest.raises(RequestError, match="no column 'nope', which was given as --new-by"):
        NewRowFinder(postgres.address, schema, options=ReadOptions(new_by="nope")).check_columns()
    with pytest.raises(RequestError, match="no column b, which the schema needs"):
        NewRowFinder(postgres.address, Schema(["b"]), options=ReadOptions(new_by="code")).check_columns()


def test_nothing_of_the_environment_is_changed(postgres):
    before = dict(os.environ)
    postgres.run(VISITS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows_of(postgres.address, "select age from visits")
    assert dict(os.environ) == before


def test_one_row_of_each_person_from_omop_tables(postgres, tmp_path):
    """The query of the example gives the same rows from PostgreSQL, SQLite and DuckDB."""
    import runpy
    import sqlite3

    import duckdb
    from adbc_driver_postgresql import dbapi

    folder = Path(__file__).parents[3] / "examples"
    tables, kinds = runpy.run_path(str(folder / "omop_hospitals.py"))["make_tables"](60, seed=0)
    query = (folder / "omop.sql").read_text("utf-8")
    with dbapi.connect(postgres.owner, autocommit=True) as connection, connection.cursor() as cursor:
        for name, table in tables.items():
            cursor.adbc_ingest(name, table)
    with sqlite3.connect(tmp_path / "x.sqlite") as lite, duckdb.connect(str(tmp_path / "x.duckdb")) as duck:
        for name, table in tables.items():
            columns = ", ".join(table.column_names)
            lite.execute(f"create table {name} ({columns})")
            places = ", ".join("?" * table.num_columns)
            lite.executemany(f"insert into {name} values ({places})", zip(*table.to_pydict().values(), strict=True))
            duck.register("rows", table)
            duck.execute(f"create table {name} as select * from rows")
            duck.unregister("rows")
    lite.close()
    schema = Schema.load(folder / "omop.toml")
    found = [
        rows_of(source, f"{query} order by 1", schema=schema)
        for source in (postgres.address, tmp_path / "x.sqlite", tmp_path / "x.duckdb")
    ]
    assert found[0].shape == (len(kinds), schema.n_features)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-12)
