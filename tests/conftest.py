"""Shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Lets scikit-learn's check of array-API input run instead of being skipped; must be set before SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# The same examples in every run and no deadline for one of them: a busy machine is no reason to fail, and neither is
# luck. `make soak` looks for new examples.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Where everything is installed (FCAC_NO_SKIP=1), a skipped test is a failed one."""
    report = yield
    if os.environ.get("FCAC_NO_SKIP") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although FCAC_NO_SKIP=1: {report.longrepr}"
    return report
