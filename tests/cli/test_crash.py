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


def kill_at(args: list[str], seconds: float | None, folder: Path) -> bool:
    """Start a command and kill it after some seconds, or as soon as it writes its output; tell whether it was alive."""
    with subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + (120 if seconds is None else seconds)
        while process.poll() is None and time.monotonic() < deadline:
            if seconds is None and any(folder.glob(".*.part")):
                break
            time.sleep(0.0005)
        alive = process.poll() is None
        if alive:
            process.send_signal(signal.SIGKILL)
        process.wait()
    for left in folder.glob(".*.part"):
        left.unlink()
    return alive


def _kill_often(folder: Path, n_kills: int) -> None:
    rng = np.random.default_rng(0)
    np.savez(folder / "day1.npz", X=rng.normal(size=(4_000, 4)))
    np.savez(folder / "day2.npz", X=rng.normal(size=(4_000, 4)) + 3)
    model, made = folder / "model.fcac", folder / "made"
    made.mkdir()
    # what there was, and what there will be: the same command gives the same bytes
    subprocess.run(command("fit", folder / "day1.npz", "--sites", 3, "-o", model), check=True, capture_output=True)
    old = model.read_bytes()
    update = command("update", model, folder / "day2.npz", "--sites", 3)
    started = time.monotonic()
    subprocess.run(update, check=True, capture_output=True)
    took = time.monotonic() - started
    new = model.read_bytes()
    assert old != new
    n_alive = 0
    for number in range(n_kills):
        # every other kill waits for the moment of writing, which a random one would hardly meet
        moment = None if number % 2 else float(rng.uniform(0, took))
        if number % 5 == 4:
            target = made / "model.fcac"
            n_alive += kill_at(command("fit", folder / "day1.npz", "--sites", 3, "-o", target), moment, made)
            assert not target.exists() or target.read_bytes() == old
            target.unlink(missing_ok=True)
        else:
            model.write_bytes(old)
            n_alive += kill_at(update, moment, folder)
            assert model.read_bytes() in (old, new)
            assert load(model).n_rounds_ in (1, 2)
    assert n_alive > 0


@pytest.mark.slow
def test_kill_leaves_the_old_model_or_the_new_one(tmp_path):
    _kill_often(tmp_path, 5)


@pytest.mark.soak
def test_fifty_kills_leave_the_old_model_or_the_new_one(tmp_path):
    _kill_often(tmp_path, 50)


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
