"""The hub's service as a process: what sites get, what strangers do not, and what happens when keys change."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.federation_study import SCHEMA, make_study, memory_of
from testing.hostile_client import ask
from testing.waiting import PATIENCE, wait_until

from fcac.deployment import certificates, invitations, presence, study  # isort: skip
from fcac.deployment.hub import Hub  # isort: skip
from fcac.deployment.hub_service import metrics_token  # isort: skip
from fcac.deployment.listening import FrontLimits  # isort: skip
from fcac.deployment.outbox import Outbox, OutboxWire  # isort: skip
from fcac.deployment.processes import ServerProcess, free_port  # isort: skip
from fcac.deployment.settings import STATE, FederationSettings  # isort: skip
from fcac.deployment.site_link import refresh  # isort: skip

pytestmark = pytest.mark.slow

LIMITS = FrontLimits(pending=40, head_seconds=3.0, requests_per_second=50.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "schema.toml").write_text(SCHEMA)
    root = make_study(folder, list("abcd"), folder / "schema.toml", address=f"127.0.0.1:{free_port()}")
    server = ServerProcess(root, limits=LIMITS)
    server.start()
    assert server.process is not None
    (folder / "pid").write_text(str(server.process.pid))
    yield root
    server.stop()


def hub(root: Path) -> Hub:
    return Hub(root / STATE, FederationSettings.load(root))


def open_port(root: Path, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    settings = FederationSettings.load(root)
    host = certificates.split_address(settings.address)[0]
    context = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
    connection = http.client.HTTPSConnection(host, settings.join_port, timeout=PATIENCE, context=context)
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_a_message_waits_and_its_reply_is_delivered_once(root: Path) -> None:
    bundle = root.parent / "bundles" / "a"
    wire = OutboxWire(hub(root))
    replies = wire.exchange({"a": b"a question"}, PATIENCE)
    arrived: list[tuple[str, bytes | None]] = []
    waiting = threading.Thread(target=lambda: arrived.extend(replies))
    waiting.start()
    status, letter, data = ask(bundle, "GET", "/work")
    assert (status, data) == (200, b"a question")
    # whoever was cut off gets it again; a reply to something else is not taken
    assert ask(bundle, "GET", "/work")[1:] == (letter, data)
    assert ask(bundle, "POST", "/reply", b"x", **{"X-Fcac-Letter": "0" * 32})[0] == 410
    assert ask(root.parent / "bundles" / "b", "POST", "/reply", b"x", **{"X-Fcac-Letter": letter})[0] == 410
    assert ask(bundle, "POST", "/reply", b"an answer", **{"X-Fcac-Letter": letter})[0] == 204
    waiting.join(PATIENCE)
    assert arrived == [("a", b"an answer")]
    assert ask(bundle, "POST", "/reply", b"another", **{"X-Fcac-Letter": letter})[0] == 410


def test_a_reply_survives_the_run_that_waited_for_it(root: Path) -> None:
    outbox = Outbox(hub(root).store)
    names = outbox.put({"a": b"asked before the run was killed"}, PATIENCE)
    status, letter, _ = ask(root.parent / "bundles" / "a", "GET", "/work")
    assert (status, letter) == (200, names["a"])
    assert ask(root.parent / "bundles" / "a", "POST", "/reply", b"kept", **{"X-Fcac-Letter": letter})[0] == 204
    # the answer of the hub was lost, and the site sends it again
    assert ask(root.parent / "bundles" / "a", "POST", "/reply", b"kept", **{"X-Fcac-Letter": letter})[0] == 204
    wire = OutboxWire(hub(root))
    assert list(wire.exchange({"a": b"asked before the run was killed"}, PATIENCE)) == [("a", b"kept")]
    assert list(wire.late()) == []


def test_what_nobody_waits_for_is_not_handed_out(root: Path) -> None:
    outbox = Outbox(hub(root).store)
    outbox.put({"a": b"too late"}, 0.0)
    assert outbox.waiting() == {}
    outbox.drop(["a"])


def test_only_sites_of_the_study_are_served(root: Path, tmp_path: Path) -> None:
    host, port = certificates.split_address(FederationSettings.load(root).address)
    trust = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
    plain = socket.create_connection((host, port))
    # TLS 1.3 says with the first bytes that a certificate is missing
    with contextlib.suppress(OSError), trust.wrap_socket(plain, server_hostname=host) as bare:
        bare.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert bare.recv(100) == b""
    old = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((host, port)) as plain, pytest.raises(OSError, match=r"(?i)ssl|reset"):
        old.wrap_socket(plain, server_hostname=host)
    # the right authority, but a key that the study does not know
    stranger = tmp_path / "stranger"
    shutil.copytree(root.parent / "bundles" / "a", stranger)
    (stranger / "node.key").unlink()
    request = certificates.make_key(stranger / "node.key", "a")
    (stranger / "node.crt").write_text(certificates.sign_site(root / "ca", "a", request))
    for method, path in (("GET", "/work"), ("POST", "/reply"), ("GET", "/bundle"), ("POST", "/renew")):
        assert ask(stranger, method, path, b"")[0] == 403
    for path in ("/", "/join", "/metrics", "/../ca/ca.key"):
        assert ask(root.parent / "bundles" / "a", "GET", path)[0] == 404


def test_two_processes_cannot_use_one_key(root: Path) -> None:
    bundle = root.parent / "bundles" / "b"
    first = threading.Thread(target=lambda: ask(bundle, "GET", "/work", **{"X-Fcac-Instance": "one"}), daemon=True)
    first.start()
    wait_until(lambda: presence.read(root / STATE).get("b", presence.Heard("", 0, "")).open)
    status, _, said = ask(bundle, "GET", "/work", **{"X-Fcac-Instance": "two"})
    assert status == 409
    assert b"already in use by another process" in said


def test_a_site_changes_its_key(root: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "c"
    shutil.copytree(root.parent / "bundles" / "c", bundle)
    before = (bundle / "node.key").read_bytes()
    refresh(bundle, renew=True)
    assert (bundle / "node.key").read_bytes() != before
    # until the new key was used, both are good: the site may have died before it was told
    assert ask(root.parent / "bundles" / "c", "GET", "/bundle")[0] == 200
    assert ask(bundle, "GET", "/bundle")[0] == 200
    wait_until(lambda: ask(root.parent / "bundles" / "c", "GET", "/bundle")[0] == 403, every=0.2)
    assert ask(bundle, "GET", "/bundle")[0] == 200


def test_a_revoked_site_is_out_at_once(root: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "d"
    shutil.copytree(root.parent / "bundles" / "d", bundle)
    assert ask(bundle, "GET", "/bundle")[0] == 200
    study.revoke(root, "d")
    wait_until(lambda: ask(bundle, "GET", "/bundle")[0] == 403, every=0.2)


def test_health_and_metrics(root: Path) -> None:
    assert open_port(root, "GET", "/health") == (200, b'{"status": "ok"}')
    assert open_port(root, "GET", "/metrics")[0] == 401
    assert (
        open_port(root, "GET", "/metrics", Authorization="Bearer x\u00e4".encode("utf-8").decode("latin-1"))[0] == 401
    )
    status, text = open_port(root, "GET", "/metrics", Authorization=f"Bearer {metrics_token(root)}")
    assert status == 200
    assert b"fcac_rounds_closed_total 0\n" in text
    assert b"fcac_hub_requests_total " in text
    assert b"fcac_certificate_days 82" in text
    assert metrics_token(root) == metrics_token(root)  # it lasts
    assert (root / "server" / "metrics.token").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"site": "north"}', b"[" * 5000, b"7"])
def test_nonsense_is_refused_in_words(root: Path, body: bytes) -> None:
    status, said = open_port(root, "POST", "/join", body)
    assert status in (400, 403)
    assert json.loads(said)["detail"].isprintable()


def test_packed_bodies_are_not_unpacked(root: Path) -> None:
    """Fifteen kilobytes would be fifteen megabytes, for each connection at a time."""
    pid = int((root.parent / "pid").read_text())
    before, packed = memory_of(pid), zlib.compress(bytes(15_000_000), 9)
    assert len(packed) < 16_384
    for _ in range(5):
        status, said = open_port(root, "POST", "/join", packed, **{"Content-Encoding": "deflate"})
        assert (status, json.loads(said)["detail"]) == (400, "this is not JSON")
    assert memory_of(pid) < before + 12


def test_a_token_gets_a_bundle_and_no_key(root: Path, tmp_path: Path) -> None:
    invitation = invitations.invite(root, "north")
    request = certificates.make_key(tmp_path / "node.key", "north")
    body = {"site": "north", "token": invitation.token, "request": request}
    status, said = open_port(root, "POST", "/join", json.dumps(body).encode())
    assert status == 200, said
    files = json.loads(said)
    assert set(files) == {"bundle.toml", "schema.toml", "ca.crt"}
    assert not any("PRIVATE" in text for text in files.values())


def test_a_flood_of_strangers_keeps_nobody_out(root: Path) -> None:
    """Half-open connections and slow bodies on both ports: sites and joining are served, memory does not grow."""
    settings = FederationSettings.load(root)
    host, port = certificates.split_address(settings.address)
    pid = int((root.parent / "pid").read_text())
    before = memory_of(pid)
    context = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
    held: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for number in range(300):
            plain = socket.create_connection((host, port if number % 2 else settings.join_port), timeout=PATIENCE)
            stack.callback(plain.close)
            held.append(plain)
            with contextlib.suppress(OSError):
                if number % 3 == 0:
                    plain.sendall(b"\x16\x03\x01")  # the beginning of a handshake
                elif number % 30 == 1 and not number % 2:
                    slow = stack.enter_context(context.wrap_socket(plain, server_hostname=host))
                    slow.sendall(b"POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{")
        begin = time.monotonic()
        assert ask(root.parent / "bundles" / "a", "GET", "/bundle")[0] == 200
        assert open_port(root, "GET", "/health")[0] == 200
        assert time.monotonic() - begin < 60  # no waiting until the flood has timed out, on a busy machine
        assert memory_of(pid) < max(before + 120, 250)
        wait_until(lambda: presence.counters(root / STATE).get("connections_displaced", 0) > 100, every=0.2)
    log = (root / "server" / "hub.log").read_text()
    assert "Traceback" not in log
    assert len(log) < 20_000
