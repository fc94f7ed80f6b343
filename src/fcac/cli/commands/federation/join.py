"""``fcac federation invite``, ``join`` and ``accept``: a site takes part with a key that it made itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import Directory, PlainErrors, SiteArgument, audited
from fcac.cli.screen import note, say


def invite(
    directory: Directory,
    site: SiteArgument,
    hours: Annotated[float, typer.Option("--hours", help="How long the invitation is valid.", min=0.01)] = 72.0,
) -> None:
    """Invite a site: print one line of text for its operator, good for one key.

    [bold]Example[/bold]

    fcac federation invite study north
    """
    from fcac.deployment import invitations

    with PlainErrors(), audited(directory, "invite", site=site):
        invitation = invitations.invite(directory, site, hours)
    # standard output has the invitation alone, so that it can be written into a file
    say(str(invitation))
    note(f"This line is for the operator of {site}; it is valid for {hours:g} hours and good for one key.")
    note(f"When {site} has asked: compare fingerprints aloud, then: fcac federation accept {directory} {site}")


def join(
    invitation: Annotated[str, typer.Argument(help="The line from the hub, or a file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the bundle; by default ./NAME.", show_default=False)
    ] = None,
) -> None:
    """Make this site's key here, ask the hub to certify it, and write the site's bundle.

    The private key never leaves this machine. Read the fingerprint that is printed to the hub's operator, by telephone.

    [bold]Example[/bold]

    fcac federation join invitation.txt --out north
    """
    from fcac.deployment.invitations import Invitation
    from fcac.deployment.invitations import join as ask

    with PlainErrors():
        is_file = len(invitation) < 500 and not invitation.startswith("fcac-invitation") and Path(invitation).is_file()
        text = Path(invitation).read_text("utf-8") if is_file else invitation
        found = Invitation.parse(text)
        bundle = out or Path(found.site)
        fingerprint = ask(found, bundle)
    say(f"The bundle of site {found.site} is in {bundle}. Fingerprint of its key, to compare aloud:")
    say(f"  {fingerprint}")
    say(f"Then: fcac federation site {bundle} --data DATA --state STATE --epsilon E --budget B")


def accept(
    directory: Directory,
    site: Annotated[str | None, typer.Argument(help="Name of the site.", metavar="[SITE]", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", help="The fingerprint was compared; do not ask.")] = False,
) -> None:
    """Let a site that has asked take part, after comparing fingerprints; without a name, list those that wait."""
    from fcac.deployment import invitations

    with PlainErrors():
        waiting = invitations.waiting(directory)
        if site is None:
            for name, fingerprint in waiting.items():
                say(f"{name}: {fingerprint}")
            say(f"{len(waiting)} waiting.")
            return
        if site in waiting and not yes:
            say(f"The key of {site} has this fingerprint: {waiting[site]}")
            typer.confirm(f"Has the operator of {site} read out the same?", abort=True)
        with audited(directory, "accept", site=site, fingerprint=waiting.get(site)):
            fingerprint = invitations.accept(directory, site)
    say(f"Site {site} takes part, with the key {fingerprint}. A running server lets it in within seconds.")
