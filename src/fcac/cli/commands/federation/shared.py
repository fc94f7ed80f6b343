"""Arguments, options and the wording of errors that the commands of ``fcac federation`` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import typer

Directory = Annotated[Path, typer.Argument(help="Directory of the federation.", metavar="DIR", show_default=False)]
Bundle = Annotated[Path, typer.Argument(help="The site's bundle.", metavar="BUNDLE", show_default=False)]
SiteArgument = Annotated[str, typer.Argument(help="Name of the site.", metavar="SITE", show_default=False)]
DataOption = Annotated[
    str,
    typer.Option(
        "--data", help="File or directory of the site's tables, or the address of its database.", show_default=False
    ),
]
StateOption = Annotated[
    Path | None, typer.Option("--state", help="The site's state; by default inside the bundle.", show_default=False)
]


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


class PlainErrors:
    """Report errors of a federation in one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from fcac.exceptions import FederationError

        if isinstance(error, FederationError):
            raise click.ClickException(str(error)) from error
