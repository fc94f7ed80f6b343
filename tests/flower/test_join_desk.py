"""The hub's answer to sites that ask to join."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from testing.flower_study import SCHEMA

from fcac.deployment import certificates, invitations, study  # isort: skip
from fcac.flower.join_desk import PATH, JoinDesk  # isort: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "schema.toml").write_text(SCHEMA)
    return study.init(folder / "study", [], folder / "schema.toml", address="127.0.0.1:9")


def ask(root: Path, body: bytes, method: str = "POST", path: str = PATH) -> tuple[int, bytes]:
    """Return status and body of the desk's answer; 599 if it passed the request on."""
    sent: list[Any] = []

    async def passed_on(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"status": 599})
        sent.append({"body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path}
    asyncio.run(JoinDesk(passed_on, root)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


def test_anybody_may_have_the_authoritys_certificate(root: Path) -> None:
    assert ask(root, b"", "GET") == (200, (root / "ca" / "ca.crt").read_bytes())


def test_everything_else_is_passed_on(root: Path) -> None:
    assert ask(root, b"", path="/v1/fleet/pull-messages")[0] == 599


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"site": "north"}', b"[" * 5000])
def test_nonsense_is_refused_in_words(root: Path, body: bytes) -> None:
    status, said = ask(root, body)
    assert status == 403
    assert json.loads(said)["detail"].isprintable()


def test_a_token_gets_a_bundle_and_no_key(root: Path, tmp_path: Path) -> None:
    invitation = invitations.invite(root, "north")
    public = certificates.make_site_key(tmp_path / "node.key")
    request = {"site": "north", "token": invitation.token, "key": public}
    status, said = ask(root, json.dumps(request).encode())
    assert status == 200, said
    files = json.loads(said)
    assert "bundle.toml" in files
    assert not any("PRIVATE" in str(text) for text in files.values())
    assert invitations.waiting(root)["north"]
