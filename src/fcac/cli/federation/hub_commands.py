"""``fcac federation`` at the hub: a study is created and served, its rounds are played and watched."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

from fcac._text import counted, listed
from fcac.cli import options as opt
from fcac.cli.federation_options import Directory, audited, plain_errors, watch
from fcac.cli.terminal import BadUse, note, say


def init(
    directory: Directory,
    schema: Annotated[Path, opt.option("Columns and bounds; see `fcac schema`.")],
    learning: opt.Learning,
    address: Annotated[str, opt.option("Address at which sites reach the server, as host:port.")] = "127.0.0.1:18000",
    join_port: Annotated[
        int | None, opt.option("Port at which sites ask to join; by default the next one.", min=1, max=65535)
    ] = None,
    min_rows: Annotated[
        int, opt.option("Without --epsilon: minimum number of rows behind a node that is sent.", min=1)
    ] = 3,
    timeout: Annotated[float, opt.option("Seconds a site has to answer.", min=1)] = 300,
    wait: Annotated[float, opt.option("Seconds to wait for sites to connect.", min=0)] = 60,
    people_overlap: Annotated[
        int | None,
        opt.option(
            "Number of sites at which one person may have rows, as the study assumes: what they spend adds up.", min=1
        ),
    ] = None,
    aggregation: Annotated[
        str, opt.option("plain, or secure: sum all sites before anyone sees; needs --epsilon.")
    ] = "plain",
    epsilon: Annotated[float | None, opt.option("With --aggregation secure: privacy cost of a round.")] = None,
    delta: Annotated[float, opt.option("With --aggregation secure: at most 1e-5.")] = 1e-6,
    tolerance: Annotated[
        int | None,
        opt.option("With --aggregation secure: t, the sites that may vanish or collude; 1 by default.", min=1),
    ] = None,
    least: Annotated[
        int | None, opt.option("With --aggregation secure: fewest sites in a round; 3 t + 1 by default.", min=4)
    ] = None,
) -> None:
    """Create a federation: a directory with everything the server needs.

    Sites then join with keys of their own: [bold]invite[/bold] here, [bold]join[/bold] there, [bold]accept[/bold] here.

    [bold]Examples[/bold]
    fcac federation init study --schema schema.toml --address hub.example:8443
    fcac federation init study --schema schema.toml --address hub.example:8443 --aggregation secure --epsilon 1
    """
    from fcac.deployment import aggregated_study, study

    opt.one_of("aggregation", aggregation, "plain", "secure")
    if aggregation == "plain" and any(given is not None for given in (epsilon, tolerance, least)):
        raise BadUse(
            "--epsilon, --tolerance and --least belong to --aggregation secure; here each site chooses its own"
        )
    with plain_errors():
        summing = None
        if aggregation == "secure":
            summing = aggregated_study.summing_for(epsilon, delta, tolerance, least)
        root = study.init(
            directory, schema, address=address, join_port=join_port, min_rows=min_rows, timeout=timeout,
            wait=wait, people_overlap=people_overlap, summing=summing, **vars(learning),
        )  # fmt: skip
    with audited(root, "init"):
        pass
    say(f"Created {root / 'federation.toml'}.")
    say(f"1. here:           fcac federation server {root}")
    say(f"2. for each site:  fcac federation invite {root} NAME, and pass on what it prints")
    say("3. at every site:  fcac federation join INVITATION")
    say(f"4. here:           fcac federation accept {root} NAME, after comparing fingerprints aloud")
    if summing is not None:
        say("5. at every site:  fcac federation sites NAME, once all have joined, to agree to the list of sites")


def server(
    directory: Directory,
    host: Annotated[str | None, opt.option("Address to listen on, if not the one given to init.")] = None,
) -> None:
    """Run the server until Ctrl-C. It notices sites that are added or revoked meanwhile."""
    from fcac.deployment.hub_service import HubService, stamped

    with plain_errors(), audited(directory, "server"):
        HubService(directory, host, stamped).run()
        say("Stopping.")


def agree(
    directory: Directory,
    numbers_only: Annotated[
        bool, opt.option("Leave categories alone: every level keeps its public code.", "--numbers-only")
    ] = False,
    scaling: Annotated[str, opt.option("Scaling of the numbers agreed on: standard, range or none.")] = "standard",
) -> None:
    """Let the sites agree on bounds, centre, spread and frequent levels of columns that have none in the schema.

    Every site counts its records in public coarse bins, then in finer ones, and sends the counts with noise; what this
    costs is decided, and charged to its ledger, at each site ([bold]fcac federation site --agree EPSILON[/bold]). The
    schema that follows replaces the study's and the sites' own. Run it before the first round; a run that was
    interrupted goes on where it stopped, and run again it hands the schema to sites that were away.

    [bold]Examples[/bold]
    fcac federation agree study
    fcac federation agree study --numbers-only --scaling range
    """
    from fcac.deployment import processes
    from fcac.deployment.running import run_agreement

    opt.one_of("scaling", scaling, "standard", "range", "none")
    with plain_errors(), audited(directory, "agree"), processes.stopped_by_signals():
        try:
            agreement, took = run_agreement(directory, say, levels=not numbers_only, scaling=scaling)
        except KeyboardInterrupt:
            say("Stopped. What has arrived is kept; the next run continues from there.")
            return
    say(f"Agreed; {directory / 'schema.toml'} is what every site now uses:")
    for line in agreement.in_words():
        say(f"  {line}")
    absent = sorted(set(agreement.hub.settings.active) - set(took))
    if absent:
        note(f"note: {listed(absent)} did not take the schema: run this again once they are connected")


def run(
    directory: Directory,
    rounds: Annotated[int | None, opt.option("Rounds to run.", min=1)] = None,
    every: Annotated[str | None, opt.option("Run a round at this interval, as in 30s, 15m, 1h or 1d.")] = None,
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
    from fcac.deployment import processes
    from fcac.deployment.policy import seconds
    from fcac.deployment.running import run_rounds
    from fcac.exceptions import FederationError

    try:
        pause = None if every is None else seconds(every)
    except ValueError as error:
        raise BadUse(f"--every {error}") from None
    if pause == 0:
        raise BadUse(f"--every {every}: the interval must be above 0")
    with plain_errors(), audited(directory, "run", rounds=rounds, every=every), processes.stopped_by_signals():
        try:
            while True:
                started = time.monotonic()
                try:
                    result = run_rounds(directory, rounds or 1, say)
                    _say_result(directory, result, rounds or 1)
                except FederationError as error:
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
        say(
            "No site had anything new, none answered, or too few took part: see `fcac federation status`. A private "
            "site answers one round an hour, unless its policy.toml says otherwise."
        )


def status(
    directory: Directory,
    rejected: Annotated[bool, opt.option("List what was rejected, and why.", "--rejected")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show sites, rounds, contributions, clusters, and the privacy spent as reported by the sites."""
    from fcac.deployment.status_lines import describe

    with plain_errors():
        if as_json:
            from fcac.deployment.facts import facts

            say(json.dumps(facts(directory), indent=1))
            return
        for line in describe(directory, rejected):
            say(line)


def console(
    directory: Directory,
    port: Annotated[int, opt.option("Port on this machine; 0 takes a free one.", min=0, max=65535)] = 0,
    hook: Annotated[
        list[str] | None,
        opt.option(
            "Command, or address on this machine, to notify when a site is away, a contribution is rejected, a budget "
            "is low, or a cluster is born, merged or dies (repeatable)."
        ),
    ] = None,
    hook_elsewhere: Annotated[
        bool, opt.option("Allow hooks that are addresses of other machines.", "--hook-elsewhere")
    ] = False,
    show: Annotated[bool, opt.option("Open it in the browser.", "--open/--no-open")] = True,
) -> None:
    """Watch a federation in the browser, at the hub: rounds, sites, events, clusters; start and stop rounds.

    It listens on this machine only. The address holds a token; whoever has it can press the buttons. Programs read
    [bold]/facts[/bold] (JSON) and [bold]/metrics[/bold] (Prometheus) with the token as bearer.

    [bold]Examples[/bold]
    fcac federation console study
    fcac federation console study --port 8900 --no-open --hook ./tell-us.sh
    """
    from fcac.deployment import processes
    from fcac.deployment.console.hooks import Hook

    try:
        hooks = [Hook(target, hook_elsewhere) for target in hook or []]
    except ValueError as error:
        raise BadUse(f"--{error}") from None
    with plain_errors(), processes.stopped_by_signals():
        watch(directory, port, hooks, show)
