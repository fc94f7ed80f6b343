"""The registry of privacy mechanisms: one file each, named after its class in lower case with underscores.

Every subclass of :class:`~fcac.privacy.mechanism.Mechanism` in a file of this package is a mechanism: model files,
contributions, commands and the report find it by the name of its class, and no other code needs to be changed.
"""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from typing import Any

from fcac.privacy.mechanism import AnyMechanism, Mechanism
from fcac.privacy.released_state import ReleasedState

_registered: dict[str, type[Mechanism]] = {}


def find(name: Any) -> type[Mechanism] | None:
    """Return the mechanism of this name, or None if there is none."""
    if not isinstance(name, str):
        return None
    if name not in _registered:
        file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        if file not in {module.name for module in pkgutil.iter_modules(__path__)}:
            return None
        found = getattr(import_module(f"{__name__}.{file}"), name, None)
        if not (isinstance(found, type) and issubclass(found, Mechanism)):
            return None
        register(found)
    return _registered[name]


def names() -> list[str]:
    """Return the names of all mechanisms, sorted."""
    for module in pkgutil.iter_modules(__path__):
        find("".join(word.capitalize() for word in module.name.split("_")))
    return sorted(_registered)


def register(mechanism: type[Mechanism]) -> type[Mechanism]:
    """Register a mechanism of another package under the name of its class."""
    _registered[mechanism.__name__] = mechanism
    return mechanism


def of_statement(statement: dict[str, Any] | None) -> type[Mechanism] | None:
    """Return the mechanism named in a contribution's statement; None if there is none or it is unknown."""
    return None if statement is None else find(statement.get("mechanism"))


def may_be_shared(statement: dict[str, Any] | None) -> bool:
    """Return whether nodes with this statement are differentially private, so that anybody may see them."""
    mechanism = of_statement(statement)
    return mechanism is not None and mechanism.guarantee == "central"


def to_params(mechanism: AnyMechanism) -> dict[str, Any]:
    """Return the settings of a mechanism for a model file."""
    if not isinstance(mechanism, Mechanism):
        raise TypeError(
            f"cannot store a privacy mechanism of type {type(mechanism).__name__}: it is not a fcac.privacy.Mechanism"
        )
    return {"mechanism": type(mechanism).__name__, "settings": mechanism.to_settings()}


def from_params(stored: Any) -> Mechanism:
    """Rebuild a mechanism from :func:`to_params`."""
    from fcac.privacy.ledger import Ledger

    found = find(stored.get("mechanism")) if isinstance(stored, dict) else None
    if found is None:
        raise ValueError("the file does not name a privacy mechanism that this version of fcac knows")
    settings = dict(stored["settings"])
    if settings.get("ledger") is not None:
        settings["ledger"] = Ledger(**settings["ledger"])
    return found(**settings)


def statement(mechanism: AnyMechanism | None, n_releases: int, state: ReleasedState | None = None) -> dict[str, Any]:
    """Return a site's privacy statement, with or without a mechanism, about what it has released."""
    if mechanism is None:
        return {"mechanism": "none"}
    if not isinstance(mechanism, Mechanism):
        return {"mechanism": type(mechanism).__name__, "rounds": n_releases}
    return mechanism.statement(n_releases, state)
