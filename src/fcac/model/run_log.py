"""What each round read and left out: kept with a model for the report's "What was done"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """One round, as the command that played it saw it: rows read, and rows among them that were left out.

    `dropped_for` is, for each column whose gaps make the schema drop a row, how many rows had such a gap.
    """

    round: int
    rows_read: int
    rows_dropped: int = 0
    dropped_for: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values: what would be the same in another run of the same command."""
        return {**asdict(self), "dropped_for": dict(self.dropped_for)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Run:
        """Rebuild a run; raise ValueError if its values mean nothing."""
        counts = [values["round"], values["rows_read"], values["rows_dropped"], *values["dropped_for"].values()]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("the counts of rows in this file are not counts")
        why = {str(name): count for name, count in values["dropped_for"].items()}
        return cls(
            round=counts[0],
            rows_read=counts[1],
            rows_dropped=counts[2],
            dropped_for=why,
        )
