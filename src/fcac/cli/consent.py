"""Consent of a site's operator: what the study asks for, in plain words, and what the policy makes of it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import typer

from fcac._text import counted
from fcac.cli.terminal import BadUse, note, say
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import FILE, Policy, PolicyRefusal, described, terms_of
from fcac.tables.schema import Schema

#: What has to be typed where nothing is noised, whatever else was said.
OPEN = "single rows and differences of totals may leave"


def consent(settings: Any, yes: bool) -> Policy:
    """Show what the study asks for unless it was agreed to, and store what was agreed; return the policy.

    With `yes` nobody is asked, for automation.
    """
    state = Path(settings.state)
    is_new = not (state / FILE).exists()
    policy = Policy.cautious(settings.private) if is_new else Policy.load(state)
    try:
        policy.check_with_privacy(settings.private)
    except PolicyRefusal as refusal:
        raise BadUse(str(refusal)) from None
    asked = tuple(described(Schema.load(settings.schema)))
    terms = tuple(terms_of(settings.epsilon, settings.delta, settings.record_id))
    if policy.columns == asked and policy.terms == terms:
        return policy
    differs = ", which differs from what was agreed" if policy.columns and policy.columns != asked else ""
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
        say(f"Rows stay here. What leaves is differentially private: {'; '.join(terms)}.")
    else:
        _confirm_open(max(policy.least_count, settings.min_rows))
    if not yes and settings.private:
        if not sys.stdin.isatty():
            raise BadUse("no one is there to agree: read what the study asks for, then give --yes")
        if not typer.confirm("Do you agree?"):
            raise BadUse("nothing was agreed to; the site does not start")
    policy = dataclasses.replace(policy, columns=asked, terms=terms)
    policy.save(state)
    typed = {} if settings.private else {"typed": OPEN}
    AuditLog(state).add("agreed", columns=list(asked), terms=list(terms), asked=not yes, **typed)
    if is_new and policy.least_interval:
        note(f"note: the hub can ask for a round every {policy.least_interval / 3600:g} h; change it in {state / FILE}")
    return policy


def _confirm_open(least: int) -> None:
    """Say what leaves a site without noise, and go on only if the operator has typed it."""
    say(
        f"What leaves are averages of similar rows and exact counts, without noise. That at least {least} rows are "
        "behind each of them protects nobody: rows of one person may be alike, and the totals of two rounds, "
        "subtracted, show a single row."
    )
    note(f"To go on, type: {OPEN}")
    if sys.stdin.readline().strip().rstrip(".").casefold() != OPEN:
        raise BadUse(
            f"the sentence was not typed, so the site does not start; it takes part with --epsilon, or: {OPEN}"
        )
