"""One PostgreSQL server for all tests of databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.postgres import PASSWORD, Postgres, programs, running


@pytest.fixture(scope="session")
def _server() -> Iterator[Postgres]:
    pytest.importorskip("adbc_driver_postgresql", reason="the extra sql is not installed")
    if programs() is None:
        pytest.skip("there is no PostgreSQL server on this machine: install postgresql")
    with running() as server:
        yield server


@pytest.fixture
def postgres(_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """A server without tables, and the environment of its user."""
    monkeypatch.setenv("PGUSER", "reader")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    yield _server
    _server.run("drop schema public cascade", "create schema public", "grant usage on schema public to reader")
