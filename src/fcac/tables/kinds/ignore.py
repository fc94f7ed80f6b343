"""``kind = "ignore"``: a column that is left out, and said to be."""

from __future__ import annotations

from fcac.tables.kind import NotClustered


class Ignore(NotClustered):
    """Left out. A column that a schema does not list is left out too; this says that somebody meant it."""
