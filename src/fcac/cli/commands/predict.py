"""``fcac predict``: label rows."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from fcac._text import counted, duration, listed
from fcac.cli import options as opt
from fcac.cli import spark_engine
from fcac.cli.terminal import Progress, check_out, note, say


def predict(
    model: opt.ModelPath,
    data: opt.Data,
    out: opt.Out,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column to copy to the output (repeatable).", metavar="COLUMN", show_default=False),
    ] = None,
    site_column: opt.SiteColumn = None,
    schema: opt.SchemaPath = None,
    query: opt.Query = None,
    read: opt.Read = None,
    engine: opt.Engine = "process",
    master: opt.Master = None,
    alpha: opt.NoveltyRate = None,
    force: opt.Force = False,
) -> None:
    """Label rows: cluster, distance to the nearest node, and whether the row is unlike anything seen.

    Writes one row per row read, in order: [bold]label[/bold], [bold]distance[/bold], [bold]novel[/bold]. The extension
    of the output file selects Parquet, Feather or CSV. Works with models and with exported codebooks.

    [bold]Examples[/bold]

    fcac predict model.fcac new.csv --out labels.parquet

    fcac predict codebook.fcac new.csv --out labels.csv --keep patient_id

    fcac predict --engine spark model.fcac hdfs://lake/visits --out hdfs://lake/labels

    fcac predict model.fcac new.csv --out labels.csv --alpha 0.001   [dim]one false alarm in 1,000 rows[/dim]
    """
    from fcac.cli.labeller import Labeller, LabelWriter
    from fcac.cli.model_file import columns_of, load_model, schema_of

    check_out(out, force)
    known = load_model(model)
    if spark_engine.check_engine(engine, master):
        spark_engine.refuse(keep=keep, site_column=site_column, schema=schema, query=query, read=read)
        spark_engine.predict_on_spark(known, data, master, out, alpha)
        return
    chosen = opt.load_schema(schema) or schema_of(known)
    columns = columns_of(known) if chosen is None else None
    tables = opt.open_data(data, chosen, columns, site_column=site_column, keep=keep, query=query, read=read)
    labeller = Labeller(known, tables, alpha)
    started = time.monotonic()
    with Progress("labelling") as progress, LabelWriter(out, keep or [], tables) as writer:
        for batch in tables.batches(progress):
            writer.write(batch, *labeller(batch.block))
    say(
        f"Labelled {counted(writer.n_rows, 'row')} in {duration(time.monotonic() - started)}: "
        f"{counted(writer.n_clusters, 'cluster')} found, {counted(writer.n_novel, 'row')} unlike anything seen "
        f"({writer.n_novel / max(1, writer.n_rows):.1%})."
    )
    if tables.n_dropped:
        say(f"{counted(tables.n_dropped, 'row')} with missing values have an empty label.")
    if tables.other:
        counts = listed([f"{name} ({count:,})" for name, count in tables.other.items()])
        note(f"note: values for which the model has no level count as other: {counts}")
    say(f"Labels: {out}")
