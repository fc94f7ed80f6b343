"""A site that sends what it likes: run in place of ``flwr-clientapp``, it answers with the bytes in a file.

``python hostile_client.py FILE SITE ...`` with Flower's own arguments after these two.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(file: Path, site: str) -> None:
    """Answer one message with the file, whatever was asked."""
    import flwr.supernode.runtime.run_clientapp as runtime
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.supernode.cli import flwr_clientapp

    from fcac.flower import messages

    app = ClientApp()

    @app.train("contribute")
    def answer(message: Message, context: Context) -> Message:
        reply = messages.Reply(messages.CONTRIBUTION, site, file.read_bytes())
        return Message(messages.write_reply(reply), reply_to=message)

    runtime.get_load_client_app_fn = lambda **ignored: lambda *also_ignored: app
    runtime.install_from_fab = lambda *ignored, **also_ignored: None
    flwr_clientapp()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)), sys.argv.pop(1))
