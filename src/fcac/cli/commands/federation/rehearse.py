"""``fcac federation rehearse``: a whole federation on this machine, with one command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import PlainErrors
from fcac.cli.terminal import say


def rehearse(
    sites: Annotated[int, typer.Option("--sites", help="Number of sites.", min=1, max=50)] = 3,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds to play.", min=1)] = 2,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Keep everything in this new folder; by default one below /tmp.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Privacy cost of a round at every site; by default none.", show_default=False),
    ] = None,
    console: Annotated[
        bool | None,
        typer.Option(
            "--console/--no-console",
            help="Open the console and go on until Ctrl-C; by default if this is a terminal.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Try a federation on this machine: make rows, keys, a hub and sites, play rounds, open the console.

    All processes are real and talk over TLS on the loopback interface. Ctrl-C stops everything. What remains is what a
    federation leaves behind: the model, the report, the logs.

    [bold]Example[/bold]

    fcac federation rehearse --sites 3
    """
    from fcac.deployment.processes import stopped_by_signals
    from fcac.deployment.rehearsal import rehearse as play
    from fcac.deployment.status_lines import describe

    watched = sys.stdout.isatty() if console is None else console
    folder = Path(tempfile.mkdtemp(prefix="fcac-rehearsal-")) if out is None else out
    with PlainErrors(), stopped_by_signals():
        root = play(folder, sites, rounds, say, epsilon=epsilon, while_running=_watch if watched else None)
        say("")
        for line in describe(root):
            say(line)
    say("")
    say(f"Everything is stopped. Report: {root / 'state' / 'report.html'}; settings: {root / 'federation.toml'}.")


def _watch(root: Path) -> None:
    """Open the console of the federation that runs, until Ctrl-C."""
    from fcac.cli.commands.federation.console import watch

    watch(root)
