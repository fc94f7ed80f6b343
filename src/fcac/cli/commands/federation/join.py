"""``fcac federation invite``, ``join`` and ``accept``: a site takes part with a key that it made itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcac.cli.commands.federation.shared import Bundle, Directory, PlainErrors, StateOption, audited
from fcac.cli.terminal import note, say


def invite(
    directory: Directory,
    sites: Annotated[list[str], typer.Argument(help="Names of the sites.", metavar="SITE...", show_default=False)],
    hours: Annotated[float, typer.Option("--hours", help="How long the invitation is valid.", min=0.01)] = 72.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for one file each; by default they are printed.", show_default=False),
    ] = None,
) -> None:
    """Invite sites: one line of text for each site's operator, good for one key.

    [bold]Examples[/bold]

    fcac federation invite study north > north.txt

    fcac federation invite study north south west --out invitations
    """
    from fcac.deployment import invitations
    from fcac.deployment.certificates import write_private

    with PlainErrors():
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


def sites(
    bundle: Bundle,
    state: StateOption = None,
    agree: Annotated[
        str | None,
        typer.Option("--agree", help="Agree to the list with this code, read out by another site.", show_default=False),
    ] = None,
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
    with PlainErrors():
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


def accept(
    directory: Directory,
    sites: Annotated[
        list[str] | None, typer.Argument(help="Names of the sites.", metavar="[SITE...]", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="The fingerprints were compared; do not ask.")] = False,
) -> None:
    """Let sites that have asked take part, after comparing fingerprints; without a name, list those that wait."""
    from fcac.deployment import invitations

    with PlainErrors():
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
