"""``fcac federation rehearse`` and ``flower``: a study tried on this machine, or played by Flower."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from fcac.cli import options as opt
from fcac.cli.federation_options import Directory, plain_errors, show_console
from fcac.cli.terminal import say


def rehearse(
    sites: Annotated[int, opt.option("Number of sites.", min=1, max=50)] = 3,
    rounds: Annotated[int, opt.option("Rounds to play.", min=1)] = 2,
    out: Annotated[Path | None, opt.option("Keep everything in this new folder; by default one below /tmp.")] = None,
    epsilon: Annotated[float | None, opt.option("Privacy cost of a round at every site; by default none.")] = None,
    console: Annotated[
        bool | None, opt.option("Open the console and go on until Ctrl-C; by default if this is a terminal.")
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
    with plain_errors(), stopped_by_signals():
        root = play(folder, sites, rounds, say, epsilon=epsilon, while_running=_watch if watched else None)
        say("")
        for line in describe(root):
            say(line)
    say("")
    say(f"Everything is stopped. Report: {root / 'state' / 'report.html'}; settings: {root / 'federation.toml'}.")


def _watch(root: Path) -> None:
    """Open the console, and go on until Ctrl-C."""
    show_console(root, True)
    say("Ctrl-C ends the rehearsal.")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def flower(
    directory: Directory,
    out: Annotated[Path, opt.option("New folder for the app.")],
    rounds: Annotated[int, opt.option("Rounds of a run.", min=1)] = 1,
) -> None:
    """Write a Flower app, for those who run Flower: the same sites, ledgers and contributions over its messages.

    The SuperLink's machine has the federation's directory; each SuperNode names the settings of its site. Needs
    [bold]pip install 'fcac[flower]'[/bold] at all of them.

    [bold]Example[/bold]
    fcac federation flower study --out fcac-app --rounds 3
    """
    from fcac.flower.app_folder import write_app

    with plain_errors():
        folder = write_app(directory, out, rounds)
    say(f"flwr run {folder} plays {rounds} rounds of {directory}; each SuperNode is started with")
    say("  --node-config 'fcac-site=\"STATE/settings.json\"'")
