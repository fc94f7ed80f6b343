"""A federation on one machine: a hub and three sites as real processes, with keys and encryption, all by commands.

Run ``python examples/federation_on_loopback.py [FOLDER]``; it needs ``pip install 'fcac[flower]'`` and takes some
minutes. It writes ``report.html`` and ``labels.csv``. Every process it starts is stopped again.

Each line that begins with ``$`` is a command you could type. Between the two rounds new rows arrive at the sites.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SITES = ("north", "south", "west")
SCHEMA = """\
fcac_schema = 1
bounds_are_public = true

[columns]
pressure = { min = 60, max = 220 }
pulse = { min = 30, max = 200 }
"""


def main(folder: Path) -> None:
    """Set up, play two rounds, label rows at a site, and keep the report."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "schema.toml").write_text(SCHEMA)
        rng = np.random.default_rng(0)
        write_rows(root, 1, rng)
        address = f"127.0.0.1:{free_port()}"
        names = ",".join(SITES)
        command(
            root, f"federation init study --sites {names} --schema schema.toml --address {address} --server communities"
        )
        with contextlib.ExitStack() as running:
            hub = running.enter_context(started(root, "federation server study"))
            wait_for(hub, "ready")
            for site in SITES:
                options = f"--data tables/{site} --state state-{site} --no-privacy"
                running.enter_context(started(root, f"federation site study/bundles/{site} {options}"))
            command(root, "federation run study --rounds 1")
            write_rows(root, 2, rng)
            time.sleep(3)  # files are taken once they have been at rest for two seconds
            command(root, "federation run study --rounds 1")
            command(root, "federation status study")
            command(
                root, "federation label study/bundles/north --data tables/north --state state-north --out labels.csv"
            )
        shutil.copy(root / "study" / "state" / "report.html", folder / "report.html")
        shutil.copy(root / "labels.csv", folder / "labels.csv")
    print(f"Report: {folder / 'report.html'}; labels of site north: {folder / 'labels.csv'}")


def write_rows(root: Path, day: int, rng: np.random.Generator) -> None:
    """Give every site a new file; the third kind of patient appears on day 2."""
    centres = np.array([[120, 60], [140, 95], [165, 70]])[: day + 1]
    for site in SITES:
        (root / "tables" / site).mkdir(parents=True, exist_ok=True)
        rows = centres[rng.integers(len(centres), size=900)] + rng.normal(0, 4, size=(900, 2))
        path = root / "tables" / site / f"day-{day}.csv"
        np.savetxt(path, rows, delimiter=",", header="pressure,pulse", comments="", fmt="%.1f")


def command(root: Path, words: str) -> None:
    """Run one command to its end."""
    print(f"$ fcac {words}", flush=True)
    subprocess.run([sys.executable, "-m", "fcac", *words.split()], cwd=root, check=True, timeout=300)


@contextlib.contextmanager
def started(root: Path, words: str) -> Iterator[Path]:
    """Start a command that runs until it is stopped; give the file that holds what it says."""
    print(f"$ fcac {words} &", flush=True)
    log = root / f"{words.split()[1]}-{words.split()[2].replace('/', '-')}.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "fcac", *words.split()], cwd=root, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            yield log
        finally:
            process.send_signal(signal.SIGINT)  # as Ctrl-C does
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(log: Path, word: str, seconds: float = 90) -> None:
    """Wait until a process has said a word."""
    end = time.monotonic() + seconds
    while word not in log.read_text():
        if time.monotonic() > end:
            raise TimeoutError(f"{log.name} does not say {word!r}:\n{log.read_text()}")
        time.sleep(0.2)


def free_port() -> int:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target.resolve())
