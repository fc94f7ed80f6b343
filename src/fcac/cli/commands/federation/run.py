"""``fcac federation run``: play rounds, a number of them or one at every interval."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fcac._text import counted
from fcac.cli.commands.federation.shared import Directory, PlainErrors, audited
from fcac.cli.terminal import BadUse, note, say


def run(
    directory: Directory,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Rounds to run.", min=1, show_default=False)] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Run a round at this interval, as in 30s, 15m, 1h or 1d.", show_default=False),
    ] = None,
) -> None:
    """Run rounds: ask every site for what is new, and learn from what they send.

    A round that was interrupted by a crash is finished first; what had arrived is not requested again. With
    [bold]--every[/bold], the sites are asked at that interval until Ctrl-C. A site without privacy that has nothing new
    says so; a site with privacy answers, and pays for, every round.

    [bold]Examples[/bold]

    fcac federation run study --rounds 3

    fcac federation run study --every 1h
    """
    if (rounds is None) == (every is None):
        raise BadUse("give --rounds N or --every INTERVAL")
    from fcac.deployment import processes
    from fcac.deployment.policy import seconds
    from fcac.deployment.running import run_rounds
    from fcac.exceptions import FederationError

    try:
        pause = None if every is None else seconds(every)
    except ValueError as error:
        raise BadUse(f"--every {error}") from None
    if pause == 0:
        raise BadUse(f"--every {every}: the interval must be above 0")
    with PlainErrors(), audited(directory, "run", rounds=rounds, every=every), processes.stopped_by_signals():
        try:
            while True:
                started = time.monotonic()
                try:
                    result = run_rounds(directory, rounds or 1, say)
                    _say_result(directory, result, rounds or 1)
                except FederationError as error:
                    if pause is None:
                        raise
                    note(f"this run failed: {error}")
                if pause is None:
                    return
                time.sleep(max(0.0, started + pause - time.monotonic()))
        except KeyboardInterrupt:
            say("Stopped. What has arrived is kept; the next run continues from there.")


def _say_result(directory: Path, result: dict[str, Any], wanted: int) -> None:
    say(f"{counted(result['closed'], 'round')} closed; model and report are in {directory / 'state'}.")
    if result["closed"] < wanted:
        say(
            "No site had anything new, none answered, or too few took part: see `fcac federation status`. A private "
            "site answers one round an hour, unless its policy.toml says otherwise."
        )
