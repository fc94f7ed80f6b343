"""``fcac federation console``: watch and steer a federation in the browser, at the hub."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fcac.cli.commands.federation.shared import Directory, PlainErrors
from fcac.cli.terminal import BadUse, say

if TYPE_CHECKING:
    from fcac.deployment.console.hooks import Hook


def console(
    directory: Directory,
    port: Annotated[
        int, typer.Option("--port", help="Port on this machine; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    hook: Annotated[
        list[str] | None,
        typer.Option(
            "--hook",
            help="Command, or address on this machine, to notify when a site is away, a contribution is rejected, a "
            "budget is low, or a cluster is born, merged or dies (repeatable).",
            show_default=False,
        ),
    ] = None,
    hook_elsewhere: Annotated[
        bool, typer.Option("--hook-elsewhere", help="Allow hooks that are addresses of other machines.")
    ] = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Watch a federation in the browser, at the hub: rounds, sites, events, clusters; start and stop rounds.

    It listens on this machine only. The address holds a token; whoever has it can press the buttons. Programs read
    [bold]/facts[/bold] (JSON) and [bold]/metrics[/bold] (Prometheus) with the token as bearer.

    [bold]Examples[/bold]

    fcac federation console study

    fcac federation console study --port 8900 --no-open --hook ./tell-us.sh
    """
    from fcac.deployment import processes
    from fcac.deployment.console.hooks import Hook

    try:
        hooks = [Hook(target, hook_elsewhere) for target in hook or []]
    except ValueError as error:
        raise BadUse(f"--{error}") from None
    with PlainErrors(), processes.stopped_by_signals():
        watch(directory, port, hooks, show)


def watch(directory: Path, port: int = 0, hooks: Sequence[Hook] = (), show: bool = True) -> None:
    """Serve the console of a federation until Ctrl-C, and open it in the browser."""
    from fcac.deployment.console import Console

    served = Console(directory, port=port, hooks=list(hooks))
    served.start()
    say(f"Console: {served.address}")
    say("Ctrl-C closes the console; the federation continues.")
    door = directory / "server" / "console.html"
    if show:
        import webbrowser

        from fcac.deployment.certificates import write_private

        # other accounts of this machine can read the browser's command line, but not this file
        write_private(door, f'<meta http-equiv="refresh" content="0;url={served.address}">'.encode())
        webbrowser.open(door.resolve().as_uri())
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        say("The console is closed.")
    finally:
        door.unlink(missing_ok=True)
        served.close()
