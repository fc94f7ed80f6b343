"""``fcac federation`` at the hub: who takes part, with which key and certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac.cli import options as opt
from fcac.cli.federation_options import Directory, SiteName, audited, plain_errors
from fcac.cli.terminal import note, say


def invite(
    directory: Directory,
    sites: Annotated[list[str], opt.argument("Names of the sites.", "SITE...")],
    hours: Annotated[float, opt.option("How long the invitation is valid.", min=0.01)] = 72.0,
    out: Annotated[Path | None, opt.option("Folder for one file each; by default they are printed.")] = None,
) -> None:
    """Invite sites: one line of text for each site's operator, good for one key.

    [bold]Examples[/bold]
    fcac federation invite study north > north.txt
    fcac federation invite study north south west --out invitations
    """
    from fcac.deployment import invitations
    from fcac.deployment.certificates import write_private

    with plain_errors():
        if out is not None:
            out.mkdir(parents=True, exist_ok=True, mode=0o700)
        for site in sites:
            with audited(directory, "invite", site=site):
                invitation = str(invitations.invite(directory, site, hours))
            if out is None:
                # standard output has the invitations alone, so that it can be written into a file
                say(invitation)
            else:
                write_private(out / f"{site}.txt", f"{invitation}\n".encode())
    where = "Each line" if out is None else f"Each file in {out}"
    note(f"{where} is for the operator of its site; it is valid for {hours:g} hours and good for one key.")
    note(
        f"When they have asked, compare fingerprints aloud, then: fcac federation accept {directory} {' '.join(sites)}"
    )


def accept(
    directory: Directory,
    sites: Annotated[list[str] | None, opt.argument("Names of the sites.", "[SITE...]")] = None,
    yes: Annotated[bool, opt.option("The fingerprints were compared; do not ask.", "--yes")] = False,
) -> None:
    """Let sites that have asked take part, after comparing fingerprints; without a name, list those that wait."""
    from fcac.deployment import invitations

    with plain_errors():
        waiting = invitations.waiting(directory)
        if not sites:
            for name, fingerprint in waiting.items():
                say(f"{name}: {fingerprint}")
            say(f"{len(waiting)} waiting.")
            return
        for site in sites:
            if site in waiting and not yes:
                say(f"The key of {site} has this fingerprint: {waiting[site]}")
                typer.confirm(f"Has the operator of {site} read out the same?", abort=True)
            with audited(directory, "accept", site=site, fingerprint=waiting.get(site)):
                fingerprint = invitations.accept(directory, site)
            say(f"Site {site} takes part, with the key {fingerprint}. A running hub lets it in within seconds.")


def add(directory: Directory, site: SiteName) -> None:
    """Re-admit a site that was forgotten, with the key that it has; works while the server runs. Invite any other."""
    from fcac.deployment import study

    with plain_errors(), audited(directory, "add", site=site):
        study.add(directory, site)
    say(f"Site {site} takes part again.")


def forget(directory: Directory, site: SiteName) -> None:
    """Remove a site's contributions from the model, exactly, and do not ask it again; works while the server runs.

    Models that sites have already fetched, and backups, are not changed.
    """
    from fcac.deployment import study

    with plain_errors(), audited(directory, "forget", site=site):
        known = study.forget(directory, site)
    say(f"Site {site} is forgotten{'' if known else ' (it had contributed nothing)'} and will not be asked again.")
    say(f"`fcac federation add {directory} {site}` re-admits it; `revoke` also blocks its key.")


def revoke(directory: Directory, site: SiteName) -> None:
    """Block a site's key; what it contributed stays in the model (see forget); works while the server runs."""
    from fcac.deployment import study

    with plain_errors(), audited(directory, "revoke", site=site):
        study.revoke(directory, site)
    say(f"The key of {site} is revoked. A running server blocks it within seconds.")


def renew(directory: Directory) -> None:
    """Create a new server certificate from the same authority. A running server picks it up; sites change nothing."""
    from fcac.deployment import study

    with plain_errors(), audited(directory, "renew"):
        study.renew(directory)
    say("The server has a new certificate; a running `fcac federation server` picks it up within seconds.")
