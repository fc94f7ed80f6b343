"""``fcac fit``: learn clusters from tables."""

from __future__ import annotations

from typing import Annotated

import typer

from fcac.cli import options as opt
from fcac.cli import spark_engine
from fcac.cli.learning import guess, learn_and_save
from fcac.cli.terminal import BadUse, check_out


def fit(
    data: opt.Data,
    out: opt.Out,
    site_column: opt.SiteColumn = None,
    site: opt.Site = None,
    schema: opt.SchemaPath = None,
    drop: opt.Drop = None,
    query: opt.Query = None,
    read: opt.Read = None,
    engine: opt.Engine = "process",
    master: opt.Master = None,
    server: opt.ServerName = "communities",
    n_clusters: Annotated[
        int | None,
        typer.Option(
            "--clusters",
            help="Number of clusters, if you know it (with --server communities).",
            min=1,
            show_default=False,
        ),
    ] = None,
    max_nodes: Annotated[
        int | None,
        typer.Option(
            "--max-nodes",
            help="Maximum number of nodes to which a site condenses its rows [4000]; not for --server cae-fc.",
            min=2,
            show_default=False,
        ),
    ] = None,
    forgetting: opt.Forgetting = "none",
    scale: opt.Scale = "auto",
    epsilon: opt.Epsilon = None,
    delta: opt.Delta = 1e-6,
    ledger: opt.LedgerPath = None,
    budget: opt.Budget = None,
    record_id: opt.RecordId = None,
    mechanism: opt.Mechanism = "release",
    seed: opt.Seed = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Number of sites that learn in parallel.", show_default=False)
    ] = None,
    report: opt.ReportPath = None,
    force: opt.Force = False,
) -> None:
    """Learn clusters from tables.

    Without --schema it is guessed what each column means, and said; ids, dates, constants and free text are left out.

    [bold]Examples[/bold]

    fcac fit table.csv --out model.fcac --report report.html

    fcac fit clinics/ --out model.fcac --report report.html   [dim]each file is a site[/dim]

    fcac fit all.parquet --site-column clinic --out model.fcac

    fcac fit postgresql://host/clinic --query "select age, bmi from visits" --out model.fcac

    fcac fit --engine spark hdfs://lake/visits --site-column clinic --out model.fcac

    fcac fit --engine spark hdfs://lake/visits --schema schema.toml --epsilon 2 --out model.fcac

    fcac fit a.csv --schema schema.toml --epsilon 2 --ledger a.db --budget 8 --out model.fcac
    """
    from fcac.federation import readouts
    from fcac.federation.condenser import condenser_for

    check_out(out, force)
    if report is not None:
        check_out(report, force=True)
    if server not in readouts.names():
        raise BadUse(f"--server must be one of {', '.join(readouts.names())}, not {server}")
    if n_clusters is not None and not readouts.find(server).accepts_n_clusters:
        raise BadUse(f"--clusters: the {server} server determines the number itself; use --server communities")
    try:
        condenser_for(readouts.find(server).condenser, max_nodes, forgetting=forgetting, scale=scale)
    except ValueError as error:  # before any table is read
        raise BadUse(f"--{str(error).replace('max_nodes', 'max-nodes', 1)}") from None
    if forgetting != "none" and epsilon is not None:
        raise BadUse("--forgetting: what was released with --epsilon cannot be forgotten; leave out one of the two")
    known = opt.load_schema(schema)
    on_spark = spark_engine.check_engine(engine, master)
    if on_spark:
        spark_engine.refuse(
            site=site, query=query, read=read, mechanism=None if mechanism == "release" else mechanism, jobs=jobs,
            report=report,
        )  # fmt: skip
    privacy = opt.make_mechanism(
        known, epsilon=epsilon, delta=delta, ledger=ledger, budget=budget, mechanism=mechanism, seed=seed
    )
    if on_spark:
        settings = {
            "server": server, "n_clusters": n_clusters, "max_nodes": max_nodes, "forgetting": forgetting,
            "scale": scale, "privacy": privacy, "record_id": record_id, "random_state": seed,
        }  # fmt: skip
        spark_engine.fit_on_spark(data, master, out, known, site_column, drop, settings)
        return
    reasons: dict[str, str] = {}
    if known is None and privacy is None:
        apart = [name for name in (site_column, *(drop or [])) if name is not None]
        known, reasons = guess(data, apart, query, read)
        drop = drop if known is None else None
    tables = opt.open_data(
        data, known, drop=drop, site_column=site_column, site=site, record_id=record_id, query=query, read=read
    )
    from fcac.model.fcac import FCAC

    model = FCAC(
        server=server,
        privacy=privacy,
        n_clusters=n_clusters,
        max_nodes=max_nodes,
        forgetting=forgetting,
        scale=scale,
        n_jobs=jobs,
        random_state=seed,
    )
    learn_and_save(model, tables, known, out, record_id=record_id, report=report, guessed=reasons)
