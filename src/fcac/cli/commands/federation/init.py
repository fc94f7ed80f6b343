"""``fcac federation init``: create a federation, a directory with everything the server needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.commands.federation.shared import Directory, PlainErrors, audited
from fcac.cli.terminal import BadUse, say


def init(
    directory: Directory,
    schema: Annotated[
        Path, typer.Option("--schema", help="Columns and bounds; see `fcac schema`.", show_default=False)
    ],
    sites: Annotated[
        str | None,
        typer.Option(
            "--sites",
            help="Names of sites whose keys are made here: a,b,c. Without it, sites join with their own keys (invite).",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", help="Address at which sites reach the server, as host:port.")
    ] = "127.0.0.1:18000",
    join_port: Annotated[
        int | None,
        typer.Option(
            "--join-port",
            help="Port at which sites ask to join; by default the next one.",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
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
    scale: opt.Scale = "auto",
    false_split_rate: opt.FalseSplitRate = 0.1,
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
    with PlainErrors():
        summing = None
        if aggregation == "secure":
            summing = aggregated_study.summing_for(len(names), epsilon, delta, tolerance, least)
        root = study.init(
            directory, names, schema, address=address, join_port=join_port, server=server, max_nodes=max_nodes,
            min_rows=min_rows, forgetting=forgetting, scale=scale, false_split_rate=false_split_rate, seed=seed,
            timeout=timeout, wait=wait, people_overlap=people_overlap, summing=summing,
        )  # fmt: skip
    with audited(root, "init"):
        pass
    if not names:
        say(f"Created {root / 'federation.toml'}.")
        say(f"1. here:           fcac federation server {root}")
        say(f"2. for each site:  fcac federation invite {root} NAME, and pass on what it prints")
        say("3. at every site:  fcac federation join INVITATION")
        say(f"4. here:           fcac federation accept {root} NAME, after comparing fingerprints aloud")
        if summing is not None:
            say("5. at every site:  fcac federation sites NAME, once all have joined, to agree to the list of sites")
        return
    say(f"Created {root / 'federation.toml'} for {counted(len(names), 'site')}: {', '.join(names)}.")
    chosen = "E" if summing is None else f"{summing.epsilon:g}"
    say(f"1. here:           fcac federation server {root}")
    site_options = f"--data DATA --state STATE --epsilon {chosen} --budget B"
    say(f"2. at every site:  fcac federation site {root / 'bundles'}/NAME {site_options}")
    say(f"3. here:           fcac federation run {root} --rounds 1")
