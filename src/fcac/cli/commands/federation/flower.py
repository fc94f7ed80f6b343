"""``fcac federation flower``: write the folder with which Flower runs the rounds of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import Directory, PlainErrors
from fcac.cli.terminal import say


def flower(
    directory: Directory,
    out: Annotated[Path, typer.Option("--out", help="New folder for the app.", show_default=False)],
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of a run.", min=1)] = 1,
) -> None:
    """Write a Flower app, for those who run Flower: the same sites, ledgers and contributions over its messages.

    The SuperLink's machine has the federation's directory; each SuperNode names the settings of its site. Needs
    [bold]pip install 'fcac[flower]'[/bold] at all of them.

    [bold]Example[/bold]

    fcac federation flower study --out fcac-app --rounds 3
    """
    from fcac.flower.app_folder import write_app

    with PlainErrors():
        folder = write_app(directory, out, rounds)
    say(f"flwr run {folder} plays {rounds} rounds of {directory}; each SuperNode is started with")
    say("  --node-config 'fcac-site=\"STATE/settings.json\"'")
