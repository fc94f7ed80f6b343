"""Secure aggregation between real processes over TLS: a hub and five sites, stopped by their process ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcac.aggregation.pooled import POOLED
from fcac.deployment import study
from fcac.deployment.aggregated_study import summing_for
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings
from fcac.flower.processes import free_port
from fcac.flower.service import ServerProcess, SiteProcess, run_rounds, site_settings
from fcac.privacy import Ledger
from testing.data import write_csv
from testing.flower_study import SCHEMA
from testing.waiting import PATIENCE

pytestmark = pytest.mark.slow

NAMES = "abcde"


def test_a_round_over_tls(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    root = study.init(
        tmp_path / "study",
        list(NAMES),
        tmp_path / "schema.toml",
        address=f"127.0.0.1:{free_port()}",
        timeout=PATIENCE,
        wait=PATIENCE,
        summing=summing_for(len(NAMES), 4.0, 1e-6, 1, 4),
    )
    server, sites = ServerProcess(root), []
    try:
        server.start()
        for number, name in enumerate(NAMES):
            data = tmp_path / f"data-{name}"
            data.mkdir()
            rng = np.random.default_rng(number)
            rows = rng.normal(rng.choice([-4.0, 4.0], size=(12, 1)), 0.5, size=(12, 2))
            write_csv(data / "rows.csv", rows, header=True)
            bundle, state = root / "bundles" / name, tmp_path / f"state-{name}"
            site = SiteProcess(bundle, site_settings(bundle, data, state, epsilon=4.0, budget=8.0))
            site.start()
            sites.append(site)
        assert run_rounds(root, 1, lambda line: None)["closed"] == 1
        hub = Hub(root / "state", FederationSettings.load(root))
        statement = hub.snapshot().server.latest()[POOLED].privacy
        assert (statement["sites"], statement["aggregation"]) == (5, "secure")
        spent = Ledger(tmp_path / "state-a" / "ledger.db", 8.0, 1e-6).spent()
        assert 3.9 < spent <= 4.0
    finally:
        for site in sites:
            site.stop()
        server.stop()
