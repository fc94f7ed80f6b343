"""The one state of CA+, CAE and CAE_FC: nodes, counts, bandwidths, edges and a clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac import _kernels as kernels

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Points whose bandwidth is used during the whole initial phase.
N_START = 10

# Rows per block in reading; small enough to keep a tile's working set in cache and threads evenly fed.
_TILE = 1024


@dataclass(frozen=True)
class Rules:
    """What distinguishes the three algorithms.

    Parameters
    ----------
    topological : bool
        Edges between nodes, and deletion of nodes without edges (CAE, CAE_FC); otherwise CA+.
    one_minus_cim : bool
        Similarity in the diversity matrix: 1 - CIM (CAE) or correntropy (CAE_FC, CA+).
    min_nodes : int
        Fewest nodes at which the diversity test may end the initial phase.
    diversity_threshold : float
        Determinant of exp(R) below which the nodes count as diverse enough.
    age_iqr_factor : float
        Spread beyond the upper quartile at which an edge is too old.
    """

    topological: bool
    one_minus_cim: bool = False
    min_nodes: int = 10
    diversity_threshold: float = 1e-6
    age_iqr_factor: float = 0.1


class Network:
    """Nodes with winning counts, bandwidths, recency and edges, and the clock of points seen.

    The network learns in place (:meth:`learn`); everything else reads. The first ten points fix the bandwidth of the
    initial phase, so rows are held back until ten have come; :meth:`settled` tells what the network would be if the
    data ended here.

    Parameters
    ----------
    n_features : int
    rules : Rules
    """

    def __init__(self, n_features: int, rules: Rules) -> None:
        self.rules = rules
        self.n_features = n_features
        self.pending: Floats = np.empty((0, n_features))
        self._state = _empty_state(n_features, 16)

    # ------------------------------------------------------------ learning

    def learn(self, block: Floats) -> None:
        """Learn the rows of a float64 block in their order."""
        if not self._started:
            taken = min(N_START - len(self.pending), len(block))
            self.pending = np.concatenate([self.pending, block[:taken]])
            block = block[taken:]
            if len(self.pending) < N_START:
                return
            first, self.pending = self.pending, np.empty((0, self.n_features))
            self._start(first)
            self._learn(first)
        if len(block):
            self._learn(np.ascontiguousarray(block))

    def settled(self) -> Network:
        """Return this network as it would be if the data ended here; the network itself stays as it is."""
        if not len(self.pending):
            return self
        result = Network(self.n_features, self.rules)
        result._start(self.pending)
        result._learn(self.pending)
        return result

    def copy(self) -> Network:
        """Return an independent copy."""
        result = Network(self.n_features, self.rules)
        result.pending = self.pending.copy()
        result._state = kernels.State(*(array.copy() for array in self._state))
        return result

    def __setstate__(self, state: dict[str, Any]) -> None:
        # joblib may hand arrays back as read-only memory maps
        self.__dict__.update(state)
        self._state = kernels.State(*(np.require(array, requirements="W") for array in self._state))

    @property
    def _started(self) -> bool:
        return bool(self._state.ints[kernels.N_SEEN] > 0)

    def _start(self, first: Floats) -> None:
        """Fix the bandwidth of the initial phase from the first points."""
        scratch = np.empty((2, self.n_features))
        width = kernels.bandwidth(first, np.arange(len(first)), len(first), scratch[0], scratch[1])
        floats = self._state.floats
        floats[kernels.LAST_WIDTH] = floats[kernels.MEAN_WIDTH] = width
        self._rescale(0, first.mean(axis=0))

    def _rescale(self, n_written: int, origin: Floats | None = None) -> None:
        """Choose the units of the float32 screening copy anew; results never depend on them."""
        state = self._state
        if origin is not None:
            state.shift[:] = origin
        # a power of two, so that scaling itself rounds nothing
        exponent = -int(np.frexp(state.floats[kernels.MEAN_WIDTH])[1])
        state.floats[kernels.SCALE] = np.ldexp(1.0, min(max(exponent, -1000), 1000))
        for k in range(n_written):
            kernels.write_screen(state, k)

    def _learn(self, block: Floats) -> None:
        rules, at = self.rules, 0
        log_diversity = float(np.log(rules.diversity_threshold))
        while True:
            at, reason = kernels.learn(
                self._state,
                self._work(),
                block,
                at,
                rules.topological,
                rules.one_minus_cim,
                rules.min_nodes,
                log_diversity,
                rules.age_iqr_factor,
            )
            if reason == kernels.DONE:
                break
            if reason == kernels.NEED_NODES:
                self._grow(("nodes", "screen", "counts", "widths", "newer", "older", "first_half"))
            elif reason == kernels.NEED_EDGES:
                self._grow(("half_to", "half_next", "ages"))
            elif reason == kernels.NEED_FACTOR:
                self._grow(("factor",))
            else:
                self._rescale(self.n_nodes)
        if self._state.ints[kernels.N_ACTIVE] and len(self._state.factor):
            self._state = self._state._replace(factor=np.empty(0))  # the diversity test is over for good

    def _work(self) -> Any:
        d, capacity = self.n_features, len(self._state.counts)
        return kernels.Work(
            terms=np.empty(d),
            mean=np.empty(d),
            spread=np.empty(d),
            x32=np.empty(d, np.float32),
            bound=np.empty(capacity, np.float32),
            rows=np.empty(capacity, np.int64),
            nearest=np.empty(capacity),
            edge_ages=np.empty(capacity, np.int64),
        )

    def _grow(self, names: tuple[str, ...]) -> None:
        """Double the capacity of the named arrays; the screening copy keeps nodes along its second axis."""
        larger = {}
        for name in names:
            array = getattr(self._state, name)
            axis = 1 if name == "screen" else 0
            shape = list(array.shape)
            shape[axis] = 2 * shape[axis]
            fresh = np.zeros(shape, array.dtype)
            fresh[tuple(slice(0, size) for size in array.shape)] = array
            larger[name] = fresh
        self._state = self._state._replace(**larger)

    # ------------------------------------------------------------ what was learned

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self._state.ints[kernels.N_NODES])

    @property
    def n_seen(self) -> int:
        """Points presented so far, those held back included."""
        return int(self._state.ints[kernels.N_SEEN]) + len(self.pending)

    @property
    def nodes(self) -> Floats:
        """Positions of the nodes, in order of creation."""
        result: Floats = self._state.nodes[: self.n_nodes].copy()
        return result

    @property
    def counts(self) -> Integers:
        """Winning counts."""
        result: Integers = self._state.counts[: self.n_nodes].copy()
        return result

    @property
    def bandwidths(self) -> Floats:
        """Bandwidth of every node."""
        result: Floats = self._state.widths[: self.n_nodes].copy()
        return result

    @property
    def threshold(self) -> float:
        """Similarity threshold V; 1.0 until it is set."""
        return float(self._state.floats[kernels.THRESHOLD])

    @property
    def n_active(self) -> float:
        """Number of active nodes; infinite until the diversity test has fired."""
        n = int(self._state.ints[kernels.N_ACTIVE])
        return n if n else np.inf

    @property
    def recency(self) -> Integers:
        """Positions of the nodes, most recently used first."""
        order, k = np.empty(self.n_nodes, np.int64), int(self._state.ints[kernels.NEWEST])
        for i in range(len(order)):
            order[i] = k
            k = int(self._state.older[k])
        return order

    @property
    def n_deleted_edges(self) -> int:
        """Number of edges deleted so far."""
        return int(self._state.ints[kernels.N_DELETED])

    @property
    def deleted_age_sum(self) -> int:
        """Sum of the ages of all edges deleted so far."""
        return int(self._state.ints[kernels.DELETED_AGES])

    @property
    def last_bandwidth(self) -> float:
        """The bandwidth computed last."""
        return float(self._state.floats[kernels.LAST_WIDTH])

    def edges_with_ages(self) -> tuple[Integers, Integers]:
        """Return edges (m, 2), i < j, sorted, and their ages (m,)."""
        used = int(self._state.ints[kernels.EDGES_USED])
        alive = np.flatnonzero(self._state.ages[:used] > 0)
        ends = np.stack([self._state.half_to[2 * alive], self._state.half_to[2 * alive + 1]], axis=1)
        ends.sort(axis=1)
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        return ends[order], self._state.ages[alive[order]]

    def components(self) -> Integers:
        """Connected component of every node, numbered by first node."""
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

    # ------------------------------------------------------------ reading

    def _readable(self) -> tuple[Floats, Any, float]:
        """Nodes, their screening copy and the bandwidth to read with.

        If the last point deleted every node, the nodes as they were before that deletion answer.
        """
        state = self._state
        n = self.n_nodes or int(state.ints[kernels.N_LOST])
        if not n:
            raise ValueError("this network has no nodes yet: call fit or partial_fit with at least one row")
        return state.nodes[:n], state.screen, float(kernels.mean_of(state.widths, n))

    def readable_labels(self) -> Integers:
        """Cluster of each node that :meth:`nearest` can answer with."""
        return self.components() if self.n_nodes else np.arange(len(self._readable()[0]))

    def nearest(self, block: Floats, n_threads: int = 1) -> tuple[Integers, Floats]:
        """Position of, and CIM to, the nearest node of every row."""
        nodes, screen, width = self._readable()
        position, distance = np.empty(len(block), np.int64), np.empty(len(block))
        scale = float(self._state.floats[kernels.SCALE])
        screened = 2.0**-20 < width * scale < 2.0**20

        def read(start: int) -> None:
            rows = slice(start, start + _TILE)
            kernels.nearest_nodes(
                nodes,
                screen,
                self._state.shift,
                scale,
                width,
                screened,
                block[rows],
                position[rows],
                distance[rows],
            )

        _over_tiles(read, len(block), n_threads)
        return position, distance

    def distances(self, block: Floats, n_threads: int = 1) -> Floats:
        """CIM of every row to every node."""
        nodes, _, width = self._readable()
        out = np.empty((len(block), len(nodes)))

        def read(start: int) -> None:
            rows = slice(start, start + _TILE)
            kernels.all_distances(nodes, width, block[rows], out[rows])

        _over_tiles(read, len(block), n_threads)
        return out

    # ------------------------------------------------------------ storage

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-able description and the arrays that together are this network."""
        ints, floats = self._state.ints, self._state.floats
        n_lost = int(ints[kernels.N_LOST])
        n = n_lost or self.n_nodes
        edges, ages = self.edges_with_ages()
        meta = {
            "n_features": self.n_features,
            "rules": dict(vars(self.rules)),
            "n_learned": int(ints[kernels.N_SEEN]),
            "n_active": int(ints[kernels.N_ACTIVE]),
            "n_deleted_edges": self.n_deleted_edges,
            "deleted_age_sum": self.deleted_age_sum,
            "n_lost": n_lost,
        }
        arrays = {
            "nodes": self._state.nodes[:n],
            "counts": self._state.counts[:n],
            "bandwidths": self._state.widths[:n],
            "recency": self.recency,
            "edges": edges,
            "edge_ages": ages,
            "clock": np.array([floats[kernels.THRESHOLD], floats[kernels.LAST_WIDTH]]),
            "pending": self.pending,
        }
        return meta, arrays

    @classmethod
    def from_parts(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Network:
        """Rebuild a network from :meth:`to_parts`; it goes on learning exactly as the original would have."""
        _check_parts(meta, arrays)
        nodes, recency, edges = arrays["nodes"], arrays["recency"], arrays["edges"]
        network = cls(meta["n_features"], Rules(**meta["rules"]))
        network.pending = arrays["pending"].copy()
        n = len(nodes)
        state = _empty_state(network.n_features, n + 16, len(edges) + 16)
        state.nodes[:n], state.counts[:n], state.widths[:n] = nodes, arrays["counts"], arrays["bandwidths"]
        ints, floats = state.ints, state.floats
        ints[kernels.N_LOST] = meta["n_lost"]
        ints[kernels.N_NODES] = n - meta["n_lost"]
        ints[kernels.N_SEEN] = meta["n_learned"]
        ints[kernels.N_ACTIVE] = meta["n_active"]
        ints[kernels.N_DELETED] = meta["n_deleted_edges"]
        ints[kernels.DELETED_AGES] = meta["deleted_age_sum"]
        floats[kernels.THRESHOLD], floats[kernels.LAST_WIDTH] = arrays["clock"]
        if len(recency):
            state.newer[recency], state.older[recency] = np.append(-1, recency[:-1]), np.append(recency[1:], -1)
            ints[kernels.NEWEST], ints[kernels.OLDEST] = recency[0], recency[-1]
        for (a, b), age in zip(edges, arrays["edge_ages"], strict=True):
            kernels.add_edge(state, a, b, age)
        kernels.set_mean_width(state)
        network._state = state
        if n:
            network._rescale(n, nodes.mean(axis=0))
        if n and not meta["n_active"]:
            network._state = state._replace(factor=np.empty((n + 16) * (n + 17) // 2))
            work = network._work()
            for k in range(n):
                kernels.extend_factor(network._state, k, network.rules.one_minus_cim, work)
        return network


def _empty_state(d: int, capacity: int, edge_capacity: int = 16) -> Any:
    ints = np.zeros(kernels.N_INTS, np.int64)
    for name in (kernels.NEWEST, kernels.OLDEST, kernels.FREE_EDGE):
        ints[name] = -1
    floats = np.zeros(kernels.N_FLOATS)
    floats[kernels.THRESHOLD] = floats[kernels.SCALE] = 1.0
    return kernels.State(
        nodes=np.zeros((capacity, d)),
        screen=np.zeros((d, capacity), np.float32),
        counts=np.zeros(capacity, np.int64),
        widths=np.zeros(capacity),
        newer=np.zeros(capacity, np.int64),
        older=np.zeros(capacity, np.int64),
        first_half=np.full(capacity, -1, np.int64),
        half_to=np.zeros(2 * edge_capacity, np.int64),
        half_next=np.zeros(2 * edge_capacity, np.int64),
        ages=np.zeros(edge_capacity, np.int64),
        factor=np.empty(256),
        shift=np.zeros(d),
        ints=ints,
        floats=floats,
    )


def _over_tiles(read: Callable[[int], None], n: int, n_threads: int) -> None:
    starts = range(0, n, _TILE)
    if n_threads == 1 or len(starts) == 1:
        for start in starts:
            read(start)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(read, starts):
            pass


_PART_FORMS = {
    "nodes": (2, np.float64),
    "counts": (1, np.int64),
    "bandwidths": (1, np.float64),
    "recency": (1, np.int64),
    "edges": (2, np.int64),
    "edge_ages": (1, np.int64),
    "clock": (1, np.float64),
    "pending": (2, np.float64),
}
_PART_COUNTS = ("n_features", "n_learned", "n_active", "n_deleted_edges", "deleted_age_sum", "n_lost")


def _check_parts(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse parts that no network could have produced, before the kernels, which do not check, see them."""

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(f"not a valid network: {what}")

    for name, (ndim, dtype) in _PART_FORMS.items():
        fits = name in arrays and arrays[name].ndim == ndim and arrays[name].dtype == dtype
        require(fits, f"array {name!r} is missing or has the wrong form")
    for name in _PART_COUNTS:
        value = meta.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
        require(whole, f"{name} is not a count")
    try:
        rules = Rules(**meta["rules"])
        sane = 0 < float(rules.diversity_threshold) < np.inf and int(rules.min_nodes) >= 1
        sane = sane and 0 <= float(rules.age_iqr_factor) < np.inf
    except (KeyError, TypeError, ValueError):
        sane = False
    require(sane, "its rules cannot be read")
    d, n, n_lost, edges = meta["n_features"], len(arrays["nodes"]), meta["n_lost"], arrays["edges"]
    n_present = n - n_lost
    widths = {d, arrays["nodes"].shape[1], arrays["pending"].shape[1]}
    require(d >= 1 and widths == {d}, "the number of features differs between its arrays")
    require(len(arrays["pending"]) < N_START, "it holds back more rows than it may")
    lengths = {n, len(arrays["counts"]), len(arrays["bandwidths"])}
    require(n_lost in (0, n) and lengths == {n}, "counts or bandwidths do not fit the nodes")
    require(np.array_equal(np.sort(arrays["recency"]), np.arange(n_present)), "recency is no order of the nodes")
    require(len(arrays["clock"]) == 2, "its clock has the wrong form")
    require(edges.shape[1] == 2 and len(arrays["edge_ages"]) == len(edges), "edges and ages do not fit")
    if len(edges):
        inside = edges.min() >= 0 and edges.max() < n_present and (edges[:, 0] < edges[:, 1]).all()
        require(bool(inside), "an edge points to no node")
        distinct = len(np.unique(edges, axis=0)) == len(edges)
        require(distinct and arrays["edge_ages"].min() >= 1, "an edge is double or has no age")
    finite = all(np.isfinite(arrays[name]).all() for name in ("nodes", "bandwidths", "clock", "pending"))
    require(finite, "a value is not finite")
    if n:
        require(arrays["counts"].min() >= 1 and arrays["bandwidths"].min() > 0, "a count or bandwidth is not positive")
        require(arrays["clock"][1] > 0, "its bandwidth is not positive")
        require(meta["n_learned"] >= 1, "it has nodes but has seen no points")
