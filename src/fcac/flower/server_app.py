"""The server's side as a Flower ``ServerApp``: a thin layer over :class:`fcac.flower.round_runner.RoundRunner`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fcac import persistence
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.flower.round_runner import RoundRunner, Timeouts

#: Result of the latest run, for the command that waits for it.
RUN_FILE = "run.json"

app = ServerApp()


def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the run's configuration requests; for apps that are run by Flower itself."""
    config = context.run_config
    play(
        grid,
        Path(str(config["fcac-federation"])),
        int(config.get("fcac-rounds", 1)),
        hand_out=bool(config.get("fcac-hand-out", True)),
        poll=float(config.get("fcac-poll", 0.5)),
        ticket=str(config.get("fcac-ticket", "")),
    )


def play(
    grid: Grid,
    directory: Path,
    rounds: int,
    *,
    hand_out: bool = True,
    poll: float = 0.2,
    ticket: str = "",
    check: Callable[[], None] | None = None,
    listen: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Play rounds of a federation over a Grid; return, and store, how it ended.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    directory : Path
        Directory of the federation.
    rounds : int
    hand_out : bool
        Send the model to the sites at the end.
    poll : float
        Seconds between two looks for replies.
    ticket : str
        Stored with the result.
    check : callable, optional
        Called while waiting for sites; what it raises ends the run.
    listen : callable, optional
        Called with every entry that is written to the journal.
    """
    settings = FederationSettings.load(directory)
    hub = Hub(directory / STATE, settings, listen)
    timeouts = Timeouts(settings.timeout, settings.wait, poll)
    result: dict[str, Any] = {"ticket": ticket, "ended": "failed", "closed": 0}
    try:
        runner = RoundRunner(grid, hub, timeouts, reload=lambda: FederationSettings.load(directory), check=check)
        result["closed"] = runner.play(rounds, hand_out=hand_out)
        result["ended"] = "well"
    except Exception:
        result["error"] = traceback.format_exc()
        raise
    finally:
        persistence.write_atomic(hub.state / RUN_FILE, json.dumps(result).encode())
    return result


app.main()(main)
