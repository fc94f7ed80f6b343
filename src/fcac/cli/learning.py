"""What the commands on models have in common: models read and written, a round learned, a report written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcac._text import counted, duration
from fcac.cli.terminal import BadUse, Progress, note, say
from fcac.exceptions import RequestError
from fcac.privacy.mechanism import NodeMechanism

if TYPE_CHECKING:
    from fcac.tables import ReadOptions, Tables
    from fcac.tables.schema import Schema


# Sites whose spending is shown, the dearest first.
_MOST_SITES = 5


def load_model(path: Path) -> Any:
    """Read a model file; every error names the file."""
    from fcac.model import storage

    if not path.is_file():
        raise RequestError(f"there is no model file {path}")
    return storage.load(path)


def schema_of(model: Any) -> Schema | None:
    """Return the schema with which a model's rows were converted, if it has one."""
    found: Schema | None = getattr(model, "schema_", None) or getattr(model, "schema", None)
    return found


def columns_of(model: Any) -> list[str] | None:
    """Return the names of the model's features, if it has them."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "feature_names", None)
    return None if names is None else [str(name) for name in names]


def open_ledger_again(model: Any, moved_to: Path | None) -> None:
    """Open the ledger as it is now: its budget may have been changed, and the file may have been moved."""
    from fcac.privacy import Ledger

    known = getattr(model.privacy, "ledger", None)
    if known is None and moved_to is not None:
        raise BadUse("the model was made without a ledger: leave out --ledger")
    if known is None:
        return
    if moved_to is None and not Path(known.path).exists():
        raise BadUse(
            f"there is no ledger {Path(known.path).name} beside the model or in this directory: say where it is with "
            "--ledger"
        )
    model.privacy.ledger = Ledger.open(known.path if moved_to is None else moved_to.resolve())


def learn_and_save(
    model: Any,
    tables: Tables,
    schema: Any,
    out: Path,
    *,
    record_id: str | None,
    report: Path | None,
    guessed: dict[str, str] | None = None,
) -> None:
    """Learn a round from tables, write the model and print a summary."""
    from fcac import save
    from fcac.model.storage import Run

    check_records(model.privacy, record_id)
    started = time.monotonic()
    with Progress("learning") as progress:

        def pieces() -> Iterator[Any]:
            read = tables.pieces(progress)
            yield from read if record_id is None else with_ids(tables, read, schema)
            progress.now("clustering the sites' nodes")

        model.play_stream(pieces(), tables.n_features, tables.feature_names, schema=schema)
    if guessed:
        model.guessed_ = guessed
    seconds = time.monotonic() - started
    if not hasattr(model.privacy, "release"):  # exact counts are not among what a private release tells
        left_out = tables.n_dropped, dict(tables.dropped_for)
        model.runs_ = (*model.runs_, Run(model.n_rounds_, tables.n_read, *left_out))
    save(model, out)
    _summarise(model, tables, seconds)
    say(f"Model: {out}")
    if report is not None:
        # in later rounds, these rows are only a part of what the model has learned
        write_report(model, report, tables if model.n_rounds_ == 1 else None)
        say(f"Report: {report}")
    elif model.n_rounds_ == 1:
        note(f"Next: fcac report {out} --out report.html")
    if model.scaling_.sentence:
        say(f"Scale: {model.scaling_.sentence}.")
    for line in model.verdict_.lines():
        say(line)


def write_report(model: Any, path: Path, tables: Tables | None, title: str | None = None) -> None:
    """Write the report of a model; unless there is privacy, rows are read again for the panels that need them."""
    from fcac import report

    if tables is None or model.privacy is not None:
        report.write_report(model, path, title=title)
        return
    with Progress("reading rows for the report") as progress:
        report.write_report(model, path, tables.pieces(progress), title=title)


def guess(data: list[str], apart: list[str], how: ReadOptions) -> tuple[Schema | None, dict[str, str]]:
    """Guess what columns mean, as `FCAC.fit` does, and print it; None for numbers as they are."""
    from fcac.tables.draft import guess_files
    from fcac.tables.guess import taken_for

    with Progress("looking at the columns") as progress:
        found = guess_files(data, apart=apart, progress=progress, options=how)
    schema = found.schema
    if schema is None:
        return None, {}
    for line in taken_for(schema, found.reasons):
        say(line)
    return schema, found.reasons


def check_records(mechanism: Any, record_id: str | None) -> None:
    """Refuse ids where no ledger adds up by them."""
    if record_id is not None and getattr(mechanism, "ledger", None) is None:
        raise BadUse("--record-id determines how a ledger adds up costs: it needs --epsilon and --ledger")


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
    of = f"{counted(rows, 'row')} of {counted(len(tables.schema.columns), 'column')}"
    alone = len(latest) == 1 and model.n_rounds_ == 1 and model.privacy is None
    if alone:
        say(f"Learned {of} in {duration(seconds)}.")
    else:
        say(f"Round {model.n_rounds_}: learned {of} at {counted(len(latest), 'site')} in {duration(seconds)}.")
    if tables.n_dropped:
        say(f"Left out {counted(tables.n_dropped, 'row')} with missing values, as the schema says.")
    if not alone:
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
