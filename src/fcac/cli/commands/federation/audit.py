"""``fcac federation log``: show a site's audit log, or check that nobody has changed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import click
import typer

from fcac._text import counted, plain
from fcac.cli.terminal import say


def log(
    state: Annotated[Path, typer.Argument(help="The site's state directory.", metavar="STATE", show_default=False)],
    verify: Annotated[bool, typer.Option("--verify", help="Check that no line was changed or removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    last: Annotated[int, typer.Option("--last", help="Show only so many of the newest entries.", min=1)] = 50,
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
