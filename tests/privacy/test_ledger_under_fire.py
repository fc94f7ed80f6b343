"""One ledger, several programs at once that are killed again and again, an older copy put back, a key that is lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fcac.exceptions import LedgerError
from fcac.privacy import Ledger
from fcac.privacy.account import Receipt
from testing import racing_worker as worker
from testing.waiting import wait_until


def start(folder: Path, number: int, budget: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, worker.__file__, str(folder), str(number), str(budget)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})


def sent(folder: Path) -> list[Receipt]:
    return [Receipt(*json.loads(path.read_bytes())) for path in (folder / "sent").iterdir() if path.suffix == ""]


def fire(folder: Path, n_processes: int, n_kills: int, budget: float) -> tuple[int, int]:
    """Let programs race and kill them; return how many charges there are, and how many of them left."""
    (folder / "sent").mkdir()
    rng, ledger = random.Random(n_kills), Ledger(folder / "site.db", budget)
    racing = [start(folder, number, budget) for number in range(n_processes)]
    try:
        for kill in range(n_kills):
            before = len(list((folder / "sent").iterdir()))
            # by progress, not by the clock; once the budget is used up, what is killed has nothing left to do
            wait_until(
                lambda n=before: (
                    len(list((folder / "sent").iterdir())) > n or all(process.poll() is not None for process in racing)
                )
            )
            place = rng.randrange(n_processes)
            racing[place].kill()
            racing[place].wait()
            left, charged = sent(folder), ledger.entries()
            assert len(left) <= len(charged)
            assert ledger.spent() <= budget
            racing[place] = start(folder, place, budget)
            if kill == n_kills // 2:
                shutil.copy(folder / "site.db", folder / "older.db")
        for process in racing:
            process.wait()
    finally:
        for process in racing:
            process.kill()
            process.wait()
    left = sent(folder)
    ledger.verify(left)  # whatever left had been charged
    assert ledger.spent() <= budget
    assert ledger.spent_rho() >= sum(r.rho for r in left) / 2  # half of the programs charge the same two people
    return len(ledger.entries()), len(left)


def after_the_fire(folder: Path) -> None:
    """An older copy, and a ledger without its key, are refused; the way out charges what is missing."""
    left = sent(folder)
    spent = Ledger.open(folder / "site.db").spent_rho()
    shutil.copy(folder / "older.db", folder / "site.db")
    restored = Ledger.open(folder / "site.db")
    with pytest.raises(LedgerError, match="older copy"):
        restored.admit("site-0", worker.RHO, receipts=left)
    assert restored.recover("site-0", left) > 0
    restored.verify(left)
    assert restored.spent_rho() >= spent
    (folder / "site.db.key").rename(folder / "elsewhere")
    with pytest.raises(LedgerError, match="key is missing"):
        restored.admit("site-0", worker.RHO)
    (folder / "elsewhere").rename(folder / "site.db.key")
    (folder / "site.db").unlink()
    with pytest.raises(LedgerError, match="missing but its key"):
        restored.admit("site-0", worker.RHO)


@pytest.mark.slow
def test_two_programs_and_a_few_kills(tmp_path: Path) -> None:
    charged, left = fire(tmp_path, 2, 4, 12.0)
    assert charged - left <= 2 * 4 + 2  # a kill wastes one charge at most, a start that comes too late another one
    after_the_fire(tmp_path)


@pytest.mark.soak
def test_eight_programs_and_two_hundred_kills(tmp_path: Path) -> None:
    charged, left = fire(tmp_path, 8, 200, 100.0)
    print(f"{charged} charges, {left} of them left, 200 kills")
    assert charged - left <= 2 * 200 + 8
    after_the_fire(tmp_path)
