"""A site that sends what it likes: it has a valid key and answers every request with the bytes in a file.

``python hostile_client.py BUNDLE FILE SITE``
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(bundle: Path, file: Path, site: str) -> None:
    """Answer all messages with the file, whatever was asked."""
    from flwr.app import Message

    from fcac.deployment.study import read_bundle
    from fcac.flower import messages
    from fcac.flower.fleet_client import FleetConnection

    connection = FleetConnection(read_bundle(bundle)["address"], bundle / "ca.crt", bundle / "node.key")
    connection.connect()
    print("Connected.")
    while True:
        connection.beat()
        message = connection.fetch()
        if message is None:
            time.sleep(0.5)
            continue
        reply = messages.Reply(messages.CONTRIBUTION, site, file.read_bytes())
        connection.reply(Message(messages.write_reply(reply), reply_to=message))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
