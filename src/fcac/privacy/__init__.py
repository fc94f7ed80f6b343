"""Privacy: what may leave a site, what it costs, and how to check.

Row mechanisms change records before CA+ sees them: :class:`PaperLaplace` (the paper's noise, for reproduction; no
guarantee) and :class:`LocalNoise` (local differential privacy, one record per device). A node mechanism replaces CA+:
:class:`NodeRelease`, differentially private per record, with a :class:`Ledger` that cannot be overspent.
:func:`audit` tries to break what is promised.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fcac.privacy.errors import BudgetExceeded, LedgerError, PrivacyError, PrivacyWarning, RepeatedBatch

if TYPE_CHECKING:
    from fcac.paper.attacks import attack_figures
    from fcac.privacy.auditing import AuditResult, audit
    from fcac.privacy.ledger import Ledger
    from fcac.privacy.local_noise import LocalNoise
    from fcac.privacy.durable_release import StoredRelease, release_once
    from fcac.privacy.paper_laplace import PaperLaplace
    from fcac.privacy.node_release import NodeRelease
    from fcac.privacy.samplers import InsecureTestSampler
    from fcac.privacy.released_state import ReleasedState

# Modules are loaded when a name is first used, so that a site without privacy does not pay for it.
_WHERE = {
    "AuditResult": "auditing",
    "InsecureTestSampler": "sampler",
    "Ledger": "ledger",
    "LocalNoise": "local",
    "NodeRelease": "release",
    "PaperLaplace": "paper",
    "ReleasedState": "state",
    "StoredRelease": "once",
    "attack_figures": "attacks",
    "audit": "auditing",
    "release_once": "once",
}

__all__ = [
    "AuditResult",
    "BudgetExceeded",
    "InsecureTestSampler",
    "Ledger",
    "LedgerError",
    "LocalNoise",
    "NodeRelease",
    "PaperLaplace",
    "PrivacyError",
    "PrivacyWarning",
    "ReleasedState",
    "RepeatedBatch",
    "StoredRelease",
    "attack_figures",
    "audit",
    "release_once",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"fcac.privacy.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'fcac.privacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
