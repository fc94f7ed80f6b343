"""The pages for operators: every command in them is run, beside a real hub, a real site's state and a real proxy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testing import federation_study  # skips where the extra is not installed
from testing.connect_proxy import ConnectProxy
from testing.data import blobs, write_csv
from testing.waiting import PATIENCE

from fcac.deployment import invitations  # isort: skip
from fcac.deployment.hub import Hub  # isort: skip
from fcac.deployment.settings import STATE, FederationSettings  # isort: skip
from fcac.deployment.site_agent import SiteAgent  # isort: skip
from fcac.deployment.processes import ServerProcess, free_port  # isort: skip
from fcac.deployment.site_link import refresh  # isort: skip
from fcac.deployment.site_setup import site_settings, store_settings  # isort: skip

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))
BLOCK = re.compile(r"^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_COMMANDS = [page for page in PAGES if BLOCK.search(page.read_text())]


class Running(NamedTuple):
    """A federation whose hub runs, after one round of one site."""

    folder: Path
    address: str
    proxy: ConnectProxy


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("operations")
    (folder / "schema.toml").write_text(federation_study.SCHEMA)
    address = f"127.0.0.1:{free_port()}"
    root = federation_study.make_study(folder, ["north", "south"], folder / "schema.toml", address=address)
    shutil.copytree(root.parent / "bundles" / "north", folder / "north")
    write_csv(folder / "rows.csv", blobs(300, 1), header=True)
    settings = site_settings(folder / "north", folder / "rows.csv", folder / "state-north", epsilon=1.0, budget=4.0)
    store_settings(settings)
    hub = Hub(root / STATE, FederationSettings.load(root))
    assert hub.receive("north", SiteAgent(settings).contribute(1, 0)).outcome == "accepted"
    hub.close_round()
    server, proxy = ServerProcess(root), ConnectProxy()
    server.start()
    try:
        yield Running(folder, address, proxy)
    finally:
        server.stop()
        proxy.close()


def test_there_is_a_page_for_each_subject() -> None:
    assert {page.stem for page in WITH_COMMANDS} == {"backup", "clocks", "disk", "firewall", "proxies", "upgrade"}


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_every_command_of_the_page_works(running: Running, page: Path, tmp_path: Path) -> None:
    here, programs = tmp_path / "here", tmp_path / "programs"
    # the authority's certificate is the same in the copy; the hub goes on in the original
    shutil.copytree(running.folder, here, ignore=shutil.ignore_patterns("lock", "*.db-wal", "*.db-shm"))
    programs.mkdir()
    for name, line in {
        "fcac": f'exec {sys.executable} -m fcac "$@"',
        # services and the package index are not here: what they are told is written down
        "systemctl": 'echo "systemctl $*" >> "$TOLD"',
        "pip": 'echo "pip $*" >> "$TOLD"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    script = "\n".join(BLOCK.findall(page.read_text())).replace("/opt/fcac/bin/", f"{programs}/")
    told = tmp_path / "told"
    before = len(running.proxy.tunnels)
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=here,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HUB": running.address,
            "PORT": running.address.rpartition(":")[2],
            "PROXY": running.proxy.address,
            "TOLD": str(told),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if page.stem == "upgrade":
        lines = told.read_text().splitlines()
        assert lines[0] == "systemctl stop fcac-hub"
        assert lines[1].startswith("pip install --upgrade ./fcac[federation,privacy]")
    if page.stem == "backup":
        assert "rounds closed: 1" in done.stdout
        assert "none changed" in done.stdout
    if page.stem == "proxies":
        assert running.proxy.tunnels[before:] == [running.address]


@pytest.mark.slow
def test_a_site_goes_out_through_a_connect_proxy(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", running.proxy.address)
    monkeypatch.setenv("NO_PROXY", "hub.example")
    before = len(running.proxy.tunnels)
    bundle = running.folder / "north"
    refresh(bundle)
    assert set(running.proxy.tunnels[before:]) == {running.address}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    before = len(running.proxy.tunnels)
    refresh(bundle)
    assert len(running.proxy.tunnels) == before


@pytest.mark.slow
def test_a_site_joins_through_a_connect_proxy(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", running.proxy.address)
    monkeypatch.setenv("NO_PROXY", "hub.example")
    before = len(running.proxy.tunnels)
    invitation = invitations.invite(running.folder / "study", "east")
    fingerprint = invitations.join(invitation, tmp_path / "east")
    assert set(running.proxy.tunnels[before:]) == {invitation.address}
    assert not invitations.fetch_certificate(tmp_path / "east")
    assert invitations.accept(running.folder / "study", "east") == fingerprint
    assert invitations.fetch_certificate(tmp_path / "east")


def test_the_threat_models_table_is_the_benchmarks() -> None:
    """What each forged field of one site costs two others."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "poison.json").read_text())["digits"]
    page = (ROOT / "docs" / "threat-model.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \| (\.\d\d|) \| (\.\d\d) \|$", page, re.M)
    assert {name for name, *_ in rows} == set(measured["private"])
    assert {name for name, plain, _ in rows if plain} == set(measured["plain"])
    for name, *shown in rows:
        for kind, value in zip(("plain", "private"), shown, strict=True):
            if value:
                assert float(value) == pytest.approx(measured[kind][name]["3 sites"], abs=0.0051), name
    for kind, cells in measured.items():
        lost = {name: cells["honest"]["3 sites"] - cell["3 sites"] for name, cell in cells.items()}
        # where its nodes are is a private site's own business; what else it says costs no more than its absence may
        assert all(cost <= 0.05 for name, cost in lost.items() if kind == "plain" or (" anywhere" not in name
                   and "corners" not in name and "exchanged" not in name))  # fmt: skip
