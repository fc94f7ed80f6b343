"""What has left a site, by a model, a site's state and log, or a hub's model: for a ledger that has forgotten."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac.privacy.account import Account, Receipt
from fcac.privacy.agreement_counts import KIND as AGREEMENT

#: The log in the directory of a site, see :mod:`fcac.deployment.audit_log`.
_LOG = "audit.jsonl"


@dataclass
class Left:
    """What has left under the name of one site.

    `rho` is what its releases have cost in all, as far as a state knows; `rounds` has the epsilon of every time that a
    round was answered, by a log; `spent` is the highest epsilon that was said, and `budget` the ledger's when the
    newest of this left.
    """

    receipts: dict[str, Receipt] = field(default_factory=dict)
    rho: float = 0.0
    rounds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    spent: float = 0.0
    budget: float | None = None


def receipts_in(source: Path) -> dict[str, list[Receipt]]:
    """Return the receipts in a file, or in a directory of files, by site."""
    return {site: list(left.receipts.values()) for site, left in what_left(source).items() if left.receipts}


def what_left(source: Path, site: str | None = None) -> dict[str, Left]:
    """Return what has left, by site, from a model, a stored release, an answer, a site's state, or a directory of them.

    Files that are none of these are an error, in a directory they are passed over. Where only one site is wanted, it is
    also the one whose log is in the directory, which does not say whose it is.
    """
    found: dict[str, Left] = defaultdict(Left)
    accounts: dict[str, list[Account]] = defaultdict(list)
    for file in sorted(source.rglob("*.fcac")) if source.is_dir() else [source]:
        try:
            data = file.read_bytes()
            kind, (meta, _) = persistence.kind_of(data), persistence.unpack(data)
        except ValueError:
            if source.is_dir():
                continue
            raise
        if kind == AGREEMENT:
            receipt = Receipt(str(meta["seal"]), float(meta["rho"]), 0, float(meta["slack"]))
            found[str(meta["site"])].receipts[receipt.seal] = receipt
        for name, account in _accounts(kind, meta):
            accounts[name].append(Account.from_json(account))
        _take_history(meta, found, site)
    for name, some in accounts.items():
        # two states of one site with a receipt in common are one after the other; others are beside each other
        for account in sorted(some, key=lambda account: -account.rho):
            seals = {receipt.seal: receipt for receipt in account.receipts}
            if seals and not seals.keys() & found[name].receipts.keys():
                found[name].rho += account.rho
            found[name].receipts |= seals
            found[name].spent = max(found[name].spent, account.spent or 0.0)
            found[name].budget = account.budget or found[name].budget
    if source.is_dir() and (source / _LOG).is_file():
        names = [site] if site is not None else list(found)
        if len(names) != 1:
            raise ValueError(f"{source / _LOG} does not say which site it is of: give --site NAME")
        for line in (source / _LOG).read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry.get("event") == "contributed" and entry.get("epsilon") is not None:
                found[names[0]].rounds[int(entry["round"])].append(float(entry["epsilon"]))
    return {name: left for name, left in found.items() if site in (None, name)}


def _accounts(kind: str, meta: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return (site, account) of every released state described in a file."""
    if kind == "release":
        states = [(meta.get("site"), meta.get("state"))]
    elif kind == "site":
        states = [(meta.get("site"), meta.get("released"))]
    else:
        states = [(entry["site"], entry["released"]) for entry in _inside(meta, {"released", "site"})]
    return [(str(site), state["account"]) for site, state in states if isinstance(state, dict) and "account" in state]


def _take_history(meta: Any, found: dict[str, Left], site: str | None) -> None:
    """Note what the server of a model has received: which rounds of a site, and what it said that they cost.

    A sum over sites may be of the one that is asked for, and is taken for it.
    """
    for log in _inside(meta, {"entries", "statements"}):
        for name, number, _, statement in log["entries"]:
            said = log["statements"][statement]
            if isinstance(said, dict) and "spent" in said:
                left = found[str(name) if site is None or "aggregation" not in said else site]
                left.rounds[int(number)] = [float(said["epsilon"])]
                left.spent = max(left.spent, float(said["spent"]))
                left.budget = said.get("budget", left.budget)


def _inside(meta: Any, keys: set[str]) -> list[dict[str, Any]]:
    """Return every description with these keys inside the header of a file, however deep it is packed."""
    if isinstance(meta, dict):
        own = [meta] if keys <= meta.keys() else []
        return own + [entry for value in meta.values() for entry in _inside(value, keys)]
    if isinstance(meta, list):
        return [entry for value in meta for entry in _inside(value, keys)]
    return []
