"""Real processes: killed at random moments, and watched for the memory they take."""

from __future__ import annotations

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

# The kernel's own high-water mark; that of getrusage would include the parent's memory from before exec.
_MEASURED = """
import sys
from fcac.cli import run
code = run(sys.argv[1:])
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
sys.exit(code)
"""


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "fcac", *map(str, args)]


# A command that kills itself before or after one call of the operating system while it writes its output.
_DYING = """
import os, signal, sys
from pathlib import Path
from fcac.cli import run
call, when, folder = sys.argv[1:4]
real = getattr(os, call)

def fatal(*args):
    writing = any(Path(folder).glob('.*.part'))
    result = real(*args) if when == 'after' or not writing else None
    if writing:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(os, call, fatal)
sys.exit(run(sys.argv[4:]))
"""
DEADLY = [("fsync", "before"), ("replace", "before"), ("replace", "after")]


def start_and_kill(args: list[str], seconds: float) -> None:
    """Start a command and kill it after some seconds, if it has not ended by then."""
    with subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


class Killing:
    """A command that replaces a model: what there was before, and what there is when it is left in peace."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        np.savez(folder / "day1.npz", X=rng.normal(size=(4_000, 4)))
        np.savez(folder / "day2.npz", X=rng.normal(size=(4_000, 4)) + 3)
        self.folder, self.model = folder, folder / "model.fcac"
        fit = ["fit", folder / "day1.npz", "--sites", 3, "-o", self.model]
        subprocess.run(command(*fit), check=True, capture_output=True)
        self.old = self.model.read_bytes()
        self.update = ["update", self.model, folder / "day2.npz", "--sites", 3]
        started = time.monotonic()
        subprocess.run(command(*self.update), check=True, capture_output=True)
        self.took = time.monotonic() - started
        self.updated = load(self.model)
        assert self.updated.n_rounds_ == 2

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
            start_and_kill(command(*self.update), float(rng.uniform(0, self.took)))
            self.check_whole()


@pytest.mark.slow
def test_kill_leaves_the_old_model_or_the_new_one(tmp_path):
    killing = Killing(tmp_path)
    killing.at_any_moment(1)
    # the moments that a random one would hardly meet
    for call, when in DEADLY:
        killing.tidy()
        dying = [sys.executable, "-c", _DYING, call, when, tmp_path, *killing.update]
        assert subprocess.run(list(map(str, dying)), check=False).returncode == -signal.SIGKILL
        assert killing.check_whole() == (2 if when == "after" else 1)
    killing.tidy()
    killing.model.unlink()  # a new file is there in full or not at all
    fit = ["fit", tmp_path / "day1.npz", "--sites", 3, "-o", killing.model]
    dying = [sys.executable, "-c", _DYING, "replace", "before", tmp_path, *fit]
    assert subprocess.run(list(map(str, dying)), check=False).returncode == -signal.SIGKILL
    assert not killing.model.exists()


@pytest.mark.soak
def test_fifty_kills_leave_the_old_model_or_the_new_one(tmp_path):
    Killing(tmp_path).at_any_moment(50)


def _peak_megabytes(*args: object) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, args)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) / 1024


def _growth(folder: Path, table: pa.Table) -> list[float]:
    """How much more memory fit and predict take for a table than for its first rows."""
    pq.write_table(table.slice(0, 1000), folder / "small.parquet")
    # one row group, so that reading group by group would hold all of it
    pq.write_table(table, folder / "large.parquet", row_group_size=table.num_rows)
    peaks = {}
    for size in ("small", "large"):
        fit = _peak_megabytes("fit", folder / f"{size}.parquet", "-o", folder / f"{size}.fcac")
        predict = _peak_megabytes(
            "predict", folder / "small.fcac", folder / f"{size}.parquet", "-o", folder / f"{size}_labels.parquet"
        )
        peaks[size] = (fit, predict)
    return [large - small for small, large in zip(peaks["small"], peaks["large"], strict=True)]


@pytest.mark.slow
def test_a_table_is_read_in_bounded_memory(tmp_path):
    rng = np.random.default_rng(0)
    column = np.tile(rng.normal(size=1000).round(3), 3000)
    table = pa.table({f"x{i}": np.roll(column, i) for i in range(8)})
    assert table.nbytes > 190e6
    assert max(_growth(tmp_path, table)) < 100


@pytest.mark.soak
def test_a_large_file_is_read_in_bounded_memory(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 5, size=(8, 16))
    rows = centres[rng.integers(8, size=4_000_000)] + rng.normal(0, 0.1, size=(4_000_000, 16))
    growth = _growth(tmp_path, pa.table({f"x{i}": rows[:, i] for i in range(16)}))
    assert (tmp_path / "large.parquet").stat().st_size > 400e6
    assert max(growth) < 200
