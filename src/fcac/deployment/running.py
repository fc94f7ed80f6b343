"""Runs of rounds at the hub: one at a time, while the hub's service runs, told line by line."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment import processes
from fcac.deployment.agreement_hub import AgreementHub
from fcac.deployment.conversation import Conversation
from fcac.deployment.hub import Hub
from fcac.deployment.outbox import OutboxWire
from fcac.deployment.settings import STATE, FederationSettings
from fcac.exceptions import FederationError

Say = Callable[[str], None]

_ALIVE_EVERY = 5.0


@contextlib.contextmanager
def running_hub(root: Path) -> Iterator[Callable[[], None]]:
    """Hold the right to play rounds; yield a check that raises an error once the hub no longer answers.

    Rounds are played by whoever can write the hub's files, one at a time; there is no interface to start them over the
    network.
    """
    if not processes.is_running(root):
        raise FederationError(f"no hub serves {root}: start 'fcac federation server {root}' first")
    next_look = time.monotonic() + _ALIVE_EVERY

    def check() -> None:
        nonlocal next_look
        if time.monotonic() < next_look:
            return
        if not processes.is_running(root):
            raise FederationError(
                f"the hub no longer runs; start it, then run 'fcac federation run {root}' again to continue where it "
                "stopped"
            )
        next_look = time.monotonic() + _ALIVE_EVERY

    try:
        with persistence.locked(root / STATE / "run-lock", 0.0):
            yield check
    except TimeoutError:
        raise FederationError(f"rounds of {root} are already being played by another process") from None


def run_rounds(root: Path, rounds: int, say: Say, *, hand_out: bool = True) -> dict[str, Any]:
    """Play rounds, say what happens, and return the result; with `hand_out`, send the model to the sites at the end.

    There is a FederationError if the hub does not run. What had arrived is kept, and the next run continues from there.
    """
    with running_hub(root) as check:
        return {"closed": _conversation(root, say, check).play(rounds, hand_out=hand_out)}


def run_agreement(
    root: Path, say: Say, *, levels: bool = True, scaling: str = "standard"
) -> tuple[AgreementHub, list[str]]:
    """Play an agreement with the sites of a running hub; return it, and the sites that have the agreed schema."""
    with running_hub(root) as check:
        conversation = _conversation(root, say, check)
        agreement = AgreementHub(root, conversation.hub, levels, scaling)
        return agreement, conversation.agree(agreement)


def _conversation(root: Path, say: Say, check: Callable[[], None]) -> Conversation:
    hub = Hub(root / STATE, FederationSettings.load(root), lambda entry: say(in_words(entry)))
    return Conversation(hub, OutboxWire(hub, check), reload=lambda: FederationSettings.load(root))


def in_words(entry: dict[str, Any]) -> str:
    """Return a journal entry as a line of text that can be shown, whatever a site has sent."""
    return plain(_in_words(entry), 1000)


def _in_words(entry: dict[str, Any]) -> str:
    site, number = entry.get("site", ""), entry.get("round", "")
    match entry["event"]:
        case "asking":
            absent = f"; not connected: {', '.join(entry['absent'])}" if entry.get("absent") else ""
            return f"round {number}: asking {', '.join(entry['sites']) or 'nobody'}{absent}"
        case "accepted":
            return f"round {number}: {site} sent {entry['nodes']} nodes ({entry['bytes']:,} bytes)"
        case "agreeing":
            asked = {"schema": "handing the schema to"}.get(entry["stage"], f"asking for {entry['stage']} counts:")
            return f"agreement: {asked} {', '.join(entry['sites']) or 'nobody'}"
        case "agreed":
            return f"agreement: {', '.join(entry['sites'])} have agreed on {entry['columns']} columns"
        case "rejected":
            return f"{f'round {number}: ' if number else ''}what {site} sent was rejected: {entry['reason']}"
        case "closed":
            return f"round {number}: closed with {', '.join(map(str, entry['sites']))}"
        case "failed":
            return f"{f'round {number}: ' if number else ''}the reply of {site} was lost on the way"
        case "model taken":
            return f"{site} has the model of round {number}"
        case "budget":
            return f"round {number}: {site} has {100 * entry['left']:.0f} % of its privacy budget left"
        case "unusual":
            return f"round {number}: LOOK at what {site} sent: {entry['reason']}"
        case "refused":
            return f"{site}: {entry['reason']}"
        case "summing":
            again = f", attempt {entry['attempt']}" if entry.get("attempt", 1) > 1 else ""
            return f"round {number}: adding up all sites under secure aggregation{again}"
        case "no model for sites" | "no report" | "capped" | "too few sites" as event:
            site = f"{site} " if site else ""
            return f"round {number}: {site}{event}: {entry['reason']}"
        case event:
            return f"round {number}: {site} {event}" if number else f"{site} {event}"
