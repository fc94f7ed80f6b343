"""Accounts: what a state has cost, and receipts that files keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcac.federation import Site
from fcac.privacy import Ledger, NodeRelease, PrivacyError
from fcac.privacy.account import Account, Receipt
from fcac.privacy.receipts import receipts_in
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import epsilon_from_rho


def test_costs_add_up_and_one_release_by_rows_makes_it_about_rows() -> None:
    account = Account().after(0.1, "person", None, None, None).after(0.2, "person", 1.0, 4.0, Receipt("a", 0.2, 2))
    assert (account.unit, account.spent, account.budget) == ("person", 1.0, 4.0)
    assert account.rho == pytest.approx(0.3)
    later = account.after(0.1, "row", None, None, None)
    assert (later.unit, later.receipts) == ("row", account.receipts)
    assert Account.from_json(later.to_json()) == later


@pytest.mark.parametrize("damage", [{"rho": -1}, {"unit": "folk"}, {"receipts": [[1]]}, {"spent": "x"}])
def test_a_damaged_account_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="account"):
        Account.from_json({**Account(0.1).to_json(), **damage})


def test_statements_add_up_what_was_spent_whatever_epsilon_is_now() -> None:
    dear, cheap = (NodeRelease(epsilon, [[0, 1]]) for epsilon in (8, 0.5))
    first = dear.release(np.zeros((3, 1)))[2]
    second = cheap.release(np.zeros((3, 1)), first, round=2)[2]
    said = cheap.statement(2, second)
    assert said["spent"] == pytest.approx(epsilon_from_rho(dear.rho + cheap.rho, 1e-6), abs=1e-6)
    assert said["spent"] > 8
    assert (said["unit"], "budget" in said) == ("row", False)


def test_a_test_sampler_states_no_guarantee() -> None:
    quiet = NodeRelease(1, [[0, 1]], sampler=InsecureTestSampler(0, factor=0.0))
    sent = Site("A", quiet).contribute(np.zeros((3, 1)))
    assert sent.privacy["mechanism"] == "none"
    assert "spent" not in sent.privacy


@pytest.mark.parametrize("epsilon", [10.5, 50.0])
def test_an_epsilon_that_promises_little_warns(epsilon: float) -> None:
    with pytest.warns(UserWarning, match="promises little"):
        NodeRelease(epsilon, [[0, 1]])


def test_a_state_directory_keeps_receipts_and_notices_an_older_ledger(tmp_path: Path) -> None:
    def site() -> Site:
        privacy = NodeRelease(1, [[0, 1]], ledger=Ledger(tmp_path / "n.db", 9), sampler=InsecureTestSampler(0))
        return Site("A", privacy, tmp_path / "state")

    site().contribute(np.zeros((3, 1)))
    backup = (tmp_path / "n.db").read_bytes()
    site().contribute(np.ones((3, 1)))
    assert [receipt.round for receipt in receipts_in(tmp_path / "state")["A"]] == [1, 2]
    (tmp_path / "n.db").write_bytes(backup)
    with pytest.raises(PrivacyError, match="older copy"):
        site().contribute(np.full((3, 1), 0.5))
    ledger = Ledger.open(tmp_path / "n.db")
    assert ledger.recover("A", receipts_in(tmp_path / "state" / "site.fcac")["A"]) == 1
    site().contribute(np.full((3, 1), 0.5))
    assert len(ledger.entries()) == 3


def test_a_stored_release_is_not_sent_on_the_word_of_an_older_ledger(tmp_path: Path) -> None:
    def site() -> Site:
        privacy = NodeRelease(1, [[0, 1]], ledger=Ledger(tmp_path / "n.db", 9), sampler=InsecureTestSampler(0))
        return Site("A", privacy, tmp_path / "state")

    site().contribute(np.zeros((3, 1)))
    backup, state = (tmp_path / "n.db").read_bytes(), (tmp_path / "state" / "site.fcac").read_bytes()
    site().contribute(np.ones((3, 1)))
    (tmp_path / "n.db").write_bytes(backup)
    (tmp_path / "state" / "site.fcac").write_bytes(state)  # only the stored release knows of round 2
    with pytest.raises(PrivacyError, match="older copy"):
        site().contribute(np.ones((3, 1)), round=2)


def test_other_files_have_no_receipts(tmp_path: Path) -> None:
    (tmp_path / "notes.fcac").write_bytes(b"not one of ours")
    assert receipts_in(tmp_path) == {}
    with pytest.raises(ValueError, match=r".+"):
        receipts_in(tmp_path / "notes.fcac")
