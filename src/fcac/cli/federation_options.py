"""Arguments, options and the wording of errors that the commands of ``fcac federation`` have in common."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from fcac.cli.options import argument, option
from fcac.cli.terminal import say

if TYPE_CHECKING:
    from fcac.deployment.console.hooks import Hook

Directory = Annotated[Path, argument("Directory of the federation.", "DIR")]
Bundle = Annotated[Path, argument("The site's bundle.", "BUNDLE")]
Folder = Annotated[Path, argument("Directory of the federation, or a site's bundle.", "DIR")]
SiteName = Annotated[str, argument("Name of the site.", "SITE")]
SiteData = Annotated[str, option("File or directory of the site's tables, or the address of its database.", "--data")]
State = Annotated[Path | None, option("The site's state; by default inside the bundle.")]
Last = Annotated[int, option("Show only so many of the newest entries.", min=1)]


@contextlib.contextmanager
def audited(folder: Path, command: str, **facts: Any) -> Iterator[None]:
    """Write a command at the hub, and who gave it, to the hub's audit log before it is carried out.

    A site has a log of its own decisions; a folder that is no hub's has nothing to log.
    """
    from fcac.deployment.settings import FEDERATION_FILE

    if (folder / FEDERATION_FILE).exists():
        from fcac.deployment import hub_audit

        hub_audit.record(folder, command, **facts)
    yield


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Report errors of a federation in one line."""
    from fcac.exceptions import FederationError

    try:
        yield
    except FederationError as error:
        raise click.ClickException(str(error)) from error


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
