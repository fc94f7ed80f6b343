"""Shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from testing.rooms import ROOT, changed_rooms, room_of

# Lets scikit-learn's check of array-API input run instead of being skipped; must be set before SciPy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# One worker for each core already: threads of linear algebra within each would only wait for one another.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

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


#: Examples in docstrings that are no tests of the fast kind; they cannot be marked where they stand.
SLOW_EXAMPLES = {
    "fcac.paper.gaussians.run_demo",
    "fcac.model.reading.FittedFederation.summary",
    "fcac.federation.sent_audit.sent_differences",
    "fcac.privacy.auditing.audit",
    "fcac.privacy.noninterference.differences",
    "fcac.report.write_report",
}


@pytest.hookimpl(tryfirst=True)  # before pytest sorts out by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the examples that take their time; the rooms that a change touches come first."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)
    changed = changed_rooms()
    items.sort(key=lambda item: room_of(os.path.relpath(item.path, ROOT)) not in changed)


#: Seconds from which `make test-fast` names a test that is not marked `slow`.
SLOW = 1.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests that keep a fast run from being fast; a hint and no failure, for the machine may be busy."""
    if "not slow" not in config.option.markexpr:
        return
    took: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid] = took.get(report.nodeid, 0.0) + report.duration
    slow = sorted(((seconds, name) for name, seconds in took.items() if seconds > SLOW), reverse=True)
    if slow:
        terminalreporter.section("slow for a fast run: cheaper, or marked `slow`?")
        for seconds, name in slow:
            terminalreporter.write_line(f"{seconds:6.2f}s {name}")
        terminalreporter.write_line(
            "(After a change of kernels, the first test that needs one compiles it: run once more.)"
        )
