"""Arguments, options and the wording of errors that the commands of ``fcac federation`` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click

from fcac.cli.options import argument, option
from fcac.cli.terminal import say

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


def show_console(directory: Directory, show: bool) -> None:
    """Say where the console is, and its token, once; with `show`, open the page in the browser."""
    from fcac.deployment.console import new_token
    from fcac.deployment.settings import FederationSettings

    address = f"https://localhost:{FederationSettings.load(directory).join_port}/console"
    say(f"Console, on the hub's machine: {address}")
    # never part of an address or of a command line, which other accounts could read
    say(f"Token, shown once: {new_token(directory)}")
    if show:
        import webbrowser

        webbrowser.open(address)
