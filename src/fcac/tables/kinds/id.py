"""``kind = "id"``: names records; it is not clustered."""

from __future__ import annotations

from fcac.tables.kind import NotClustered


class Id(NotClustered):
    """The id of a record, such as a patient's number. It never becomes a feature."""
