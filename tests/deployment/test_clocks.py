"""Clocks that are hours off, at the hub or at a site, in real processes: rounds go on, and nobody is locked out or
charged for nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fcac.deployment import certificates, presence
from fcac.deployment.facts import facts
from fcac.deployment.policy import Policy
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port, wait_until
from fcac.deployment.running import run_rounds
from fcac.deployment.settings import STATE
from fcac.deployment.site_setup import site_settings
from fcac.privacy import Ledger
from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA, make_study
from testing.waiting import PATIENCE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="a clock is set wrong by a library that needs a C compiler"),
]

HOURS = 3600
EPSILON = 1.0
Skewed = Callable[[float], object]


@pytest.fixture
def skewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Skewed:
    """Processes started inside ``with skewed(hours)`` have a wall clock that is so far ahead."""
    source, library = Path(__file__).parents[1] / "testing" / "skewed_clock.c", tmp_path / "skewed.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)

    @contextmanager
    def off(hours: float) -> Iterator[None]:
        with monkeypatch.context() as changed:
            changed.setenv("LD_PRELOAD", str(library))
            changed.setenv("SKEW_SECONDS", str(int(hours * HOURS)))
            yield

    return off


class Federation:
    """A hub and one private site, each with a clock of its own."""

    def __init__(self, folder: Path, skewed: Skewed) -> None:
        self.folder, self.skewed = folder, skewed
        (folder / "schema.toml").write_text(SCHEMA)
        self.root = make_study(
            folder, "a", folder / "schema.toml", address=f"127.0.0.1:{free_port()}", timeout=PATIENCE, wait=PATIENCE
        )
        (folder / "data").mkdir()
        bundle, state = folder / "bundles" / "a", folder / "state"
        self.site = SiteProcess(bundle, site_settings(bundle, folder / "data", state, epsilon=EPSILON, budget=50.0))
        # every round may be answered a second after the one before
        Policy(least_interval=1.0).save(state)
        self.server = ServerProcess(self.root)

    def start(self, hub: float, site: float) -> None:
        with self.skewed(hub):
            self.server.start()
        with self.skewed(site):
            self.site.start()
        assert wait_until(self.site.is_connected, PATIENCE, self.site.process), self.site.log_path.read_text()

    def stop(self) -> None:
        self.site.stop()
        self.server.stop()

    def play(self, day: int) -> None:
        write_csv(self.folder / "data" / f"{day}.csv", blobs(120, day), header=True)
        time.sleep(1.1)
        assert run_rounds(self.root, 1, print)["closed"] == 1, self.site.log_path.read_text()
        assert self.charges() == pytest.approx(day)

    def charges(self) -> float:
        """How many rounds the site has paid for."""
        ledger = Ledger.open(self.folder / "state" / "ledger.db")
        return ledger.spent_rho() / ledger.rho_of(EPSILON)


@pytest.fixture
def federation(tmp_path: Path, skewed: Skewed) -> Iterator[Federation]:
    made = Federation(tmp_path, skewed)
    yield made
    made.stop()


def test_the_clock_of_a_process_can_be_set_wrong(skewed: Skewed) -> None:
    code = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    with skewed(2):
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [float(text) - time.time() for text in said[:2]] == pytest.approx([2 * HOURS] * 2, abs=120)
    assert float(said[2]) == pytest.approx(time.monotonic(), abs=120)


@pytest.mark.parametrize(("hub", "site"), [(0, 2), (0, -2), (2, 0), (-2, 0), (2, -2)])
def test_rounds_with_clocks_that_are_hours_apart(federation: Federation, hub: float, site: float) -> None:
    federation.start(hub, site)
    federation.play(1)
    assert abs(presence.read(federation.root / STATE)["a"].clock_skew - (site - hub) * HOURS) < 120


@pytest.mark.parametrize(("hub", "site"), [(0, 2), (2, 0), (2, 2)])
def test_a_clock_that_is_put_right_locks_nobody_out(federation: Federation, hub: float, site: float) -> None:
    federation.start(hub, site)
    federation.play(1)
    federation.stop()
    federation.start(0, 0)
    federation.play(2)
    found = facts(federation.root)
    assert found["sites"][0]["presence"] == "here"
    federation.site.stop()
    # stamps from the future do not show a site that is gone as here
    wait_until(lambda: facts(federation.root)["sites"][0]["presence"] == "away", PATIENCE)
    assert facts(federation.root)["sites"][0]["presence"] == "away"


def test_a_clock_that_is_too_far_off_is_told_before_anything_is_charged(federation: Federation) -> None:
    """Beyond what certificates allow, the site says that its clock or the certificate is wrong, and pays nothing."""
    federation.server.start()
    for hours, said in ((-48, "not yet valid"), (24 * 900, "expired")):
        with federation.skewed(hours):
            federation.site.start()
        assert federation.site.process is not None
        federation.site.process.wait(PATIENCE)
        words = federation.site.log_path.read_text()
        assert said in words
        assert "clock" in words
    assert not (federation.folder / "state" / "ledger.db").exists() or federation.charges() == 0


def test_a_study_made_while_the_clock_was_fast(tmp_path: Path, skewed: Skewed) -> None:
    """Its certificates are valid when the clock has been put right, and sites can still join."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    command = [sys.executable, "-m", "fcac", "federation"]
    with skewed(2):
        init = [*command, "init", "study", "--schema", "schema.toml", "--address", f"127.0.0.1:{free_port()}"]
        invite = [*command, "invite", "study", "north", "--out", "invitations"]
        for line in (init, invite):
            subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, env=dict(os.environ))
    server = ServerProcess(tmp_path / "study")
    server.start()
    try:
        join = [*command, "join", "invitations/north.txt"]
        subprocess.run(join, cwd=tmp_path, check=True, capture_output=True)
    finally:
        server.stop()
    for path in ("study/server/server.crt", "study/ca/ca.crt"):
        assert certificates.ends(tmp_path / path) > datetime.now(UTC) + timedelta(days=800)


def test_presence_from_the_future() -> None:
    now = datetime.now(UTC)
    ahead = presence.Heard((now + timedelta(hours=2)).isoformat(timespec="seconds"), 0.0, "")
    assert not ahead.is_here(now)
    assert ahead.is_here(now + timedelta(hours=2))
