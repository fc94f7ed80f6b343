"""Tests of the rooms that a change touches run first."""

from __future__ import annotations

from testing.rooms import rooms_of


def test_a_file_and_its_tests_are_of_one_room():
    paths = ["src/fcac/tables/kinds/date.py", "tests/tables/test_kinds.py", "src/fcac/_rows.py", "tests/test_rows.py"]
    assert rooms_of(paths) == {"tables", "rows"}
    assert rooms_of(["docs/index.md", "tests/conftest.py", "tests/testing/data.py", "Makefile"]) == set()
