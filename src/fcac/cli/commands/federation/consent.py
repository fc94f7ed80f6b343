"""Consent of a site's operator: what the study asks for, in plain words, and what the policy makes of it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import typer

from fcac._text import counted
from fcac.cli.console import BadUse, note, say
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import FILE, Policy, PolicyRefusal, described
from fcac.tables.schema import Schema


def consent(settings: Any, yes: bool) -> Policy:
    """Show what the study asks for unless it was agreed to, and store what was agreed; return the policy.

    Parameters
    ----------
    settings : SiteSettings
    yes : bool
        Agree without asking, for automation.
    """
    state = Path(settings.state)
    is_new = not (state / FILE).exists()
    policy = Policy.cautious(settings.private) if is_new else Policy.load(state)
    try:
        policy.check_with_privacy(settings.private)
    except PolicyRefusal as refusal:
        raise BadUse(str(refusal)) from None
    asked = tuple(described(Schema.load(settings.schema)))
    if policy.columns == asked:
        return policy
    differs = ", which differs from what was agreed" if policy.columns else ""
    say(f"The study asks for {counted(len(asked), 'column')}{differs}:")
    for line in asked[:50]:
        say(f"  {line}")
    if len(asked) > 50:
        say(f"  and {len(asked) - 50} more; see {settings.schema}")
    if settings.agree is not None:
        say(
            "Bounds and levels that are missing are agreed on by noised counts of the rows, at a cost of epsilon = "
            f"{settings.agree:g}."
        )
    if settings.private:
        say(f"Rows stay here. What leaves is differentially private: epsilon = {settings.epsilon:g} for each round.")
    else:
        least = max(policy.least_count, settings.min_rows)
        say(f"Rows stay here. What leaves are averages of at least {least} similar rows, without noise.")
    if not yes:
        if not sys.stdin.isatty():
            raise BadUse("no one is there to agree: read what the study asks for, then give --yes")
        if not typer.confirm("Do you agree?"):
            raise BadUse("nothing was agreed to; the site does not start")
    policy = dataclasses.replace(policy, columns=asked)
    policy.save(state)
    AuditLog(state).add("agreed", columns=list(asked), asked=not yes)
    if is_new and policy.least_interval:
        note(f"note: the hub can ask for a round every {policy.least_interval / 3600:g} h; change it in {state / FILE}")
    return policy
