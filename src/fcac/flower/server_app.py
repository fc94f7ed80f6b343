"""The server's side as a Flower ``ServerApp``: a thin layer over :class:`fcac.flower.round_runner.RoundRunner`."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fcac import persistence
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings
from fcac.flower.round_runner import RoundRunner, Timeouts

#: Where, below the federation's directory, the server keeps its state.
STATE = "state"
#: Result of the latest run, for the command that waits for it.
RUN_FILE = "run.json"

app = ServerApp()


def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the run's configuration requests."""
    config = context.run_config
    directory = Path(str(config["fcac-federation"]))
    settings = FederationSettings.load(directory)
    hub = Hub(directory / STATE, settings)
    poll = float(config.get("fcac-poll", 0.5))
    timeouts = Timeouts(settings.timeout, settings.wait, poll)
    result: dict[str, Any] = {"ticket": str(config.get("fcac-ticket", "")), "ended": "failed", "closed": 0}
    try:
        runner = RoundRunner(grid, hub, timeouts, reload=lambda: FederationSettings.load(directory))
        result["closed"] = runner.play(
            int(config.get("fcac-rounds", 1)), hand_out=bool(config.get("fcac-hand-out", True))
        )
        result["ended"] = "well"
    except Exception:
        result["error"] = traceback.format_exc()
        raise
    finally:
        persistence.write_atomic(hub.state / RUN_FILE, json.dumps(result).encode())


app.main()(main)
