"""``fcac federation add``, ``forget``, ``revoke``, ``renew`` and ``rotate``: who takes part, keys and certificates."""

from __future__ import annotations

from fcac.cli.commands.federation.shared import Bundle, Directory, PlainErrors, SiteArgument, audited
from fcac.cli.terminal import say


def add(directory: Directory, site: SiteArgument) -> None:
    """Add a site, or re-admit one that was forgotten or revoked; this works while the server is running."""
    from fcac.deployment import study

    with PlainErrors(), audited(directory, "add", site=site):
        say(f"Site {site} takes part. Its bundle: {study.add(directory, site)}")


def forget(directory: Directory, site: SiteArgument) -> None:
    """Remove a site's contributions from the model, exactly, and do not ask it again; works while the server runs.

    Models that sites have already fetched, and backups, are not changed.
    """
    from fcac.deployment import study

    with PlainErrors(), audited(directory, "forget", site=site):
        known = study.forget(directory, site)
    say(f"Site {site} is forgotten{'' if known else ' (it had contributed nothing)'} and will not be asked again.")
    say(f"`fcac federation add {directory} {site}` re-admits it; `revoke` also blocks its key.")


def revoke(directory: Directory, site: SiteArgument) -> None:
    """Block a site's key; what it contributed stays in the model (see forget); works while the server runs."""
    from fcac.deployment import study

    with PlainErrors(), audited(directory, "revoke", site=site):
        study.revoke(directory, site)
    say(f"The key of {site} is revoked. A running server blocks it within seconds.")


def renew(directory: Directory) -> None:
    """Create a new server certificate from the same authority. A running server picks it up; sites change nothing."""
    from fcac.deployment import study

    with PlainErrors(), audited(directory, "renew"):
        study.renew(directory)
    say("The server has a new certificate; a running `fcac federation server` picks it up within seconds.")


def rotate(bundle: Bundle) -> None:
    """At a site: make a new key, have the hub certify it, and use it from the next start on.

    The old key is accepted until the new one has been used. Start [bold]fcac federation site[/bold] again afterwards.
    """
    from fcac.deployment.site_link import refresh

    with PlainErrors():
        refresh(bundle, renew=True)
    say(f"{bundle} has a new key and its certificate. Start the site again to use it.")
