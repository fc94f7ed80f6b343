"""``fcac federation doctor``, ``audit``, ``backup``, ``restore`` and ``address``: upkeep of a hub or a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import click

from fcac._text import counted
from fcac.cli import options as opt
from fcac.cli.federation_options import Folder, Last, State, audited, plain_errors
from fcac.cli.terminal import note, say


def doctor(
    folder: Folder,
    state: State = None,
    as_json: opt.AsJson = False,
) -> None:
    """Look at what could go wrong before the first round is paid for: certificates, clock, proxy, schema, permissions.

    It changes nothing and costs no budget. It ends with 1 if something must be put right.

    [bold]Examples[/bold]
    fcac federation doctor study
    fcac federation doctor north --state /var/lib/fcac/north
    """
    from fcac.deployment.upkeep import examine

    with plain_errors():
        findings = examine(folder, state)
    if as_json:
        say(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            say(f"{finding.grade:4}  {finding.what:{width}}  {finding.text}")
    bad = sum(finding.grade == "bad" for finding in findings)
    if bad:
        raise click.ClickException(f"{counted(bad, 'finding')} must be put right before a round can be played")


def audit(
    source: Annotated[Path, opt.argument("Directory of the federation, or an export.", "DIR")],
    verify: Annotated[bool, opt.option("Check chain and signatures.", "--verify")] = False,
    export: Annotated[Path | None, opt.option("Write the log and the public key to a file.")] = None,
    last: Last = 50,
) -> None:
    """Show who did what at the hub: every command and every click of the console, with the account's name.

    The log is a chain in which each entry holds the hash of the one before, and is signed. Note the key's fingerprint
    somewhere else: with it, an export can be checked anywhere.

    [bold]Examples[/bold]
    fcac federation audit study --verify
    fcac federation audit study --export audit-2026.jsonl
    """
    from fcac.deployment import hub_audit
    from fcac.deployment.audit_log import AuditLog
    from fcac.deployment.settings import STATE

    with plain_errors():
        if export is not None:
            key = hub_audit.export(source, export)
            say(f"{export} holds the log; fingerprint of its key: {key}")
        elif verify:
            verdict, key = hub_audit.check(source)
            if verdict.problem:
                raise click.ClickException(
                    f"{source}: {verdict.problem}; the {verdict.n_entries} entries before are in order"
                )
            say(f"{counted(verdict.n_entries, 'entry', 'entries')} in order. Last hash: {verdict.last}")
            say(f"Signed by the key {key}")
        else:
            for entry in AuditLog(source / STATE).entries()[-last:]:
                more = {k: v for k, v in entry.items() if k in ("site", "rounds", "address", "to", "reason")}
                facts = "".join(f", {name} {value}" for name, value in more.items() if value is not None)
                say(f"{entry['time'][:19]} {entry.get('account', '')}: {entry.get('command', entry['event'])}{facts}")


def backup(
    folder: Annotated[Path, opt.argument("A hub's directory, a site's state or its bundle.", "DIR")], out: opt.NewFile
) -> None:
    """Write a hub, or a site's state, into one file that only you can read; what runs may go on running.

    It holds keys: keep it like them.

    [bold]Example[/bold]
    fcac federation backup study --out study-monday.tar.gz
    """
    from fcac.deployment.upkeep import backup as write

    with plain_errors(), audited(folder, "backup", to=str(out)):
        n_bytes = write(folder, out)
    say(f"{out}: {n_bytes / 1e6:.1f} MB, readable by you alone.")


def restore(
    archive: Annotated[Path, opt.argument("A file written by backup.", "FILE")],
    to: Annotated[Path, opt.option("New or empty directory.")],
) -> None:
    """Bring a back-up back, into a new directory.

    A hub may go back: sites answer again what they have answered, and pay nothing for it. A site must not: an older
    ledger does not know of what was spent since, and the next round is refused until that is charged again.

    [bold]Example[/bold]
    fcac federation restore study-monday.tar.gz --to study
    """
    from fcac.deployment.upkeep import restore as bring_back

    with plain_errors():
        bring_back(archive, to)
    with audited(to, "restore", reason=str(archive)):
        say(f"{to} is as it was when the back-up was made.")
    if not (to / "federation.toml").exists():
        note("note: a round played since is missing from this ledger; 'fcac ledger' charges what it has cost")


def address(folder: Folder, new: Annotated[str, opt.argument("host:port", "ADDRESS")]) -> None:
    """Note a new address of the hub: at the hub, with a new certificate, and in every site's bundle.

    Start the hub and the sites again afterwards. Sites that still reach the old address learn the new one themselves.

    [bold]Example[/bold]
    fcac federation address study hub.example:8443
    """
    from fcac.deployment.upkeep import move

    with plain_errors(), audited(folder, "address", address=new):
        old = move(folder, new)
    say(f"{folder}: {old} is now {new}.")
