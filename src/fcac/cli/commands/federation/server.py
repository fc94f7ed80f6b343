"""``fcac federation server``: run the hub until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import Directory, PlainErrors, audited
from fcac.cli.terminal import say


def server(
    directory: Directory,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on, if not the one given to init.", show_default=False),
    ] = None,
) -> None:
    """Run the server until Ctrl-C. It notices sites that are added or revoked meanwhile."""
    from fcac.deployment.hub_service import HubService, stamped

    with PlainErrors(), audited(directory, "server"):
        HubService(directory, host, stamped).run()
        say("Stopping.")
