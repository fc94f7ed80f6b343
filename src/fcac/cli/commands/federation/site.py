"""``fcac federation site``: take part as a site until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fcac.cli import options as opt
from fcac.cli.commands.federation.shared import Bundle, DataOption, PlainErrors, StateOption
from fcac.cli.terminal import BadUse, note, say


def site(
    bundle: Bundle,
    data: DataOption,
    state: StateOption = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Privacy cost of one round; needs bounds in the schema.", show_default=False),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Privacy cost allowed over all rounds. Needed with a new ledger: there is no default.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="At most 1e-5.")] = 1e-6,
    no_privacy: Annotated[
        bool,
        typer.Option(
            "--no-privacy",
            help="Send nodes without noise: single rows may leave; a sentence has to be typed.",
        ),
    ] = False,
    record_id: Annotated[
        str | None,
        typer.Option(
            "--record-id",
            help="Column that identifies the person of each row: promise and costs are then per person.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    query: opt.Query = None,
    new_by: Annotated[
        str | None,
        typer.Option(
            "--new-by",
            help="For databases: a column whose values only grow, by which new rows are found.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    read: opt.Read = None,
    agree: Annotated[
        float | None,
        typer.Option(
            "--agree",
            help="Take part in one agreement on bounds and levels that the schema lacks, at this privacy cost.",
            metavar="EPSILON",
            show_default=False,
        ),
    ] = None,
    settings_only: Annotated[
        bool,
        typer.Option(
            "--settings-only", help="Agree, write the settings and stop: something else carries the messages."
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree, without being asked, to the columns and bounds that the study uses.")
    ] = False,
) -> None:
    """Take part as a site until Ctrl-C: answer rounds with what is new in DATA.

    New files, and lines added at the end of files, are new; in a database, rows are new whose value in the column
    [bold]--new-by[/bold] is above that of the last round. Rows never leave; with [bold]--epsilon[/bold], what leaves
    is differentially private per record, and each round is charged to the ledger in the state directory. The site
    decides this, not the server. The costs of rounds add up, for each person if you name a record id.

    [bold]Examples[/bold]

    fcac federation site north --data /data/tables --state /var/lib/fcac --epsilon 1 --budget 4

    fcac federation site north --data /data/tables --state /var/lib/fcac --epsilon 1 --budget 4 --record-id patient

    fcac federation site north --data /data/tables --state /var/lib/fcac --epsilon 1 --budget 4 --agree 0.5

    fcac federation site north --data /data/tables --state /var/lib/fcac --no-privacy

    fcac federation site north --data postgresql://host/db --query visits.sql --new-by visit_id --epsilon 1 --budget 4
    """
    if (epsilon is None) != no_privacy:
        raise BadUse(
            "choose --epsilon E (with bounds in the schema) or --no-privacy"
            if epsilon is None
            else "give --epsilon or --no-privacy, not both"
        )
    if epsilon is None and agree is None and budget is not None:
        raise BadUse("--budget needs --epsilon")
    if agree is not None and not 0 < agree < float("inf"):
        raise BadUse("--agree must be above 0: the privacy cost of one agreement")
    if epsilon is None and record_id:
        raise BadUse("--record-id determines how costs add up: it needs --epsilon")
    if epsilon is not None and not epsilon > 0:
        raise BadUse("--epsilon must be above 0")
    from fcac.cli.commands.federation.consent import consent
    from fcac.deployment import processes
    from fcac.deployment.agreement_agent import AgreementAgent
    from fcac.deployment.site_agent import SiteAgent
    from fcac.deployment.site_link import SiteLink, become, look_for_changes
    from fcac.deployment.site_setup import budget_of, remember_state, site_settings, state_of, store_settings
    from fcac.tables.read_options import ReadOptions
    from fcac.tables.schema import Schema
    from fcac.tables.sources import is_address

    folder = state_of(bundle, state)
    with PlainErrors(), processes.stopped_by_signals():
        if not is_address(data) and not Path(data).exists():
            raise ValueError(f"--data {data}: there is no such file or directory")
        look_for_changes(bundle, note)
        dearest = max((cost for cost in (epsilon, agree) if cost is not None), default=None)
        total, origin = (None, "") if dearest is None else budget_of(folder, dearest, budget)
        settings = site_settings(
            bundle, data, folder, epsilon=epsilon, budget=total, delta=delta, record_id=record_id,
            agree=agree,
            read=ReadOptions.parse(read or [], query=query, new_by=new_by).to_dict(),
        )  # fmt: skip
        consent(settings, yes)
        waits = agree is not None and Schema.load(settings.schema).bounds is None
        agent = None if waits else SiteAgent(settings)
        (AgreementAgent(settings) if agent is None else agent).finder().check_columns()
        remember_state(bundle, folder)
        if settings.private:
            cost = f"each round costs eps = {epsilon:g} at delta = {delta:g}"
            say(f"Site {settings.name}: {cost}; budget {total:g} ({origin}).")
            spent = "nothing" if agent is None else agent.spent() or "nothing"
            say(f"Rounds add up {_adding_up(settings)}; spent so far: {spent}.")
        else:
            note(f"WARNING: site {settings.name} sends its nodes as they are: single rows may leave.")
        if waits:
            say("The schema has no bounds yet: this site answers no round before the sites have agreed on them.")
        stored = store_settings(settings)
        if settings_only:
            say(f"The settings are in {stored}.")
            return
        link = SiteLink(bundle, settings, stored, say)
        say(f"Connecting to {link.address}; log: {folder / 'site.log'}. Ctrl-C stops.")
        become(bundle, stored)


def _adding_up(settings: Any) -> str:
    if settings.record_id is not None:
        return f"per person (column {settings.record_id})"
    return "for everybody"
