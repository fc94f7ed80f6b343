"""Federated clustering of data that must stay where it is.

Each site condenses its own rows in one pass and sends only prototype nodes; a server finds clusters in the nodes of all
sites. The number of clusters need not be known in advance, and learning continues as data arrive, without forgetting
what was learned before.

Names and subpackages are loaded on first use, so that ``import fcac`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fcac import _lazy
from fcac._version import __version__ as __version__

if _TYPE_CHECKING:
    from fcac import exceptions, privacy, report, spark, tables
    from fcac.art.clusterers import CAE, CAEFC, CAPlus
    from fcac.model import FCAC, load, save

# what users call; other packages are imported by their names
__all__ = ["CAE", "CAEFC", "FCAC", "CAPlus", "exceptions", "load", "privacy", "report", "save", "spark", "tables"]

__getattr__, __dir__ = _lazy.attach(
    __name__,
    __all__,
    {
        "CAPlus": "fcac.art.clusterers",
        "CAE": "fcac.art.clusterers",
        "CAEFC": "fcac.art.clusterers",
        "FCAC": "fcac.model",
        "load": "fcac.model",
        "save": "fcac.model",
    },
)
del _lazy
