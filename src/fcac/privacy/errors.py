"""What can go wrong, each with its own name, so that a caller can tell a spent budget from a wrong file."""

from __future__ import annotations


class PrivacyWarning(UserWarning):
    """A privacy setting works, but does less than a reader may think."""


class PrivacyError(ValueError):
    """Base of the refusals of this package; raised before anything is charged or sent."""


class BudgetExceeded(PrivacyError):
    """The charge would take a site over its budget, so nothing was drawn."""


class RepeatedBatch(PrivacyError):
    """Exactly these rows were released before."""


class LedgerError(PrivacyError):
    """The ledger file cannot be used as it is."""
