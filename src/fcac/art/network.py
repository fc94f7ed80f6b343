"""The common state of CA+, CAE and CAE_FC: nodes, counts, bandwidths, edges and a clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.art import learn as kernels
from fcac.art.check_state import check_state
from fcac.art.nearest import PROBE, SCREEN_HIGH, SCREEN_LOW, all_distances, nearest_nodes
from fcac.art.simd import LANES

N_START = kernels.N_START

# Rows per block in prediction; small enough to keep a tile's working set in the cache and all threads busy.
_TILE = 1024

# Points searched together in prediction: each tile of nodes is loaded once for all of them.
_AT_ONCE = 8


@dataclass(frozen=True)
class Rules:
    """What distinguishes the three algorithms.

    Only a `topological` network has edges and deletes nodes without them (CAE, CAE_FC, not CA+). Similarity in the
    diversity matrix R is 1 - CIM with `one_minus_cim` (CAE), else correntropy. The initial phase ends at `min_nodes` or
    more, once det exp(R) is below `diversity_threshold`. An edge is too old if its age exceeds the upper quartile by
    `age_iqr_factor` interquartile ranges.
    """

    topological: bool
    one_minus_cim: bool = False
    min_nodes: int = 10
    diversity_threshold: float = 1e-6
    age_iqr_factor: float = 0.1


class State(NamedTuple):
    """Arrays of a network, as the kernels take them (see `fcac.art.learn`); most have spare capacity."""

    nodes: Floats
    widths: Floats
    screen: NDArray[np.float32]
    links: NDArray[np.void]
    halves: NDArray[np.void]
    factor: Floats
    shift: Floats
    rank: Integers
    clock: NDArray[np.void]


class Network:
    """Nodes with winning counts, bandwidths, recency and edges, and the clock of points seen.

    The network learns in place (:meth:`learn`); all other methods only read it. The first ten points determine the
    bandwidth of the initial phase, so rows are held back until there are ten; :meth:`settled` returns the network as it
    would be if the data ended here.
    """

    def __init__(self, n_features: int, rules: Rules) -> None:
        self.rules = rules
        self.n_features = n_features
        self.pending: Floats = np.empty((0, n_features))
        self._state = _empty_state(n_features, rules)

    # ------------------------------------------------------------ learning

    def learn(self, block: Floats) -> None:
        """Learn the rows of a float64 block, in order."""
        if not self._started:
            taken = min(N_START - len(self.pending), len(block))
            self.pending = np.concatenate([self.pending, block[:taken]])
            block = block[taken:]
            if len(self.pending) < N_START:
                return
            # learned in a separate network: after an interrupt, either all ten are held back or all ten are learned
            self._state, self.pending = self.settled()._state, np.empty((0, self.n_features))
        self._learn(block)

    def settled(self) -> Network:
        """Return this network as it would be if the data ended here; the network itself is not changed."""
        if not len(self.pending):
            return self
        result = Network(self.n_features, self.rules)
        result._learn(self.pending)
        return result

    def copy(self) -> Network:
        """Return an independent copy."""
        result = Network(self.n_features, self.rules)
        result.pending = self.pending.copy()
        result._state = State._make(array.copy() for array in self._state)
        return result

    def __setstate__(self, state: dict[str, Any]) -> None:
        # joblib may return arrays as read-only memory maps
        self.__dict__.update(state)
        self._state = State._make(np.require(array, requirements="W") for array in self._state)

    @property
    def _clock(self) -> Any:
        return self._state.clock[0]

    @property
    def _started(self) -> bool:
        return bool(self._clock["n_seen"] > 0)

    def _learn(self, block: Floats) -> None:
        if not len(self._state.widths) and len(block):
            self._grow("nodes", "widths", "screen", "links", "factor")
        block, at, scratch = _kernel_ready(block), 0, self._scratch()
        while at < len(block):
            at, reason = kernels.learn(*self._state, *scratch, block, at)
            if reason == kernels.NEED_NODES:
                self._grow("nodes", "widths", "screen", "links")
                scratch = self._scratch()
                if self.n_nodes & (self.n_nodes - 1) == 0:
                    self._rescale(block[at:])  # more nodes show better which features are most discriminating
            elif reason == kernels.NEED_EDGES:
                self._grow("halves")
            elif reason == kernels.NEED_FACTOR:
                self._grow("factor")
            elif reason == kernels.NEED_SCALE:
                self._rescale(block[at:])
        if self._clock["n_active"] and len(self._state.factor):
            self._state = self._state._replace(factor=np.empty(0))  # the diversity test is over for good

    def _scratch(self) -> tuple[NDArray[Any], ...]:
        capacity, d = len(self._state.widths), self.n_features
        rows, numbers = np.empty(max(capacity, N_START), np.int64), np.empty(max(capacity, d))
        probes, points32 = np.empty(1, PROBE), np.empty((1, d), np.float32)
        return rows, numbers, probes, points32, np.empty((1, capacity), np.float32)

    def _grow(self, *names: str) -> None:
        """Enlarge arrays by a quarter, one after the other, so that at most one of them exists twice at a time."""
        for name in names:
            array = getattr(self._state, name)
            if name == "factor":
                n = max(LANES, self.n_nodes + 1 + self.n_nodes // 4)
                size = n * (n + 1) // 2
            else:
                tiles = len(array) // LANES if name != "screen" else len(array)
                size = (tiles + 1 + tiles // 4) * (LANES if name != "screen" else 1)
            larger = np.zeros((size, *array.shape[1:]), array.dtype)
            larger[: len(array)] = array
            self._state = self._state._replace(**{name: larger})

    def _rescale(self, block: Floats) -> None:
        """Choose new units for the float32 screening copy; results never depend on them."""
        state, clock, n = self._state, self._clock, self._n_rows
        rows = state.nodes[:n] if n else block[:N_START]
        # centred on the nodes to be searched, so that float32 keeps its precision
        state.shift[:] = rows.mean(axis=0)
        if self.n_features > LANES:
            # the features that vary most come first: they rule out nodes soonest
            state.rank[np.argsort(-rows.std(axis=0), kind="stable")] = np.arange(self.n_features)
        # a power of two, so that scaling does not round
        exponent = -int(np.frexp(clock["mean_width"])[1])
        clock["scale"] = np.ldexp(1.0, min(max(exponent, -1000), 1000))
        with np.errstate(over="ignore"):  # if float32 overflows, the margin of the bound is infinite as well
            for tile in range(0, n, LANES):
                part = (state.nodes[tile : min(tile + LANES, n)] - state.shift) * clock["scale"]
                state.screen[tile // LANES, state.rank, : len(part)] = part.T

    # ------------------------------------------------------------ what was learned

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self._clock["n_nodes"])

    @property
    def n_seen(self) -> int:
        """Points presented so far, including those held back."""
        return int(self._clock["n_seen"]) + len(self.pending)

    @property
    def nodes(self) -> Floats:
        """Positions of the nodes, in order of creation."""
        result: Floats = self._state.nodes[: self.n_nodes].copy()
        return result

    @property
    def counts(self) -> Integers:
        """Winning counts."""
        result: Integers = self._state.links["count"][: self.n_nodes].copy()
        return result

    @property
    def bandwidths(self) -> Floats:
        """Bandwidth of every node."""
        result: Floats = self._state.widths[: self.n_nodes].copy()
        return result

    @property
    def threshold(self) -> float:
        """Similarity threshold V; 1.0 until it is set."""
        return float(self._clock["threshold"])

    @property
    def n_active(self) -> float:
        """Number of active nodes; infinite until the diversity test has fired."""
        n = int(self._clock["n_active"])
        return n if n else np.inf

    @property
    def recency(self) -> Integers:
        """Positions of the nodes, most recently used first."""
        order, k = np.empty(self.n_nodes, np.int64), int(self._clock["newest"])
        for i in range(len(order)):
            order[i] = k
            k = int(self._state.links["older"][k])
        return order

    @property
    def n_deleted_edges(self) -> int:
        """Number of edges deleted so far."""
        return int(self._clock["n_deleted"])

    @property
    def mean_deleted_age(self) -> float:
        """Mean age of the edges deleted so far; 0.0 if there are none."""
        return float(self._clock["mean_deleted_age"])

    @property
    def last_bandwidth(self) -> float:
        """The bandwidth computed most recently."""
        return float(self._clock["last_width"])

    def edges_with_ages(self) -> tuple[Integers, Integers]:
        """Return the edges (m, 2) with i < j, sorted, and their ages (m,)."""
        halves = self._state.halves[: 2 * int(self._clock["edges_used"])]
        alive = np.flatnonzero(halves["age"][::2] > 0)
        ends = np.stack([halves["to"][2 * alive], halves["to"][2 * alive + 1]], axis=1)
        ends.sort(axis=1)
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        return ends[order], halves["age"][2 * alive[order]]

    def components(self) -> Integers:
        """Return the connected component of every node, numbered in the order of their first nodes."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n = self.n_nodes
        edges, _ = self.edges_with_ages()
        if not len(edges):
            return np.arange(n)
        graph = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(n, n))
        _, labels = connected_components(graph, directed=False)
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return rank[inverse]

    # ------------------------------------------------------------ prediction

    @property
    def _n_rows(self) -> int:
        """Number of nodes to predict with: the nodes or, if the last point deleted all of them, the deleted nodes."""
        return self.n_nodes or int(self._clock["n_lost"])

    def _check_readable(self) -> None:
        if not self._n_rows:
            raise ValueError("this network has no nodes yet: call fit or partial_fit with at least one row")

    def readable_labels(self) -> Integers:
        """Return the cluster of each node that :meth:`nearest` can return."""
        self._check_readable()
        return self.components() if self.n_nodes else np.arange(self._n_rows)

    def _screened(self) -> State:
        """Return the state with a screening copy in units that suit the bandwidth, without changing the network."""
        width = float(self._state.widths[: self._n_rows].mean())
        if SCREEN_LOW < width * self._clock["scale"] < SCREEN_HIGH:
            return self._state
        other = self.copy()
        other._clock["mean_width"] = width
        other._rescale(self.pending)
        return other._state

    def nearest(self, block: Floats, n_threads: int = 1) -> tuple[Integers, Floats]:
        """Return the position of, and the CIM to, the nearest node of every row.

        If the last point deleted every node, the nodes that existed before that deletion are used.
        """
        self._check_readable()
        block, state, n = _kernel_ready(block), self._screened(), self._n_rows
        position, distance = np.empty(len(block), np.int64), np.empty(len(block))
        scale, threshold = float(state.clock["scale"][0]), self.threshold

        def read(start: int, stop: int) -> None:
            nearest_nodes(
                state.nodes,
                state.widths,
                n,
                state.screen,
                state.shift,
                state.rank,
                scale,
                threshold,
                block,
                start,
                stop,
                np.empty(_AT_ONCE, PROBE),
                np.empty((_AT_ONCE, self.n_features), np.float32),
                np.empty((_AT_ONCE, len(state.widths)), np.float32),
                position,
                distance,
            )

        _over_tiles(read, len(block), n_threads)
        return position, distance

    def distances(self, block: Floats, n_threads: int = 1) -> Floats:
        """Return the CIM between every row and every node."""
        self._check_readable()
        block, state, n = _kernel_ready(block), self._state, self._n_rows
        out = np.empty((len(block), n))

        def read(start: int, stop: int) -> None:
            all_distances(state.nodes, state.widths, n, block, start, stop, out)

        _over_tiles(read, len(block), n_threads)
        return out

    # ------------------------------------------------------------ storage

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-serialisable description and arrays from which this network can be rebuilt."""
        clock = self._clock
        n_lost, n = int(clock["n_lost"]), self._n_rows
        edges, ages = self.edges_with_ages()
        meta = {
            "n_features": self.n_features,
            "rules": dict(vars(self.rules)),
            "n_learned": int(clock["n_seen"]),
            "n_active": int(clock["n_active"]),
            "n_deleted_edges": self.n_deleted_edges,
            "n_lost": n_lost,
        }
        arrays = {
            "nodes": self._state.nodes[:n],
            "counts": self._state.links["count"][:n],
            "bandwidths": self._state.widths[:n],
            "recency": self.recency,
            "edges": edges,
            "edge_ages": ages,
            "clock": np.array([clock["threshold"], clock["last_width"], clock["mean_deleted_age"]]),
            "pending": self.pending,
        }
        return meta, arrays

    @classmethod
    def from_parts(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Network:
        """Rebuild a network from :meth:`to_parts`; it continues learning exactly as the original would have."""
        check_state(meta, arrays)
        network = cls(meta["n_features"], Rules(**meta["rules"]))
        network.pending = arrays["pending"].copy()
        n, n_edges, recency = len(arrays["nodes"]), len(arrays["edges"]), arrays["recency"]
        state = _empty_state(network.n_features, network.rules, n, n_edges)
        state.nodes[:n], state.widths[:n] = arrays["nodes"], arrays["bandwidths"]
        state.links["count"][:n] = arrays["counts"]
        clock = state.clock[0]
        clock["n_lost"] = meta["n_lost"]
        clock["n_nodes"] = n - meta["n_lost"]
        clock["n_seen"] = meta["n_learned"]
        clock["n_active"] = meta["n_active"]
        clock["n_deleted"] = meta["n_deleted_edges"]
        clock["edges_used"] = n_edges
        clock["threshold"], clock["last_width"], clock["mean_deleted_age"] = arrays["clock"]
        if len(recency):
            state.links["newer"][recency] = np.append(-1, recency[:-1])
            state.links["older"][recency] = np.append(recency[1:], -1)
            clock["newest"] = recency[0]
        _restore_edges(state, arrays["edges"], arrays["edge_ages"])
        network._state = state
        if n:
            clock["mean_width"] = arrays["bandwidths"].mean()
            network._rescale(network.pending)
        return network


def _empty_state(d: int, rules: Rules, n_nodes: int = 0, n_edges: int = 0) -> State:
    clocks = np.zeros(1, kernels.CLOCK)
    clock = clocks[0]
    clock["newest"] = clock["free_edge"] = -1
    clock["topological"], clock["one_minus_cim"] = rules.topological, rules.one_minus_cim
    clock["min_nodes"] = rules.min_nodes
    clock["age_factor"], clock["log_diversity"] = rules.age_iqr_factor, np.log(rules.diversity_threshold)
    clock["threshold"], clock["feature_factor"] = 1.0, (4.0 / (2 + d)) ** (1.0 / (4 + d))
    tiles = -(-n_nodes // LANES)  # none for a network that has learned nothing, however many features it states
    links = np.zeros(tiles * LANES, kernels.LINK)
    links["first"] = -1
    return State(
        nodes=np.zeros((tiles * LANES, d)),
        widths=np.zeros(tiles * LANES),
        screen=np.zeros((tiles, d, LANES), np.float32),
        links=links,
        halves=np.zeros(-(-2 * n_edges // LANES) * LANES, kernels.HALF),
        factor=np.empty(0),
        shift=np.zeros(d),
        rank=np.arange(d),
        clock=clocks,
    )


def _restore_edges(state: State, edges: Integers, ages: Integers) -> None:
    """Store edges as half-edges in one linked list per node; the order within a list does not matter."""
    n_halves = 2 * len(edges)
    owner = edges.ravel()  # half-edge 2e belongs to the first end of edge e and leads to the second
    state.halves["to"][:n_halves:2], state.halves["to"][1:n_halves:2] = edges[:, 1], edges[:, 0]
    state.halves["age"][:n_halves:2] = ages
    order = np.argsort(owner, kind="stable")
    last = np.append(owner[order][1:] != owner[order][:-1], True)[:n_halves]
    state.halves["next"][order] = np.where(last, -1, np.append(order[1:], -1)[:n_halves])
    first = np.append(True, last[:-1])[:n_halves]
    state.links["first"][owner[order[first]]] = order[first]


def _kernel_ready(block: Floats) -> Floats:
    """Return rows in the form for which the kernels are compiled: float64, contiguous, writable."""
    return np.require(block, np.float64, ("C", "W"))


def _over_tiles(read: Callable[[int, int], None], n: int, n_threads: int) -> None:
    """Call read(start, stop) for ranges that cover range(n), on several threads if there is enough work."""
    starts = range(0, n, _TILE)
    if n_threads == 1 or len(starts) <= 1:
        read(0, n)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(lambda start: read(start, min(start + _TILE, n)), starts):
            pass
