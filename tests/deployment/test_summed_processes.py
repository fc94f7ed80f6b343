"""Secure aggregation between real processes over TLS: a hub and four sites, killed within a round by their ids.

The large form, a hundred sites and random kills, is ``benchmarks/summed_sites.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fcac.aggregation.pooled import POOLED
from fcac.deployment.aggregated_study import summing_for
from fcac.deployment.hub import Hub
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port
from fcac.deployment.running import run_rounds
from fcac.deployment.settings import FederationSettings
from fcac.deployment.site_setup import site_settings
from fcac.privacy import Ledger
from testing.data import write_csv
from testing.federation_study import SCHEMA, agree_to_sites, make_study
from testing.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

NAMES = "abcd"


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process that has a session of its own, with everything it has started."""
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_everything_is_killed_within_a_round(tmp_path: Path) -> None:
    """Run, hub and a site are killed in the middle of a step; started again, they finish the same attempt."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    root = make_study(
        tmp_path,
        NAMES,
        tmp_path / "schema.toml",
        address=f"127.0.0.1:{free_port()}",
        timeout=PATIENCE,
        wait=PATIENCE,
        summing=summing_for(4.0, 1e-6, 1, 4),
    )
    server = ServerProcess(root)
    sites: list[SiteProcess] = []
    try:
        server.start()
        for number, name in enumerate(NAMES):
            data = tmp_path / f"data-{name}"
            data.mkdir()
            rng = np.random.default_rng(number)
            rows = rng.normal(rng.choice([-4.0, 4.0], size=(12, 1)), 0.5, size=(12, 2))
            write_csv(data / "rows.csv", rows, header=True)
            bundle, state = root.parent / "bundles" / name, tmp_path / f"state-{name}"
            site = SiteProcess(bundle, site_settings(bundle, data, state, epsilon=4.0, budget=8.0))
            agree_to_sites(root, name, state)
            site.start()
            sites.append(site)
        command = [sys.executable, "-m", "fcac", "federation", "run", str(root), "--rounds", "1"]
        run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        summing = root / "state" / "summing"
        try:
            # two stages before the first step, three in each: the second step has begun
            wait_until(lambda: len(list(summing.glob("*-*/*.fcac"))) >= 6, run)
        finally:
            _kill(run)
        for process in (server, sites[0]):
            _kill(process.process)
        hub = Hub(root / "state", FederationSettings.load(root))
        assert hub.open_round == 1
        server.start()
        sites[0].start()
        assert run_rounds(root, 1, lambda line: None)["closed"] == 1
        hub = Hub(root / "state", FederationSettings.load(root))
        statement = hub.snapshot().server.latest()[POOLED].privacy
        assert (statement["sites"], statement["aggregation"]) == (4, "secure")
        assert [entry["attempt"] for entry in hub.journal() if entry["event"] == "summing"] == [1, 1]
        for name in NAMES:
            ledger = Ledger(tmp_path / f"state-{name}" / "ledger.db", 8.0, 1e-6)
            completed = [entry["completed"] for entry in ledger.entries()]
            assert sum(completed) == 6  # every step was drawn once, whoever died when
            # a site that died between charge and draw has paid for a step that it drew, and paid for, again
            assert len(completed) - 6 <= (name == "a")
            assert ledger.spent() > 3.9
    finally:
        for site in sites:
            site.stop()
        server.stop()
