"""Bad requests from fifty addresses in a network namespace: the hub stays small, quiet, and there for its sites."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing.waiting import PATIENCE

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "strangers.py"
NAMESPACE = ["unshare", "--net", "--map-root-user", "ip", "link", "set", "lo", "up"]


def may_have_a_namespace() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(NAMESPACE, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_hubs_service_needs_nothing_that_learns() -> None:
    """It would be three times as large."""
    code = "import sys, fcac.deployment.hub_service; print({'numba', 'sklearn', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == "set()"


@pytest.mark.soak
@pytest.mark.skipif(not may_have_a_namespace(), reason="no network namespaces for this account")
def test_ten_thousand_bad_requests() -> None:
    done = subprocess.run([sys.executable, str(BENCHMARK)], capture_output=True, text=True, check=False, timeout=3600)
    found = json.loads(done.stdout)
    assert found["hub, MB at most"] < 250
    assert found["lines of log"] < 200
    assert not found["honest calls that failed"]
    assert max(found["longest wait, s"].values()) <= 2.0
    assert found["counters"]["connections"] > 10_000
    assert found["counters"]["requests_refused_400"] > 0
    assert "Traceback" not in "".join(found["log"])
