"""Learning a round from tables, for the commands `fit` and `update`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcac._text import counted, duration
from fcac.cli.console import BadUse, Progress, note, say
from fcac.privacy.mechanism import NodeMechanism

if TYPE_CHECKING:
    from fcac.model.run_log import Run
    from fcac.tables import Tables


# Sites whose spending is shown, the dearest first.
_MOST_SITES = 5


def learn_and_save(
    model: Any,
    tables: Tables,
    schema: Any,
    out: Path,
    *,
    record_id: str | None,
    part: str | None,
    report: Path | None,
) -> None:
    """Learn a round from tables, write the model and print a summary."""
    from fcac import save

    check_records(model.privacy, record_id, part)
    started = time.monotonic()
    with Progress("learning") as progress:

        def pieces() -> Iterator[Any]:
            read = tables.pieces(progress)
            yield from read if record_id is None else with_ids(tables, read, schema)
            progress.now("clustering the sites' nodes")

        model.play_stream(pieces(), tables.n_features, tables.feature_names, partition=part, schema=schema)
    seconds = time.monotonic() - started
    if not hasattr(model.privacy, "release"):  # exact counts are not among what a private release tells
        model.runs_ = (*model.runs_, _run(model, tables))
    save(model, out)
    _summarise(model, tables, seconds)
    say(f"Model: {out}")
    if report is not None:
        from fcac.cli.commands.report import write_report

        # in later rounds, these rows are only a part of what the model has learned
        write_report(model, report, tables if model.n_rounds_ == 1 else None)
        say(f"Report: {report}")
    elif model.n_rounds_ == 1:
        note(f"Next: fcac report {out} --out report.html")
    for line in model.verdict_.lines():
        say(line)


def _run(model: Any, tables: Tables) -> Run:
    """Return what this round read and left out, as it is stored with the model."""
    from fcac.model.run_log import Run

    split = tables.split
    sites = ""
    if split is not None:
        how = {"dirichlet": f", alpha {split.alpha:g}", "classes": f", {split.n_classes} labels each"}
        sites = f"{counted(split.n_sites, 'site')} simulated, {split.partition}{how.get(split.partition, '')}, "
        sites += f"seed {split.seed}"
    return Run(model.n_rounds_, tables.n_read, tables.n_dropped, dict(tables.dropped_for), sites)


def check_records(mechanism: Any, record_id: str | None, part: str | None) -> None:
    """Refuse ids and parts where no ledger adds up by them."""
    if record_id is None and part is None:
        return
    if record_id is not None and part is not None:
        raise BadUse("give --record-id or --part, not both")
    if getattr(mechanism, "ledger", None) is None:
        raise BadUse("--record-id and --part determine how a ledger adds up costs: they need --epsilon and --ledger")


def with_ids(tables: Tables, pieces: Iterator[Any], schema: Any) -> Iterator[Any]:
    """Add to each block the ids of its rows, in the form that the schema states."""
    from fcac.privacy.record_ids import ids_in_form

    form = "folded" if schema is None else schema.id_form
    for site, rows in pieces:
        known = tables.record_ids[site]
        yield site, rows, ids_in_form(known[len(known) - len(rows) :], form)


def _summarise(model: Any, tables: Tables, seconds: float) -> None:
    server = model.server_
    latest = server.log[-1]
    sent = sum(len(item.nodes) for item in latest)
    rows = tables.n_read - tables.n_dropped
    say(
        f"Round {model.n_rounds_}: learned {counted(rows, 'row')} of {counted(tables.n_features, 'feature')} "
        f"at {counted(len(latest), 'site')} in {duration(seconds)}."
    )
    if tables.n_dropped:
        say(f"Left out {counted(tables.n_dropped, 'row')} with missing values, as the schema says.")
    nodes = counted(len(server.nodes), "node")
    say(f"Sites sent {counted(sent, 'node')}; the server has {nodes}.")
    say_privacy(model)


def say_privacy(model: Any) -> None:
    """Print what the ledger knows of the sites."""
    mechanism = model.privacy
    ledger = getattr(mechanism, "ledger", None)
    if ledger is not None:
        sites = ledger.sites()
        if len(sites) > 1:
            say("Ledger, " + ledger.summary_line())
        for site in sites[:_MOST_SITES]:
            say("Ledger, " + ledger.summary_line(site))
        if len(sites) > _MOST_SITES:
            say(f"Ledger: {len(sites) - _MOST_SITES} more sites that cost less; `fcac ledger` lists all")
    elif isinstance(mechanism, NodeMechanism):
        note("note: without --ledger, the costs of later rounds are not added up")
