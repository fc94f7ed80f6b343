"""``fcac federation rehearse``: a whole federation on this machine, with one command."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import PlainErrors
from fcac.cli.console import say


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
) -> None:
    """Try a federation on this machine: make rows, keys, a hub and sites, play rounds, and stop everything again.

    All processes are real and talk over TLS on the loopback interface. What remains is what a federation leaves behind:
    the model, the report, the logs.

    [bold]Example[/bold]

    fcac federation rehearse --sites 3
    """
    from fcac.deployment.status import describe
    from fcac.flower.processes import stopped_by_signals
    from fcac.flower.rehearsal import rehearse as play

    folder = Path(tempfile.mkdtemp(prefix="fcac-rehearsal-")) if out is None else out
    with PlainErrors(), stopped_by_signals():
        root = play(folder, sites, rounds, say, epsilon=epsilon)
        say("")
        for line in describe(root):
            say(line)
    say("")
    say(f"Everything is stopped. Report: {root / 'state' / 'report.html'}; settings: {root / 'federation.toml'}.")
