"""Privacy mechanisms as plain settings: what a model file stores of them, and what travels with a contribution."""

from __future__ import annotations

from typing import Any

import numpy as np

_KNOWN = ("PaperLaplace", "LocalNoise", "NodeRelease")


def to_params(mechanism: Any) -> dict[str, Any]:
    """Return the settings of a mechanism as JSON values; a ledger is stored by its path."""
    name = type(mechanism).__name__
    if name not in _KNOWN:
        raise TypeError(f"cannot store a privacy mechanism of type {name}: use {', '.join(_KNOWN)}")
    settings: dict[str, Any] = {}
    for field in mechanism._fields:
        value = getattr(mechanism, field)
        if field == "sampler":
            if not getattr(value, "secure", False):
                raise ValueError("a model with test noise cannot be stored: it could be mistaken for a private one")
            continue
        if field == "ledger":
            value = None if value is None else {"path": str(value.path), "budget": value.budget, "delta": value.delta}
        settings[field] = value.tolist() if isinstance(value, np.ndarray) else value
    return {"mechanism": name, "settings": settings}


def from_params(stored: Any) -> Any:
    """Rebuild a mechanism from :func:`to_params`."""
    from fcac import privacy

    if not isinstance(stored, dict) or stored.get("mechanism") not in _KNOWN:
        raise ValueError("the file does not name a privacy mechanism that this version of fcac knows")
    settings = dict(stored["settings"])
    if settings.get("ledger") is not None:
        settings["ledger"] = privacy.Ledger(**settings["ledger"])
    return getattr(privacy, stored["mechanism"])(**settings)


def statement(mechanism: Any, n_releases: int) -> dict[str, Any]:
    """Return the short privacy statement that is sent with a contribution; it never depends on rows.

    Parameters
    ----------
    mechanism : mechanism or None
    n_releases : int
        Number of rounds in which this site has contributed under the mechanism.
    """
    if mechanism is None:
        return {"mechanism": "none"}
    brief: dict[str, Any] = {"mechanism": type(mechanism).__name__, "epsilon": float(mechanism.epsilon)}
    if hasattr(mechanism, "release"):
        from fcac.privacy.zcdp import epsilon_from_rho

        brief["delta"] = float(mechanism.delta)
        brief["spent"] = round(epsilon_from_rho(n_releases * mechanism.rho, mechanism.delta), 6)
    brief["rounds"] = n_releases
    return brief
