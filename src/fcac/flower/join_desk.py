"""The hub's answer to sites that ask to join; everything else is passed on to the sites' interface."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from fcac.flower.guard import App, Receive, Scope, Send

PATH = "/v1/join"


class JoinDesk:
    """A layer that answers ``/v1/join``: the authority's certificate to anybody, a bundle for a valid token.

    Parameters
    ----------
    app : ASGI application
    root : Path
        Directory of the federation.
    """

    def __init__(self, app: App, root: Path) -> None:
        self.app, self.root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http" or scope.get("path") != PATH:
            await self.app(scope, receive, send)
            return
        if scope.get("method") == "GET":
            await _answer(send, 200, (self.root / "ca" / "ca.crt").read_bytes(), b"application/x-pem-file")
            return
        from fcac.deployment import invitations

        try:
            request = json.loads((await receive()).get("body", b""))
            # it waits for a lock and for the disk
            files = await asyncio.to_thread(invitations.ask, self.root, request)
        except (ValueError, RecursionError) as error:
            said = str(error) if not isinstance(error, json.JSONDecodeError | UnicodeError) else "this is not JSON"
            await _answer(send, 403, json.dumps({"detail": said}).encode())
            return
        await _answer(send, 200, json.dumps(files).encode())


async def _answer(send: Send, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
