"""``fcac federation label``: label a site's rows, at the site, with the model it has received."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.commands.federation.shared import Bundle, DataOption, PlainErrors, StateOption
from fcac.cli.terminal import check_out, say


def label(
    bundle: Bundle,
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)],
    state: StateOption = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column to copy to the output (repeatable).", metavar="COLUMN", show_default=False),
    ] = None,
    alpha: opt.NoveltyRate = None,
    usual: Annotated[
        Path | None,
        typer.Option(
            "--usual",
            help="File of usual rows: what lies farther than these is novel. Only these labels use it.",
            show_default=False,
        ),
    ] = None,
    query: opt.Query = None,
    read: opt.Read = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Label the site's rows, at the site, with the global model that it has received.

    Labels never leave the site, and neither does what [bold]--usual[/bold] measures. The model arrives after each run,
    while [bold]fcac federation site[/bold] is running.
    """
    import numpy as np

    from fcac.cli.labeller import Labeller, LabelWriter
    from fcac.deployment.site_agent import load_model
    from fcac.deployment.site_setup import state_of
    from fcac.deployment.study import read_bundle
    from fcac.tables import ReadOptions, open_tables
    from fcac.tables.schema import Schema

    check_out(out, force)
    with PlainErrors():
        name = str(read_bundle(bundle)["site"])
        model = load_model(state_of(bundle, state))
        schema = Schema.load(bundle / "schema.toml")
    options = ReadOptions.parse(read or [], query=query)
    tables = open_tables([data], schema, site=name, keep=keep or [], options=options)
    if usual is not None:
        known = [rows for _, rows in open_tables([usual], schema, site=name).pieces()]
        model = model.calibrated(np.concatenate([np.empty((0, schema.n_features)), *known]))
    labeller = Labeller(model, tables, alpha)
    with LabelWriter(out, keep or [], tables) as writer:
        for batch in tables.batches():
            writer.write(batch, *labeller(batch.block))
    say(
        f"Labelled {counted(writer.n_rows, 'row')}: {counted(writer.n_clusters, 'cluster')} found, "
        f"{counted(writer.n_novel, 'row')} unlike anything seen. Labels: {out}"
    )
