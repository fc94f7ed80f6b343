"""Receipts in files: what has left a site, according to a model, a site's state or a stored release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fcac import persistence
from fcac.privacy.account import Account, Receipt
from fcac.privacy.agreement_counts import KIND as AGREEMENT


def receipts_in(source: Path) -> dict[str, list[Receipt]]:
    """Return the receipts in a model file, a stored release, answer or site state, or a directory of them, by site.

    Parameters
    ----------
    source : Path
        Files that are none of these are an error; in a directory they are passed over.
    """
    found: dict[str, dict[str, Receipt]] = {}
    files = sorted(source.rglob("*.fcac")) if source.is_dir() else [source]
    for file in files:
        try:
            data = file.read_bytes()
            kind, (meta, _) = persistence.kind_of(data), persistence.unpack(data)
        except ValueError:
            if source.is_dir():
                continue
            raise
        if kind == AGREEMENT:
            receipt = Receipt(str(meta["seal"]), float(meta["rho"]), 0, float(meta["slack"]))
            found.setdefault(str(meta["site"]), {})[receipt.seal] = receipt
        for site, account in _accounts(kind, meta):
            for receipt in Account.from_json(account).receipts:
                found.setdefault(site, {})[receipt.seal] = receipt
    return {site: list(receipts.values()) for site, receipts in found.items()}


def _accounts(kind: str, meta: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return (site, account) of every released state described in a file."""
    if kind == "release":
        states = [(meta.get("site"), meta.get("state"))]
    elif kind == "site":
        states = [(meta.get("site"), meta.get("released"))]
    else:
        states = [(entry.get("site"), entry.get("released")) for entry in _site_entries(meta)]
    return [(str(site), state["account"]) for site, state in states if isinstance(state, dict) and "account" in state]


def _site_entries(meta: Any) -> list[dict[str, Any]]:
    """Return every description of a site inside the header of a model, however deep it is packed."""
    if isinstance(meta, dict):
        own = [meta] if "released" in meta and "site" in meta else []
        return own + [entry for value in meta.values() for entry in _site_entries(value)]
    if isinstance(meta, list):
        return [entry for value in meta for entry in _site_entries(value)]
    return []
