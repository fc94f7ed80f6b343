"""Sites join with keys of their own: tokens are good once, and nobody takes part before being accepted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from fcac.deployment import certificates, invitations, study
from fcac.deployment.invitations import Invitation
from fcac.deployment.settings import FederationSettings

SCHEMA = "fcac_schema = 1\n[columns]\nx = {}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return study.init(tmp_path / "study", tmp_path / "schema.toml", address="hub.example:8443")


def spoken(key: str) -> str:
    return certificates.spoken(certificates.request_fingerprint(key))


def request(invitation: Invitation, key: str) -> dict[str, Any]:
    return {"site": invitation.site, "token": invitation.token, "request": key}


def test_from_invitation_to_membership(root: Path, tmp_path: Path) -> None:
    invitation = invitations.invite(root, "north")
    assert Invitation.parse(f" {invitation}\n") == invitation
    assert FederationSettings.load(root).members == {}
    key = certificates.make_key(tmp_path / "node.key", "north")
    files = invitations.ask(root, request(invitation, key))
    assert set(files) == {"bundle.toml", "ca.crt", "schema.toml"}
    assert files["schema.toml"] == SCHEMA
    assert FederationSettings.load(root).members == {}  # it has asked, no more
    assert invitations.waiting(root) == {"north": spoken(key)}
    assert invitations.accept(root, "north") == spoken(key)
    assert FederationSettings.load(root).members["north"].key == certificates.request_fingerprint(key)
    assert invitations.waiting(root) == {}
    # the same site asks again and gets its certificate; nobody is accepted twice
    assert "BEGIN CERTIFICATE" in invitations.ask(root, request(invitation, key))["node.crt"]
    with pytest.raises(ValueError, match="has not asked"):
        invitations.accept(root, "north")
    with pytest.raises(ValueError, match="already takes part"):
        invitations.invite(root, "north")
    # the token itself is nowhere on the hub's disk
    assert not any(invitation.token.encode() in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_a_token_is_good_for_one_key(root: Path, tmp_path: Path) -> None:
    invitation = invitations.invite(root, "north")
    first, second = (certificates.make_key(tmp_path / f"{i}.key", "north") for i in range(2))
    invitations.ask(root, request(invitation, first))
    invitations.ask(root, request(invitation, first))  # the answer was lost
    with pytest.raises(ValueError, match="not valid"):
        invitations.ask(root, request(invitation, second))
    renewed = invitations.invite(root, "north")
    with pytest.raises(ValueError, match="not valid"):
        invitations.ask(root, request(invitation, first))
    invitations.ask(root, request(renewed, second))
    assert invitations.waiting(root) == {"north": spoken(second)}


@pytest.mark.parametrize(
    "change",
    [
        {"token": "x" * 32},
        {"site": "south"},
        {"site": "../../etc"},
        {"site": 7},
        {"request": "ssh-rsa AAAA"},
        {"request": '"\n[sites.evil]'},
        {"request": None},
    ],
)
def test_who_has_no_valid_token_learns_nothing(root: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    invitation = invitations.invite(root, "north")
    key = certificates.make_key(tmp_path / "node.key", "north")
    with pytest.raises(ValueError, match=r"not valid|expected kind"):
        invitations.ask(root, {**request(invitation, key), **change})
    assert invitations.waiting(root) == {}
    with pytest.raises(ValueError, match="not valid"):
        invitations.ask(root, ["no", "object"])


def test_invitations_grow_old(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invitation = invitations.invite(root, "north", hours=1)
    key = certificates.make_key(tmp_path / "node.key", "north")

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(hours=2)

    monkeypatch.setattr(invitations, "datetime", Later)
    with pytest.raises(ValueError, match="too old"):
        invitations.ask(root, request(invitation, key))


@pytest.mark.parametrize("text", ["", "hello", "fcac-invitation/2/hub:1/north/xy/z", "fcac-invitation/2/hub/a/b/c/d"])
def test_what_is_no_invitation(text: str) -> None:
    with pytest.raises(ValueError, match=r"invitation|host:port"):
        Invitation.parse(text)


def test_nobody_is_accepted_who_has_not_asked(root: Path) -> None:
    invitations.invite(root, "north")
    with pytest.raises(ValueError, match="has not asked"):
        invitations.accept(root, "north")


def test_another_hub_is_recognised(root: Path, tmp_path: Path) -> None:
    invitation = invitations.invite(root, "north")._replace(address="127.0.0.1:1")
    with pytest.raises(ValueError, match="cannot be reached"):
        invitations.join(invitation, tmp_path / "bundle")
    assert (tmp_path / "bundle" / "node.key").exists()  # the next attempt uses the same key
