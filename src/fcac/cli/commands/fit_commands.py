"""``fcac fit``, ``update``, ``calibrate`` and ``forget``: models are learned and changed."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.learning import (
    check_records,
    guess,
    learn_and_save,
    load_model,
    open_ledger_again,
    say_privacy,
    schema_of,
    with_ids,
)  # fmt: skip
from fcac.cli.terminal import BadUse, Progress, check_out, note, say
from fcac.privacy.mechanism import NodeMechanism


def fit(
    data: opt.Data,
    output: opt.Output,
    rows: opt.SiteRows,
    spark: opt.Spark,
    learning: opt.Learning,
    privacy: opt.Privacy,
    schema: opt.SchemaPath = None,
    drop: opt.Drop = None,
    n_clusters: Annotated[
        int | None, opt.option("Number of clusters, if you know it (with --server communities).", "--clusters", min=1)
    ] = None,
    jobs: Annotated[int | None, opt.option("Number of sites that learn in parallel.")] = None,
    report: opt.ReportPath = None,
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
    from fcac.tables.schema import Schema

    out = output.check()
    if report is not None:
        check_out(report, force=True)
    learning.check(n_clusters)
    if learning.forgetting != "none" and privacy.epsilon is not None:
        raise BadUse("--forgetting: what was released with --epsilon cannot be forgotten; leave out one of the two")
    known = None if schema is None else Schema.load(schema)
    mechanism = None if privacy.mechanism == "release" else privacy.mechanism
    on_spark = spark.wanted(
        site=rows.site, query=rows.query, read=rows.read, mechanism=mechanism, jobs=jobs, report=report
    )
    settings = {
        **learning.settings(),
        "n_clusters": n_clusters,
        "privacy": privacy.make(known, learning.seed),
    }
    if on_spark:
        from fcac.cli.spark_engine import fit_on_spark

        settings["record_id"] = rows.record_id
        fit_on_spark(data, spark.master, out, known, rows.site_column, drop, settings)
        return
    rows.check_names(settings["privacy"])
    reasons: dict[str, str] = {}
    if known is None and settings["privacy"] is None:
        apart = [name for name in (rows.site_column, *(drop or [])) if name is not None]
        known, reasons = guess(data, apart, rows.how())
        drop = drop if known is None else None
    tables = rows.open(data, known, drop=drop or [])
    from fcac.model.fcac import FCAC

    model = FCAC(n_jobs=jobs, **settings)
    learn_and_save(model, tables, known, out, record_id=rows.record_id, report=report, guessed=reasons)


def update(
    model: opt.ModelPath,
    data: opt.Data,
    output: opt.NewModel,
    rows: opt.SiteRows,
    spark: opt.Spark,
    ledger: opt.MovedLedger = None,
    exit_code: Annotated[
        bool, opt.option("Exit with 3 if a cluster was born, died, split or merged; with 0 if not.", "--exit-code")
    ] = False,
    report: opt.ReportPath = None,
) -> None:
    """Learn the next round: add new rows to a model. Nothing learned before is lost.

    Columns, scaling and privacy are those of the model. A file named like a known site, or [bold]--site NAME[/bold],
    continues that site; other names are new sites.

    [bold]Examples[/bold]
    fcac update model.fcac tuesday/ --report report.html
    fcac update model.fcac new_rows.csv --site north
    fcac update model.fcac today.csv --exit-code || notify   [dim]3: another set of clusters[/dim]
    """
    out = output.check(model)
    if report is not None:
        check_out(report, force=True)
    known = load_model(model)
    if not hasattr(known, "play_stream"):
        raise BadUse(
            f"{model} is a {type(known).__name__}, which cannot learn in rounds: use a model made by `fcac fit`"
        )
    if spark.wanted(
        site_column=rows.site_column, site=rows.site, query=rows.query, read=rows.read, exit_code=exit_code,
        report=report,
    ):  # fmt: skip
        from fcac.cli.spark_engine import update_on_spark

        open_ledger_again(known, ledger)
        update_on_spark(known, data, spark.master, out, rows.record_id)
        return
    rows.check_names(known.privacy)
    tables = rows.open_for(known, data)
    open_ledger_again(known, ledger)
    before = set(known.sites_)
    learn_and_save(known, tables, schema_of(known), out, record_id=rows.record_id, report=report)
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


def calibrate(
    model: opt.ModelPath,
    data: opt.Data,
    output: opt.NewModel,
    rows: opt.SiteRows,
    epsilon: Annotated[
        float | None,
        opt.privacy_option("For a model with NodeRelease: what the release of distances may cost each site."),
    ] = None,
    ledger: opt.MovedLedger = None,
) -> None:
    """Measure how far usual rows lie from a model, so that [bold]fcac predict --alpha[/bold] keeps its rate.

    For models made with [bold]--epsilon[/bold]: they keep no rows, and released nodes do not tell how far rows lie from
    them. Each site counts its rows by distance and adds noise; this costs [bold]--epsilon[/bold] more, and the ledger
    is charged. Rows may be those learned, or fresh ones like them. What was measured holds until the model learns
    again. Other models do not need it; there, give fresh rows.

    [bold]Examples[/bold]
    fcac calibrate model.fcac clinics/ --epsilon 0.5
    fcac calibrate model.fcac visits.csv --epsilon 0.5 --site-column ward --public-sites --record-id patient
    """  # fmt: skip
    from fcac import save
    from fcac.model.site_rows import rows_by_site

    out = output.check(model)
    known = load_model(model)
    if not hasattr(known, "calibrate_novelty"):
        raise BadUse(f"{model} is a {type(known).__name__}: use a model made by `fcac fit`")
    is_private = isinstance(known.privacy, NodeMechanism)
    if is_private and epsilon is None:
        raise BadUse("--epsilon is missing: say what the release of distances may cost, for instance --epsilon 0.5")
    if not is_private and epsilon is not None:
        raise BadUse("--epsilon: the model was made without it, so distances are taken as they are; leave it out")
    opt.check_positive("epsilon", epsilon)
    rows.check_names(known.privacy)
    tables = rows.open_for(known, data)
    open_ledger_again(known, ledger)
    check_records(known.privacy, rows.record_id)
    with Progress("measuring") as progress, warnings.catch_warnings():
        # names were checked when the tables were opened
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        pieces = tables.pieces(progress)
        found, ids = rows_by_site(pieces if rows.record_id is None else with_ids(tables, pieces, schema_of(known)))
        known.calibrate_novelty(found, epsilon=epsilon, record_ids=ids)
    save(known, out)
    n_rows = sum(len(own) for own in found.values())
    how = "as they are" if epsilon is None else f"with noise, eps = {epsilon:g}"
    say(f"Measured the distances of {counted(n_rows, 'row')} at {counted(len(found), 'site')}, {how}.")
    say(f"Rows farther than {known.novelty_reach():.3g} from the nearest node are novel (1 % of usual rows).")
    say_privacy(known)
    say(f"Model: {out}")


def forget(
    model: opt.ModelPath, site: Annotated[str, opt.argument("Name of the site.", "SITE")], output: opt.NewModel
) -> None:
    """Forget a site exactly: the model becomes what it would have been without the site.

    Copies, exports and reports made earlier still contain the site.

    [bold]Example[/bold]
    fcac forget model.fcac north
    """
    from fcac import save
    from fcac.tables import site_from_text

    out = output.check(model)
    known = load_model(model)
    if not hasattr(known, "forget"):
        raise BadUse(f"{model} is a {type(known).__name__}: it has no sites to forget")
    sites = known.server_.sites
    name = site_from_text(site)
    if name not in sites and site not in sites:
        shown = ", ".join(map(str, sites[:12])) + (" ..." if len(sites) > 12 else "")
        raise BadUse(f"no site {site} in {model}; its sites are {shown}")
    known.forget(name if name in sites else site)
    save(known, out)
    left = counted(len(known.server_.sites), "site")
    say(f"Forgot site {site}: {counted(known.n_clusters_, 'cluster')} from {left} remain.")
    say(f"Model: {out}")
