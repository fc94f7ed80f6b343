"""What a site sends: prototype nodes with counts, under the site's name and a round number."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac import persistence
from fcac._sites import SiteName, plain_site
from fcac._text import counted

# A statement about privacy travels with every contribution; it is short by design (the message may exceed its nodes by
# less than 2 kB).
_MAX_STATEMENT = 1000


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Contribution:
    """Nodes and counts of one site in one round.

    Parameters
    ----------
    site : str or int
        Name of the site.
    round : int
        Round the site answers, from 1.
    nodes : array of shape (K, d)
        Prototype nodes; finite. K may be zero.
    counts : array of shape (K,)
        How many rows each node stands for, at least 1; or the sums of their weights.
    privacy : dict
        Short statement of what was done to the rows or nodes, for reports; JSON-able.

    Examples
    --------
    >>> from fcac.federation import Contribution
    >>> sent = Contribution("clinic-a", 1, [[0.0, 1.0]], [12])
    >>> Contribution.from_bytes(sent.to_bytes()) == sent
    True
    """

    site: SiteName
    round: int
    nodes: NDArray[np.float64]
    counts: NDArray[np.int64] | NDArray[np.float64]
    privacy: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # frozen for users, normalised once here
        set_field(self, "site", plain_site(self.site))
        if isinstance(self.round, bool | np.bool_) or not isinstance(self.round, int | np.integer) or self.round < 1:
            raise ValueError(f"round must be a whole number from 1 on, got {self.round!r}")
        set_field(self, "round", int(self.round))
        nodes = np.asarray(self.nodes, dtype=np.float64)
        if nodes.ndim != 2 or nodes.shape[1] < 1:
            raise ValueError(f"nodes must have two dimensions (nodes, features), got shape {nodes.shape}")
        if not np.isfinite(nodes).all():
            raise ValueError("nodes hold NaN or infinite values")
        counts = np.asarray(self.counts)
        if counts.shape != (len(nodes),):
            raise ValueError(f"counts must have one value per node ({len(nodes)}), got shape {counts.shape}")
        if len(counts) == 0:
            counts = counts.astype(np.int64)
        if counts.dtype.kind == "f" and np.isfinite(counts).all() and (np.rint(counts) == counts).all():
            counts = counts.astype(np.int64)
        least = 0 if counts.dtype.kind == "f" else 1
        if counts.dtype.kind not in "iuf" or not (np.isfinite(counts) & (counts >= least) & (counts <= 2**53)).all():
            raise ValueError("counts must be whole numbers of at least 1, or positive sums of weights")
        if not isinstance(self.privacy, dict):
            raise ValueError("privacy must be a dictionary of plain values")
        set_field(self, "nodes", np.ascontiguousarray(nodes))
        kind = np.float64 if counts.dtype.kind == "f" else np.int64
        set_field(self, "counts", np.ascontiguousarray(counts, dtype=kind))

    def __repr__(self) -> str:
        total = counted(round(float(self.counts.sum())), "row")
        how = self.privacy.get("mechanism", "none")
        private = "" if how == "none" else f", {how}"
        return f"Contribution({self.site!r}, round {self.round}, {counted(len(self.nodes), 'node')}, {total}{private})"

    @property
    def n_features(self) -> int:
        """Number of features of the nodes."""
        return int(self.nodes.shape[1])

    @property
    def key(self) -> tuple[SiteName, int]:
        """Site and round: what makes two deliveries the same."""
        return self.site, self.round

    def to_bytes(self) -> bytes:
        """Return the one byte form of this contribution."""
        meta = {"site": self.site, "round": self.round, "privacy": self.privacy}
        return persistence.pack("contribution", meta, {"nodes": self.nodes, "counts": self.counts})

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Read a contribution; anything else is a ``ValueError`` that says what is wrong."""
        meta, arrays = persistence.unpack(data, kind="contribution")
        if set(arrays) != {"nodes", "counts"} or arrays["nodes"].dtype != np.float64:
            raise ValueError("a contribution holds the arrays nodes (float64) and counts, and nothing else")
        try:
            privacy = meta["privacy"]
            if len(repr(privacy)) > _MAX_STATEMENT:
                raise ValueError("the privacy statement of a contribution must be short")
            return cls(meta["site"], meta["round"], arrays["nodes"], arrays["counts"], privacy)
        except KeyError as error:
            raise ValueError(f"a contribution needs the field {error}") from None

    def digest(self) -> str:
        """Return a fingerprint of the content, equal if and only if the bytes are."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contribution) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # equal by content; use `key` in dictionaries
