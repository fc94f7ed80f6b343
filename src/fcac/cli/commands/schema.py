"""``fcac schema``: draft a schema from tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac.cli import options as opt
from fcac.cli.console import Progress, check_out, note, say


def schema(
    data: opt.Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; by default the schema is printed.", show_default=False),
    ] = None,
    drop: opt.Drop = None,
    site_column: opt.SiteColumn = None,
    label_column: opt.LabelColumn = None,
    query: opt.Query = None,
    read: opt.Read = None,
    suggestions: Annotated[
        bool,
        typer.Option(
            "--suggestions/--no-suggestions",
            help="Write the ranges of the data as comments. They are private: delete them before sharing the file.",
        ),
    ] = True,
    force: opt.Force = False,
) -> None:
    """Draft a schema: which columns are used, their public bounds, scaling and missing values.

    The file is TOML, for you to edit; all sites then use the same file.

    [bold]Examples[/bold]

    fcac schema clinics/ --out schema.toml

    fcac schema all.csv --site-column clinic --drop patient_id --no-suggestions
    """
    from fcac.tables import ReadOptions
    from fcac.tables.draft import draft_schema

    if out is not None:
        check_out(out, force)
    apart = [name for name in (site_column, label_column, *(drop or [])) if name is not None]
    with Progress("reading") as progress:
        text = draft_schema(
            data,
            apart=apart,
            suggestions=suggestions,
            progress=progress,
            options=ReadOptions.parse(read or [], query=query),
        )
    if out is None:
        say(text)
        return
    from fcac.persistence import write_atomic

    write_atomic(out, text.encode())
    say(f"Schema: {out}")
    note(
        "Next: enter public bounds, then write bounds_are_public = true"
        + (", and delete the suggestions" if suggestions else "")
        + "."
    )
