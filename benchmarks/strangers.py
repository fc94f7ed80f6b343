"""Ten thousand bad requests from fifty addresses: the hub's memory and log, and how soon honest callers are served.

Run ``python benchmarks/strangers.py [REQUESTS]`` on Linux. It starts itself again in a network namespace of its own
(``unshare``), where the loopback interface has fifty-one addresses that are not loopback addresses to the hub. Beside
the flood an honest site fetches its bundle and answers messages, somebody asks for health and metrics, and the hub's
own ``status`` is read. Bars: 250 MB at any time, 200 lines of log, every honest answer within two seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HUB, ADDRESSES = "10.99.0.1", [f"10.99.0.{number}" for number in range(2, 52)]
MOST_MB, MOST_LINES, MOST_SECONDS = 250, 200, 2.0
AT_ONCE = 150
SCHEMA = "fcac_schema = 1\n[columns]\nx = { min = 0, max = 1 }\n"

HEAD = b"POST /join HTTP/1.1\r\nHost: hub\r\n"
#: Fifteen megabytes of nothing, in fifteen kilobytes.
PACKED = zlib.compress(bytes(15_000_000), 9)
#: Bytes after a handshake on the open port.
MALFORMED_HTTP = [
    b"\x00" * 5000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /join HTTP/1.1\r\nHost: hub\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET /join HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
    b"GET /../../ca/ca.key HTTP/1.1\r\nHost: hub\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    HEAD + b"Content-Length: -1\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    HEAD + b"Content-Length: 1000000000\r\n\r\n" + b"x" * 20_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello",
    HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    HEAD + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
    HEAD + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
    b"BREW /join HTTP/1.1\r\nHost: hub\r\n\r\n",
    b"GET /join HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
]
BAD_BODIES = [b"", b"{", b"[" * 16_000, b"\xff\xfe", b"7", b'{"site": 1}', b"\xa1\x61a\xbf\xff", b"x" * 16_000]


def odd_requests() -> list[str]:
    """Requests to certify keys of kinds that nobody asked for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding

    keys: list[tuple[Any, Any]] = [
        (ed25519.Ed25519PrivateKey.generate(), None),
        (ed448.Ed448PrivateKey.generate(), None),
        (rsa.generate_private_key(65537, 2048), hashes.SHA256()),
        (ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()),
        (ec.generate_private_key(ec.SECP521R1()), hashes.SHA256()),
        (ec.generate_private_key(ec.BrainpoolP384R1()), hashes.SHA256()),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    made = [builder.sign(key, digest).public_bytes(Encoding.PEM).decode() for key, digest in keys]
    return [*made, made[0].replace("M", "N"), "-----BEGIN CERTIFICATE REQUEST-----\n" * 200, "\x00"]


class Strangers:
    """Callers without a key of the study, each with a way of its own of being a nuisance."""

    def __init__(self, root: Path, sites_port: int, open_port: int, token: str) -> None:
        self.ports, self.token = (sites_port, open_port), token
        self.trust = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
        self.trust.check_hostname, self.trust.verify_mode = False, ssl.CERT_NONE
        self.old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.old.check_hostname, self.old.verify_mode = False, ssl.CERT_NONE
        self.old.maximum_version = ssl.TLSVersion.TLSv1_2
        self.forged = [self._forged(root.parent / f"forged-{number}") for number in range(3)]
        self.odd = odd_requests()
        self.kinds: dict[str, Callable[[socket.socket, int, random.Random], None]] = {
            "connects and leaves": lambda plain, port, rng: None,
            "bytes that are no TLS": lambda plain, port, rng: plain.sendall(rng.randbytes(3000)),
            "half a handshake": self._half,
            "TLS 1.2": lambda plain, port, rng: self.old.wrap_socket(plain).close(),
            "no certificate, or another authority's": self._stranger,
            "malformed HTTP": self._malformed,
            "bad bodies to join": self._bad_body,
            "odd keys with a valid token": self._odd_key,
            "slow bodies": self._slow,
            "alerts and garbage after a handshake": self._garbage,
        }

    def _forged(self, folder: Path) -> ssl.SSLContext:
        """A client whose certificate another authority has signed."""
        from fcac.deployment import certificates

        folder.mkdir()
        certificates.make_authority(folder, "another")
        request = certificates.make_key(folder / "node.key", "north")
        (folder / "node.crt").write_text(certificates.sign_site(folder, "north", request))
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(folder / "node.crt", folder / "node.key")
        return context

    def call(self, number: int) -> str:
        """Be a nuisance once; return the kind."""
        rng = random.Random(number)
        kind = list(self.kinds)[number % len(self.kinds)]
        on_open_port = kind in ("malformed HTTP", "bad bodies to join", "odd keys with a valid token", "slow bodies")
        port = self.ports[on_open_port or rng.random() < 0.5]
        with contextlib.suppress(OSError, ssl.SSLError), socket.socket() as plain:
            plain.settimeout(10.0)
            plain.bind((rng.choice(ADDRESSES), 0))
            plain.connect((HUB, port))
            self.kinds[kind](plain, port, rng)
        return kind

    def _half(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        plain.sendall(b"\x16\x03\x01\x02\x00")
        time.sleep(rng.uniform(0.0, 3.0))

    def _stranger(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        with rng.choice([self.trust, *self.forged]).wrap_socket(plain) as tls:
            tls.sendall(b"GET /work HTTP/1.1\r\nHost: hub\r\n\r\n")
            tls.recv(1000)

    def _malformed(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        with self.trust.wrap_socket(plain) as tls:
            tls.sendall(rng.choice(MALFORMED_HTTP))
            tls.recv(1000)

    def _bad_body(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        self._post(plain, rng.choice(BAD_BODIES))

    def _odd_key(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        self._post(plain, json.dumps({"site": "east", "token": self.token, "request": rng.choice(self.odd)}).encode())

    def _post(self, plain: socket.socket, body: bytes) -> None:
        with self.trust.wrap_socket(plain) as tls:
            tls.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            tls.recv(1000)

    def _slow(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        with self.trust.wrap_socket(plain) as tls:
            tls.sendall(HEAD + b"Content-Length: 9000\r\n\r\n{")
            for _ in range(rng.randrange(4)):
                time.sleep(1.0)
                tls.sendall(b" ")

    def _garbage(self, plain: socket.socket, port: int, rng: random.Random) -> None:
        tls = self.trust.wrap_socket(plain, do_handshake_on_connect=True)
        handle = socket.socket(fileno=os.dup(tls.fileno()))
        with tls, handle:
            handle.sendall(b"\x15\x03\x03\x00\x02\x02\x28" + rng.randbytes(200))


class Honest:
    """Callers who must not notice anything; the longest that each of them has waited."""

    def __init__(self, root: Path, bundle: Path, sites_port: int, open_port: int) -> None:
        from fcac.deployment.hub import Hub
        from fcac.deployment.hub_service import metrics_token
        from fcac.deployment.outbox import OutboxWire
        from fcac.deployment.settings import STATE, FederationSettings
        from fcac.deployment.status_lines import describe

        self.site = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
        self.site.load_cert_chain(bundle / "node.crt", bundle / "node.key")
        self.open = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
        self.sites_port, self.open_port = sites_port, open_port
        token = {"Authorization": f"Bearer {metrics_token(root)}"}
        wire = OutboxWire(Hub(root / STATE, FederationSettings.load(root)))
        asked = [0]

        def exchange() -> None:
            asked[0] += 1
            question = str(asked[0]).encode()
            assert list(wire.exchange({"north": question}, 60.0)) == [("north", question)]

        self.tasks: dict[str, Callable[[], Any]] = {
            "a site's new connection": lambda: self._get(self.site, sites_port, "/bundle"),
            "a message and its reply": exchange,
            "health": lambda: self._get(self.open, open_port, "/health"),
            "metrics": lambda: self._get(self.open, open_port, "/metrics", token),
            "status": lambda: describe(root),
        }
        self.waited: dict[str, list[float]] = {name: [] for name in self.tasks}
        self.failed: list[str] = []

    def _get(self, context: ssl.SSLContext, port: int, path: str, headers: dict[str, str] | None = None) -> bytes:
        connection = http.client.HTTPSConnection(HUB, port, timeout=60, context=context)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            return answer.read()
        finally:
            connection.close()

    def answer_messages(self, ended: threading.Event) -> None:
        """Answer every message with itself, as a site does, over one connection."""
        connection = http.client.HTTPSConnection(HUB, self.sites_port, timeout=60, context=self.site)
        while not ended.is_set():
            connection.request("GET", "/work", headers={"X-Fcac-Instance": "north"})
            reply = connection.getresponse()
            data, letter = reply.read(), reply.headers.get("X-Fcac-Letter")
            if letter:
                connection.request("POST", "/reply", data, {"X-Fcac-Letter": letter})
                connection.getresponse().read()
        connection.close()

    def watch(self, ended: threading.Event) -> None:
        """Ask for everything again and again."""
        while not ended.wait(0.3):
            for name, task in self.tasks.items():
                begin = time.monotonic()
                try:
                    task()
                except (OSError, AssertionError, http.client.HTTPException) as error:
                    self.failed.append(f"{name}: {type(error).__name__} {error}")
                self.waited[name].append(time.monotonic() - begin)


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def nuisance(strangers: Strangers, numbers: range) -> None:
    """Let strangers loose, many at once; on the same machine, they should not take the hub's processor."""
    os.nice(10)
    with ThreadPoolExecutor(AT_ONCE // 3) as pool:
        list(pool.map(strangers.call, numbers))


def measure(folder: Path, requests: int) -> dict[str, Any]:
    """Start a hub, let strangers and honest callers loose on it, and return what was seen."""
    from fcac.deployment import invitations, study
    from fcac.deployment.presence import counters
    from fcac.deployment.processes import ServerProcess
    from fcac.deployment.rehearsal import join_here
    from fcac.deployment.settings import STATE

    (folder / "schema.toml").write_text(SCHEMA)
    root = study.init(folder / "study", folder / "schema.toml", address=f"{HUB}:8443")
    join_here(root, "north", folder / "north")
    token = invitations.invite(root, "east").token
    server = ServerProcess(root)
    server.start()
    assert server.process is not None
    begin_mb = peak_mb(server.process.pid)
    strangers, honest = Strangers(root, 8443, 8444, token), Honest(root, folder / "north", 8443, 8444)
    ended = threading.Event()
    # in processes of their own: honest callers do not share an interpreter with them
    flood = [multiprocessing.Process(target=nuisance, args=(strangers, range(i, requests, 3))) for i in range(3)]
    watching = [threading.Thread(target=task, args=(ended,)) for task in (honest.answer_messages, honest.watch)]
    begin = time.monotonic()
    try:
        for one in (*flood, *watching):
            one.start()
        for process in flood:
            process.join()
        seconds = time.monotonic() - begin
        ended.set()
        for thread in watching:
            thread.join(60)
        time.sleep(6)  # the counters are written every few seconds
        most = peak_mb(server.process.pid)
    finally:
        ended.set()
        server.stop()
    log = server.log_path.read_text("utf-8").splitlines()
    counts = counters(root / STATE)
    waited = {name: round(max(times), 2) for name, times in honest.waited.items()}
    usual = {name: round(sorted(times)[len(times) // 2], 2) for name, times in honest.waited.items()}
    return {
        "requests": requests, "seconds": round(seconds), "load": round(os.getloadavg()[0], 1),
        "hub, MB at the start": round(begin_mb), "hub, MB at most": round(most), "lines of log": len(log),
        "longest wait, s": waited, "median wait, s": usual, "honest calls": len(honest.waited["health"]),
        "honest calls that failed": honest.failed[:5], "counters": counts, "log": log[-12:],
        "kept": most < MOST_MB and len(log) < MOST_LINES and not honest.failed
        and max(waited.values()) <= MOST_SECONDS and "Traceback" not in "\n".join(log),
    }  # fmt: skip


def main() -> None:
    """Measure in a namespace of its own."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    if os.environ.get("FCAC_STRANGERS") != "inside":
        command = ["unshare", "--net", "--map-root-user", sys.executable, __file__, str(requests)]
        sys.exit(subprocess.run(command, env={**os.environ, "FCAC_STRANGERS": "inside"}, check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (HUB, *ADDRESSES):
        subprocess.run(["ip", "address", "add", f"{address}/24", "dev", "lo"], check=True)
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), requests)
    print(json.dumps(found, indent=1))
    sys.exit(not found["kept"])


if __name__ == "__main__":
    main()
