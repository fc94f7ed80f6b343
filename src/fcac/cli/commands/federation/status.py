"""``fcac federation status``: show sites, rounds, clusters and costs, as text or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import Directory, PlainErrors
from fcac.cli.terminal import say


def status(
    directory: Directory,
    rejected: Annotated[bool, typer.Option("--rejected", help="List what was rejected, and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for programs.")] = False,
) -> None:
    """Show sites, rounds, contributions, clusters, and the privacy spent as reported by the sites."""
    from fcac.deployment.status_lines import describe

    with PlainErrors():
        if as_json:
            import json

            from fcac.deployment.facts import facts

            say(json.dumps(facts(directory), indent=1))
            return
        for line in describe(directory, rejected):
            say(line)
