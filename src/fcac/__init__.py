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
    "CAPlus": "fcac.clusterers",
    "CAE": "fcac.clusterers",
    "CAEFC": "fcac.clusterers",
    "FCAC": "fcac.estimator",
    "load": "fcac.models",
    "save": "fcac.models",
}

if TYPE_CHECKING:
    from fcac.clusterers import CAE, CAEFC, CAPlus
    from fcac.estimator import FCAC
    from fcac.models import load, save

__all__ = ["CAE", "CAEFC", "FCAC", "CAPlus", "load", "save"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fcac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
