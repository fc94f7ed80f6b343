"""The hash-chained log: what was changed is found, and a crash does no harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fcac.deployment.audit_log import AuditLog, verify


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    made = AuditLog(tmp_path)
    for number in range(1, 6):
        made.add("contributed", round=number, reason="fine")
    return made


def test_an_untouched_log_is_sound(log: AuditLog) -> None:
    verdict = verify(log.path)
    assert (verdict.n_entries, verdict.problem) == (5, "")
    assert len(verdict.last) == 64
    assert [entry["round"] for entry in log.entries()] == [1, 2, 3, 4, 5]
    assert log.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("change", ["edit", "remove", "swap", "insert", "space"])
def test_every_change_is_found(log: AuditLog, change: str) -> None:
    lines = log.path.read_bytes().splitlines()
    if change == "edit":
        lines[2] = lines[2].replace(b'"round": 3', b'"round": 9')
    elif change == "remove":
        del lines[2]
    elif change == "swap":
        lines[2], lines[3] = lines[3], lines[2]
    elif change == "insert":
        lines.insert(2, lines[1])
    else:
        lines[2] = lines[2].replace(b'"round": 3', b'"round":  3')
    log.path.write_bytes(b"\n".join(lines) + b"\n")
    verdict = verify(log.path)
    assert "line " in verdict.problem
    assert verdict.n_entries < 5


def test_half_a_line_left_by_a_crash_is_replaced(log: AuditLog) -> None:
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + b'{"time": "20')
    assert len(log.entries()) == 5
    assert verify(log.path).problem == ""
    log.add("contributed", round=6)
    assert verify(log.path).n_entries == 6
    assert [entry["round"] for entry in log.entries()][-1] == 6


def test_whatever_is_logged_can_be_shown(log: AuditLog) -> None:
    log.add("refused", reason="\x1b[31m" + "x" * 10_000, value=float("nan"), parts=["\x07", {"\n": 1}], odd=object)
    entry = json.loads(log.path.read_bytes().splitlines()[-1])
    assert len(entry["reason"]) <= 500
    assert b"\x1b" not in log.path.read_bytes()
    assert verify(log.path).problem == ""


def test_there_need_not_be_a_log(tmp_path: Path) -> None:
    assert verify(tmp_path / "nothing.jsonl").n_entries == 0
    assert AuditLog(tmp_path).entries() == []
