"""``fcac schema``: draft a schema from tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, Progress, check_out, note, say

if TYPE_CHECKING:
    from fcac.tables import ReadOptions


def schema(
    data: opt.Data,
    rows: opt.Rows,
    out: Annotated[Path | None, opt.option("File to write; by default the schema is printed.", "--out", "-o")] = None,
    drop: opt.Drop = None,
    suggestions: Annotated[
        bool,
        opt.option("Write the ranges of the data as comments. They are private: delete them before sharing the file."),
    ] = True,
    levels: Annotated[
        bool,
        opt.option(
            "List the levels of categories that five rows or more have, so that reports can name them. They come from "
            "the data: check that they are public before sharing the file.",
            "--levels",
        ),
    ] = False,
    check: Annotated[
        Path | None,
        opt.option(
            "Draft nothing: tell, with counts, how far the data fit this schema. Exit code 1 if they do not.",
            metavar="SCHEMA",
        ),
    ] = None,
    force: opt.Force = False,
) -> None:
    """Draft a schema, or check data against one: what columns mean, their public bounds, scaling and missing values.

    The file is TOML, for you to edit; all sites then use the same file.

    [bold]Examples[/bold]
    fcac schema table.csv --levels --out schema.toml   [dim]one table of your own[/dim]
    fcac schema clinics/ --out schema.toml
    fcac schema all.csv --site-column clinic --drop patient_id --no-suggestions
    fcac schema clinics/ --check schema.toml
    """
    from fcac.persistence import write_atomic
    from fcac.tables.draft import draft_schema

    if check is not None:
        _check(data, check, rows.how())
        return
    if levels and not suggestions:
        raise BadUse("--levels reads the data, --no-suggestions does not: leave out one of the two")
    if out is not None:
        check_out(out, force)
    apart = [name for name in (rows.site_column, *(drop or [])) if name is not None]
    with Progress("reading") as progress:
        text = draft_schema(
            data,
            apart=apart,
            suggestions=suggestions,
            levels=levels,
            progress=progress,
            options=rows.how(),
        )
    if out is None:
        say(text)
        return
    write_atomic(out, text.encode())
    say(f"Schema: {out}")
    note(
        "Next: check the kinds, and fcac fit DATA --schema "
        + str(out)
        + ". For --epsilon enter public bounds and write bounds_are_public = true"
        + (", and delete the suggestions before you share the file" if suggestions else "")
        + "."
    )


def _check(data: list[str], path: Path, options: ReadOptions) -> None:
    from fcac.tables.fit_check import check_fit
    from fcac.tables.schema import Schema

    schema = Schema.load(path)
    with Progress("reading") as progress:
        found = check_fit(data, schema, options=options, progress=progress)
    for line in found.lines(schema):
        say(line)
    if not found.fits:
        raise typer.Exit(1)
    say("The data fit the schema.")
