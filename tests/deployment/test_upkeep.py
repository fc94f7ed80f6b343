"""Upkeep: what the doctor finds, back-up and restore, a new address, and who did what."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fcac.cli import run
from fcac.deployment import certificates, hub_audit, study, upkeep
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.deployment.site_setup import remember_state
from fcac.federation import Contribution
from testing.commands import fcac
from testing.data import blobs
from testing.federation_study import SCHEMA, Study, make_study


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return make_study(tmp_path, ["a", "b"], tmp_path / "schema.toml", address="127.0.0.1:9")


def graded(findings: list[upkeep.Finding]) -> dict[str, str]:
    return {finding.what: finding.grade for finding in findings}


def test_the_doctor_at_a_hub(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = graded(upkeep.examine(root))
    assert found["certificate"] == found["permissions"] == found["schema"] == found["store"] == "ok"
    assert found["hub"] == found["site a"] == "look"  # not started yet, never here
    assert found["name"] == "ok"
    federation = root / "federation.toml"
    federation.write_text(federation.read_text().replace("127.0.0.1:9", "hub.invalid:9"))
    assert graded(upkeep.examine(root))["name"] == "look"
    assert "certificate" in fcac(capfd, "federation", "doctor", root)
    (root / "ca" / "ca.key").chmod(0o644)
    certificates.make_server_certificate(root / "ca", root / "server", ["127.0.0.1"], days=1, start=-2)
    found = graded(upkeep.examine(root))
    assert found["certificate"] == found["permissions"] == "bad"
    assert "2 findings must be put right" in fcac(capfd, "federation", "doctor", root, code=1)
    (root / STATE / "hub.db").write_bytes(b"no database" * 100)
    (finding,) = (one for one in upkeep.examine(root) if one.what == "settings")
    assert "hub.db is damaged" in finding.text
    assert "restore" in finding.text


def test_the_doctor_at_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Study(tmp_path, "a", epsilon=1.0, budget=4.0)
    bundle = made.root.parent / "bundles" / "a"
    findings = upkeep.examine(bundle, made.state("a"))
    found = graded(findings)
    assert found["certificate"] == found["authority"] == found["schema"] == found["permissions"] == "ok"
    assert found["hub"] == "bad"  # nobody answers
    shown = json.dumps(findings)
    assert "proxy.example" in shown
    assert "secret" not in shown
    schema = bundle / "schema.toml"
    schema.write_text(SCHEMA.replace("bounds_are_public = true", "bounds_are_public = false"))
    assert graded(upkeep.examine(bundle, made.state("a")))["schema"] == "bad"


@pytest.mark.slow
def test_a_back_up_of_a_hub_comes_back(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hub = Hub(root / STATE, FederationSettings.load(root))
    sent = Contribution("a", 1, blobs(20, 1), np.ones(20, np.int64)).to_bytes()
    assert hub.receive("a", sent).outcome == "accepted"
    hub.close_round()
    archive = tmp_path / "monday.tar.gz"
    fcac(capfd, "federation", "backup", root, "--out", archive)
    assert archive.stat().st_mode & 0o077 == 0
    with tarfile.open(archive) as found:
        assert {"ca/ca.key", "state/hub.db", "federation.toml"} <= set(found.getnames())
    assert "replaces nothing" in fcac(capfd, "federation", "backup", root, "--out", archive, code=1)
    assert "is not empty" in fcac(capfd, "federation", "restore", archive, "--to", root, code=1)
    fcac(capfd, "federation", "restore", archive, "--to", tmp_path / "again")
    back = Hub(tmp_path / "again" / STATE, FederationSettings.load(tmp_path / "again"))
    assert back.store.closed == 1
    assert back.receive("a", sent).outcome == "duplicate"
    assert (tmp_path / "again" / "ca" / "ca.key").stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob(".restore-*"))
    # the log goes on where it was, and says that it was brought back
    assert [entry["command"] for entry in AuditLog(tmp_path / "again" / STATE).entries()][-1] == "restore"
    assert not hub_audit.check(tmp_path / "again")[0].problem
    archive.write_bytes(archive.read_bytes()[:500])
    assert "is not a back-up" in fcac(capfd, "federation", "restore", archive, "--to", tmp_path / "third", code=1)


def test_a_back_up_of_a_site_comes_back(tmp_path: Path) -> None:
    made = Study(tmp_path, "a", epsilon=1.0, budget=4.0)
    upkeep.backup(made.state("a"), tmp_path / "site.tar.gz")
    upkeep.restore(tmp_path / "site.tar.gz", tmp_path / "again")
    assert (tmp_path / "again" / "settings.json").read_bytes() == (made.state("a") / "settings.json").read_bytes()
    bundle = made.root.parent / "bundles" / "a"
    remember_state(bundle, made.state("a"))
    with pytest.raises(ValueError, match="the state of this site, with its ledger, is in"):
        upkeep.backup(bundle, tmp_path / "bundle.tar.gz")
    with pytest.raises(ValueError, match="neither a hub's directory"):
        upkeep.backup(made.data("a"), tmp_path / "data.tar.gz")


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        (tmp_path / "settings.json").write_text("{}")
        archive.add(tmp_path / "settings.json", "../evil.json")
    with pytest.raises(ValueError, match="is not a back-up"):
        upkeep.restore(tmp_path / "evil.tar.gz", tmp_path / "there")
    assert not (tmp_path / "evil.json").exists()


def test_a_new_address(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = (root / "server" / "server.crt").read_bytes()
    fcac(capfd, "federation", "address", root, "hub.example:8443")
    assert FederationSettings.load(root).address == "hub.example:8443"
    assert (root / "server" / "server.crt").read_bytes() != before
    assert study.bundle_files(root, "a")["bundle.toml"].count("hub.example:8443") == 1
    fcac(capfd, "federation", "address", root.parent / "bundles" / "a", "hub.example:8443")
    assert study.read_bundle(root.parent / "bundles" / "a")["address"] == "hub.example:8443"
    assert "host:port" in fcac(capfd, "federation", "address", root, "nowhere", code=1)


def test_who_did_what(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("SUDO_USER", "grace")
    fcac(capfd, "federation", "invite", root, "c")
    fcac(capfd, "federation", "revoke", root, "b")
    assert run(["federation", "forget", str(root), "nobody"]) == 1  # what was tried is logged, too
    capfd.readouterr()
    shown = fcac(capfd, "federation", "audit", root)
    assert "ada (sudo by grace): revoke, site b" in shown
    assert "forget, site nobody" in shown
    out = tmp_path / "audit.jsonl"
    fcac(capfd, "federation", "audit", root, "--export", out)
    (root / "server" / "audit.key").rename(tmp_path / "elsewhere")
    assert "3 entries in order" in fcac(capfd, "federation", "audit", out, "--verify")
    whole = out.read_text()
    out.write_text(whole.replace("revoke", "accept"))
    assert "line 2 was changed" in fcac(capfd, "federation", "audit", out, "--verify", code=1)
    # a chain that was made anew, with other entries, lacks the signatures
    forged = AuditLog(tmp_path / "forged")
    forged.add("command", command="nothing happened", account="ada")
    out.write_text(whole.splitlines()[0] + "\n" + forged.path.read_text())
    assert "line 1 was changed" in fcac(capfd, "federation", "audit", out, "--verify", code=1)
