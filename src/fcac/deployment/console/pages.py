"""The console's pages, which the hub's service serves on its open port, below ``/console``.

Only callers on the hub's own machine are answered, under its own names (so that no foreign page can reach in by DNS).
`fcac federation console` makes a token and shows it once; the hub keeps its hash. The token is typed into a page, never
part of an address, and from then on a cookie that scripts cannot read lets the browser in. What changes something must
also carry a word that only the page was given, so that another page in the same browser cannot press a button.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiohttp import web

from fcac.deployment import certificates
from fcac.deployment.console.actions import Actions
from fcac.deployment.listening import is_local
from fcac.deployment.settings import STATE

_FILE = Path("server") / "console.hash"
_COOKIE = "fcac_console"
_LOOK_SECONDS, _STILL_SECONDS = 1.0, 15.0
_MOST_LISTENERS = 16
_POLICY = (
    "default-src 'self'; style-src 'self'; script-src 'self'; frame-src 'self'; frame-ancestors 'self'; "
    "form-action 'self'"
)
# The report carries its own styles and scripts, and nothing from elsewhere. It is a page of its own origin, which can
# neither read the console nor press its buttons.
_OF_REPORT = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
_KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def new_token(root: Path) -> str:
    """Return a new token for the console; the one before, and whoever came in with it, is out."""
    token = secrets.token_urlsafe(24)
    certificates.write_private(root / _FILE, _hash(token).encode())
    return token


class Console:
    """The console of one federation; `look` returns the state of the federation, as values for JSON."""

    def __init__(self, root: Path, hosts: tuple[str, ...], look: Callable[[], dict[str, Any]]) -> None:
        self.root, self.actions = root, Actions(root)
        self._hosts, self._look = {"127.0.0.1", "localhost", "[::1]", *hosts}, look
        self._shown, self._at, self._looking = "", 0.0, asyncio.Lock()
        self._n_listeners = 0

    def routes(self) -> list[web.RouteDef]:
        """Return what is served where."""
        return [
            web.get("/console", self._page),
            web.post("/console/enter", self._enter),
            web.get("/console/{name:console\\.(?:css|js)}", self._within(self._asset)),
            web.get("/console/facts", self._within(self._facts)),
            web.get("/console/report", self._within(self._report)),
            web.get("/console/events", self._within(self._events)),
            web.post("/console/{action:run|stop|revoke}", self._within(self._act)),
        ]

    def knows(self, request: web.Request) -> bool:
        """Return whether the caller has come in with the token."""
        return self._is_near(request) and self._is_token(request.cookies.get(_COOKIE, ""))

    def _is_near(self, request: web.Request) -> bool:
        name = request.host.rpartition(":")[0] or request.host
        return is_local(request.remote or "") and name in self._hosts

    def _is_token(self, given: str) -> bool:
        path = self.root / _FILE
        return path.exists() and hmac.compare_digest(_hash(given), path.read_text("ascii"))

    def _within(self, handler: Handler) -> Handler:
        async def known(request: web.Request) -> web.StreamResponse:
            return await handler(request) if self.knows(request) else _text(401, "open /console, and enter the token")

        return known

    # ------------------------------------------------------------ coming in

    async def _page(self, request: web.Request) -> web.StreamResponse:
        if not self._is_near(request):
            return _text(403, "the console answers on the hub's own machine, under its own name")
        if not self.knows(request):
            return _answer(_asset("enter.html"), "html", 401)
        word = _word(request.cookies[_COOKIE])
        return _answer(_asset("console.html").replace("__TOKEN__", word), "html")

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        token = str((await request.post()).get("token", "")).strip()
        if not self._is_near(request) or not self._is_token(token):
            await asyncio.sleep(0.2)
            return _text(401, "this token is not, or no longer, valid: fcac federation console shows a new one")
        found = web.Response(status=303, headers={"Location": "/console"})
        found.set_cookie(_COOKIE, token, httponly=True, secure=True, samesite="Strict", path="/console")
        return found

    # ------------------------------------------------------------ what there is

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        return _answer(_asset(name), name.rpartition(".")[2])

    async def _facts(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=await self._now(), content_type="application/json")

    async def _now(self) -> str:
        """Return the state of the federation; one look serves all open pages."""
        async with self._looking:
            if time.monotonic() - self._at >= _LOOK_SECONDS:
                found = await asyncio.to_thread(self._look)
                self._shown = json.dumps(found | {"running": self.actions.running, "said": self.actions.said})
                self._at = time.monotonic()
            return self._shown

    async def _report(self, request: web.Request) -> web.StreamResponse:
        path = self.root / STATE / "report.html"
        if not path.exists():
            return _text(404, "there is no report before the first round is closed")
        return _answer(await asyncio.to_thread(path.read_text, "utf-8"), "html", policy=_OF_REPORT)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._n_listeners >= _MOST_LISTENERS:
            return _text(503, "too many open pages")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._n_listeners += 1
        try:
            await stream.prepare(request)
            shown, at = "", 0.0
            while self.knows(request):
                found = await self._now()
                if found != shown:
                    shown, at = found, time.monotonic()
                    await stream.write(b"data: " + found.encode() + b"\n\n")
                elif time.monotonic() - at > _STILL_SECONDS:
                    at = time.monotonic()
                    await stream.write(b": still here\n\n")
                await asyncio.sleep(_LOOK_SECONDS)
            return stream
        finally:
            self._n_listeners -= 1

    async def _act(self, request: web.Request) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("X-Fcac-Token", ""), _word(request.cookies[_COOKIE])):
            return _text(403, "not allowed")
        try:
            wanted = json.loads(await request.read())
            match request.match_info["action"]:
                case "run":
                    await asyncio.to_thread(self.actions.start, int(wanted.get("rounds", 1)))
                case "stop":
                    await asyncio.to_thread(self.actions.stop)
                case _:
                    await asyncio.to_thread(self.actions.revoke, str(wanted.get("site", "")))
        except (ValueError, TypeError, AttributeError) as error:
            return _text(400, str(error))
        self._at = 0.0
        return web.json_response({})


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _word(token: str) -> str:
    """Return what the page of this token's holder was given."""
    return _hash(f"page of {token}")


def _asset(name: str) -> str:
    return files("fcac.deployment.console").joinpath("assets", name).read_text("utf-8")


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _answer(text: str, kind: str, status: int = 200, policy: str = _POLICY) -> web.Response:
    return web.Response(
        status=status,
        text=text,
        content_type=_KINDS[kind],
        headers={
            "Cache-Control": "no-store",
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
    )
