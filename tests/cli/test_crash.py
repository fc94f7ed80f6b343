"""Real processes: killed at random moments, and watched for the memory they take."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fcac import load

# Runs commands one after another; the kernel's own high-water mark of memory is that of the dearest. (That of getrusage
# would include the parent's memory from before exec.)
_MEASURED = """
import json, sys
from fcac.cli import run
for command in json.loads(sys.argv[1]):
    assert run(command) == 0, command
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""

# Runs each command it is told in a process of its own, forked so that importing is done only once. It is killed
# after some seconds, or kills itself before or after one call of the operating system while it writes its output.
_FORKING = """
import json, os, signal, sys, time
from pathlib import Path
import fcac.model.fcac
from fcac.cli import run

def deadly(real, when, folder):
    def fatal(*args):
        writing = any(Path(folder).glob('.*.part'))
        result = real(*args) if when == 'after' or not writing else None
        if writing:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return fatal

for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        if order['call']:
            setattr(os, order['call'], deadly(getattr(os, order['call']), order['when'], order['folder']))
        os._exit(run(order['command']))
    if order['seconds'] is not None:
        time.sleep(order['seconds'])
        os.kill(child, signal.SIGKILL)  # until it is waited for, its number belongs to nobody else
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
DEADLY = [("fsync", "before"), ("replace", "before"), ("replace", "after")]


class Killing:
    """A command that replaces a model: what there was before, and what there is when it is left in peace."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        for name, shift in (("day1", 0), ("day2", 3)):
            rows = rng.normal(size=(4_000, 4)) + shift
            np.savez(folder / f"{name}.npz", X=rows, site=np.arange(4_000) % 3)
        self.folder, self.model = folder, folder / "model.fcac"
        self.forking = subprocess.Popen(
            [sys.executable, "-c", _FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.fit = ["fit", folder / "day1.npz", "--site-column", "site", "-o", self.model]
        self.update = ["update", self.model, folder / "day2.npz", "--site-column", "site"]
        assert self.run(self.fit) == 0
        self.old = self.model.read_bytes()
        started = time.monotonic()
        assert self.run(self.update) == 0
        self.took = time.monotonic() - started
        self.updated = load(self.model)
        assert self.updated.n_rounds_ == 2

    def run(self, command: list[object], call: str = "", when: str = "", seconds: float | None = None) -> int:
        """Run a command that may be killed; return how it ended."""
        assert self.forking.stdin is not None
        assert self.forking.stdout is not None
        order = {"command": list(map(str, command)), "call": call, "when": when, "seconds": seconds}
        self.forking.stdin.write(json.dumps({**order, "folder": str(self.folder)}) + "\n")
        self.forking.stdin.flush()
        return int(self.forking.stdout.readline())

    def __enter__(self) -> Killing:
        return self

    def __exit__(self, *_: object) -> None:
        self.forking.communicate()  # the end of its input ends it

    def tidy(self) -> None:
        """Put the old model back, for the next time."""
        for left in self.folder.glob(".*.part"):
            left.unlink()
        self.model.write_bytes(self.old)

    def check_whole(self) -> int:
        """Return the round of the model, which is the old one to the byte or the new one in all but its timings."""
        found = load(self.model)
        assert self.model.read_bytes() == self.old or found.n_rounds_ == 2
        if found.n_rounds_ == 2:
            np.testing.assert_array_equal(found.server_.nodes, self.updated.server_.nodes)
        return int(found.n_rounds_)

    def at_any_moment(self, times: int) -> None:
        """Kill it again and again; when exactly does not matter, so the clock may decide."""
        rng = np.random.default_rng(1)
        for _ in range(times):
            self.tidy()
            assert self.run(self.update, seconds=float(rng.uniform(0, self.took))) in (0, -signal.SIGKILL)
            self.check_whole()


@pytest.mark.slow
def test_kill_leaves_the_old_model_or_the_new_one(tmp_path):
    with Killing(tmp_path) as killing:
        killing.at_any_moment(2)
        # the moments that a random one would hardly meet
        for call, when in DEADLY:
            killing.tidy()
            assert killing.run(killing.update, call, when) == -signal.SIGKILL
            assert killing.check_whole() == (2 if when == "after" else 1)
        killing.tidy()
        killing.model.unlink()  # a new file is there in full or not at all
        assert killing.run(killing.fit, "replace", "before") == -signal.SIGKILL
        assert not killing.model.exists()


@pytest.mark.soak
def test_fifty_kills_leave_the_old_model_or_the_new_one(tmp_path):
    with Killing(tmp_path) as killing:
        killing.at_any_moment(50)


def _peak_megabytes(*commands: list[object]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, json.dumps([list(map(str, command)) for command in commands])],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) / 1024


def _growth(folder: Path, table: pa.Table) -> float:
    """How much more memory fit and predict take for a table than for its first rows."""
    pq.write_table(table.slice(0, 1000), folder / "small.parquet")
    # one row group, so that reading group by group would hold all of it
    pq.write_table(table, folder / "large.parquet", row_group_size=table.num_rows)
    small, large = (
        _peak_megabytes(
            ["fit", folder / f"{size}.parquet", "-o", folder / f"{size}.fcac"],
            ["predict", folder / "small.fcac", folder / f"{size}.parquet", "-o", folder / f"{size}_labels.parquet"],
        )
        for size in ("small", "large")
    )
    return large - small


@pytest.mark.slow
def test_a_table_is_read_in_bounded_memory(tmp_path):
    rng = np.random.default_rng(0)
    column = np.tile(rng.normal(size=1000).round(3), 1500)
    table = pa.table({f"x{i}": np.roll(column, i) for i in range(16)})
    assert table.nbytes > 190e6
    # most of it is what the server needs for 4,000 nodes, however large the table
    assert _growth(tmp_path, table) < 150


@pytest.mark.soak
def test_a_large_file_is_read_in_bounded_memory(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 5, size=(8, 16))
    rows = centres[rng.integers(8, size=4_000_000)] + rng.normal(0, 0.1, size=(4_000_000, 16))
    growth = _growth(tmp_path, pa.table({f"x{i}": rows[:, i] for i in range(16)}))
    assert (tmp_path / "large.parquet").stat().st_size > 400e6
    assert growth < 200
