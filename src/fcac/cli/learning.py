"""Commands that learn or unlearn: fit, update, forget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.console import BadUse, Progress, check_out, counted, duration, note, say

if TYPE_CHECKING:
    from fcac.tables import Tables

ReportPath = Annotated[
    Path | None, typer.Option("--report", help="Also write a report (HTML) here.", show_default=False)
]


def fit(
    data: opt.Data,
    out: opt.Out,
    site_column: opt.SiteColumn = None,
    site: opt.Site = None,
    sites: opt.Sites = None,
    partition: opt.Partition = "iid",
    label_column: opt.LabelColumn = None,
    alpha: opt.Alpha = 0.5,
    classes_per_site: opt.ClassesPerSite = 2,
    schema: opt.SchemaPath = None,
    drop: opt.Drop = None,
    server: Annotated[str, typer.Option("--server", help="communities, or cae-fc (the paper's).")] = "communities",
    n_clusters: Annotated[
        int | None,
        typer.Option("--clusters", help="With --server communities, if you know it.", min=1, show_default=False),
    ] = None,
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = 1e-6,
    ledger: opt.LedgerPath = None,
    budget: opt.Budget = None,
    record_id: opt.RecordId = None,
    part: opt.Part = None,
    local_noise: opt.LocalEpsilon = None,
    paper_noise: opt.PaperNoise = None,
    seed: opt.Seed = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Sites at work at once.", show_default=False)] = None,
    report: ReportPath = None,
    force: opt.Force = False,
) -> None:
    """Learn clusters from tables: the first round of a federation in one process.

    [bold]Examples[/bold]

    fcac fit clinics/ --out model.fcac --report report.html   [dim]each file is a site[/dim]

    fcac fit all.parquet --site-column clinic --out model.fcac

    fcac fit digits.npz --sites 10 --partition dirichlet --label-column y --out model.fcac

    fcac fit a.csv --schema schema.toml --epsilon 2 --ledger a.db --budget 8 --out model.fcac
    """
    from fcac.federation.server import KINDS
    from fcac.tables import RequestError

    check_out(out, force)
    if report is not None:
        check_out(report, force=True)
    if server not in KINDS:
        raise BadUse(f"--server must be one of {', '.join(KINDS)}, not {server}")
    if n_clusters is not None and server != "communities":
        raise BadUse("--clusters is for --server communities: the paper's server finds the number itself")
    known = opt.load_schema(schema)
    mechanism = opt.make_mechanism(
        known,
        epsilon=epsilon,
        delta=delta,
        ledger=ledger,
        budget=budget,
        local_noise=local_noise,
        paper_noise=paper_noise,
        seed=seed,
    )
    if label_column is None and partition != "iid":
        raise RequestError(f"--partition {partition} follows labels: give --label-column")
    tables = opt.open_data(
        data,
        known,
        drop=drop,
        site_column=site_column,
        site=site,
        sites=sites,
        partition=partition,
        alpha=alpha,
        classes_per_site=classes_per_site,
        label_column=label_column,
        record_id=record_id,
        seed=seed,
    )
    from fcac.estimators.fcac import FCAC

    model = FCAC(server=server, privacy=mechanism, n_clusters=n_clusters, n_jobs=jobs, random_state=seed)
    _learn_and_save(model, tables, known, out, record_id=record_id, part=part, report=report)


def update(
    model: opt.ModelPath,
    data: opt.Data,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the new model here instead.", show_default=False)
    ] = None,
    site_column: opt.SiteColumn = None,
    site: opt.Site = None,
    sites: opt.Sites = None,
    partition: opt.Partition = "iid",
    label_column: opt.LabelColumn = None,
    alpha: opt.Alpha = 0.5,
    classes_per_site: opt.ClassesPerSite = 2,
    record_id: opt.RecordId = None,
    part: opt.Part = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger", help="Where the ledger is now, if it was moved.", rich_help_panel="Privacy", show_default=False
        ),
    ] = None,
    seed: opt.Seed = 0,
    report: ReportPath = None,
    force: opt.Force = False,
) -> None:
    """Play the next round: add new rows to a model. Nothing learned before is lost.

    Columns, scaling and privacy are those of the model. A file named like a known site, or [bold]--site NAME[/bold],
    goes on with that site; other names are new sites.

    [bold]Examples[/bold]

    fcac update model.fcac tuesday/ --report report.html

    fcac update model.fcac new_rows.csv --site north
    """
    from fcac.cli.modelfile import columns_of, load_model, schema_of

    if out is not None:
        check_out(out, force or out.resolve() == model.resolve())
    if report is not None:
        check_out(report, force=True)
    known = load_model(model)
    schema = schema_of(known)
    if not hasattr(known, "play_stream"):
        raise BadUse(
            f"{model} holds a {type(known).__name__}, which cannot learn in rounds: use a model made by `fcac fit`"
        )
    tables = opt.open_data(
        data,
        schema,
        None if schema is not None else columns_of(known),
        site_column=site_column,
        site=site,
        sites=sites,
        partition=partition,
        alpha=alpha,
        classes_per_site=classes_per_site,
        label_column=label_column,
        record_id=record_id,
        seed=seed,
    )
    _open_ledger_again(known, ledger)
    before = set(known.sites_)
    _learn_and_save(known, tables, schema, out or model, record_id=record_id, part=part, report=report)
    new = [str(name) for name in known.sites_ if name not in before]
    if new and before:
        shown = ", ".join(new[:5]) + (" ..." if len(new) > 5 else "")
        note(f"note: new {'site' if len(new) == 1 else 'sites'} {shown} (rows of a known site: --site NAME)")


def forget(
    model: opt.ModelPath,
    site: Annotated[str, typer.Argument(help="Name of the site.", metavar="SITE", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the new model here instead.", show_default=False)
    ] = None,
    force: opt.Force = False,
) -> None:
    """Forget a site, exactly: the model becomes what it would have been without it.

    Copies, exports and reports made earlier still know the site.

    [bold]Example[/bold]

    fcac forget model.fcac north
    """
    from fcac import save
    from fcac.cli.modelfile import load_model
    from fcac.tables import site_from_text

    if out is not None:
        check_out(out, force or out.resolve() == model.resolve())
    known = load_model(model)
    if not hasattr(known, "forget"):
        raise BadUse(f"{model} holds a {type(known).__name__}: it has no sites to forget")
    sites = known.server_.sites
    name = site_from_text(site)
    if name not in sites and site not in sites:
        shown = ", ".join(map(str, sites[:12])) + (" ..." if len(sites) > 12 else "")
        raise BadUse(f"no site {site} in {model}; it knows {shown}")
    known.forget(name if name in sites else site)
    save(known, out or model)
    left = counted(len(known.server_.sites), "site")
    say(f"Forgot site {site}: {counted(known.n_clusters_, 'cluster')} from {left} remain.")
    say(f"Model: {out or model}")


def _learn_and_save(
    model: Any,
    tables: Tables,
    schema: Any,
    out: Path,
    *,
    record_id: str | None,
    part: str | None,
    report: Path | None,
) -> None:
    """Play a round from tables, write the model and say what came out."""
    from fcac import save

    _check_records(model, record_id, part)
    started = time.monotonic()
    with Progress("learning") as progress:

        def pieces() -> Iterator[Any]:
            read = tables.pieces(progress)
            yield from read if record_id is None else _with_ids(tables, read)
            progress.now("clustering the sites' nodes")

        model.play_stream(pieces(), tables.n_features, tables.feature_names, partition=part, schema=schema)
    save(model, out)
    _summarise(model, tables, time.monotonic() - started)
    say(f"Model: {out}")
    if report is not None:
        from fcac.cli.reading import write_report

        # later on, this round's rows are only a part of what the model knows
        write_report(model, report, tables if model.n_rounds_ == 1 else None)
        say(f"Report: {report}")
    elif model.n_rounds_ == 1:
        note(f"Next: fcac report {out} --out report.html")


def _open_ledger_again(model: Any, moved_to: Path | None) -> None:
    """Go on with the ledger as it is now: its budget may have been changed, the file may have been moved."""
    from fcac.privacy import Ledger

    known = getattr(model.privacy, "ledger", None)
    if known is None and moved_to is not None:
        raise BadUse("the model was made without a ledger: --ledger has nothing to go on with")
    if known is not None:
        model.privacy.ledger = Ledger.open(known.path if moved_to is None else moved_to.resolve())


def _check_records(model: Any, record_id: str | None, part: str | None) -> None:
    if record_id is None and part is None:
        return
    if record_id is not None and part is not None:
        raise BadUse("give --record-id or --part, not both")
    if getattr(model.privacy, "ledger", None) is None:
        raise BadUse("--record-id and --part say how a ledger adds up: they need --epsilon and --ledger")


def _with_ids(tables: Tables, pieces: Iterator[Any]) -> Iterator[Any]:
    """Add the ids of its rows to each piece."""
    for site, rows in pieces:
        known = tables.record_ids[site]
        yield site, rows, known[len(known) - len(rows) :]


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
    found = f"{counted(model.n_clusters_, 'cluster')} in {counted(len(server.nodes), 'node')}"
    say(f"Sites sent {counted(sent, 'node')}; the server has {found}.")
    _say_privacy(model)


def _say_privacy(model: Any) -> None:
    mechanism = model.privacy
    ledger = getattr(mechanism, "ledger", None)
    if ledger is not None:
        for site in ledger.sites():
            say("Ledger, " + ledger.summary_line(site))
    elif hasattr(mechanism, "release"):
        note("note: no --ledger: nobody adds up what later rounds cost")
