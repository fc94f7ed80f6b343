"""What one ledger can say to a data protection officer: facts, assumptions and words, for a page to show."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from fcac._text import counted
from fcac.exceptions import PrivacyError
from fcac.privacy.ledger import Ledger
from fcac.privacy.statements import small
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon, up

#: How charges of secure aggregation describe themselves; see :mod:`fcac.federation.summed_round`.
_SUMMED = "summed over sites"
_HONEST = re.compile(r"noise for (\d+) honest sites")
#: An expected number of failures above this is called large.
_FEW_FAILURES = 0.01

#: What the proof does not cover.
NOT_COVERED = (
    "That the site takes part, that it answers 'unavailable' (a data error, or the budget of everybody used up), and "
    "how long an answer takes: some microseconds for each row, so the time tells the number of rows roughly.",
    "Rows that are not counted here: releases by other programs, and copies of this ledger that somebody restores "
    "together with everything that has left the site.",
    "Bounds and categories that were read off the records, and ids that do not identify people.",
    "That a batch came again, row for row, under other ids: it is refused, and the site answers 'unavailable'.",
    "What is true of everybody: if people of a kind form a cluster, it is found with or without any one of them.",
)


@dataclass(frozen=True)
class Sheet:
    """What a page shows.

    Attributes
    ----------
    mode : {"site", "summed"}
        Whether the site's own releases left it, or only sums with those of other sites.
    person : bool
        Whether the protected unit is a person; else it is a row.
    reading : str
        What the figures mean.
    facts : list of (term, text)
    seen : str
        What others see, and against whom the promise holds.
    assumptions, not_covered : tuple of str
    n_charges : int
    """

    mode: str
    person: bool
    reading: str
    facts: list[tuple[str, str]]
    seen: str
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    n_charges: int


def officer_sheet(ledger: Ledger, n_people: int | None = None, overlap: int | None = None) -> Sheet:
    """Return what the ledger says. It depends on charges only, so it may be passed on.

    Parameters
    ----------
    ledger : Ledger
    n_people : int, optional
        How many people (or rows) the data are about; delta is held against it.
    overlap : int, optional
        At how many sites one person may be, as the study assumes; None: two, three and five are shown.

    Raises
    ------
    LedgerError, PrivacyError
        If the ledger is an older copy, or cannot support a sentence that the page would need.
    """
    ledger.verify(())
    entries = [entry for entry in ledger.entries() if entry["rho"] > 0]
    agreements = [entry for entry in entries if entry["what"].startswith("agreement")]
    summed = [entry for entry in entries if _SUMMED in entry["what"]]
    others = [*summed, *agreements]
    recovered = [entry for entry in entries if entry["what"].startswith("recovered")]
    alone = [entry for entry in entries if entry not in others and entry not in recovered]
    if summed and alone:
        raise PrivacyError(
            f"this ledger paid for {counted(len(alone), 'release')} of single sites and for sums over sites: they "
            "promise different things, and no one page can state both. Keep a ledger for each"
        )
    if recovered and not alone:
        raise PrivacyError(
            f"{counted(len(recovered), 'charge')} of this ledger {'was' if len(recovered) == 1 else 'were'} recovered, "
            "and nothing in it says whether what had left was this site's alone or a sum over sites, and with how much "
            "noise: no page can state that. `fcac ledger` shows what was spent"
        )
    person, spent, delta = ledger.unit() == "person", ledger.spent_at_most(), ledger.delta
    facts = [
        ("Protected unit", "one person, with all of their rows" if person else "one row of the table"),
        ("Neighbouring data", f"with and without any one {'person' if person else 'row'}; replacing one costs up to "
         f"ε = {up(_replaced(spent, delta))}"),
        ("Spent so far, by anybody at most", f"ε = {up(spent)} at δ = {small(delta)}"),
        ("Lifetime budget", _budget(ledger.budget, spent, person)),
        ("What δ means", _failures(delta, n_people, "people" if person else "rows")),
        ("Releases", _releases(entries)),
        ("The same person at other sites", _several(spent, delta, summed, overlap)),
        ("Mechanism", "counts and sums of rows in cells, with discrete Gaussian noise (OpenDP), charged here before it "
         "is drawn; exact accounting by the Gaussian trade-off curve. The proof is part of the documentation."),
    ]  # fmt: skip
    agreed = " Once, to agree on bounds: noised counts of rows in public bins, and names of levels that many have."
    seen, assumed = _summed_words(summed) if summed else _site_words()
    common = (
        "The site itself, its disk, its log and its operator are trusted with the rows; this page may be passed on, "
        "the ledger may not.",
        "Each person has one id in the column that was named."
        if person
        else "Nobody has more than one row. Somebody with m rows in one release has spent m × m times the ρ.",
        "The bounds and levels in the schema are public, or come from the agreement charged here.",
    )
    return Sheet(
        "summed" if summed else "site",
        person,
        _reading(spent),
        facts,
        seen + (agreed if agreements else ""),
        (*common, *assumed),
        NOT_COVERED,
        len(entries),
    )


def _site_words() -> tuple[str, tuple[str, ...]]:
    return (
        "For each round: the site's name, at most 48 noised points with noised counts, and this page's settings. "
        "Everything they see is a function of noised totals; the promise holds against anybody, with any other "
        "knowledge and any computing power, now or later.",
        ("None about others: the site adds all of the noise itself, and need not trust the hub or another site.",),
    )


def _summed_words(summed: list[dict[str, Any]]) -> tuple[str, tuple[str, ...]]:
    shares = [_HONEST.search(entry["what"]) for entry in summed]
    if not all(shares):
        raise PrivacyError("this ledger does not say for how many honest sites the noise of its sums was drawn")
    least = min(int(found[1]) for found in shares if found is not None)
    return (
        "For each step of a round: the total of all sites, with noise, and from this site alone only numbers that are "
        "masked. The promise for totals holds against whoever cannot break the encryption in use (X25519, Ed25519, "
        "ChaCha20): it is computational, unlike the promise of a single site.",
        (
            f"In every total at least {least} sites, this one among them, kept their share of the noise secret. "
            "If fewer did, there is less noise than stated: all others together could take their own shares away.",
            "The sites of the roster that this site agreed to are different parties, and hold their own keys.",
            "A site's own share of the noise is small, so what is masked protects nobody once the masks are known.",
        ),
    )


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


def _budget(budget: float, spent: float, person: bool) -> str:
    if spent > budget:  # only what was recovered is charged whatever the budget is
        return f"ε = {budget:g}; EXCEEDED: what had left before the ledger was recovered has cost more"
    left_out = ": people whose budget is used up are left out of later rounds" if person else ""
    return f"ε = {budget:g}; what would go beyond it is not released{left_out}"


def _replaced(spent: float, delta: float) -> float:
    """Return epsilon for changing the values of a known member: noise is the same, the change up to twice as large."""
    return 0.0 if spent == 0 else epsilon_from_rho(4.0 * rho_from_epsilon(spent, delta), delta)


def _failures(delta: float, n_people: int | None, units: str) -> str:
    if n_people is None:
        return f"for each of the {units}, the factor may fail with probability {small(delta)}; --people N adds up"
    expected = delta * n_people
    verdict = (
        "small"
        if expected <= _FEW_FAILURES
        else f"large: with δ = {small(_FEW_FAILURES / n_people)} in a new ledger it would be {_FEW_FAILURES:g}"
    )
    return f"of {n_people:,} {units}, the factor may fail for {expected:.2g} on average, which is {verdict}"


def _several(spent: float, delta: float, summed: list[dict[str, Any]], overlap: int | None) -> str:
    """Return what a person at several sites has spent: k times as much, and in sums over all sites k * k times."""
    assumed = f"The study assumes that one person is at no more than {counted(overlap, 'site')}. " if overlap else ""
    if spent == 0:
        return f"{assumed}Costs of different sites add up"
    if overlap == 1:
        return f"{assumed}If somebody is at more, the costs add up"
    rho = rho_from_epsilon(spent, delta)
    together = min(rho, math.fsum(entry["rho"] for entry in summed))
    cases = ", ".join(
        f"{n} sites: ε = {up(epsilon_from_rho(n * (rho - together) + n * n * together, delta))}"
        for n in ([overlap] if overlap else [2, 3, 5])
    )
    squared = (
        " In rounds that are summed over sites (secure aggregation) somebody at k sites moves the sum k times as far, "
        "which costs k² times the ρ; the figures count that."
        if summed
        else ""
    )
    sites = f"Each owner has a ledger, and the costs add up. If each had spent as much as this one: {cases}."
    return f"{assumed}{sites}{squared}"


def _releases(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return "none"
    names = {entry["site"] for entry in entries}
    lost = sum(not entry["completed"] for entry in entries)
    dearest = max(entry["epsilon"] for entry in entries)
    first, last = entries[0]["time"][:10], entries[-1]["time"][:10]
    words = (
        f"{len(entries):,} under {counted(len(names), 'name')}, {first} to {last}; the highest cost: ε = {up(dearest)}"
    )
    return words + (f"; {lost:,} of them were paid for and never sent (interrupted)" if lost else "")
