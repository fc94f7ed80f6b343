"""Privacy statements as readable text, for commands, status and report."""

from __future__ import annotations

from typing import Any

from fcac._text import counted
from fcac.privacy import mechanisms


def title(statement: dict[str, Any] | None) -> str:
    """Return in a few words what was done to rows or nodes before they left the site.

    Examples
    --------
    >>> from fcac.privacy.statements import title
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

    Examples
    --------
    >>> from fcac.privacy.statements import cost
    >>> cost({"mechanism": "NodeRelease", "epsilon": 2.0, "delta": 1e-6})
    'ε = 2 at δ = 10⁻⁶ per record and round'
    """
    if statement is None or statement.get("epsilon") is None:
        return "–"
    found = mechanisms.of_statement(statement)
    delta = statement.get("delta")
    at = f" at δ = {small(delta)}" if delta else ""
    return f"ε = {statement['epsilon']:g}{at}" + ("" if found is None else f" per {found.per}")


def in_a_line(statement: dict[str, Any] | None) -> str:
    """Return in one line what was done and what it has cost so far.

    Examples
    --------
    >>> from fcac.privacy.statements import in_a_line
    >>> in_a_line({"mechanism": "LocalNoise", "epsilon": 8.0, "rounds": 1})
    'local noise on every record, eps = 8 per record'
    """
    found = mechanisms.of_statement(statement)
    if statement is None or statement.get("mechanism") in (None, "none"):
        return "none: sites send their nodes as they are"
    epsilon = statement.get("epsilon", 0.0)
    if found is not None and found.guarantee == "central":
        return (
            f"{found.title}: eps = {statement.get('spent', epsilon):g} "
            f"at delta = {statement.get('delta', 0):g} over {counted(statement.get('rounds', 1), 'round')}"
        )
    line = f"{title(statement)}, eps = {epsilon:g}" + ("" if found is None else f" per {found.per}")
    return line if found is None or found.guarantee != "none" else f"{line}: no guarantee"


def small(value: float) -> str:
    """Return a number with powers of ten written as such."""
    text = f"{value:.3g}"
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = f"10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return power if mantissa == "1" else f"{mantissa} × {power}"
