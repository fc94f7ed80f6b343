"""``fcac federation`` at a site: it joins a study, answers rounds, labels its rows and looks after its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import click

from fcac._text import counted, plain
from fcac.cli import options as opt
from fcac.cli.federation_options import Bundle, Last, SiteData, State, plain_errors
from fcac.cli.terminal import BadUse, note, say


def join(
    invitation: Annotated[str, opt.argument("The line from the hub, or a file.", "INVITATION")],
    out: Annotated[Path | None, opt.option("Where to write the bundle; by default ./NAME.")] = None,
) -> None:
    """Make this site's key here, ask the hub to certify it, and write the site's bundle.

    The private key never leaves this machine. Read the fingerprint that is printed to the hub's operator, by telephone.

    [bold]Example[/bold]
    fcac federation join invitation.txt --out north
    """
    from fcac.deployment.invitations import Invitation
    from fcac.deployment.invitations import join as ask

    with plain_errors():
        is_file = len(invitation) < 500 and not invitation.startswith("fcac-invitation") and Path(invitation).is_file()
        text = Path(invitation).read_text("utf-8") if is_file else invitation
        found = Invitation.parse(text)
        bundle = out or Path(found.site)
        fingerprint = ask(found, bundle)
    say(f"The bundle of site {found.site} is in {bundle}. Fingerprint of its key, to compare aloud:")
    say(f"  {fingerprint}")
    say(f"Then: fcac federation site {bundle} --data DATA --state STATE --epsilon E --budget B")


def sites(
    bundle: Bundle,
    state: State = None,
    agree: Annotated[str | None, opt.option("Agree to the list with this code, read out by another site.")] = None,
) -> None:
    """At a site whose study is summed: show the list of sites that the hub offers, and agree to it.

    Secure aggregation protects a site among the others, so that these must be real. Compare the code of the list with
    other sites, by telephone: equal code, equal list. A site answers no summed round before it has agreed, and has to
    agree again when a site is added.

    [bold]Example[/bold]
    fcac federation sites north --agree "ABCD EFGH IJKL MNOP QRST UVWX YZ23 4567"
    """
    from fcac.aggregation import RosterFile, SigningKey
    from fcac.aggregation.keys import fingerprint
    from fcac.deployment.aggregated_study import SITE_KEY_FILE
    from fcac.deployment.audit_log import AuditLog
    from fcac.deployment.site_link import look_for_changes
    from fcac.deployment.site_setup import make_private, state_of
    from fcac.deployment.study import OFFERED_FILE, read_bundle

    folder = state_of(bundle, state)
    with plain_errors():
        name = str(read_bundle(bundle)["site"])
        look_for_changes(bundle, note)
        make_private(folder)
        roster = RosterFile(folder)
        if (bundle / OFFERED_FILE).exists():
            public = SigningKey.at(bundle / SITE_KEY_FILE).public
            roster.offer((bundle / OFFERED_FILE).read_bytes(), name, public)
        for line in roster.lines():
            say(line)
        if agree is not None:
            agreed = roster.agree(agree)
            known = {site: fingerprint(key) for site, key in agreed.keys.items()}
            AuditLog(folder).add("agreed to sites", code=agreed.code, least=agreed.least, sites=known)
            say("Agreed.")


def site(
    bundle: Bundle,
    data: SiteData,
    reading: opt.Reading,
    state: State = None,
    epsilon: Annotated[
        float | None, opt.privacy_option("Privacy cost of one round; needs bounds in the schema.")
    ] = None,
    budget: Annotated[
        float | None,
        opt.privacy_option("Privacy cost allowed over all rounds. Needed with a new ledger: there is no default."),
    ] = None,
    delta: Annotated[float, opt.privacy_option("At most 1e-5.")] = 1e-6,
    no_privacy: Annotated[
        bool,
        opt.privacy_option(
            "Send nodes without noise: single rows may leave; a sentence has to be typed.", "--no-privacy"
        ),
    ] = False,
    record_id: opt.RecordId = None,
    new_by: Annotated[
        str | None,
        opt.data_option(
            "For databases: a column whose values only grow, by which new rows are found.", metavar="COLUMN"
        ),
    ] = None,
    agree: Annotated[
        float | None,
        opt.privacy_option(
            "Take part in one agreement on bounds and levels that the schema lacks, at this privacy cost.",
            metavar="EPSILON",
        ),
    ] = None,
    settings_only: Annotated[
        bool,
        opt.option("Agree, write the settings and stop: something else carries the messages.", "--settings-only"),
    ] = False,
    yes: Annotated[
        bool, opt.option("Agree, without being asked, to the columns and bounds that the study uses.", "--yes")
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
    from fcac.cli.consent import consent
    from fcac.deployment import processes
    from fcac.deployment.agreement_agent import AgreementAgent
    from fcac.deployment.site_agent import SiteAgent
    from fcac.deployment.site_link import SiteLink, become, look_for_changes
    from fcac.deployment.site_setup import budget_of, remember_state, site_settings, state_of, store_settings
    from fcac.tables.schema import Schema
    from fcac.tables.sources import is_address

    folder = state_of(bundle, state)
    with plain_errors(), processes.stopped_by_signals():
        if not is_address(data) and not Path(data).exists():
            raise ValueError(f"--data {data}: there is no such file or directory")
        look_for_changes(bundle, note)
        dearest = max((cost for cost in (epsilon, agree) if cost is not None), default=None)
        total, origin = (None, "") if dearest is None else budget_of(folder, dearest, budget)
        settings = site_settings(
            bundle, data, folder, epsilon=epsilon, budget=total, delta=delta, record_id=record_id,
            agree=agree, read=reading.how(new_by=new_by).to_dict(),
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


def label(
    bundle: Bundle,
    data: SiteData,
    output: opt.Output,
    reading: opt.Reading,
    state: State = None,
    keep: opt.Keep = None,
    alpha: opt.Alpha = None,
    usual: Annotated[
        Path | None,
        opt.option("File of usual rows: what lies farther than these is novel. Only these labels use it."),
    ] = None,
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
    from fcac.tables import open_tables
    from fcac.tables.schema import Schema

    out = output.check()
    with plain_errors():
        name = str(read_bundle(bundle)["site"])
        model = load_model(state_of(bundle, state))
        schema = Schema.load(bundle / "schema.toml")
    tables = open_tables([data], schema, site=name, keep=keep or [], options=reading.how())
    if usual is not None:
        known = [rows for _, rows in open_tables([usual], schema, site=name).pieces()]
        model = model.calibrated(np.concatenate([np.empty((0, schema.n_features)), *known]))
    labeller = Labeller(model, tables, alpha)
    with LabelWriter(out, keep or [], tables) as writer:
        labeller.label_all(tables.batches(), writer)
    say(
        f"Labelled {counted(writer.n_rows, 'row')}: {counted(writer.n_clusters, 'cluster')} found, "
        f"{counted(writer.n_novel, 'row')} unlike anything seen. Labels: {out}"
    )


def rotate(bundle: Bundle) -> None:
    """At a site: make a new key, have the hub certify it, and use it from the next start on.

    The old key is accepted until the new one has been used. Start [bold]fcac federation site[/bold] again afterwards.
    """
    from fcac.deployment.site_link import refresh

    with plain_errors():
        refresh(bundle, renew=True)
    say(f"{bundle} has a new key and its certificate. Start the site again to use it.")


def log(
    state: Annotated[Path, opt.argument("The site's state directory.", "STATE")],
    verify: Annotated[bool, opt.option("Check that no line was changed or removed.", "--verify")] = False,
    as_json: Annotated[bool, opt.option("One JSON object per line.", "--json")] = False,
    last: Last = 50,
) -> None:
    """Show what a site was asked, what it decided and why; the log is append-only, and every line holds a hash of the
    one before.

    [bold]Examples[/bold]
    fcac federation log /var/lib/fcac/north
    fcac federation log /var/lib/fcac/north --verify
    """
    from fcac.deployment.audit_log import FILE, AuditLog
    from fcac.deployment.audit_log import verify as check

    path = state / FILE
    if not path.exists():
        raise click.ClickException(f"{path} does not exist: name the state directory of a site that has run")
    if verify:
        verdict = check(path)
        if verdict.problem:
            raise click.ClickException(f"{path}: {verdict.problem}; the {verdict.n_entries} lines before are in order")
        say(f"{counted(verdict.n_entries, 'entry', 'entries')}, none changed. Last hash: {verdict.last}")
        return
    for entry in AuditLog(state).entries()[-last:]:
        if as_json:
            say(json.dumps(entry))
            continue
        facts = {key: value for key, value in entry.items() if key not in ("time", "event", "before", "clock")}
        shown = ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)
        say(plain(f"{entry['time'][:19]} {entry['event']}: {shown}", 500))
