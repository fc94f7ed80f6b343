"""How a site turns its rows into nodes: the interface, the reservoir, and the paper's CA+.

A condenser is a setting that many sites share; what a site has learned is a state, which is replaced and never changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats
from fcac.art.compact_network import CompactNetwork
from fcac.art.network import Network, Rules
from fcac.nodes import MAX_NODES, Reservoir, Trail
from fcac.nodes.aging import Aged, Forgetting
from fcac.nodes.sample import RowSample
from fcac.persistence.format import pack_many, unpack_many

_CA_PLUS = Rules(topological=False)

# Rows that a new site with CA+ keeps: at a rate of 1 %, ten of them decide.
_SAMPLE_ROWS = 1000

Parts = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Condenser(ABC):
    """Turns rows into nodes with counts, in one pass; any split of the rows into pieces gives the same nodes."""

    #: Key under which a site's file holds the state.
    key: ClassVar[str]
    #: Whether a round changes the state of a site that has no rows in it.
    ages: ClassVar[bool] = False

    @abstractmethod
    def draft(self, state: Any, n_features: int) -> Any:
        """Return something that learns on from a state, or from nothing (None), without changing the state."""

    @abstractmethod
    def learn(self, draft: Any, block: Floats, weights: Floats | None, n_threads: int | None) -> None:
        """Let a draft learn rows."""

    @abstractmethod
    def settle(self, draft: Any, round: int) -> Any:
        """Return the state that a draft has come to when a round is closed."""

    @abstractmethod
    def nodes(self, state: Any) -> tuple[Floats, NDArray[Any]]:
        """Return what is sent: nodes, and how many rows each stands for."""

    def sample(self, state: Any) -> RowSample | None:
        """Return a fair sample of the rows that a state has learned; None if it has none."""
        return None

    @abstractmethod
    def to_parts(self, state: Any) -> Parts:
        """Return a state as JSON values and arrays."""

    @abstractmethod
    def from_parts(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
        """Rebuild and check a state."""


@dataclass(frozen=True)
class ReservoirCondenser(Condenser):
    """A bounded number of nodes around a uniform sample of the rows; see :class:`fcac.nodes.Reservoir`.

    `min_rows`, the fewest rows that a node which is sent may stand for, protects nobody: rows may be one person's, and
    two totals, subtracted, show a single row.
    """

    max_nodes: int = MAX_NODES
    min_rows: int = 1
    scale: str = "auto"
    key: ClassVar[str] = "reservoir"

    def __post_init__(self) -> None:
        Reservoir(1, self.max_nodes, scale=self.scale)  # refuses what it cannot use
        if isinstance(self.min_rows, bool) or not isinstance(self.min_rows, int | np.integer) or self.min_rows < 1:
            raise ValueError(f"min_rows must be a whole number of at least 1; it is {self.min_rows!r}")

    def draft(self, state: Reservoir | None, n_features: int) -> Reservoir:
        return Reservoir(n_features, self.max_nodes, scale=self.scale) if state is None else state.copy()

    def learn(
        self, draft: Reservoir, block: Floats, weights: Floats | None, n_threads: int | None, trail: Trail | None = None
    ) -> None:
        draft.learn(block, weights, n_threads, trail)

    def settle(self, draft: Reservoir, round: int) -> Reservoir:
        return draft

    def nodes(self, state: Reservoir) -> tuple[Floats, NDArray[Any]]:
        if self.min_rows > 1:
            nodes, counts, _ = state.condensed(self.min_rows)
        else:
            nodes, counts = state.nodes, state.counts
        whole = np.rint(counts)
        counts = whole.astype(np.int64) if (whole == counts).all() else counts
        for array in (nodes, counts):
            array.setflags(write=False)  # what was sent stays as it was
        return nodes, counts

    def sample(self, state: Reservoir) -> RowSample:
        return state.sample

    def to_parts(self, state: Reservoir) -> Parts:
        return state.to_parts()

    def from_parts(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Reservoir:
        return Reservoir.from_parts(meta, arrays)


@dataclass
class _NextRound:
    """What came before, and the rows of the round that is open."""

    before: Aged | None
    learned: Reservoir

    @property
    def n_features(self) -> int:
        return self.learned.n_features


@dataclass(frozen=True)
class AgingCondenser(Condenser):
    """A reservoir for every round; rows count by their age. See :mod:`fcac.nodes.aging`."""

    forgetting: Forgetting
    max_nodes: int = MAX_NODES
    min_rows: int = 1
    scale: str = "auto"
    key: ClassVar[str] = "aging"
    ages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        ReservoirCondenser(self.max_nodes, self.min_rows, self.scale)  # refuses what it cannot use

    def draft(self, state: Aged | None, n_features: int) -> _NextRound:
        return _NextRound(state, Reservoir(n_features, self.max_nodes, scale=self.scale))

    def learn(self, draft: _NextRound, block: Floats, weights: Floats | None, n_threads: int | None) -> None:
        draft.learned.learn(block, weights, n_threads)

    def settle(self, draft: _NextRound, round: int) -> Aged:
        before = Aged(draft.n_features, 0, ()) if draft.before is None else draft.before
        return before.after(round, draft.learned, self.forgetting)

    def nodes(self, state: Aged) -> tuple[Floats, NDArray[Any]]:
        return ReservoirCondenser(self.max_nodes, self.min_rows).nodes(self._read(state))

    def sample(self, state: Aged) -> RowSample:
        return self._read(state).sample

    def _read(self, state: Aged) -> Reservoir:
        return state.read(self.forgetting, self.max_nodes)

    def to_parts(self, state: Aged) -> Parts:
        parts, arrays = pack_many([part.to_parts() for _, part in state.parts])
        # a model packs its sites in turn: their arrays may differ in length only
        arrays["part_lengths"] = arrays.pop("lengths").ravel()
        meta = {
            "forgetting": str(self.forgetting),
            "max_nodes": self.max_nodes,
            "min_rows": self.min_rows,
            "n_features": state.n_features,
            "round": state.round,
            "rounds": [number for number, _ in state.parts],
            "parts": parts,
        }
        if self.scale != "auto":
            meta["scale"] = self.scale
        return meta, arrays

    def from_parts(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Aged:
        parts = meta["parts"]
        arrays = arrays | {"lengths": arrays["part_lengths"].reshape(len(parts["metas"]), len(parts["names"]))}
        states = [Reservoir.from_parts(*part) for part in unpack_many(parts, arrays)]
        rounds, d = meta["rounds"], meta["n_features"]
        whole = all(isinstance(number, int) for number in (*rounds, meta["round"], d))
        fits = whole and len(rounds) == len(states) and all(state.n_features == d for state in states)
        if not fits or sorted(set(rounds)) != rounds or max(rounds, default=0) > meta["round"]:
            raise ValueError("the rounds of this site do not fit their states")
        return Aged(d, meta["round"], tuple(zip(rounds, states, strict=True)))

    @classmethod
    def of_parts(cls, meta: dict[str, Any]) -> AgingCondenser:
        """Return the condenser that a stored state began with."""
        forgetting = Forgetting.parse(meta["forgetting"])
        if forgetting is None:
            raise ValueError("the state of this site does not say how rows age")
        return cls(forgetting, meta["max_nodes"], meta["min_rows"], meta.get("scale", "auto"))


class _SampledNetwork(CompactNetwork):
    """A network at rest, and a sample of the rows it has learned."""

    __slots__ = ("sample",)

    def __init__(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], sample: RowSample | None) -> None:
        super().__init__(meta, arrays)
        self.sample = sample


@dataclass
class _Learning:
    """A network that learns, and a sample of its rows where one is kept."""

    network: Network
    sample: RowSample | None

    @property
    def n_features(self) -> int:
        return self.network.n_features


@dataclass(frozen=True)
class CAPlusCondenser(Condenser):
    """The paper's CA+: nodes grow as the data ask for, without a bound.

    With `sample_rows`, rows are kept beside the network, for novelty with a rate of false alarms; a state that began
    without them goes on without them.
    """

    sample_rows: int = 0
    key: ClassVar[str] = "network"

    def draft(self, state: CompactNetwork | None, n_features: int) -> _Learning:
        if state is None:
            sample = RowSample(n_features, self.sample_rows) if self.sample_rows else None
            return _Learning(Network(n_features, _CA_PLUS), sample)
        held = self.sample(state)
        return _Learning(state.to_network(), None if held is None else held.copy())

    def learn(self, draft: _Learning, block: Floats, weights: Floats | None, n_threads: int | None) -> None:
        if weights is not None:
            raise ValueError('sample_weight: the paper\'s CA+ does not take weights; use server="communities"')
        if np.isnan(block).any():
            raise ValueError(
                'rows with gaps: the paper\'s CA+ compares whole rows only; use server="communities", or write '
                'missing = "drop" or missing = "fill" in the schema'
            )
        draft.network.learn(block)
        if draft.sample is not None:
            draft.sample.add(block)

    def settle(self, draft: _Learning, round: int) -> CompactNetwork:
        return _SampledNetwork(*draft.network.to_parts(), draft.sample)

    def nodes(self, state: CompactNetwork) -> tuple[Floats, NDArray[Any]]:
        return state.settled_nodes()

    def sample(self, state: CompactNetwork) -> RowSample | None:
        return state.sample if isinstance(state, _SampledNetwork) else None

    def to_parts(self, state: CompactNetwork) -> Parts:
        meta, arrays = state.to_parts()
        sample = self.sample(state)
        if sample is not None:
            meta |= {"sample_bar": sample.bar, "sample_rows": sample.size}
            arrays |= {"sample": sample.rows, "sample_weights": sample.weights}
        return meta, arrays

    def from_parts(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CompactNetwork:
        meta, arrays = dict(meta), dict(arrays)
        bar, size = meta.pop("sample_bar", None), meta.pop("sample_rows", None)
        rows, weights = arrays.pop("sample", None), arrays.pop("sample_weights", None)
        sample = None
        if size is not None and rows is not None and weights is not None:
            whole = isinstance(size, int) and isinstance(bar, int) and size > 0 and 0 < bar < 2**64
            if not whole or rows.dtype != np.float64 or rows.shape != (len(weights), meta["n_features"]):
                raise ValueError("the sample of rows of this site does not fit its network")
            sample = RowSample.from_parts(rows, weights, bar, size)
        # checked as a network before it is kept as one
        return _SampledNetwork(*Network.from_parts(meta, arrays).to_parts(), sample)


#: The paper's CA+ as it was before sites kept a sample.
CA_PLUS = CAPlusCondenser()


def condenser_for(
    kind: str, max_nodes: int | None = None, min_rows: int = 1, forgetting: str = "none", scale: str = "auto"
) -> Condenser:
    """Return the condenser that a read-out asks for by name, with the settings a user may touch."""
    aging = Forgetting.parse(forgetting)
    if kind == "ca-plus":
        if max_nodes is not None:
            raise ValueError('max_nodes: the paper\'s CA+ has no bound; leave it out, or use server="communities"')
        if aging is not None:
            raise ValueError('forgetting: the paper\'s server cannot forget; leave it out, or use server="communities"')
        if scale not in ("auto", "none"):
            raise ValueError(
                'scale: server="cae-fc" compares columns as they are; leave scale out, or use server="communities"'
            )
        return CAPlusCondenser(_SAMPLE_ROWS)
    most = MAX_NODES if max_nodes is None else max_nodes
    if aging is None:
        return ReservoirCondenser(most, min_rows, scale)
    return AgingCondenser(aging, most, min_rows, scale)
