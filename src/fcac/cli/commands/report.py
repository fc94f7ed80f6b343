"""``fcac report``: write a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, Progress, check_out, note, say

if TYPE_CHECKING:
    from fcac.tables import Tables


def report(
    model: opt.ModelPath,
    out: opt.Out,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", help="Rows for novelty and exact sizes (repeatable); never used with privacy.", show_default=False
        ),
    ] = None,
    site_column: opt.SiteColumn = None,
    query: opt.Query = None,
    read: opt.Read = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the report.", show_default=False)] = None,
    force: opt.Force = False,
) -> None:
    """Write a report: one HTML file that works offline and contains no rows.

    [bold]Examples[/bold]

    fcac report model.fcac --out report.html

    fcac report model.fcac --data clinics/ --out report.html --title "Four clinics"
    """
    from fcac.cli.model_file import columns_of, load_model, schema_of

    check_out(out, force)
    known = load_model(model)
    if not hasattr(known, "server_"):
        raise BadUse(f"{model} is a {type(known).__name__}: a report needs a model made by `fcac fit`")
    tables = None
    if data:
        stored = schema_of(known)
        columns = columns_of(known) if stored is None else None
        tables = opt.open_data(data, stored, columns, site_column=site_column, query=query, read=read)
        if known.privacy is not None:
            note("note: the model has privacy, so nothing in the report is computed from rows; --data is not used")
    write_report(known, out, tables, title)
    say(f"Report: {out}")


def write_report(model: Any, path: Path, tables: Tables | None, title: str | None = None) -> None:
    """Write the report of a model; unless there is privacy, rows are read again for the panels that need them."""
    from fcac import report as reporting

    if tables is None or model.privacy is not None:
        reporting.write_report(model, path, title=title)
        return
    with Progress("reading rows for the report") as progress:
        reporting.write_report(model, path, tables.pieces(progress), title=title)
