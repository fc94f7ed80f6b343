"""The officer's page: this ledger's figures, the unit in large type, nothing that depends on who is in the data."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fcac.exceptions import LedgerError, PrivacyError
from fcac.privacy import Ledger
from fcac.privacy.officer_sheet import NOT_COVERED, officer_sheet
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from fcac.report.page import ledger_statement
from testing.commands import fcac

ONE = rho_from_epsilon(1.0, 1e-6)


def book(folder: Path, **named: object) -> Ledger:
    ledger = Ledger(folder / "site.db", budget=4.0)
    for number in (1, 2):
        ledger.complete(ledger.admit("a<b>", ONE, round=number, **named).number)  # type: ignore[arg-type]
    return ledger


def test_rows_are_said_to_be_rows_in_large_type(tmp_path: Path) -> None:
    page = ledger_statement(book(tmp_path))
    assert '<p class="unit">The unit of protection is <b>ONE ROW</b>' in page
    assert "ε = 1.46 at δ = 10⁻⁶" in page
    assert "Lifetime budget" in page
    assert "5 sites: ε = 3." in page
    assert all(line.split(":")[0].replace("'", "&#39;") in page for line in NOT_COVERED)
    assert "--people N adds up" in page
    assert "<script" not in page


def test_people_are_the_unit_and_the_page_does_not_tell_who_they_are(tmp_path: Path) -> None:
    pages = []
    for case, people in (("one", ["ann"]), ("many", ["bob", "cat", "dan"])):
        (tmp_path / case).mkdir()
        pages.append(ledger_statement(book(tmp_path / case, record_ids=people), 100_000))
    assert "<b>ONE PERSON</b>" in pages[0]
    assert pages[0] == pages[1]
    assert "of 100,000 people, the factor may fail for 0.1 on average, which is large" in pages[0]
    assert "may fail for 0.005 on average, which is small" in ledger_statement(
        Ledger.open(tmp_path / "one" / "site.db"), 5_000
    )


@pytest.mark.slow
def test_the_command_writes_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    book(tmp_path)
    out = tmp_path / "statement.html"
    assert "print it" in fcac(capfd, "ledger", tmp_path / "site.db", "--statement", out, "--people", 1000)
    assert "Privacy statement" in out.read_text("utf-8")
    assert "--force" in fcac(capfd, "ledger", tmp_path / "site.db", "--statement", out, code=2)
    assert "need --statement" in fcac(capfd, "ledger", tmp_path / "site.db", "--people", 5, code=2)
    assert "need --statement" in fcac(capfd, "ledger", tmp_path / "site.db", "--people-overlap", 5, code=2)
    fcac(capfd, "ledger", tmp_path / "site.db", "--statement", out, "--people-overlap", 3, "--force")
    assert "no more than 3 sites" in out.read_text("utf-8")


def test_somebody_at_several_sites_costs_k_times_and_in_sums_k_times_k(tmp_path: Path) -> None:
    def shown(rho: float) -> str:
        return f"2 sites: ε = {math.ceil(epsilon_from_rho(rho, 1e-6) * 100 - 1e-6) / 100:.2f}."

    plain = Ledger(tmp_path / "plain.db", budget=4.0)
    plain.charge("a", ONE)
    page = ledger_statement(plain, overlap=2)
    assert "no more than 2 sites" in page
    assert shown(2 * ONE) in page
    assert "k²" not in page
    summed = Ledger(tmp_path / "summed.db", budget=4.0)
    summed.charge("a", ONE, what="NodeRelease, summed over sites, step 1 of 1, noise for 4 honest sites")
    page = ledger_statement(summed, overlap=2)
    assert shown(4 * ONE) in page
    assert "k² times" in page
    assert "no more than 1 site." in ledger_statement(plain, overlap=1)


def test_an_agreement_is_named_among_what_the_hub_sees(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    assert "to agree on bounds" not in ledger_statement(ledger)
    ledger.charge("a", ONE, slack=1e-7, what="agreement: coarse counts of 2 columns")
    assert "Once, to agree on bounds" in ledger_statement(ledger)


def test_a_sheet_for_sums_says_what_they_assume(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "site.db", budget=4.0)
    for honest in (8, 6):
        ledger.charge(
            "a", ONE / 4, what=f"NodeRelease, summed over sites, step 1 of 1, noise for {honest} honest sites"
        )
    sheet = officer_sheet(ledger)
    assert sheet.mode == "summed"
    assert "computational" in sheet.seen
    assert "any computing power" not in sheet.seen
    assert any("at least 6 sites" in line for line in sheet.assumptions)
    ledger.charge("a", ONE / 4)
    with pytest.raises(PrivacyError, match="a ledger for each"):
        officer_sheet(ledger)


def test_what_the_ledger_cannot_support_is_not_said(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "site.db", budget=2.0)
    ledger.charge("a", ONE)
    (tmp_path / "older").write_bytes((tmp_path / "site.db").read_bytes())
    ledger.charge("a", ONE / 2)
    (tmp_path / "site.db").write_bytes((tmp_path / "older").read_bytes())
    with pytest.raises(LedgerError, match="older copy"):
        ledger_statement(ledger)
    ledger.recover("a", [], at_least=5 * ONE)
    assert "EXCEEDED" in ledger_statement(ledger)
    old = Ledger(tmp_path / "old.db", budget=2.0)
    old.charge("a", ONE, what="NodeRelease, summed over sites, step 1 of 1")
    with pytest.raises(PrivacyError, match="how many honest sites"):
        officer_sheet(old)


def test_a_ledger_of_what_was_recovered_cannot_say_how_it_left(tmp_path: Path) -> None:
    """It may have been sums, which protect in another way, with shares of noise that nothing tells any more."""
    ledger = Ledger(tmp_path / "site.db", budget=4.0)
    ledger.recover("a", [], rounds={1: ONE})
    with pytest.raises(PrivacyError, match="1 charge of this ledger was recovered"):
        officer_sheet(ledger)
    ledger.charge("a", ONE / 4, what="NodeRelease, summed over sites, step 1 of 1, noise for 6 honest sites")
    with pytest.raises(PrivacyError, match="no page can state that"):
        officer_sheet(ledger)


def test_an_empty_ledger_has_a_statement(tmp_path: Path) -> None:
    assert "Nothing has been released yet" in ledger_statement(Ledger(tmp_path / "site.db", budget=4.0))
