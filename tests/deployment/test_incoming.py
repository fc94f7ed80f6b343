"""What a site may say about its privacy, and that nothing it says harms a terminal, a log or a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fcac.deployment.hub import Hub
from fcac.deployment.incoming import check_statement
from fcac.deployment.settings import FederationSettings, Member
from fcac.deployment.status_lines import describe
from fcac.federation import Contribution
from fcac.privacy import LocalNoise, NodeRelease, mechanisms
from fcac.tables.schema import Schema
from testing.federation_study import make_study

ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize("mechanism", [None, NodeRelease(1.0, [[0, 1]]), LocalNoise(4.0, [[0, 1]])])
def test_what_our_own_mechanisms_say_is_accepted(mechanism: Any) -> None:
    check_statement(mechanisms.statement(mechanism, 3))


@pytest.mark.parametrize(
    "statement",
    [
        {"mechanism": "NodeRelease", "spent": "x"},
        {"mechanism": "NodeRelease", "spent": None},
        {"mechanism": "NodeRelease", "epsilon": True},
        {"mechanism": "NodeRelease", "delta": -1.0},
        {"mechanism": "NodeRelease", "rounds": 1e300},
        {"mechanism": ESCAPE},
        {"mechanism": "right to left \u202e"},
        {"mechanism": ["NodeRelease"]},
        {"mechanism": "x" * 200},
        {"note": ESCAPE},
        {ESCAPE: 1},
        {"nested": {"deep": 1}},
        {"long": list(range(100))},
        {str(i): i for i in range(50)},
    ],
)
def test_what_cannot_be_shown_is_rejected_and_status_still_works(tmp_path: Path, statement: dict[str, Any]) -> None:
    settings = FederationSettings(Schema(["x", "y"]), members={"a": Member()})
    hub = Hub(tmp_path, settings)
    verdict = hub.receive("a", Contribution("a", 1, [[0.0, 1.0]], [3], statement).to_bytes())
    assert verdict.outcome == "rejected"
    assert verdict.reason.isprintable()
    assert b"\x1b" not in (tmp_path / "journal.jsonl").read_bytes()
    assert hub.arrived() == []


def test_a_journal_of_an_earlier_version_cannot_kill_status(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text("fcac_schema = 1\n[columns]\nx = {}\n")
    root = make_study(tmp_path, ["a"], tmp_path / "schema.toml")
    hub = Hub(root / "state", FederationSettings.load(root))
    hub.note("accepted", site="a", round=1, bytes=10, nodes=1, privacy={"mechanism": "NodeRelease", "spent": "x"})
    assert any("not readable" in line for line in describe(root))
    hub.note("accepted", site="a", round=1, bytes=10, nodes=1, privacy={"mechanism": ESCAPE})
    hub.note("rejected", site=ESCAPE, round=1, reason=ESCAPE)
    hub.note("unusual", site="a", round=1, reason=ESCAPE)
    assert all(line.isprintable() for line in describe(root, rejected=True))


@pytest.mark.slow
def test_counts_that_do_not_fit_the_history_are_shown(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text("fcac_schema = 1\n[columns]\nx = {}\n")
    root = make_study(tmp_path, list("abcd"), tmp_path / "schema.toml")
    hub = Hub(root / "state", FederationSettings.load(root))
    for name in "abcd":
        assert hub.receive(name, Contribution(name, 1, [[0.0], [1.0]], [30, 20]).to_bytes()).outcome == "accepted"
    hub.close_round()
    assert not [entry for entry in hub.journal() if entry["event"] in ("unusual", "capped")]
    hub.receive("a", Contribution("a", 2, [[0.0], [9.0]], [30, 10**6]).to_bytes())
    hub.close_round()
    found = {entry["event"]: entry["reason"] for entry in hub.journal() if entry["event"] in ("unusual", "capped")}
    assert "20,001 times as many as its last" in found["unusual"]
    # alone in its round, it still has its share of all that the server knows, and no more
    (latest,) = [item for item in hub.snapshot().server.latest().values() if item.site == "a"]
    assert latest.counts.sum() <= 0.5 * (latest.counts.sum() + 150)
    shown = describe(root)
    assert "Worth a look:" in shown
    assert any("a unusual" in line for line in shown)
