"""A guarded SuperLink: from outside, only the paths that sites need can be reached.

Sites, submitters of runs and the server's own processes share one port, and the open-source distribution of Flower does
not authenticate who submits a run. Everything except the sites' part therefore answers only requests from the server's
own machine.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Paths that are open to everybody; the first requires a site's key.
OPEN_PATHS = ("/v1/fleet/", "/health")


class LocalOnly:
    """A layer around a web application that accepts only local requests, except on :data:`OPEN_PATHS`.

    Parameters
    ----------
    app : ASGI application

    Examples
    --------
    >>> from fcac.flower.guard import is_local
    >>> is_local("127.0.0.1"), is_local("::1"), is_local("::ffff:127.0.0.1"), is_local("203.0.113.5"), is_local(None)
    (True, True, True, False, False)
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or self._may_pass(scope):
            await self.app(scope, receive, send)
            return
        text = b"only from the server's own machine"
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    @staticmethod
    def _may_pass(scope: Scope) -> bool:
        client = scope.get("client")
        return str(scope.get("path", "")).startswith(OPEN_PATHS) or is_local(client[0] if client else None)


def is_local(address: str | None) -> bool:
    """Return whether an address is a loopback address of this machine."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def run_guarded_superlink() -> None:
    """Run Flower's SuperLink, with the command line of this process, behind :class:`LocalOnly`."""
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    from fcac.flower.pinned_runtime import replace

    # inserted where Flower's own extensions would be, so that it is the outermost layer
    replace("flwr.superlink.extensions", {"get_middleware": lambda: (Middleware(LocalOnly),)})
    sys.argv[0] = "flower-superlink"
    flower_superlink()
