"""Privacy statements as readable text, for commands, status and report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fcac._text import counted
from fcac.privacy import mechanisms
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon, up


def title(statement: dict[str, Any] | None) -> str:
    """Return in a few words what was done to rows or nodes before they left the site.

    >>> title({"mechanism": "none"}), title({"mechanism": "NodeRelease"})
    ('none: nodes are sent as they are', 'differentially private release')
    """
    name = None if statement is None else statement.get("mechanism")
    if name is None or name == "none":
        return "none: nodes are sent as they are"
    found = mechanisms.of_statement(statement)
    return str(name) if found is None else found.title


def cost(statement: dict[str, Any] | None) -> str:
    """Return the cost of one use, or "–" if there is no epsilon.

    >>> cost({"mechanism": "NodeRelease", "epsilon": 2.0, "delta": 1e-6})
    'ε = 2 at δ = 10⁻⁶ per row and round'
    """
    if statement is None or statement.get("epsilon") is None:
        return "–"
    found = mechanisms.of_statement(statement)
    delta = statement.get("delta")
    at = f" at δ = {small(delta)}" if delta else ""
    per = "" if found is None else f" per {found.per.replace('unit', str(statement.get('unit', 'row')))}"
    return f"ε = {statement['epsilon']:g}{at}{per}"


def in_a_line(statement: dict[str, Any] | None) -> str:
    """Return in one line what was done and what it has cost so far.

    >>> in_a_line({"mechanism": "LocalNoise", "epsilon": 8.0, "rounds": 1})
    'local noise on every record, eps = 8 per record'
    """
    found = mechanisms.of_statement(statement)
    if statement is None or statement.get("mechanism") in (None, "none"):
        return "none: sites send their nodes as they are"
    epsilon = statement.get("epsilon")
    if found is not None and found.guarantee == "central":
        unit = f" per {statement['unit']}" if "unit" in statement else ""
        return (
            f"{found.title}: eps = {up(statement.get('spent', math.inf if epsilon is None else epsilon))} "
            f"at delta = {statement.get('delta', 0):g}{unit} over {counted(statement.get('rounds', 1), 'round')}"
        )
    line = title(statement)
    if epsilon is not None:
        line += f", eps = {epsilon:g}" + ("" if found is None else f" per {found.per}")
    return line if found is None or found.guarantee != "none" else f"{line}: no guarantee"


def at_several_sites(statements: Sequence[dict[str, Any]], overlap: int | None = None) -> list[str]:
    """Return what somebody has spent whose rows are at several sites: costs of different sites add up.

    `overlap` says at how many sites one person may be, as the study assumes; None: two sites and all sites are shown.

    >>> said = {"mechanism": "NodeRelease", "epsilon": 4.0, "delta": 1e-6, "spent": 4.0, "unit": "person"}
    >>> at_several_sites([said] * 5)
    ['Somebody at 2 of these sites: eps at most 5.94.', 'Somebody at all 5 of these sites: eps at most 10.17.']
    >>> summed = {**said, "unit": "row", "aggregation": "secure", "sites": 5}
    >>> at_several_sites([summed])  # k sites move a sum k times as far
    ['Somebody at 2 of the 5 sites that are summed: eps at most 8.90.']
    """
    costs, deltas = [], []
    if len(statements) == 1 and "aggregation" in statements[0]:
        (said,) = statements
        k = min(2 if overlap is None else overlap, int(said["sites"]))
        # one owner's sites share a person's weight, and each of a ledger's people is charged once
        if k < 2 or said.get("unit") == "person" or said.get("ledger"):
            return []
        rho = k * k * rho_from_epsilon(float(said["spent"]), float(said["delta"]))
        epsilon = epsilon_from_rho(rho, float(said["delta"]))
        return [f"Somebody at {k} of the {said['sites']} sites that are summed: eps at most {up(epsilon)}."]
    ledgers = set()
    for said in statements:
        found = mechanisms.of_statement(said)
        if found is None or found.guarantee != "central" or not said.get("delta"):
            return []
        if said.get("ledger") and said["ledger"] in ledgers:  # its charges count for all sites that share it
            continue
        ledgers.add(said.get("ledger"))
        deltas.append(float(said["delta"]))
        costs.append(rho_from_epsilon(float(said.get("spent", said["epsilon"])), deltas[-1]))
    costs.sort(reverse=True)
    numbers = [2, len(costs)] if overlap is None else [min(overlap, len(costs))]
    lines = []
    for n in dict.fromkeys(number for number in numbers if 2 <= number <= len(costs)):
        epsilon = epsilon_from_rho(math.fsum(costs[:n]), min(deltas))
        which = f"all {n}" if n == len(costs) and n > 2 else f"{n}"
        lines.append(f"Somebody at {which} of these sites: eps at most {up(epsilon)}.")
    return lines


def small(value: float) -> str:
    """Return a number with powers of ten written as such."""
    text = f"{value:.3g}"
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = f"10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return power if mantissa == "1" else f"{mantissa} × {power}"
