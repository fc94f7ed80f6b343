"""``fcac federation``: run a server, sites on their own machines, and rounds between them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.console import BadUse, check_out, help_text, note, say

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run sites and a server on different machines.",
)

Directory = Annotated[Path, typer.Argument(help="Directory of the federation.", metavar="DIR", show_default=False)]
Bundle = Annotated[Path, typer.Argument(help="The site's bundle.", metavar="BUNDLE", show_default=False)]
SiteArgument = Annotated[str, typer.Argument(help="Name of the site.", metavar="SITE", show_default=False)]
DataOption = Annotated[
    str,
    typer.Option(
        "--data", help="File or directory of the site's tables, or the address of its database.", show_default=False
    ),
]
StateOption = Annotated[
    Path | None, typer.Option("--state", help="The site's state; by default inside the bundle.", show_default=False)
]


def init(
    directory: Directory,
    schema: Annotated[
        Path, typer.Option("--schema", help="Columns and bounds; see `fcac schema`.", show_default=False)
    ],
    sites: Annotated[
        str | None,
        typer.Option(
            "--sites",
            help="Names of sites whose keys are made here: a,b,c. Without, sites join with keys of their own (invite).",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", help="Address at which sites reach the server, as host:port.")
    ] = "127.0.0.1:18000",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption and no keys; loopback addresses only.")
    ] = False,
    server: opt.ServerName = "communities",
    max_nodes: Annotated[
        int | None,
        typer.Option(
            "--max-nodes",
            help="Maximum number of nodes to which a site condenses its rows [4000].",
            min=2,
            show_default=False,
        ),
    ] = None,
    min_rows: Annotated[
        int,
        typer.Option("--min-rows", help="Without --epsilon: minimum number of rows behind a node that is sent.", min=1),
    ] = 3,
    forgetting: opt.Forgetting = "none",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the server's shuffling.")] = 0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds a site has to answer.", min=1)] = 300,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for sites to connect.", min=0)] = 60,
    people_overlap: Annotated[
        int | None,
        typer.Option(
            "--people-overlap",
            help="Number of sites at which one person may have rows, as the study assumes: what they spend adds up.",
            min=1,
            show_default=False,
        ),
    ] = None,
    aggregation: Annotated[
        str,
        typer.Option("--aggregation", help="plain, or secure: sum all sites before anyone sees; needs --epsilon."),
    ] = "plain",
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="With --aggregation secure: privacy cost of a round.", show_default=False),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="With --aggregation secure: at most 1e-5.")] = 1e-6,
    tolerance: Annotated[
        int | None,
        typer.Option(
            "--tolerance",
            help="With --aggregation secure: sites that may vanish or collude; a tenth by default.",
            min=1,
            show_default=False,
        ),
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            "--least",
            help="With --aggregation secure: fewest sites in a round; half of them by default.",
            min=4,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create a federation: a directory with everything the server needs.

    Sites then join with keys of their own: [bold]invite[/bold] here, [bold]join[/bold] there, [bold]accept[/bold] here.
    With [bold]--sites[/bold], keys are made here: give each site its bundle (DIR/bundles/NAME) over a secure channel,
    since it contains the site's private key.

    [bold]Examples[/bold]

    fcac federation init study --schema schema.toml --address hub.example:8443

    fcac federation init study --sites north,south --schema schema.toml --address hub.example:8443

    fcac federation init study --sites a,b,c,d,e --schema schema.toml --aggregation secure --epsilon 1
    """
    from fcac.deployment import aggregated_study, study

    if aggregation not in ("plain", "secure"):
        raise BadUse(f"--aggregation must be plain or secure, not {aggregation}")
    if aggregation == "plain" and any(given is not None for given in (epsilon, tolerance, least)):
        raise BadUse(
            "--epsilon, --tolerance and --least belong to --aggregation secure; here each site chooses its own"
        )
    names = [name.strip() for name in (sites or "").split(",") if name.strip()]
    if sites is not None and not names:
        raise BadUse("--sites needs at least one name, as in --sites a,b,c")
    if insecure and not names:
        raise BadUse("--insecure: without keys there is nothing to join with; name the sites with --sites")
    with PlainErrors():
        summing = None
        if aggregation == "secure":
            summing = aggregated_study.summing_for(len(names), epsilon, delta, tolerance, least)
        root = study.init(
            directory, names, schema, address=address, insecure=insecure, server=server, max_nodes=max_nodes,
            min_rows=min_rows, forgetting=forgetting, seed=seed, timeout=timeout, wait=wait,
            people_overlap=people_overlap, summing=summing,
        )  # fmt: skip
    if not names:
        say(f"Created {root / 'federation.toml'}.")
        say(f"1. here:           fcac federation server {root}")
        say(f"2. for each site:  fcac federation invite {root} NAME, and pass on what it prints")
        say("3. at every site:  fcac federation join INVITATION")
        say(f"4. here:           fcac federation accept {root} NAME, after comparing fingerprints aloud")
        return
    say(f"Created {root / 'federation.toml'} for {counted(len(names), 'site')}: {', '.join(names)}.")
    if insecure:
        note("note: no encryption and no keys: only for experiments on this machine")
    if summing is not None:
        note(f"note: {root / 'ca' / 'study.key'} signs the list of sites: keep it off the hub's machine, with ca.key")
    chosen = "E" if summing is None else f"{summing.epsilon:g}"
    say(f"1. here:           fcac federation server {root}")
    site_options = f"--data DATA --state STATE --epsilon {chosen} --budget B"
    say(f"2. at every site:  fcac federation site {root / 'bundles'}/NAME {site_options}")
    say(f"3. here:           fcac federation run {root} --rounds 1")


def server(
    directory: Directory,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on, if not the one given to init.", show_default=False),
    ] = None,
) -> None:
    """Run the server until Ctrl-C. It notices sites that are added or revoked meanwhile."""
    from fcac.flower.hub_server import HubServer

    with PlainErrors():
        HubServer(directory, host, say).run()
        say("Stopping.")


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
        bool, typer.Option("--no-privacy", help="Send nodes without noise; they can reveal single records.")
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
    part_column: Annotated[
        str | None,
        typer.Option(
            "--part-column",
            help="Column that names the part of the data a row belongs to (a day), defined without looking at values: "
            "the costs of different parts do not add up.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    part_by_file: Annotated[
        bool, typer.Option("--part-by-file", help="Every file is such a part (one file per day).")
    ] = False,
    query: opt.Query = None,
    new_by: Annotated[
        str | None,
        typer.Option(
            "--new-by",
            help="For databases: a column whose values only grow, which tells the rows that are new.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    read: opt.Read = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree, without being asked, to the columns and bounds that the study uses.")
    ] = False,
) -> None:
    """Take part as a site until Ctrl-C: answer rounds with what is new in DATA.

    New files, and lines added at the end of files, are new; in a database, rows are new whose value in the column
    [bold]--new-by[/bold] is above that of the last round. Rows never leave; with [bold]--epsilon[/bold], what leaves
    is differentially private per record, and each round is charged to the ledger in the state directory. The site
    decides this, not the server. The costs of rounds add up, unless you name a record id or parts.

    [bold]Examples[/bold]

    fcac federation site north --data /data/tables --state /var/lib/fcac --epsilon 1 --budget 4

    fcac federation site north --data /data/tables --state /var/lib/fcac --epsilon 1 --budget 4 --record-id patient

    fcac federation site north --data /data/tables --state /var/lib/fcac --no-privacy

    fcac federation site north --data postgresql://host/db --query visits.sql --new-by visit_id --epsilon 1 --budget 4
    """
    if (epsilon is None) != no_privacy:
        raise BadUse(
            "choose --epsilon E (with bounds in the schema) or --no-privacy"
            if epsilon is None
            else "give --epsilon or --no-privacy, not both"
        )
    if epsilon is None and budget is not None:
        raise BadUse("--budget needs --epsilon")
    if epsilon is None and (record_id or part_column or part_by_file):
        raise BadUse("--record-id, --part-column and --part-by-file determine how costs add up: they need --epsilon")
    if sum([record_id is not None, part_column is not None, part_by_file]) > 1:
        raise BadUse("give only one of --record-id, --part-column and --part-by-file")
    if epsilon is not None and not epsilon > 0:
        raise BadUse("--epsilon must be above 0")
    from fcac.deployment.site_agent import SiteAgent
    from fcac.flower import processes
    from fcac.flower.service import budget_of, remember_state, site_settings, state_of, store_settings
    from fcac.flower.site_node import SiteNode, become
    from fcac.tables.read_options import ReadOptions
    from fcac.tables.sources import is_address

    folder = state_of(bundle, state)
    from fcac.cli.commands.federation.consent import consent

    with PlainErrors(), processes.stopped_by_signals():
        if not is_address(data) and not Path(data).exists():
            raise ValueError(f"--data {data}: there is no such file or directory")
        if part_by_file and is_address(data):
            raise ValueError("--part-by-file: a database has no files; name the parts by --part-column")
        total, origin = (None, "") if epsilon is None else budget_of(folder, epsilon, budget)
        settings = site_settings(
            bundle, data, folder, epsilon=epsilon, budget=total, delta=delta, record_id=record_id,
            part_column=part_column, part_by_file=part_by_file,
            read=ReadOptions.parse(read or [], query=query, new_by=new_by).to_dict(),
        )  # fmt: skip
        consent(settings, yes)
        agent = SiteAgent(settings)
        agent.finder().check_columns()
        remember_state(bundle, folder)
        if settings.private:
            cost = f"each round costs eps = {epsilon:g} at delta = {delta:g}"
            say(f"Site {settings.name}: {cost}; budget {total:g} ({origin}).")
            say(f"Rounds add up {_adding_up(settings)}; spent so far: {agent.spent() or 'nothing'}.")
        else:
            note(f"WARNING: site {settings.name} runs WITHOUT PRIVACY: the nodes it sends can reveal records.")
        stored = store_settings(settings)
        node = SiteNode(bundle, settings, stored, say)
        say(f"Connecting to {node.address}; log: {folder / 'site.log'}. Ctrl-C stops.")
        become(bundle, stored)


def _adding_up(settings: Any) -> str:
    if settings.record_id is not None:
        return f"per person (column {settings.record_id})"
    if settings.part_column is not None:
        return f"per part (column {settings.part_column})"
    return "per file" if settings.part_by_file else "for everybody"


def run(
    directory: Directory,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Rounds to run.", min=1, show_default=False)] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Run a round at this interval, as in 30s, 15m, 1h or 1d.", show_default=False),
    ] = None,
) -> None:
    """Run rounds: ask every site for what is new, and learn from what they send.

    A round that was interrupted by a crash is finished first; what had arrived is not requested again. With
    [bold]--every[/bold], the sites are asked at that interval until Ctrl-C. A site without privacy that has nothing new
    says so; a site with privacy answers, and pays for, every round.

    [bold]Examples[/bold]

    fcac federation run study --rounds 3

    fcac federation run study --every 1h
    """
    if (rounds is None) == (every is None):
        raise BadUse("give --rounds N or --every INTERVAL")
    pause = None if every is None else seconds(every)
    from fcac.exceptions import FlowerError
    from fcac.flower import processes
    from fcac.flower.service import run_rounds

    with PlainErrors(), processes.stopped_by_signals():
        try:
            while True:
                started = time.monotonic()
                try:
                    result = run_rounds(directory, rounds or 1, say)
                    _say_result(directory, result, rounds or 1)
                except FlowerError as error:
                    if pause is None:
                        raise
                    note(f"this run failed: {error}")
                if pause is None:
                    return
                time.sleep(max(0.0, started + pause - time.monotonic()))
        except KeyboardInterrupt:
            say("Stopped. What has arrived is kept; the next run continues from there.")


def _say_result(directory: Path, result: dict[str, Any], wanted: int) -> None:
    say(f"{counted(result['closed'], 'round')} closed; model and report are in {directory / 'state'}.")
    if result["closed"] < wanted:
        say("No site had anything new, or none answered: see `fcac federation status`.")


def status(
    directory: Directory,
    rejected: Annotated[bool, typer.Option("--rejected", help="List what was rejected, and why.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for programs.")] = False,
) -> None:
    """Show sites, rounds, contributions, clusters, and the privacy spent as reported by the sites."""
    from fcac.deployment.status import describe

    with PlainErrors():
        if as_json:
            import json

            from fcac.deployment.facts import facts

            say(json.dumps(facts(directory), indent=1))
            return
        for line in describe(directory, rejected):
            say(line)


def console(
    directory: Directory,
    port: Annotated[
        int, typer.Option("--port", help="Port on this machine; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    hook: Annotated[
        list[str] | None,
        typer.Option(
            "--hook",
            help="Command, or address on this machine, that is told when a site is away, a contribution is rejected, a "
            "budget is low, or a cluster is born, merged or dies (repeatable).",
            show_default=False,
        ),
    ] = None,
    hook_elsewhere: Annotated[
        bool, typer.Option("--hook-elsewhere", help="Allow hooks that are addresses of other machines.")
    ] = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Watch a federation in the browser, at the hub: rounds, sites, events, clusters; start and stop rounds.

    It listens on this machine only. The address holds a token; whoever has it can press the buttons. Programs read
    [bold]/facts[/bold] (JSON) and [bold]/metrics[/bold] (Prometheus) with the token as bearer.

    [bold]Examples[/bold]

    fcac federation console study

    fcac federation console study --port 8900 --no-open --hook ./tell-us.sh
    """
    from fcac.deployment.console import Console
    from fcac.deployment.console.hooks import Hook
    from fcac.flower import processes

    try:
        hooks = [Hook(target, hook_elsewhere) for target in hook or []]
    except ValueError as error:
        raise BadUse(f"--{error}") from None
    with PlainErrors(), processes.stopped_by_signals():
        watched = Console(directory, port=port, hooks=hooks)
        watched.start()
        say(f"Console: {watched.address}")
        say("Ctrl-C ends it; the federation goes on.")
        if show:
            import webbrowser

            webbrowser.open(watched.address)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            say("The console is closed.")
        finally:
            watched.close()


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
    query: opt.Query = None,
    read: opt.Read = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
) -> None:
    """Label the site's rows, at the site, with the global model that it has received.

    Labels never leave the site. The model arrives after each run, while [bold]fcac federation site[/bold] is running.
    """
    from fcac.cli.labeller import Labeller, LabelWriter
    from fcac.deployment.site_agent import load_model
    from fcac.deployment.study import read_bundle
    from fcac.flower.service import state_of
    from fcac.tables import ReadOptions, open_tables
    from fcac.tables.schema import Schema

    check_out(out, force)
    with PlainErrors():
        name = str(read_bundle(bundle)["site"])
        model = load_model(state_of(bundle, state))
        schema = Schema.load(bundle / "schema.toml")
    tables = open_tables([data], schema, site=name, keep=keep or [], options=ReadOptions.parse(read or [], query=query))
    labeller = Labeller(model, tables, alpha)
    with LabelWriter(out, keep or [], tables) as writer:
        for batch in tables.batches():
            writer.write(batch, *labeller(batch.block))
    say(
        f"Labelled {counted(writer.n_rows, 'row')}: {counted(writer.n_clusters, 'cluster')} found, "
        f"{counted(writer.n_novel, 'row')} unlike anything seen. Labels: {out}"
    )


def add(directory: Directory, site: SiteArgument) -> None:
    """Add a site, or re-admit one that was forgotten or revoked; this works while the server is running."""
    from fcac.deployment import study

    with PlainErrors():
        say(f"Site {site} takes part. Its bundle: {study.add(directory, site)}")


def forget(directory: Directory, site: SiteArgument) -> None:
    """Remove a site's contributions from the model, exactly, and do not ask it again; works while the server runs.

    Models that sites have already fetched, and backups, are not changed.
    """
    from fcac.deployment import study

    with PlainErrors():
        known = study.forget(directory, site)
    say(f"Site {site} is forgotten{'' if known else ' (it had contributed nothing)'} and will not be asked again.")
    say(f"`fcac federation add {directory} {site}` re-admits it; `revoke` also blocks its key.")


def revoke(directory: Directory, site: SiteArgument) -> None:
    """Block a site's key; what it contributed stays in the model (see forget); works while the server runs."""
    from fcac.deployment import study

    with PlainErrors():
        study.revoke(directory, site)
    say(f"The key of {site} is revoked. A running server blocks it within seconds.")


def renew(directory: Directory) -> None:
    """Create a new server certificate from the same authority. Restart the server afterwards; sites change nothing."""
    from fcac.deployment import study

    with PlainErrors():
        study.renew(directory)
    say("The server has a new certificate: restart `fcac federation server`.")


def seconds(pace: str) -> float:
    """Return the seconds of an interval such as 30s, 15m, 1h or 1d.

    Examples
    --------
    >>> from fcac.cli.commands.federation import seconds
    >>> seconds("15m"), seconds("1.5h")
    (900.0, 5400.0)
    """
    found = re.fullmatch(r"([0-9.]+)\s*([smhd])", pace.strip())
    try:
        value = float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]] if found else 0.0
    except ValueError:
        value = 0.0
    if value <= 0:
        raise BadUse(f"--every {pace!r}: write a number and s, m, h or d, as in 1h")
    return value


class PlainErrors:
    """Report errors of a federation in one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from fcac.exceptions import FlowerError

        if isinstance(error, FlowerError):
            raise click.ClickException(str(error)) from error


def _register() -> None:
    """Add all commands; those in files of their own use what is defined above."""
    from fcac.cli.commands.federation.audit import log
    from fcac.cli.commands.federation.join import accept, invite, join
    from fcac.cli.commands.federation.rehearse import rehearse

    own = (init, server, site, run, status, console, label, add, forget, revoke, renew)
    for command in (*own, invite, join, accept, log, rehearse):
        app.command(help=help_text(command))(command)


_register()
