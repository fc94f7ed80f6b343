"""The ledger: adding up, disjoint data, refusals, and two processes at once."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac.privacy import BudgetExceeded, Ledger, LedgerError, RepeatedBatch
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from testing.waiting import PATIENCE

ONE = rho_from_epsilon(1.0, 1e-6)
ROWS = np.arange(6.0).reshape(3, 2)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "site.db", budget=2.0)


class TestAddingUp:
    def test_charges_add_in_rho_and_show_as_epsilon(self, ledger: Ledger) -> None:
        for number in (1, 2):
            ledger.charge("A", ONE, round=number)
        assert ledger.spent_rho("A") == 2 * ONE
        assert ledger.spent("A") == epsilon_from_rho(2 * ONE, 1e-6)
        left = rho_from_epsilon(2.0, 1e-6) - 2 * ONE
        assert ledger.remaining("A") == epsilon_from_rho(left, 1e-6)

    def test_sites_have_budgets_of_their_own(self, ledger: Ledger) -> None:
        ledger.charge("A", rho_from_epsilon(2.0, 1e-6))
        ledger.charge("B", ONE)
        assert ledger.sites() == ["A", "B"]
        assert (ledger.spent("A"), ledger.spent("B"), ledger.spent("C")) == (
            pytest.approx(2.0),
            pytest.approx(1.0),
            0.0,
        )
        assert ledger.remaining("A") == pytest.approx(0.0, abs=1e-3)

    def test_the_whole_budget_can_be_spent_at_once_and_then_no_more(self, ledger: Ledger) -> None:
        ledger.charge("A", rho_from_epsilon(2.0, 1e-6))
        with pytest.raises(BudgetExceeded, match="would bring eps to"):
            ledger.charge("A", 1e-6)
        assert len(ledger.entries("A")) == 1

    def test_a_line_for_people(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=4.0)
        ledger.charge("A", rho_from_epsilon(2.15, 1e-6))
        assert ledger.summary_line("A") == "site A: eps = 2.15 at delta = 1e-6 per record, budget 4.0"

    def test_entries_say_when_and_what(self, ledger: Ledger) -> None:
        number = ledger.charge("A", ONE, round=7, what="a test")
        ledger.complete(number)
        ledger.charge("B", ONE, partition="monday")
        first, second = ledger.entries()
        assert (first["site"], first["round"], first["what"], first["completed"]) == ("A", 7, "a test", True)
        assert first["epsilon"] == pytest.approx(1.0)
        assert first["time"].startswith("20")
        assert (second["counted"], second["partition"], second["completed"]) == ("partition", "monday", False)

    @pytest.mark.parametrize("rho", [0.0, -1.0, np.nan, np.inf, "1"])
    def test_a_charge_must_cost_something(self, ledger: Ledger, rho: Any) -> None:
        with pytest.raises(ValueError, match="rho"):
            ledger.charge("A", rho)

    def test_a_charge_needs_a_site(self, ledger: Ledger) -> None:
        with pytest.raises(ValueError, match="site"):
            ledger.charge("", ONE)


class TestDisjointData:
    def test_the_dearest_id_counts(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE, record_ids=["ann", "bob"])
        ledger.charge("A", ONE, record_ids=["cat"])
        assert ledger.spent_rho("A") == ONE
        ledger.charge("A", ONE, record_ids=["dan", "bob"])
        assert ledger.spent_rho("A") == 2 * ONE

    def test_m_rows_of_one_id_cost_m_squared(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=16.0)
        ledger.charge("A", ONE, record_ids=["ann", "bob", "ann", "ann"])
        assert ledger.spent_rho("A") == 9 * ONE

    @pytest.mark.parametrize("same", [(7, 7.0), (np.int64(7), 7), (7, "7"), (np.str_("x"), "x")])
    def test_one_person_in_several_spellings(self, ledger: Ledger, same: tuple[Any, Any]) -> None:
        for value in same:
            ledger.charge("A", ONE, record_ids=[value])
        assert ledger.spent_rho("A") == 2 * ONE

    @pytest.mark.parametrize("value", [None, np.nan, "", ("a", 1)])
    def test_ids_that_identify_nobody_are_refused(self, ledger: Ledger, value: Any) -> None:
        with pytest.raises(ValueError, match="record_ids"):
            ledger.charge("A", ONE, record_ids=["ann", value])
        assert ledger.entries() == []

    def test_the_dearest_part_counts(self, ledger: Ledger) -> None:
        for day in ("monday", "tuesday", "wednesday"):
            ledger.charge("A", ONE, partition=day)
        assert ledger.spent_rho("A") == ONE
        ledger.charge("A", ONE, partition="monday")
        assert ledger.spent_rho("A") == 2 * ONE

    def test_kinds_of_charges_add_up_between_them(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=16.0)
        ledger.charge("A", ONE)
        ledger.charge("A", ONE, record_ids=["ann"])
        ledger.charge("A", ONE, partition="monday")
        assert ledger.spent_rho("A") == 3 * ONE

    def test_an_overdraft_by_one_id_is_refused_whole(self, ledger: Ledger) -> None:
        most = rho_from_epsilon(2.0, 1e-6)
        ledger.charge("A", most, record_ids=["ann"])
        with pytest.raises(BudgetExceeded):
            ledger.charge("A", ONE, record_ids=["bob", "ann"])
        ledger.charge("A", most, record_ids=["bob"])  # bob was not charged by the refused one
        assert ledger.spent_rho("A") == most

    def test_ids_are_not_readable_in_the_file(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE, record_ids=["patient-4711"], batch=ROWS)
        content = Path(ledger.path).read_bytes()
        assert b"4711" not in content
        assert ROWS.tobytes() not in content

    def test_an_empty_batch_with_ids_is_charged_to_nobody(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE, record_ids=[])
        assert (ledger.spent_rho("A"), len(ledger.entries("A"))) == (0.0, 1)

    def test_ids_or_partition(self, ledger: Ledger) -> None:
        with pytest.raises(ValueError, match="not both"):
            ledger.charge("A", ONE, record_ids=["ann"], partition="monday")


class TestRepeats:
    def test_exactly_the_same_rows_are_refused(self, ledger: Ledger) -> None:
        ledger.complete(ledger.charge("A", ONE, batch=ROWS, round=1))
        with pytest.raises(RepeatedBatch, match="were released before"):
            ledger.charge("A", ONE, batch=ROWS.copy(), round=2)
        assert ledger.spent_rho("A") == ONE

    def test_one_row_more_passes_and_so_does_another_site(self, ledger: Ledger) -> None:
        ledger.complete(ledger.charge("A", ONE, batch=ROWS))
        ledger.charge("A", ONE, batch=np.vstack([ROWS, [9, 9]]))
        ledger.charge("B", ONE, batch=ROWS)
        assert (ledger.spent_rho("A"), ledger.spent_rho("B")) == (2 * ONE, ONE)

    def test_a_charge_that_was_never_completed_may_be_made_again_and_costs_again(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE, batch=ROWS, round=1)
        ledger.charge("A", ONE, batch=ROWS, round=1)
        assert ledger.spent_rho("A") == 2 * ONE

    def test_empty_batches_never_repeat(self, ledger: Ledger) -> None:
        for _ in range(2):
            ledger.complete(ledger.charge("A", ONE, batch=np.empty((0, 2))))
        assert ledger.spent_rho("A") == 2 * ONE


class TestTheFile:
    def test_constructing_touches_nothing(self, ledger: Ledger) -> None:
        assert not os.path.exists(ledger.path)
        assert ledger == Ledger(ledger.path, 2.0)
        assert "budget=2.0" in repr(ledger)

    def test_only_the_owner_may_read_it(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        for path in (ledger.path, ledger.path + ".key"):
            assert os.stat(path).st_mode & 0o077 == 0

    def test_it_is_written_through_to_the_disk(self, ledger: Ledger) -> None:
        with ledger._transaction() as (connection, _):
            assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
            assert connection.in_transaction

    def test_open_finds_budget_and_delta(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        assert Ledger.open(ledger.path) == ledger

    def test_another_budget_is_refused_and_can_be_changed_in_the_open(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        with pytest.raises(LedgerError, match="made with budget = 2, not 50"):
            Ledger(ledger.path, 50).charge("A", ONE)
        with pytest.raises(LedgerError, match="delta"):
            Ledger(ledger.path, 2, delta=1e-7).spent("A")
        richer = ledger.change_budget(3.0)
        richer.charge("A", rho_from_epsilon(2.0, 1e-6))
        assert "budget changed from eps = 2 to 3" in [entry["what"] for entry in richer.entries()]

    def test_a_lost_ledger_is_noticed(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        os.unlink(ledger.path)
        with pytest.raises(LedgerError, match="earlier spending would be forgotten"):
            ledger.charge("A", ONE)

    @pytest.mark.parametrize("key", [None, b"another key of thirty-two bytes.."])
    def test_a_lost_or_foreign_key_is_noticed(self, ledger: Ledger, key: bytes | None) -> None:
        ledger.charge("A", ONE)
        path = Path(ledger.path + ".key")
        path.unlink()
        if key is not None:
            path.write_bytes(key)
        with pytest.raises(LedgerError, match="key"):
            ledger.charge("A", ONE)

    def test_looking_needs_no_key_and_creates_nothing(self, ledger: Ledger, tmp_path: Path) -> None:
        assert (ledger.spent("A"), ledger.entries(), ledger.sites()) == (0.0, [], [])
        assert ledger.remaining("A") == pytest.approx(2.0)
        assert list(tmp_path.iterdir()) == []
        ledger.charge("A", ONE)
        os.unlink(ledger.path + ".key")
        assert ledger.spent_rho("A") == ONE
        assert "A" in ledger.summary_line("A")

    def test_a_crash_before_the_first_commit_leaves_a_usable_place(self, ledger: Ledger) -> None:
        Path(ledger.path).touch()
        Path(ledger.path + ".key").write_bytes(b"k" * 32)
        assert ledger.spent("A") == 0
        ledger.charge("A", ONE)
        assert ledger.spent_rho("A") == ONE

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        text = tmp_path / "notes.txt"
        text.write_text("not a database, but long enough to be mistaken for one" * 30)
        with pytest.raises(LedgerError, match="not a privacy ledger"):
            Ledger(text, 2).charge("A", ONE)
        assert text.read_text().startswith("not a database")
        other = tmp_path / "other.db"
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()
        with pytest.raises(LedgerError, match="not a privacy ledger"):
            Ledger(other, 2).charge("A", ONE)
        with pytest.raises(LedgerError, match="no ledger at"):
            Ledger.open(tmp_path / "nothing.db")
        with pytest.raises(LedgerError, match="does not exist"):
            Ledger(tmp_path / "no" / "folder.db", 2).charge("A", ONE)

    def test_a_newer_format_is_refused(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        with sqlite3.connect(ledger.path) as connection:
            connection.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
        connection.close()
        with pytest.raises(LedgerError, match="upgrade fcac"):
            ledger.spent("A")

    @pytest.mark.parametrize("budget", [0, -1, np.inf, np.nan, None])
    def test_the_budget_must_be_a_number(self, tmp_path: Path, budget: Any) -> None:
        with pytest.raises(ValueError, match="budget"):
            Ledger(tmp_path / "site.db", budget)


def spend_until_refused(path: str, gate: Any, results: Any) -> None:
    ledger = Ledger(path, budget=2.0)
    gate.wait()
    charged = 0
    while True:
        try:
            ledger.charge("A", ONE / 8)
        except BudgetExceeded:
            break
        charged += 1
    results.put(charged)


@pytest.mark.slow
def test_two_processes_cannot_overdraw_together(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate, results = context.Event(), context.Queue()
    path = str(tmp_path / "site.db")
    workers = [context.Process(target=spend_until_refused, args=(path, gate, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    gate.set()
    charged = [results.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join()
    ledger = Ledger(path, budget=2.0)
    possible = int(rho_from_epsilon(2.0, 1e-6) / (ONE / 8))
    assert sum(charged) == possible == len(ledger.entries("A"))
    assert ledger.spent("A") <= 2.0
