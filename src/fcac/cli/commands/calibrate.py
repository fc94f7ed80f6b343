"""``fcac calibrate``: measure how far usual rows lie from a model, for novelty with a rate of false alarms."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.terminal import BadUse, Progress, check_out, say
from fcac.privacy.mechanism import NodeMechanism


def calibrate(
    model: opt.ModelPath,
    data: opt.Data,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="For a model with NodeRelease: what the release of distances may cost each site.",
            rich_help_panel="Privacy",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the new model here instead.", show_default=False)
    ] = None,
    site_column: opt.SiteColumn = None,
    site: opt.Site = None,
    query: opt.Query = None,
    read: opt.Read = None,
    record_id: opt.RecordId = None,
    ledger: opt.MovedLedger = None,
    force: opt.Force = False,
) -> None:
    """Measure how far usual rows lie from a model, so that [bold]fcac predict --alpha[/bold] keeps its rate.

    For models made with [bold]--epsilon[/bold]: they keep no rows, and released nodes do not tell how far rows lie from
    them. Each site counts its rows by distance and adds noise; this costs [bold]--epsilon[/bold] more, and the ledger
    is charged. Rows may be those learned, or fresh ones like them. What was measured holds until the model learns
    again. Other models do not need it; there, give fresh rows.

    [bold]Examples[/bold]

    fcac calibrate model.fcac clinics/ --epsilon 0.5

    fcac calibrate model.fcac visits.csv --epsilon 0.5 --site-column ward --record-id patient
    """  # fmt: skip
    from fcac import save
    from fcac.cli.learning import check_records, say_privacy, with_ids
    from fcac.cli.model_file import columns_of, load_model, open_ledger_again, schema_of
    from fcac.model.site_rows import rows_by_site

    if out is not None:
        check_out(out, force or out.resolve() == model.resolve())
    known = load_model(model)
    if not hasattr(known, "calibrate_novelty"):
        raise BadUse(f"{model} is a {type(known).__name__}: use a model made by `fcac fit`")
    is_private = isinstance(known.privacy, NodeMechanism)
    if is_private and epsilon is None:
        raise BadUse("--epsilon is missing: say what the release of distances may cost, for instance --epsilon 0.5")
    if not is_private and epsilon is not None:
        raise BadUse("--epsilon: the model was made without it, so distances are taken as they are; leave it out")
    if epsilon is not None and not 0 < epsilon < float("inf"):
        raise BadUse(f"--epsilon must be a positive number, not {epsilon}")
    schema = schema_of(known)
    tables = opt.open_data(
        data, schema, None if schema is not None else columns_of(known), site_column=site_column, site=site,
        record_id=record_id, query=query, read=read,
    )  # fmt: skip
    open_ledger_again(known, ledger)
    check_records(known.privacy, record_id)
    with Progress("measuring") as progress, warnings.catch_warnings():
        # names were checked when the tables were opened
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        pieces = tables.pieces(progress)
        rows, ids = rows_by_site(pieces if record_id is None else with_ids(tables, pieces, schema))
        known.calibrate_novelty(rows, epsilon=epsilon, record_ids=ids)
    save(known, out or model)
    n_rows = sum(len(own) for own in rows.values())
    how = "as they are" if epsilon is None else f"with noise, eps = {epsilon:g}"
    say(f"Measured the distances of {counted(n_rows, 'row')} at {counted(len(rows), 'site')}, {how}.")
    say(f"Rows farther than {known.novelty_reach():.3g} from the nearest node are novel (1 % of usual rows).")
    say_privacy(known)
    say(f"Model: {out or model}")
