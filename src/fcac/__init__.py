"""Clustering data that may not leave where it is.

Each site condenses its own rows with CA+ in one pass and sends only prototype nodes; a server grows a topological
network from all sites' nodes. Nobody says how many clusters there are; data keep coming and nothing is forgotten.

Names load when first used, so that ``import fcac`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "CAPlus": "fcac.art.clusterers",
    "CAE": "fcac.art.clusterers",
    "CAEFC": "fcac.art.clusterers",
    "FCAC": "fcac.estimators.fcac",
    "load": "fcac.estimators.models",
    "save": "fcac.estimators.models",
}

if TYPE_CHECKING:
    from fcac.art.clusterers import CAE, CAEFC, CAPlus
    from fcac.estimators.fcac import FCAC
    from fcac.estimators.models import load, save

__all__ = ["CAE", "CAEFC", "FCAC", "CAPlus", "load", "save"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fcac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
