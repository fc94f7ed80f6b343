"""A site's process: what it says, what it listens on, how much memory it takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA, make_study
from testing.waiting import wait_until

from fcac.exceptions import FederationError  # isort: skip
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port  # isort: skip
from fcac.deployment.running import run_rounds  # isort: skip
from fcac.deployment.site_link import NewLines, SiteLink  # isort: skip
from fcac.deployment.site_setup import site_settings, store_settings  # isort: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    address = f"127.0.0.1:{free_port()}"
    return make_study(tmp_path, ["a"], tmp_path / "schema.toml", address=address)


def node(root: Path, said: list[str]) -> SiteLink:
    (root.parent / "data").mkdir(exist_ok=True)
    settings = site_settings(root.parent / "bundles" / "a", root.parent / "data", root.parent / "state")
    return SiteLink(root.parent / "bundles" / "a", settings, store_settings(settings), said.append)


def test_a_site_says_when_the_hub_is_away_and_back(root: Path) -> None:
    said: list[str] = []
    site = node(root, said)
    site._welcome()
    site._tell_away("the hub does not answer")
    site._tell_away("the hub does not answer")
    site._welcome()
    assert len(said) == 3  # once, not at every attempt
    assert said[1] == "the hub does not answer; trying until it does"
    assert said[2].startswith("Connected again after")


def test_a_bundle_without_a_key_is_refused(root: Path) -> None:
    (root.parent / "bundles" / "a" / "node.key").unlink()
    with pytest.raises(FederationError, match=r"has no node\.key"):
        node(root, [])


def test_only_whole_lines_of_the_log_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "site.log"
    news = NewLines(log)
    assert news.read() == []
    log.write_bytes(b"2026-01-01T00:00:00 first\x1b[2J\n  details of an error\n2026-01-01T00:00:01 half")
    (shown,) = news.read()
    assert shown.startswith("2026-01-01T00:00:00 first")
    assert shown.isprintable()
    with log.open("ab") as stream:
        stream.write(b" a line\n")
    assert [line[20:] for line in news.read()] == ["half a line"]


@pytest.mark.slow
def test_a_site_is_small_and_listens_on_nothing(root: Path) -> None:
    """350 MB after a round and with the model received; most of it are libraries."""
    folder = root.parent
    (folder / "data").mkdir()
    write_csv(folder / "data" / "rows.csv", blobs(300, 1), header=True)
    server = ServerProcess(root)
    settings = site_settings(root.parent / "bundles" / "a", folder / "data", folder / "state", epsilon=1.0, budget=9.0)
    site = SiteProcess(root.parent / "bundles" / "a", settings)
    try:
        server.start()
        site.start()
        wait_until(site.is_connected, site.process, every=0.1)
        assert run_rounds(root, 1, print)["closed"] == 1
        assert site.process is not None
        wait_until((folder / "state" / "model.fcac").exists, site.process, every=0.1)
        status = Path(f"/proc/{site.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        assert int(found[1]) / 1024 < 350
        listening = subprocess.run(["ss", "-ltnpx"], capture_output=True, text=True, check=True).stdout
        assert f"pid={site.process.pid}," not in listening
        # it has no child that could
        assert Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children").read_text() == ""
    finally:
        site.stop()
        server.stop()
