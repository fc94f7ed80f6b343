"""Arguments, options and the wording of errors that the commands of ``fcac federation`` have in common."""

from __future__ import annotations

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


class PlainErrors:
    """Report errors of a federation in one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from fcac.exceptions import FederationError

        if isinstance(error, FederationError):
            raise click.ClickException(str(error)) from error
