"""What the package shows, and that every public name can be imported."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

import fcac

NAMES = {
    "fcac": ["CAE", "CAEFC", "CAPlus", "FCAC", "load", "save"],
    "fcac.codebook": ["Codebook"],
    "fcac.federation": ["Contribution", "Server", "Site", "SiteName", "play_round", "site_order"],
    "fcac.privacy": ["AuditResult", "BudgetExceeded", "Ledger", "LedgerError", "LocalNoise", "NodeRelease",
                     "PaperLaplace", "PrivacyError", "PrivacyWarning", "ReleasedState", "RepeatedBatch",
                     "StoredRelease", "audit", "release_once"],
    "fcac.report": ["render_report", "snapshot", "write_report"],
}  # fmt: skip


def test_dir_shows_public_names_and_subpackages_only() -> None:
    shown = dir(fcac)
    assert shown == sorted(fcac.__all__)
    assert not [name for name in shown if name.startswith("_")]
    for name in shown:
        assert getattr(fcac, name) is not None


@pytest.mark.slow
def test_subpackages_load_when_asked_for() -> None:
    program = "import fcac, sys; assert 'sklearn' not in sys.modules; fcac.report.write_report; fcac.tables.open_tables"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=300)


@pytest.mark.parametrize("module", sorted(NAMES))
def test_public_names_can_be_imported(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES[module]:
            assert getattr(importlib.import_module(module), name) is not None
