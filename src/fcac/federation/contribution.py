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
    deviation : array of shape (K, d), optional
        Standard deviation of the noise in every value of `nodes`, where a release added noise of a known, public scale.
        None: the nodes are exact, or their noise is not known.
    count_deviation : array of shape (K,), optional
        The same of `counts`. Both are given, or neither.

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
    deviation: NDArray[np.float32] | None = None
    count_deviation: NDArray[np.float32] | None = None

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
        if (self.deviation is None) != (self.count_deviation is None):
            raise ValueError("give deviation and count_deviation, or neither")
        if self.deviation is not None:
            set_field(self, "deviation", _checked(self.deviation, nodes.shape, "deviation"))
            set_field(self, "count_deviation", _checked(self.count_deviation, counts.shape, "count_deviation"))

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

    def only(self, kept: NDArray[Any]) -> Contribution:
        """Return these of the nodes (positions, or true and false), with all that belongs to them."""
        noise = (None if array is None else array[kept] for array in (self.deviation, self.count_deviation))
        return Contribution(self.site, self.round, self.nodes[kept], self.counts[kept], self.privacy, *noise)

    def to_bytes(self) -> bytes:
        """Return the one byte form of this contribution."""
        meta = {"site": self.site, "round": self.round, "privacy": self.privacy}
        arrays: dict[str, NDArray[Any]] = {"nodes": self.nodes, "counts": self.counts}
        if self.deviation is not None and self.count_deviation is not None:
            arrays |= {"deviation": self.deviation, "count_deviation": self.count_deviation}
        return persistence.pack("contribution", meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Read a contribution; anything else is a ``ValueError`` that says what is wrong."""
        meta, arrays = persistence.unpack(data, kind="contribution")
        optional = {"deviation", "count_deviation"} & set(arrays)
        if set(arrays) - optional != {"nodes", "counts"} or arrays["nodes"].dtype != np.float64:
            raise ValueError(
                "a contribution holds the arrays nodes (float64) and counts, and at most their deviations besides"
            )
        try:
            privacy = meta["privacy"]
            if len(repr(privacy)) > _MAX_STATEMENT:
                raise ValueError("the privacy statement of a contribution must be short")
            noise = arrays.get("deviation"), arrays.get("count_deviation")
            return cls(meta["site"], meta["round"], arrays["nodes"], arrays["counts"], privacy, *noise)
        except KeyError as error:
            raise ValueError(f"a contribution needs the field {error}") from None

    def digest(self) -> str:
        """Return a fingerprint of the content, equal if and only if the bytes are."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contribution) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # equal by content; use `key` in dictionaries


def _checked(values: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float32]:
    # single precision: a deviation is used as a weight, and it halves what a site sends besides its nodes
    deviation = np.ascontiguousarray(values, dtype=np.float32)
    if deviation.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {deviation.shape}")
    if not (np.isfinite(deviation) & (deviation >= 0)).all():
        raise ValueError(f"{name} must hold finite numbers of at least 0")
    return deviation
