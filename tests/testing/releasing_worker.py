"""A site that releases round after round until somebody kills it. Started by test_privacy_crash.py.

Usage: python releasing_worker.py FOLDER. It says "ready" when it starts to work.
"""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from fcac.persistence import write_atomic
from fcac.privacy import Ledger, NodeRelease, release_once
from fcac.privacy.samplers import InsecureTestSampler

SITE, BUDGET, EPSILON = "A", 500.0, 1.0


class LoggingSampler(InsecureTestSampler):
    """Writes down, durably, that it is about to draw for a release."""

    def __init__(self, log: Path) -> None:
        super().__init__(seed=int.from_bytes(os.urandom(6), "big"))
        self.log = log

    def check_ready(self) -> None:
        self.first = True

    def add_noise(self, values: Any, scale: float) -> Any:
        if self.first:
            self.first = False
            with open(self.log, "a") as stream:
                stream.write("draw\n")
                stream.flush()
                os.fsync(stream.fileno())
        return super().add_noise(values, scale)


def mechanism(folder: Path) -> NodeRelease:
    ledger = Ledger(folder / "site.db", BUDGET)
    return NodeRelease(EPSILON, [[0, 1], [0, 1]], ledger=ledger, sampler=LoggingSampler(folder / "draws.log"))


def rows_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).uniform(size=(number % 7, 2))  # empty batches among them


def play_round(folder: Path, number: int, state: Any) -> Any:
    """Release one round and "send" it, by leaving a copy in the outbox."""
    stored = release_once(mechanism(folder), rows_of(number), state, SITE, number, folder / f"round-{number:05d}.fcac")
    write_atomic(folder / "outbox" / f"{number:05d}-{uuid.uuid4().hex}", stored.data)
    return stored.state


if __name__ == "__main__":
    where = Path(sys.argv[1])
    known, done = None, 0
    for _ in sorted(where.glob("round-*.fcac")):  # every round that was stored is asked for again
        done += 1
        known = play_round(where, done, known)
    print("ready", flush=True)
    while True:
        done += 1
        known = play_round(where, done, known)
