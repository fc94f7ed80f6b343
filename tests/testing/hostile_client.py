"""A site that sends what it likes: it has a valid key and answers every request with the bytes in a file.

``python hostile_client.py BUNDLE FILE SITE``
"""

from __future__ import annotations

import http.client
import ssl
import sys
from pathlib import Path


def connect(bundle: Path) -> http.client.HTTPSConnection:
    """Return a connection to the hub with a site's certificate, over Python's own client."""
    from fcac.deployment.certificates import split_address
    from fcac.deployment.study import read_bundle

    context = ssl.create_default_context(cafile=str(bundle / "ca.crt"))
    context.load_cert_chain(bundle / "node.crt", bundle / "node.key")
    host, port = split_address(read_bundle(bundle)["address"])
    return http.client.HTTPSConnection(host, port, timeout=600, context=context)


def ask(bundle: Path, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, bytes]:
    """Return status, name of the message and body of the hub's answer to one request."""
    connection = connect(bundle)
    try:
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.headers.get("X-Fcac-Letter", ""), reply.read()
    finally:
        connection.close()


def main(bundle: Path, file: Path, site: str) -> None:
    """Answer all messages with the file, whatever was asked."""
    from fcac.deployment import wire

    connection = connect(bundle)
    print("Connected.")
    while True:
        connection.request("GET", "/work")
        reply = connection.getresponse()
        letter = reply.headers.get("X-Fcac-Letter")
        reply.read()
        if letter:
            answer = wire.Reply(wire.CONTRIBUTION, site, file.read_bytes()).to_bytes()
            connection.request("POST", "/reply", answer, {"X-Fcac-Letter": letter})
            connection.getresponse().read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
