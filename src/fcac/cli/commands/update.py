"""``fcac update``: learn the next round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli import spark_engine
from fcac.cli.learning import learn_and_save
from fcac.cli.terminal import BadUse, check_out, note, say


def update(
    model: opt.ModelPath,
    data: opt.Data,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the new model here instead.", show_default=False)
    ] = None,
    site_column: opt.SiteColumn = None,
    site: opt.Site = None,
    query: opt.Query = None,
    read: opt.Read = None,
    engine: opt.Engine = "process",
    master: opt.Master = None,
    record_id: opt.RecordId = None,
    ledger: opt.MovedLedger = None,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 3 if a cluster was born, died, split or merged; with 0 if not."),
    ] = False,
    report: opt.ReportPath = None,
    force: opt.Force = False,
) -> None:
    """Learn the next round: add new rows to a model. Nothing learned before is lost.

    Columns, scaling and privacy are those of the model. A file named like a known site, or [bold]--site NAME[/bold],
    continues that site; other names are new sites.

    [bold]Examples[/bold]

    fcac update model.fcac tuesday/ --report report.html

    fcac update model.fcac new_rows.csv --site north

    fcac update model.fcac today.csv --exit-code || notify   [dim]3: another set of clusters[/dim]
    """
    from fcac.cli.model_file import columns_of, load_model, open_ledger_again, schema_of

    if out is not None:
        check_out(out, force or out.resolve() == model.resolve())
    if report is not None:
        check_out(report, force=True)
    known = load_model(model)
    schema = schema_of(known)
    if not hasattr(known, "play_stream"):
        raise BadUse(
            f"{model} is a {type(known).__name__}, which cannot learn in rounds: use a model made by `fcac fit`"
        )
    if spark_engine.check_engine(engine, master):
        spark_engine.refuse(
            site_column=site_column, site=site, query=query, read=read, exit_code=exit_code, report=report
        )  # fmt: skip
        open_ledger_again(known, ledger)
        spark_engine.update_on_spark(known, data, master, model if out is None else out, record_id)
        return
    columns = None if schema is not None else columns_of(known)
    tables = opt.open_data(
        data, schema, columns, site_column=site_column, site=site, record_id=record_id, query=query, read=read
    )
    open_ledger_again(known, ledger)
    before = set(known.sites_)
    learn_and_save(known, tables, schema, out or model, record_id=record_id, report=report)
    _tell_lineage(known)
    new = [str(name) for name in known.sites_ if name not in before]
    if new and before:
        shown = ", ".join(new[:5]) + (" ..." if len(new) > 5 else "")
        note(f"note: new {'site' if len(new) == 1 else 'sites'} {shown} (for rows of a known site use --site NAME)")
    if exit_code and known.changed():
        raise typer.Exit(3)


def _tell_lineage(model: Any) -> None:
    """Print what this round did to the clusters, where they keep their names."""
    from fcac.model.lineage import lines_of

    rows = model.events_of_latest()
    if rows:
        say("What became of the clusters (moved: in spreads of the cluster):")
        for line in lines_of(rows):
            say("  " + line)
    elif model.lineage_:
        say("The clusters have not changed.")
