"""The page for consortia, followed literally: every command in it, from an empty folder to the first report."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fcac.deployment.processes import free_port
from testing.data import blobs
from testing.federation_study import assert_no_secret
from testing.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "for" / "consortium.md"
SITES = ("north", "south", "west")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def test_the_page_is_enough(tmp_path: Path) -> None:
    hub_commands, site_commands, last_commands = ([line.partition("#")[0].split() for line in block.splitlines()]
                                                  for block in blocks("bash"))  # fmt: skip
    assert len(hub_commands) + 3 * len(site_commands) + len(last_commands) <= 12
    address = f"127.0.0.1:{free_port()}"
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "schema.toml").write_text(blocks("toml")[0])
    started: list[subprocess.Popen[bytes]] = []
    logs = []

    def run(folder: Path, words: list[str], said: str = "") -> str:
        assert words[0] == "fcac"
        words = [address if word == "hub.example:8443" else word for word in words[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "fcac", *words], cwd=folder, input=said, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def keep_running(folder: Path, words: list[str]) -> Path:
        log = folder / "said.txt"
        logs.append(log.open("wb"))
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "fcac", *words[1:]], cwd=folder, stdin=subprocess.DEVNULL, stdout=logs[-1],
                stderr=subprocess.STDOUT, start_new_session=True,
            )
        )  # fmt: skip
        return log

    try:
        run(hub, hub_commands[0])
        log = keep_running(hub, hub_commands[1])
        wait_until(lambda: b"Server ready" in log.read_bytes(), started[-1], every=0.1)
        run(hub, hub_commands[2])
        fingerprints, waiting = {}, {}
        for number, site in enumerate(SITES):
            folder = tmp_path / site
            (folder / "tables").mkdir(parents=True)
            rows = 100 + 10 * blobs(300, number)
            lines = "\n".join(f"{x:.1f},{y:.1f}" for x, y in rows)
            (folder / "tables" / "june.csv").write_text(f"pressure,pulse\n{lines}\n")
            shutil.copy(hub / "invitations" / f"{site}.txt", folder)
            join, start = ([word.replace("north", site) for word in words] for words in site_commands)
            fingerprints[site] = run(folder, join).splitlines()[1].strip()
            waiting[site] = keep_running(folder, start)
        for site, process in zip(SITES, started[1:], strict=True):
            wait_until(lambda s=site: b"waiting until" in waiting[s].read_bytes(), process, every=0.1)
        accepted = run(hub, last_commands[0], "y\n" * 3)
        assert all(fingerprint in accepted for fingerprint in fingerprints.values())
        for site, process in zip(SITES, started[1:], strict=True):
            wait_until(lambda s=site: b"Connected" in waiting[s].read_bytes(), process, every=0.1)
        assert "1 round closed" in run(hub, last_commands[1])
        assert (hub / "study" / "state" / "report.html").stat().st_size > 10_000
        assert "closed with north, south, west" not in log.read_text()  # the hub's service knows nothing of rounds
        assert_no_secret(tmp_path)
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(PATIENCE)
        for stream in logs:
            stream.close()
