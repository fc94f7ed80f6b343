"""The hub's process, without a wire: where it listens, which keys it accepts, which certificate it shows."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from testing.flower_study import SCHEMA

from fcac.deployment import certificates, study  # isort: skip
from fcac.deployment.hub import Hub  # isort: skip
from fcac.deployment.settings import STATE, FederationSettings  # isort: skip
from fcac.exceptions import FlowerError  # isort: skip
from fcac.flower.adapter import Link  # isort: skip
from fcac.flower.guard import Visit  # isort: skip
from fcac.flower.hub_server import HubServer, check_certificate, listening_address  # isort: skip
from fcac.flower.service import in_words, running_hub  # isort: skip
from fcac.flower import processes  # isort: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return study.init(tmp_path / "study", ["a", "b"], tmp_path / "schema.toml", address="127.0.0.1:9")


@pytest.mark.slow
def test_keys_follow_the_settings(root: Path, tmp_path: Path) -> None:
    said: list[str] = []
    hub, link = HubServer(root, say=said.append), Link(tmp_path / "link.db")
    assert sorted(hub.sync_keys(link)) == ["a may connect", "b may connect"]
    assert hub.sync_keys(link) == []  # nothing has changed
    study.revoke(root, "b")
    os.utime(root / "federation.toml", ns=(1, 1))  # whatever the clock's steps are
    assert hub.sync_keys(link) == ["the key of b is no longer accepted"]
    known = FederationSettings.load(root).members
    assert link.keys() == [certificates.public_pem(known["a"].key)]


def test_a_renewed_certificate_is_loaded_once(root: Path) -> None:
    said: list[str] = []
    hub = HubServer(root, say=said.append)
    assert not hub.renew_certificate()  # it does not serve yet
    hub._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert not hub.renew_certificate()
    study.renew(root)
    os.utime(root / "server" / "server.crt", ns=(1, 1))
    assert hub.renew_certificate()
    assert not hub.renew_certificate()
    assert "new certificate is in use" in said[0]


def test_a_refusal_is_told_once_a_minute_and_written_down(root: Path) -> None:
    said: list[str] = []
    hub = HubServer(root, say=said.append)
    for _ in range(50):
        hub._visited(Visit(site="a", skew=0.0, version="", refusal="sends too fast\x1b[2J"))
    assert len(said) == 1
    assert said[0].isprintable()
    noted = [
        entry for entry in Hub(root / STATE, FederationSettings.load(root)).journal() if entry["event"] == "refused"
    ]
    assert len(noted) == 1


def test_where_a_hub_listens(root: Path) -> None:
    settings = FederationSettings.load(root)
    assert listening_address(settings, None) == ("127.0.0.1", 9)
    assert listening_address(settings, "0.0.0.0") == ("0.0.0.0", 9)
    with pytest.raises(ValueError, match="loopback"):
        listening_address(settings, "192.0.2.1")


def test_an_expired_certificate_is_named(root: Path) -> None:
    check_certificate(root, FederationSettings.load(root))
    certificates.make_server_certificate(root / "ca", root / "server", ["127.0.0.1"], days=1, start=-2)
    with pytest.raises(FlowerError, match="expired on"):
        check_certificate(root, FederationSettings.load(root))


@pytest.mark.slow
def test_the_hub_on_this_machine_is_asked_patiently(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(processes, "is_healthy", lambda *_: bool(asked.append(1)))
    with pytest.raises(FlowerError, match="no server answers"), running_hub(root, FederationSettings.load(root)):
        raise AssertionError
    assert len(asked) == 3


@pytest.mark.parametrize("code", range(7))
def test_a_failure_is_told_in_words(code: int) -> None:
    line = in_words({"event": "failed", "site": "south", "round": 2, "code": code})
    assert line.startswith("round 2: south failed: it")
    assert "code" not in line


@pytest.mark.slow
def test_a_hub_does_not_load_what_learns() -> None:
    """It would be ready seconds later, and twice as large."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, fcac.flower.hub_server; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert not {"numba", "sklearn", "scipy", "pandas"} & set(loaded)
