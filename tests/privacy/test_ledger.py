"""The ledger: adding up, disjoint data, refusals, and two processes at once."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac.privacy import BudgetExceeded, Ledger, LedgerError
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from testing.waiting import raced

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

    def test_one_owner_has_one_budget_under_whatever_names(self, ledger: Ledger) -> None:
        ledger.charge("A", rho_from_epsilon(1.5, 1e-6))
        with pytest.raises(BudgetExceeded, match="all releases of this ledger count together"):
            ledger.charge("B", rho_from_epsilon(1.5, 1e-6))
        ledger.charge("B", ONE)
        assert ledger.sites() == ["A", "B"]  # the dearest first
        assert [ledger.spent(name) for name in ("A", "B", "C")] == pytest.approx([1.5, 1.0, 0.0])
        assert ledger.spent() == epsilon_from_rho(ONE + rho_from_epsilon(1.5, 1e-6), 1e-6)
        assert "site B: eps = 1.00 at delta = 1e-6 per record; with everything else" in ledger.summary_line("B")
        assert ledger.summary_line().startswith("all releases: eps = 1.8")

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
        ledger.charge("B", ONE)
        first, second = ledger.entries()
        assert (first["site"], first["round"], first["what"], first["completed"]) == ("A", 7, "a test", True)
        assert first["epsilon"] == pytest.approx(1.0)
        assert first["time"].startswith("20")
        assert (second["counted"], second["completed"]) == ("all", False)

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

    def test_a_person_pays_once_for_any_number_of_rows(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE, record_ids=["ann", "bob", "ann", "ann"])
        assert ledger.spent_rho() == ONE
        assert ledger.unit() == "person"

    @pytest.mark.parametrize(
        "same",
        [
            (7, 7.0),
            (np.int64(7), 7),
            (7, "7"),
            (np.str_("x"), "x"),
            ("7.0", " 7"),
            ("007", "7"),
            ("Ann ", "ann"),
            ("1e0", 1),
            ("P01", "p1"),
            ("7\u200b", 7),
            ("a\u00adnn", "Ann"),
            ("7.50", 7.5),
            ("\ufe0fx", "x"),
        ],
    )
    def test_one_person_in_several_spellings_and_at_several_sites(self, ledger: Ledger, same: tuple[Any, Any]) -> None:
        for site, value in zip("AB", same, strict=True):
            ledger.charge(site, ONE, record_ids=[value])
        assert ledger.spent_rho() == 2 * ONE
        assert ledger.people() == [epsilon_from_rho(2 * ONE, 1e-6)]

    def test_people_over_budget_are_left_out_and_the_others_are_not(self, ledger: Ledger) -> None:
        most = rho_from_epsilon(2.0, 1e-6)
        ledger.charge("A", most, record_ids=["ann"])
        admission = ledger.admit("B", ONE, record_ids=["bob", "Ann", "bob", "ann "])
        assert admission.admitted.tolist() == [True, False, True, False]
        assert ledger.spent_rho() == most
        assert ledger.people() == [epsilon_from_rho(most, 1e-6), epsilon_from_rho(ONE, 1e-6)]
        # what may be told to others does not depend on who was there
        assert admission.spent == 2.0

    def test_people_are_left_out_for_what_all_names_together_have_cost(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=1.5)  # two releases and not three
        for site in ("north", "south"):
            assert ledger.admit(site, rho_from_epsilon(1.0, 1e-6), record_ids=["ann"]).admitted.all()
        third = ledger.admit("east", rho_from_epsilon(1.0, 1e-6), record_ids=["ann", "bob"])
        assert third.admitted.tolist() == [False, True]

    def test_what_may_be_told_to_others_depends_on_charges_alone(self, tmp_path: Path) -> None:
        told = []
        for number, people in enumerate((["ann"], ["bob", "cat"], [])):
            ledger = Ledger(tmp_path / f"{number}.db", budget=2.0)
            for ids in (["ann"], people, people):
                told.append(ledger.admit("A", ONE, record_ids=ids).spent)
        assert told[:3] == told[3:6] == told[6:]
        assert len({Ledger.open(tmp_path / f"{number}.db").remaining_at_least() for number in range(3)}) == 1
        assert told[0] == pytest.approx(1.0)
        assert told[2] <= 2.0

    @pytest.mark.parametrize(
        "value",
        [None, np.nan, "", ("a", 1), True, np.False_, "nan", "NA", " None", "null", "\u200b", "N/A", np.inf, "TRUE"],
    )
    def test_ids_that_identify_nobody_are_refused(self, ledger: Ledger, value: Any) -> None:
        with pytest.raises(ValueError, match="record_ids"):
            ledger.charge("A", ONE, record_ids=["ann", value])
        assert ledger.entries() == []

    def test_kinds_of_charges_add_up_between_them(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=16.0)
        ledger.charge("A", ONE)
        ledger.charge("A", ONE, record_ids=["ann"])
        assert ledger.spent_rho("A") == 2 * ONE

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


class TestRepeats:
    def test_exactly_the_same_rows_are_noticed_and_charged(self, ledger: Ledger) -> None:
        ledger.complete(ledger.charge("A", ONE, batch=ROWS, round=1))
        same = np.where(ROWS[::-1] == 0, -0.0, ROWS[::-1])  # in another order, and with another zero
        again = ledger.admit("B", ONE / 2, batch=same, round=2)
        assert again.repeated
        assert ledger.spent_rho() == 1.5 * ONE
        assert not ledger.admit("A", ONE / 4, batch=np.vstack([ROWS, [9, 9]])).repeated

    def test_the_same_rows_under_other_ids_are_refused(self, ledger: Ledger) -> None:
        people = [[f"{day}-{n}" for n in range(len(ROWS))] for day in range(3)]
        ledger.charge("A", ONE / 8, batch=ROWS, record_ids=people[0])
        with pytest.raises(LedgerError, match="other record ids before"):
            ledger.charge("B", ONE / 8, batch=ROWS[::-1], record_ids=people[1])
        ledger.charge("A", ONE / 8, batch=ROWS[1:], record_ids=people[2][1:])
        assert [entry["counted"] for entry in ledger.entries()] == ["ids", "ids"]
        assert ledger.unit() == "person"

    def test_the_same_rows_with_the_same_ids_are_charged_to_these(self, ledger: Ledger) -> None:
        ids = np.arange(len(ROWS))
        for order in (ids, ids[::-1], ids):
            ledger.charge("A", ONE / 8, batch=ROWS, record_ids=order)
        assert {entry["counted"] for entry in ledger.entries()} == {"ids"}
        assert ledger.spent_rho() == 3 * ONE / 8

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
        assert Ledger(ledger.path, 2.0) == Ledger(ledger.path, 2.0)
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
        assert repr(Ledger.open(ledger.path)) == repr(ledger)

    def test_another_budget_is_refused_and_can_be_changed_in_the_open(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        with pytest.raises(LedgerError, match="made with budget = 2, not 50"):
            Ledger(ledger.path, 50).charge("A", ONE)
        with pytest.raises(LedgerError, match="delta"):
            Ledger(ledger.path, 2, delta=1e-7).spent("A")
        richer = ledger.change_budget(3.0)
        richer.charge("A", rho_from_epsilon(2.0, 1e-6))
        assert "budget changed from eps = 2 to 3" in [entry["what"] for entry in richer.entries()]

    def test_a_budget_cannot_be_set_below_what_was_spent(self, ledger: Ledger) -> None:
        ledger.charge("A", rho_from_epsilon(1.5, 1e-6))
        with pytest.raises(ValueError, match=r"at least 1\.5"):
            ledger.change_budget(1.0)

    def test_an_older_copy_is_noticed_and_can_be_mended(self, ledger: Ledger, tmp_path: Path) -> None:
        first = ledger.admit("A", ONE / 2, round=1).receipt
        shutil.copy(ledger.path, tmp_path / "backup.db")
        second = ledger.admit("A", ONE / 2, round=2, receipts=[first]).receipt
        shutil.copy(tmp_path / "backup.db", ledger.path)
        for receipts in ([second], [first, second]):
            with pytest.raises(LedgerError, match="does not know of round 2"):
                ledger.admit("A", ONE / 2, round=3, receipts=receipts)
            with pytest.raises(LedgerError, match="older copy"):
                ledger.verify(receipts)
        assert len(ledger.entries()) == 1
        assert (ledger.recover("A", [first, second]), ledger.recover("A", [first, second])) == (1, 0)
        assert ledger.spent_rho() == ONE
        ledger.admit("A", ONE / 2, round=3, receipts=[first, second])
        assert ledger.knows_round("A", 2)
        assert not ledger.knows_round("A", 7)

    def test_a_new_ledger_does_not_know_what_left(self, ledger: Ledger, tmp_path: Path) -> None:
        receipt = ledger.admit("A", ONE, round=1).receipt
        with pytest.raises(LedgerError, match="does not know of round 1"):
            Ledger(tmp_path / "new.db", 2.0).admit("A", ONE, receipts=[receipt])

    def test_an_older_copy_is_noticed_without_any_receipt(self, ledger: Ledger, tmp_path: Path) -> None:
        ledger.charge("A", ONE / 2)
        shutil.copy(ledger.path, tmp_path / "backup.db")
        for _ in range(2):
            ledger.charge("B", ONE / 4)
        shutil.copy(tmp_path / "backup.db", ledger.path)
        with pytest.raises(LedgerError, match="older copy"):
            ledger.charge("A", ONE / 4)
        assert ledger.recover("A", []) == 1
        assert ledger.spent_rho() == pytest.approx(ONE)
        ledger.charge("A", ONE / 4)

    def test_a_ledger_that_is_gone_is_made_anew_with_all_that_it_held(self, ledger: Ledger) -> None:
        receipts = [ledger.admit("A", ONE / 8, round=number).receipt for number in range(1, 5)]
        os.unlink(ledger.path)
        again = Ledger.anew(ledger.path, 2.0)
        again.recover("A", receipts[2:], at_least=4 * ONE / 8)
        assert again.spent_rho("A") == pytest.approx(4 * ONE / 8)
        os.unlink(ledger.path)
        os.unlink(ledger.path + ".last")
        again = Ledger.anew(ledger.path, 2.0)
        again.recover("A", receipts[2:], at_least=4 * ONE / 8)
        assert again.spent_rho("A") == pytest.approx(4 * ONE / 8)
        assert again.recover("A", receipts[2:], at_least=4 * ONE / 8) == 0

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

    def test_another_format_is_refused(self, ledger: Ledger) -> None:
        ledger.charge("A", ONE)
        with sqlite3.connect(ledger.path) as connection:
            connection.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
        connection.close()
        with pytest.raises(LedgerError, match="put the ledger aside"):
            ledger.spent("A")

    @pytest.mark.parametrize("budget", [0, -1, np.inf, np.nan, None])
    def test_the_budget_must_be_a_number(self, tmp_path: Path, budget: Any) -> None:
        with pytest.raises(ValueError, match="budget"):
            Ledger(tmp_path / "site.db", budget)


class TestSlack:
    """Releases of names take a part of delta, which every conversion then leaves out."""

    def test_it_comes_off_delta(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=2.0)
        ledger.charge("A", ONE)
        ledger.charge("A", ONE, slack=4e-7)
        assert ledger.spent() == epsilon_from_rho(2 * ONE, 1e-6 - 4e-7)
        assert ledger.rho_of(1.0) == rho_from_epsilon(1.0, 1e-6 - 4e-7)

    def test_the_part_kept_for_it_can_be_used_up(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "site.db", budget=2.0)
        ledger.charge("A", ONE, slack=4e-7)
        with pytest.raises(BudgetExceeded, match="kept for releases of names"):
            ledger.charge("A", ONE, slack=2e-7)
        assert len(ledger.entries()) == 1
        with pytest.raises(ValueError, match="slack must be"):
            ledger.charge("A", ONE, slack=6e-7)


def spend_until_refused(path: str, number: int, gate: Any, results: Any) -> None:
    """Spend what there is, under a name of one's own, sometimes for everybody and sometimes for one person."""
    ledger = Ledger(path, budget=2.0)
    gate.wait()
    charged = 0
    while True:
        try:
            named = {"record_ids": ["ann"]} if number % 2 else {}
            ledger.charge(f"site-{number}", ONE / 8, **named)
        except BudgetExceeded:
            break
        charged += 1
    results.put(charged)


def race(folder: Path, n_processes: int) -> None:
    path = str(folder / "site.db")
    charged = raced(spend_until_refused, [(path, number) for number in range(n_processes)])
    ledger = Ledger(path, budget=2.0)
    possible = int(rho_from_epsilon(2.0, 1e-6) / (ONE / 8))
    assert sum(charged) == possible == len(ledger.entries())
    assert 2.0 - ledger.spent() < 0.2
    assert ledger.spent() <= 2.0


@pytest.mark.slow
def test_two_processes_cannot_overdraw_together(tmp_path: Path) -> None:
    race(tmp_path, 2)


@pytest.mark.soak
def test_eight_processes_cannot_overdraw_together(tmp_path: Path) -> None:
    race(tmp_path, 8)
