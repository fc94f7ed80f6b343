"""``fcac federation agree``: let the sites agree on bounds, scales and levels that nobody knows."""

from __future__ import annotations

from typing import Annotated

import typer

from fcac._text import listed
from fcac.cli.commands.federation.shared import Directory, PlainErrors, audited
from fcac.cli.terminal import BadUse, note, say


def agree(
    directory: Directory,
    numbers_only: Annotated[
        bool, typer.Option("--numbers-only", help="Leave categories alone: every level keeps its public code.")
    ] = False,
    scaling: Annotated[
        str, typer.Option("--scaling", help="Scaling of the numbers agreed on: standard, range or none.")
    ] = "standard",
) -> None:
    """Let the sites agree on bounds, centre, spread and frequent levels of columns that have none in the schema.

    Every site counts its records in public coarse bins, then in finer ones, and sends the counts with noise; what this
    costs is decided, and charged to its ledger, at each site ([bold]fcac federation site --agree EPSILON[/bold]). The
    schema that follows replaces the study's and the sites' own. Run it before the first round; a run that was
    interrupted goes on where it stopped, and run again it hands the schema to sites that were away.

    [bold]Examples[/bold]

    fcac federation agree study

    fcac federation agree study --numbers-only --scaling range
    """
    from fcac.deployment import processes
    from fcac.deployment.running import run_agreement

    if scaling not in ("standard", "range", "none"):
        raise BadUse(f"--scaling must be standard, range or none, not {scaling}")
    with PlainErrors(), audited(directory, "agree"), processes.stopped_by_signals():
        try:
            agreement, took = run_agreement(directory, say, levels=not numbers_only, scaling=scaling)
        except KeyboardInterrupt:
            say("Stopped. What has arrived is kept; the next run continues from there.")
            return
    say(f"Agreed; {directory / 'schema.toml'} is what every site now uses:")
    for line in agreement.in_words():
        say(f"  {line}")
    absent = sorted(set(agreement.hub.settings.active) - set(took))
    if absent:
        note(f"note: {listed(absent)} did not take the schema: run this again once they are connected")
