"""Every error and warning of the package, so that a caller can tell a spent budget from a wrong file."""

from __future__ import annotations


class DataError(ValueError):
    """The data cannot be used as they are; the message names file, column, count and fix, and never a value."""


class RequestError(DataError):
    """What was asked for does not fit the data: no such file, no such column, two wishes that exclude each other."""


class SchemaError(DataError):
    """The schema file says something that cannot be meant; the message names the field and the fix."""


class PrivacyError(ValueError):
    """Base of the refusals of this package; raised before anything is charged or sent."""


class BudgetExceeded(PrivacyError):
    """The charge would take a site over its budget, so nothing was drawn."""


class RepeatedBatch(PrivacyError):
    """Exactly these rows were released before."""


class LedgerError(PrivacyError):
    """The ledger file cannot be used as it is."""


class FlowerError(RuntimeError):
    """A Flower program did not do what it was asked; the message says which and where its log is."""


class PrivacyWarning(UserWarning):
    """A privacy setting works, but does less than a reader may think."""


class DegenerateBandwidthWarning(UserWarning):
    """More than half of the features do not vary, so that similarity counts unequal features."""
