"""The console's web server: pages from this package, facts as they change, and a few actions; loopback by default.

A browser gets in with a token, once; from then on a cookie that scripts cannot read lets it in. Requests that change
something must also carry the token that the page was given, so that another page in the same browser cannot press a
button. Requests for other names than this machine's are refused, so that no foreign page can reach in by DNS.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Sequence
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fcac.deployment import metrics
from fcac.deployment.console.actions import Actions
from fcac.deployment.console.hooks import Hook, news
from fcac.deployment.facts import Observer
from fcac.deployment.settings import STATE

_COOKIE = "fcac_console"
_LOOK_SECONDS = 1.0
_LARGEST_BODY = 4096
_MOST_LISTENERS = 16
_POLICY = "default-src 'self'; style-src 'self'; script-src 'self'; frame-src 'self'; frame-ancestors 'self'"
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class Console:
    """Serves the console of one federation until it is closed, and tells hooks when something happens.

    Port 0 takes a free one.
    """

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, hooks: Sequence[Hook] = ()) -> None:
        self.root, self.token, self.actions = root, secrets.token_urlsafe(24), Actions(root)
        self._hooks = tuple(hooks)
        self._changed = threading.Condition()
        self._number = 0
        self._closing = threading.Event()
        self._observer = Observer(root)
        self._listeners = threading.BoundedSemaphore(_MOST_LISTENERS)
        self.now: dict[str, Any] = self._look()
        console = self

        class Handler(_Handler):
            pass

        Handler.console = console
        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.host, self.port = host, int(self._server.server_address[1])
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """The address to open in a browser; it lets in whoever has it."""
        return f"http://{self.host}:{self.port}/?token={self.token}"

    def start(self) -> None:
        """Begin to serve."""
        self._watcher.start()
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and end what was started from here."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self.actions.close()

    # ------------------------------------------------------------ looking

    def _look(self) -> dict[str, Any]:
        return self._observer.look() | {"running": self.actions.running, "said": self.actions.said}

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                found = self._look()
            except (OSError, ValueError):
                continue  # a file that is being replaced; the next look will see it
            if found == self.now:
                continue
            told = news(self.now, found)
            with self._changed:
                self.now, self._number = found, self._number + 1
                self._changed.notify_all()
            for event in told:
                for hook in self._hooks:
                    threading.Thread(target=hook.tell, args=(event,), daemon=True).start()

    def wait(self, number: int, seconds: float) -> int:
        """Wait until there is something newer than this number; return the present one."""
        with self._changed:
            self._changed.wait_for(lambda: self._number != number or self._closing.is_set(), seconds)
            return self._number


class _Handler(BaseHTTPRequestHandler):
    console: Console
    server_version = "fcac"
    sys_version = ""
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: addresses hold the token."""

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if not self._known_host():
            return self._answer(403, "text/plain", b"this console answers under its own name only\n")
        if where.path == "/" and "token" in parse_qs(where.query):
            return self._let_in(parse_qs(where.query)["token"][0])
        if not self._may():
            return self._answer(401, "text/plain", b"open the address that `fcac federation console` has printed\n")
        if where.path == "/":
            return self._page()
        if where.path.startswith("/assets/"):
            return self._asset(where.path.removeprefix("/assets/"))
        if where.path == "/facts":
            return self._answer(200, "application/json", json.dumps(self.console.now).encode())
        if where.path == "/metrics":
            text = metrics.as_text(self.console.now)
            return self._answer(200, "text/plain; version=0.0.4", text.encode())
        if where.path == "/report":
            return self._report()
        if where.path == "/events":
            return self._events()
        return self._answer(404, "text/plain", b"there is nothing here\n")

    def do_POST(self) -> None:
        given = self.headers.get("X-Fcac-Token", "")
        if not self._known_host() or not self._may() or not hmac.compare_digest(given, self.console.token):
            return self._answer(403, "text/plain", b"not allowed\n")
        try:
            length = int(self.headers.get("Content-Length", "0"))
            if not 0 <= length <= _LARGEST_BODY:
                raise ValueError("the request is too large")
            wanted = json.loads(self.rfile.read(length) or b"{}")
            if not isinstance(wanted, dict):
                raise ValueError("the request is not an object")
            if self.path == "/run":
                self.console.actions.start(int(wanted.get("rounds", 1)))
            elif self.path == "/stop":
                self.console.actions.stop()
            elif self.path == "/revoke":
                self.console.actions.revoke(str(wanted.get("site", "")))
            else:
                return self._answer(404, "text/plain", b"there is nothing here\n")
        except (ValueError, TypeError) as error:
            return self._answer(400, "text/plain", f"{error}\n".encode())
        return self._answer(200, "application/json", b"{}")

    # ------------------------------------------------------------ who may

    def _known_host(self) -> bool:
        name = (self.headers.get("Host") or "").rpartition(":")[0]
        return name in ("127.0.0.1", "localhost", self.console.host)

    def _may(self) -> bool:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return any(hmac.compare_digest(given, self.console.token) for given in (cookie.value if cookie else "", bearer))

    def _let_in(self, token: str) -> None:
        if not hmac.compare_digest(token, self.console.token):
            time.sleep(0.2)
            return self._answer(401, "text/plain", b"this token is not, or no longer, valid\n")
        self.send_response(303)
        self.send_header("Set-Cookie", f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Location", "/")
        self.end_headers()
        return None

    # ------------------------------------------------------------ what there is

    def _page(self) -> None:
        page = _asset_text("console.html").replace("__TOKEN__", self.console.token)
        self._answer(200, "text/html; charset=utf-8", page.encode())

    def _asset(self, name: str) -> None:
        kind = _KINDS.get(name.rpartition(".")[2])
        if kind is None or "/" in name or name not in ("console.css", "console.js"):
            return self._answer(404, "text/plain", b"there is nothing here\n")
        return self._answer(200, f"{kind}; charset=utf-8", _asset_text(name).encode())

    def _report(self) -> None:
        path = self.console.root / STATE / "report.html"
        if not path.exists():
            return self._answer(404, "text/plain", b"there is no report before the first round is closed\n")
        # the report carries its own styles and scripts, and nothing from elsewhere
        # a page of its own origin, which can neither read the console nor press its buttons
        policy = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
        policy += "; img-src data:"
        return self._answer(200, "text/html; charset=utf-8", path.read_bytes(), policy)

    def _events(self) -> None:
        if not self.console._listeners.acquire(blocking=False):
            return self._answer(503, "text/plain", b"too many open pages\n")
        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            number = -1
            while not self.console._closing.is_set():
                newest = self.console.wait(number, 15.0)
                if newest != number:
                    number = newest
                    self.wfile.write(b"data: " + json.dumps(self.console.now).encode() + b"\n\n")
                else:
                    self.wfile.write(b": still here\n\n")
                self.wfile.flush()
        except OSError:
            return None  # the page was closed
        finally:
            self.console._listeners.release()
        return None

    def _answer(self, code: int, kind: str, body: bytes, policy: str = _POLICY) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)


def _asset_text(name: str) -> str:
    return files("fcac.deployment.console").joinpath("assets", name).read_text("utf-8")
