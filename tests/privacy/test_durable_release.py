"""kill -9 at random moments: the ledger never shows less than what left, and a retried round sends the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac.persistence import unpack
from fcac.privacy import Ledger, NodeRelease, PrivacyError, RepeatedBatch, release_once
from fcac.privacy.samplers import InsecureTestSampler
from testing import releasing_worker as worker
from testing.waiting import raced, wait_until


def check(folder: Path) -> int:
    """Everything that must hold at any moment; returns the number of rounds that left."""
    ledger = Ledger(folder / "site.db", worker.BUDGET)
    charges = len(ledger.entries(worker.SITE))
    log = folder / "draws.log"
    draws = log.read_text().count("draw") if log.exists() else 0
    sent: dict[str, set[bytes]] = {}
    for path in (folder / "outbox").glob("0*"):
        sent.setdefault(path.name.split("-")[0], set()).add(path.read_bytes())
    stored = {path.stem.split("-")[1]: path.read_bytes() for path in folder.glob("round-*.fcac")}
    assert charges >= draws >= len(stored) >= len(sent)
    assert ledger.spent_rho(worker.SITE) >= len(sent) * worker.mechanism(folder).rho
    for number, versions in sent.items():
        assert versions == {stored[number]}
    return len(sent)


def n_sent(folder: Path) -> int:
    """How many rounds have left."""
    return len({path.name.split("-")[0] for path in (folder / "outbox").glob("0*")})


def crash_again_and_again(folder: Path, moments: int, seed: int) -> None:
    (folder / "outbox").mkdir()
    rng = random.Random(seed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    left = 0
    for _ in range(moments):
        process = subprocess.Popen(
            [sys.executable, worker.__file__, str(folder)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        # By progress, not by the clock: however slow the machine is, some rounds have left when the blow falls.
        wanted = left + rng.randrange(1, 5)
        wait_until(lambda n=wanted: n_sent(folder) >= n, process)
        time.sleep(rng.uniform(0.0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        now = check(folder)
        assert now >= wanted
        left = now
    assert left >= moments
    for number in range(1, left + 1):  # and once more, in peace: nothing is drawn, nothing is charged
        before = len(Ledger(folder / "site.db", worker.BUDGET).entries())
        again = release_once(
            worker.mechanism(folder), worker.rows_of(number), None, "A", number, folder / f"round-{number:05d}.fcac"
        )
        assert not again.drawn
        assert len(Ledger(folder / "site.db", worker.BUDGET).entries()) == before
    check(folder)


@pytest.mark.slow
def test_five_crashes(tmp_path: Path) -> None:
    crash_again_and_again(tmp_path, 5, seed=0)


@pytest.mark.soak
def test_two_hundred_crashes(tmp_path: Path) -> None:
    crash_again_and_again(tmp_path, 200, seed=1)


ROWS = np.random.default_rng(0).uniform(size=(50, 2))


def mechanism(folder: Path, seed: int = 0, budget: float = 4.0) -> NodeRelease:
    ledger = Ledger(folder / "site.db", budget)
    return NodeRelease(1, [[0, 1], [0, 1]], ledger=ledger, sampler=InsecureTestSampler(seed))


def test_a_round_asked_again_gets_the_stored_bytes(tmp_path: Path) -> None:
    first = release_once(mechanism(tmp_path), ROWS, None, "A", 1, tmp_path / "1")
    again = release_once(mechanism(tmp_path, seed=9), ROWS + 0.1, None, "A", 1, tmp_path / "1")
    assert (first.drawn, again.drawn) == (True, False)
    assert first.data == again.data == (tmp_path / "1").read_bytes()
    assert first.state == again.state
    assert len(mechanism(tmp_path).ledger.entries()) == 1


def test_it_goes_on_from_the_stored_state(tmp_path: Path) -> None:
    first = release_once(mechanism(tmp_path), ROWS, None, "A", 1, tmp_path / "1")
    second = release_once(mechanism(tmp_path), ROWS[:20], first.state, "A", 2, tmp_path / "2")
    assert second.state.n_releases == 2
    meta, _ = unpack(second.data, kind="release")
    assert (meta["site"], meta["round"]) == ("A", 2)


@pytest.mark.parametrize("dies_in", ["draw", "store", "complete"])
def test_a_crash_between_charge_and_store_pays_again_and_is_not_taken_for_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    targets = {
        "draw": (NodeRelease, "draw"),
        "store": (sys.modules["fcac.privacy.durable_release"], "write_atomic"),
        "complete": (Ledger, "complete"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*targets[dies_in], die)
        with pytest.raises(KeyboardInterrupt):
            release_once(mechanism(tmp_path), ROWS, None, "A", 1, tmp_path / "1")
    ledger = mechanism(tmp_path).ledger
    assert len(ledger.entries()) == 1
    retried = release_once(mechanism(tmp_path, seed=1), ROWS, None, "A", 1, tmp_path / "1")
    was_stored = dies_in == "complete"
    assert retried.drawn is not was_stored
    assert len(ledger.entries()) == (1 if was_stored else 2)
    with pytest.warns(RepeatedBatch):  # another round with the same rows is a repeat, though
        release_once(mechanism(tmp_path), ROWS, None, "A", 2, tmp_path / "2")


def test_errors_leave_no_charge_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"infinite|infinity"):
        release_once(mechanism(tmp_path), ROWS + np.inf, None, "A", 1, tmp_path / "1")
    assert not (tmp_path / "1").exists()
    assert mechanism(tmp_path).ledger.entries() == []


def test_a_file_of_another_round_is_refused(tmp_path: Path) -> None:
    release_once(mechanism(tmp_path), ROWS, None, "A", 1, tmp_path / "1")
    for site, number in (("A", 2), ("B", 1)):
        with pytest.raises(PrivacyError, match="one file per site and round"):
            release_once(mechanism(tmp_path), ROWS, None, site, number, tmp_path / "1")


def ask_for_the_same_round(folder: str, seed: int, gate: Any, results: Any) -> None:
    gate.wait()
    stored = release_once(mechanism(Path(folder), seed, 10.0), ROWS, None, "A", 1, Path(folder) / "1")
    results.put((stored.drawn, stored.data))


@pytest.mark.slow
def test_two_processes_asked_for_one_round_send_the_same(tmp_path: Path) -> None:
    answers = raced(ask_for_the_same_round, [(str(tmp_path), seed) for seed in (1, 2)])
    assert sorted(drawn for drawn, _ in answers) == [False, True]
    assert answers[0][1] == answers[1][1]
    assert len(mechanism(tmp_path, budget=10.0).ledger.entries()) == 1
