"""Privacy mechanisms: what may leave a site, what it costs, and how to audit it.

Row mechanisms perturb records before they are condensed: :class:`PaperLaplace` (the paper's noise, for reproduction; no
guarantee) and :class:`LocalNoise` (local differential privacy, one record per device). A node mechanism replaces
condensing: :class:`NodeRelease`, differentially private per record, with a :class:`Ledger` that cannot be overspent.
:func:`audit` tries to refute what a mechanism promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fcac import _lazy
from fcac.exceptions import BudgetExceeded, LedgerError, PrivacyError, PrivacyWarning, RepeatedBatch

if TYPE_CHECKING:
    from fcac.privacy.auditing import AuditResult, audit
    from fcac.privacy.durable_release import StoredRelease, release_once
    from fcac.privacy.ledger import Ledger
    from fcac.privacy.mechanisms.local_noise import LocalNoise
    from fcac.privacy.mechanisms.node_release import NodeRelease
    from fcac.privacy.mechanisms.paper_laplace import PaperLaplace
    from fcac.privacy.released_state import ReleasedState

__all__ = [
    "AuditResult",
    "BudgetExceeded",
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
    "audit",
    "release_once",
]

# Modules are loaded when a name is first used, so that a site without privacy does not pay for them.
__getattr__, __dir__ = _lazy.attach(
    __name__,
    __all__,
    {
        "AuditResult": "fcac.privacy.auditing",
        "Ledger": "fcac.privacy.ledger",
        "LocalNoise": "fcac.privacy.mechanisms.local_noise",
        "NodeRelease": "fcac.privacy.mechanisms.node_release",
        "PaperLaplace": "fcac.privacy.mechanisms.paper_laplace",
        "ReleasedState": "fcac.privacy.released_state",
        "StoredRelease": "fcac.privacy.durable_release",
        "audit": "fcac.privacy.auditing",
        "release_once": "fcac.privacy.durable_release",
    },
)
