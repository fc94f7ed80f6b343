"""Commands that read: predict, report, inspect, export, schema, demo."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.console import BadUse, Progress, check_out, counted, duration, note, say

if TYPE_CHECKING:
    from fcac.tables import Tables


def predict(
    model: opt.ModelPath,
    data: opt.Data,
    out: opt.Out,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column to copy to the output (repeat).", metavar="COLUMN", show_default=False),
    ] = None,
    site_column: opt.SiteColumn = None,
    schema: opt.SchemaPath = None,
    force: opt.Force = False,
) -> None:
    """Label rows: cluster, distance to the nearest node, and whether the row is unlike anything seen.

    Writes one row per row read, in order: [bold]label[/bold], [bold]distance[/bold], [bold]novel[/bold]. The output is
    Parquet, Feather or CSV by its name. Works with models and with exported codebooks.

    [bold]Examples[/bold]

    fcac predict model.fcac new.csv --out labels.parquet

    fcac predict codebook.fcac new.csv --out labels.csv --keep patient_id
    """
    from fcac.cli.labels import Labeller, LabelWriter
    from fcac.cli.modelfile import columns_of, load_model, schema_of

    check_out(out, force)
    known = load_model(model)
    chosen = opt.load_schema(schema) or schema_of(known)
    columns = columns_of(known) if chosen is None else None
    tables = opt.open_data(data, chosen, columns, site_column=site_column, keep=keep)
    labeller = Labeller(known, tables)
    started = time.monotonic()
    with Progress("labelling") as progress, LabelWriter(out, keep or [], tables) as writer:
        for batch in tables.batches(progress):
            writer.write(batch, *labeller(batch.block))
    say(
        f"Labelled {counted(writer.n_rows, 'row')} in {duration(time.monotonic() - started)}: "
        f"{counted(writer.n_clusters, 'cluster')} met, {counted(writer.n_novel, 'row')} unlike anything seen "
        f"({writer.n_novel / max(1, writer.n_rows):.1%})."
    )
    if tables.n_dropped:
        say(f"{counted(tables.n_dropped, 'row')} with missing values have an empty label.")
    say(f"Labels: {out}")


def report(
    model: opt.ModelPath,
    out: opt.Out,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="Rows for novelty and exact sizes (repeat); never used with privacy.", show_default=False
        ),
    ] = None,
    site_column: opt.SiteColumn = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the report.", show_default=False)] = None,
    force: opt.Force = False,
) -> None:
    """Write a report: one HTML file that works offline and holds no rows.

    [bold]Examples[/bold]

    fcac report model.fcac --out report.html

    fcac report model.fcac --data clinics/ --out report.html --title "Four clinics"
    """
    from fcac.cli.modelfile import columns_of, load_model, schema_of

    check_out(out, force)
    known = load_model(model)
    if not hasattr(known, "server_"):
        raise BadUse(f"{model} holds a {type(known).__name__}: a report needs a model made by `fcac fit`")
    tables = None
    if data:
        stored = schema_of(known)
        columns = columns_of(known) if stored is None else None
        tables = opt.open_data(data, stored, columns, site_column=site_column)
        if known.privacy is not None:
            note("note: the model has privacy, so nothing in the report is computed from rows; --data is not used")
    write_report(known, out, tables, title)
    say(f"Report: {out}")


def write_report(model: Any, path: Path, tables: Tables | None, title: str | None = None) -> None:
    """Write the report of a model; rows are read again for the panels that need them, unless there is privacy."""
    from fcac import report as reporting

    if tables is None or model.privacy is not None:
        reporting.write_report(model, path, title=title)
        return
    with Progress("reading rows for the report") as progress:
        reporting.write_report(model, path, rows=tables.pieces(progress), title=title)


def inspect(
    model: opt.ModelPath,
    as_json: opt.AsJson = False,
) -> None:
    """Say what a model file holds, and whether it may be given away.

    [bold]Examples[/bold]

    fcac inspect model.fcac

    fcac inspect model.fcac --json
    """
    from fcac.cli.inspecting import describe, show

    facts = describe(model)
    if as_json:
        say(json.dumps(facts, indent=2))
    else:
        show(facts)


def export(
    model: opt.ModelPath,
    out: opt.Out,
    share_nodes: Annotated[
        bool,
        typer.Option(
            "--share-nodes", help="With --server communities: give out the sites' own nodes, which can be raw records."
        ),
    ] = False,
    force: opt.Force = False,
) -> None:
    """Write only what `predict` needs: labelled nodes, without sites, counts or contributions.

    [bold]Example[/bold]

    fcac export model.fcac --out codebook.fcac
    """
    from fcac import save
    from fcac.cli.modelfile import load_model

    check_out(out, force)
    known = load_model(model)
    if not hasattr(known, "export"):
        raise BadUse(f"{model} holds a {type(known).__name__}, which has nothing more to leave out")
    book = known.export(share_nodes=share_nodes)
    save(book, out)
    clusters = counted(len(set(book.labels.tolist())), "cluster")
    say(f"Exported {counted(len(book.nodes), 'labelled node')} of {clusters}; no site states, no contributions.")
    if known.privacy is None or not hasattr(known.privacy, "release"):
        note("note: without --epsilon a node can still be close to a record; see the privacy guide before sharing it")
    say(f"Codebook: {out}")


def schema(
    data: opt.Data,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; otherwise it is printed.", show_default=False)
    ] = None,
    drop: opt.Drop = None,
    site_column: opt.SiteColumn = None,
    label_column: opt.LabelColumn = None,
    suggestions: Annotated[
        bool,
        typer.Option(
            "--suggestions/--no-suggestions",
            help="Write ranges seen in the data as comments. They are private: delete them before sharing the file.",
        ),
    ] = True,
    force: opt.Force = False,
) -> None:
    """Start a schema: which columns are used, their public bounds, scaling, missing values.

    The file is TOML, to be edited by you; the same file then serves every site.

    [bold]Examples[/bold]

    fcac schema clinics/ --out schema.toml

    fcac schema all.csv --site-column clinic --drop patient_id --no-suggestions
    """
    from fcac.tables.draft import draft_schema

    if out is not None:
        check_out(out, force)
    apart = [name for name in (site_column, label_column, *(drop or [])) if name is not None]
    with Progress("reading") as progress:
        text = draft_schema(data, apart=apart, suggestions=suggestions, progress=progress)
    if out is None:
        say(text)
        return
    from fcac.persistence import write_atomic

    write_atomic(out, text.encode())
    say(f"Schema: {out}")
    note(
        "Next: put in public bounds, then write bounds_are_public = true"
        + (", and delete the suggestions" if suggestions else "")
        + "."
    )


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the report and the model.")] = Path(
        "fcac-demo"
    ),
    seed: opt.Seed = 0,
    server: Annotated[str, typer.Option("--server", help="communities, or cae-fc (the paper's).")] = "communities",
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Watch it work: three Gaussians arrive at two sites over three rounds, and nothing is forgotten.

    [bold]Example[/bold]

    fcac demo
    """
    from fcac.cli.showing import run

    run(out, seed, server, show)
