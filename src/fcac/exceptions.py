"""All errors and warnings of the package, so that callers can tell an exhausted budget from a wrong file."""

from __future__ import annotations


class DataError(ValueError):
    """The data cannot be used as they are; the message names the file, column, count and fix, but never a value."""


class RequestError(DataError):
    """The request does not match the data: no such file, no such column, or options that exclude each other."""


class SchemaError(DataError):
    """The schema is invalid; the message names the field and the fix."""


class PrivacyError(ValueError):
    """Base class of refusals for reasons of privacy; raised before anything is charged or sent."""


class BudgetExceeded(PrivacyError):
    """The charge would exceed a site's budget, so no noise was drawn and nothing was released."""


class LedgerError(PrivacyError):
    """The ledger file is unusable as it is."""


class AggregationRefused(PrivacyError):
    """A site does not go on with a step of secure aggregation; the message says what is wrong with the request."""


class TooFewSites(RuntimeError):
    """A step of secure aggregation cannot be completed: too many sites have vanished. No total was learned."""


class FederationError(RuntimeError):
    """A hub or a site cannot start or go on; the message says why and what to do."""


class PrivacyWarning(UserWarning):
    """A privacy setting is valid, but protects less than one might expect."""


class OpenNodes(PrivacyWarning):
    """Several sites send their nodes without a privacy mechanism, and nodes can be rows."""


class ReadWarning(UserWarning):
    """A table can be read in more than one way; the message says how it was read and how to choose another way."""


class RepeatedBatch(PrivacyWarning):
    """Exactly these rows have been released before: they were released again, and charged again."""


class DegenerateBandwidthWarning(UserWarning):
    """At least half of the features are constant, so similarity merely counts the features that are equal."""
