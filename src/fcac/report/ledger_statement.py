"""The privacy statement of one ledger, for a data protection officer: one HTML page that prints on one sheet."""

from __future__ import annotations

import datetime
import math
from typing import Any

from fcac._text import counted
from fcac.privacy import Ledger
from fcac.privacy.statements import small
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from fcac.report.page import fill

# How charges of secure aggregation describe themselves; see :mod:`fcac.federation.pooled`.
_SUMMED = "summed over sites"

#: What the proof does not cover, in the words of the officer's page.
NOT_COVERED = (
    "That the site takes part, that it answers 'unavailable' (a data error, or the budget of everybody used up), and "
    "how long an answer takes: some microseconds for each row, so the time tells the number of rows roughly.",
    "Rows that are not counted here: releases by other programs, and copies of this ledger that somebody restores "
    "together with everything that has left the site.",
    "Bounds and categories that were read off the records, and ids that do not identify people.",
    "With parts instead of ids (one file per day): which parts had rows can show in what is refused later.",
    "The site's own machine, disk, operator and log file. This page may be passed on; the ledger may not.",
    "What is true of everybody: if people of a kind form a cluster, it is found with or without any one of them.",
)


def ledger_statement(ledger: Ledger, n_people: int | None = None, overlap: int | None = None) -> str:
    """Return the statement as one HTML document. It depends on charges only, so it may be passed on.

    Delta is held against the number of people (or rows) the data are about. `overlap` says at how many sites one person
    may be, as the study assumes; None: two, three and five are shown.
    """
    entries = [entry for entry in ledger.entries() if entry["rho"] > 0]
    unit, spent = ledger.unit(), ledger.spent_at_most()
    person = unit == "person"
    facts = [
        ("Protected unit", "one person, with all of their rows" if person else "one row of the table"),
        ("Neighbouring data", f"with and without any one {'person' if person else 'row'}; replacing one costs up to "
         f"ε = {_up(_replaced(spent, ledger.delta))}"),
        ("Spent so far, by anybody at most", f"ε = {_up(spent)} at δ = {small(ledger.delta)}"),
        ("Lifetime budget", f"ε = {ledger.budget:g}; what would go beyond it is not released"
         + (": people whose budget is used up are left out of later rounds" if person else "")),
        ("δ against the number of people", _delta(ledger.delta, n_people)),
        ("Releases", _releases(entries)),
        ("The same person at other sites", _several(spent, ledger.delta, entries, overlap)),
        ("Mechanism", "counts and sums of rows in cells, with discrete Gaussian noise (OpenDP), charged here before it "
         "is drawn; exact accounting by the Gaussian trade-off curve. The proof is part of the documentation."),
    ]  # fmt: skip
    return fill(
        "ledger_statement.html",
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        n_charges=len(entries),
        person=person,
        facts=facts,
        spent=_reading(spent),
        agreed=any(entry["what"].startswith("agreement") for entry in entries),
        not_covered=NOT_COVERED,
    )


def _up(epsilon: float) -> str:
    return f"{math.ceil(epsilon * 100 - 1e-6) / 100:.2f}"


def _reading(spent: float) -> str:
    if spent == 0:
        return "Nothing has been released yet."
    odds = math.exp(spent)
    shown = f"{odds:,.1f}" if odds < 100 else f"{odds:,.0f}"
    doubt = " At this size the promise says little." if spent > 10 else ""
    return (
        "Whatever anybody concludes from all that has been released, the odds of the conclusion would differ by at "
        f"most a factor of {shown} had any one protected unit not been in the data, except with probability δ.{doubt}"
    )


def _replaced(spent: float, delta: float) -> float:
    """Return epsilon for changing the values of a known member: noise is the same, the change up to twice as large."""
    return 0.0 if spent == 0 else epsilon_from_rho(4.0 * rho_from_epsilon(spent, delta), delta)


def _delta(delta: float, n_people: int | None) -> str:
    if n_people is None:
        return f"δ = {small(delta)} should be far below 1 / (number of people); give --people to have it compared"
    share = delta * n_people
    verdict = "far below 1, as it should be" if share <= 0.1 else "too large: choose a smaller δ for a new ledger"
    return f"δ × {n_people:,} = {share:.2g}: {verdict}"


def _several(spent: float, delta: float, entries: list[dict[str, Any]], overlap: int | None) -> str:
    """Return what a person at several sites has spent: k times as much, and in sums over all sites k * k times."""
    assumed = f"The study assumes that one person is at no more than {counted(overlap, 'site')}. " if overlap else ""
    if spent == 0:
        return f"{assumed}Costs of different sites add up"
    if overlap == 1:
        return f"{assumed}If somebody is at more, the costs add up"
    rho = rho_from_epsilon(spent, delta)
    summed = min(rho, math.fsum(entry["rho"] for entry in entries if _SUMMED in entry["what"]))
    cases = ", ".join(
        f"{n} sites: ε = {_up(epsilon_from_rho(n * (rho - summed) + n * n * summed, delta))}"
        for n in ([overlap] if overlap else [2, 3, 5])
    )
    squared = (
        " In rounds that are summed over sites (secure aggregation) somebody at k sites moves the sum k times as far, "
        "which costs k² times the ρ; the figures count that."
        if summed
        else ""
    )
    sites = f"Each site has its own ledger, and the costs add up. If each had spent as much as this one: {cases}."
    return f"{assumed}{sites}{squared}"


def _releases(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return "none"
    names = {entry["site"] for entry in entries}
    lost = sum(not entry["completed"] for entry in entries)
    dearest = max(entry["epsilon"] for entry in entries)
    first, last = entries[0]["time"][:10], entries[-1]["time"][:10]
    words = (
        f"{len(entries):,} under {counted(len(names), 'name')}, {first} to {last}; the highest cost: ε = {_up(dearest)}"
    )
    return words + (f"; {lost:,} of them were paid for and never sent (interrupted)" if lost else "")
