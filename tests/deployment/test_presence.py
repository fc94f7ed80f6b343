"""Who was heard of when: written now and then, lost without harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fcac.deployment.presence import AWAY_SECONDS, Heard, Presence, read
from fcac.deployment.settings import STATE
from fcac.deployment.status_lines import describe
from testing.federation_study import SCHEMA, make_study


def test_what_was_heard_outlives_the_process(tmp_path: Path) -> None:
    first = Presence(tmp_path)
    first.heard("north", True, 12.34, "0.2.0\x1b[31m")
    first.write(now=True)
    second = Presence(tmp_path)
    second.heard("south", True, -0.01, "0.2.0")
    second.write(now=True)
    known = read(tmp_path)
    assert set(known) == {"north", "south"}
    assert known["north"].clock_skew == 12.3
    assert (known["north"].open, known["south"].open) == (False, True)  # nobody is connected to a hub that has started
    assert "\x1b" not in known["north"].version  # a site may claim any version


def test_it_is_written_every_few_seconds_only(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.heard("north", True, 0.0, "")
    presence.write()
    before = read(tmp_path)
    presence.heard("north", True, 7.0, "")
    presence.write()
    assert read(tmp_path) == before
    presence.write(now=True)
    assert read(tmp_path)["north"].clock_skew == 7.0
    presence.heard("south", True)
    presence.write()
    assert "south" in read(tmp_path)  # who has come or gone is written at once
    presence.lost("south")
    presence.write()
    assert not read(tmp_path)["south"].open


def test_who_has_not_called_for_a_minute_is_away() -> None:
    now = datetime.now(UTC)
    for age, here in ((AWAY_SECONDS - 1, True), (AWAY_SECONDS + 1, False)):
        assert Heard((now - timedelta(seconds=age)).isoformat(), 0.0, "").is_here(now) is here


def test_a_damaged_file_tells_nothing(tmp_path: Path) -> None:
    for text in ("", "[]", '{"sites": 3}', '{"sites": {"north": {"unknown": 1}}, "counts": 7}', "\x00"):
        (tmp_path / "presence.json").write_text(text)
        assert read(tmp_path) == {}
        Presence(tmp_path).heard("north", True)


def test_the_status_says_how_often_strangers_were_refused_or_took_too_long(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    root = make_study(tmp_path, [], tmp_path / "schema.toml")
    presence = Presence(root / STATE)
    presence.counts.update({"connections": 9000, "connections_refused": 1200, "connections_timed_out": 3})
    presence.write(now=True)
    assert "Strangers and mishaps at the hub's ports: connections refused 1,200, connections timed out 3" in (
        describe(root)
    )
