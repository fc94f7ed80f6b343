"""Reservoir: any number of rows condensed to a bounded number of weighted nodes, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fcac._parallel import n_cores
from fcac._typing import Floats
from fcac.nodes import cell_kernels as kernels
from fcac.nodes._check import LARGEST, check_content, check_form
from fcac.nodes.cells import SAMPLE_ROWS, Cells
from fcac.nodes.condense import merge_small
from fcac.nodes.sample import RowSample
from fcac.nodes.trail import Trail
from fcac.scaling import check_scale

#: Nodes that a reservoir holds at most, unless told otherwise.
MAX_NODES = 4000

# Rows worked on together. Blocks are counted from the first row of the stream, so calls may split it anywhere.
BLOCK = 2048


class Reservoir:
    """At most ``max_nodes`` weighted nodes that stand for all rows seen.

    The idea is bottom-k sampling. A hash of a row's values is its key, a number that looks random. Rows whose key lies
    below a bar are seeds: a uniform sample of the distinct rows, in which a later row can still take the place of an
    earlier one. Every row, seed or not, is counted in the cell of its nearest seed. When there are too many seeds the
    bar falls, and the cell of a seed that has lost its place joins the cell of the nearest seed that stays. The nodes
    are the means of the cells.

    Since keys depend on values only, the same rows have the same seeds in any order, in any chunks and in any
    partition; a row repeated m times is the same as a row of weight m; and up to ``max_nodes`` distinct rows every row
    is a node. Memory and time per row do not depend on how many rows came before.

    Parameters
    ----------
    n_features : int
    max_nodes : int, default=4000
    salt : int, default=0
        Another number draws another sample.
    scale : {"auto", "none", "standard", "robust"}, default="auto"
        How features are made comparable in distances; see :func:`fcac.scaling.scaling_of`.

    References
    ----------
    E. Cohen and H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.nodes import Reservoir
    >>> rows = np.random.default_rng(0).normal(size=(50_000, 3))
    >>> state = Reservoir(3, max_nodes=500).learn(rows)
    >>> state.n_nodes <= 500, float(state.counts.sum())
    (True, 50000.0)
    >>> bool(np.allclose(state.counts @ state.nodes / 50_000, rows.mean(axis=0)))
    True
    """

    def __init__(self, n_features: int, max_nodes: int = MAX_NODES, salt: int = 0, scale: str = "auto") -> None:
        if not _is_whole(n_features) or n_features < 1:
            raise ValueError(f"n_features must be a whole number of at least 1; it is {n_features!r}")
        if not _is_whole(max_nodes) or max_nodes < 2:
            raise ValueError(f"max_nodes must be a whole number of at least 2; it is {max_nodes!r}")
        if not _is_whole(salt) or not 0 <= salt < 2**64:
            raise ValueError(f"salt must be a whole number from 0 to 2**64 - 1; it is {salt!r}")
        self.n_features = int(n_features)
        self.max_nodes = int(max_nodes)
        self.salt = int(salt)
        self.scale = check_scale(scale)
        self._cells = Cells.empty(self.n_features, self.scale)
        self._n_learned = 0
        self._waiting: Floats = np.empty((0, self.n_features))
        self._waiting_weights: Floats = np.empty(0)
        self._read: Cells | None = None

    # ------------------------------------------------------------ learning

    def learn(self, rows: Any, weights: Any = None, n_threads: int | None = None, trail: Trail | None = None) -> Self:
        """Learn rows in their order; if this raises, nothing has been learned.

        Parameters
        ----------
        rows : array-like of shape (n, d)
            Not beyond 1e150 either way. NaN is a gap: a row is compared over the features it has, and a node learns a
            feature from the rows that have it.
        weights : array-like of shape (n,), optional
            How many rows each row stands for; rows of weight zero are left out. One each by default.
        n_threads : int, optional
            All cores this process may use by default. The result does not depend on it.
        trail : Trail, optional
            Takes note of where rows go, for :meth:`nodes_of`.
        """
        rows, weights = self._checked(rows, weights)
        whole = (len(self._waiting) + len(rows)) // BLOCK * BLOCK
        taken = whole - len(self._waiting) if whole else len(rows)
        rest, rest_weights = rows[max(taken, 0) :], weights[max(taken, 0) :]
        if not whole:
            self._waiting = np.concatenate([self._waiting, rows])
            self._waiting_weights = np.concatenate([self._waiting_weights, weights])
            self._read = None
            return self
        cells, notes = self._cells.copy(), None if trail is None else Trail()
        with ExitStack() as stack:
            over = _threads(stack, n_threads)
            at = 0
            if len(self._waiting):
                at = BLOCK - len(self._waiting)
                first = np.concatenate([self._waiting, rows[:at]])
                self._learn_block(cells, first, np.concatenate([self._waiting_weights, weights[:at]]), over, notes)
            for start in range(at, taken, BLOCK):
                here = slice(start, start + BLOCK)
                self._learn_block(cells, rows[here], weights[here], over, notes)
        waiting, waiting_weights = rest.copy(), rest_weights.copy()
        self._cells, self._read = cells, None
        self._waiting, self._waiting_weights = waiting, waiting_weights
        self._n_learned += whole
        if trail is not None and notes is not None:
            trail.extend(notes)
        return self

    def _checked(self, rows: Any, weights: Any) -> tuple[Floats, Floats]:
        rows = np.asarray(rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"rows must be a table with {self.n_features} features; its shape is {rows.shape}")
        for start in range(0, len(rows), 65_536):
            if not (np.abs(rows[start : start + 65_536]) <= LARGEST).all():
                part = rows[start : start + 65_536]
                if not ((np.abs(part) <= LARGEST) | np.isnan(part)).all():
                    raise ValueError(f"rows hold infinity or numbers beyond {LARGEST:g}: remove or rescale them first")
        if weights is None:
            return rows, np.ones(len(rows))
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (len(rows),):
            raise ValueError(f"weights must hold one number per row; their shape is {weights.shape}")
        if not np.isfinite(weights).all() or (weights < 0).any() or (weights > LARGEST).any():
            raise ValueError("weights must be finite and not below zero")
        counted = weights > 0
        return (rows, weights) if counted.all() else (rows[counted], weights[counted])

    def _learn_block(
        self, cells: Cells, rows: Floats, weights: Floats, over: Any = None, trail: Trail | None = None
    ) -> None:
        # adding zero makes -0.0 the same value as 0.0
        rows = np.ascontiguousarray(rows + 0.0)
        gaps = np.isnan(rows)
        if gaps.any():
            rows[gaps] = np.nan  # one bit pattern for all gaps: keys are made of bits
        cells.take(rows, weights, self._keys(rows), self.max_nodes, over, trail)

    def _keys(self, rows: Floats) -> NDArray[np.uint64]:
        keys = np.empty(len(rows), np.uint64)
        kernels.keys_of(np.ascontiguousarray(rows).view(np.uint64), np.uint64(self.salt), keys)
        return keys

    # ------------------------------------------------------------ reading

    @property
    def n_seen(self) -> int:
        """Rows seen, those of weight zero left out."""
        return self._n_learned + len(self._waiting)

    @property
    def _settled(self) -> Cells:
        """The cells as they would be if the stream ended here: rows that wait for their block to fill are learned."""
        if self._read is None:
            cells = self._cells
            if len(self._waiting):
                cells = cells.copy()
                self._learn_block(cells, self._waiting, self._waiting_weights)
            self._read = cells
        return self._read

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self._settled.k

    @property
    def nodes(self) -> Floats:
        """Mean of every cell; a feature that none of its rows has is filled from the cells nearest to it."""
        cells = self._settled
        result: Floats = cells.whole_means()[cells.order()]
        return result

    @property
    def counts(self) -> Floats:
        """Rows behind each node, or the sum of their weights."""
        cells = self._settled
        result: Floats = cells.totals[cells.order()]
        return result

    @property
    def variances(self) -> Floats:
        """Variance of every feature of the rows behind each node."""
        cells = self._settled
        order = cells.order()
        if cells.present is not None:
            known: Floats = cells.squares[order] / np.maximum(cells.present[order], 1e-300)
            return known
        result: Floats = cells.squares[order] / cells.totals[order, None]
        return result

    @property
    def scales(self) -> Floats:
        """Factor of every feature in distances, by the rule of the read-out on all rows so far."""
        return self._settled.scales_now()

    @property
    def spreads(self) -> Floats:
        """Mean squared distance of the rows behind each node to the node, in features times ``scales``."""
        result: Floats = self.variances @ self.scales**2
        return result

    @property
    def sample(self) -> RowSample:
        """A fair sample of the rows learned, of at most 4,000 distinct rows with the times each of them came."""
        return self._settled.row_sample()

    def nodes_of(self, trail: Trail) -> NDArray[np.int64]:
        """Return the node that counts each row learned with ``trail``, in the order in which they came.

        Every call of :meth:`learn` must have been given the trail. Rows of weight zero are left out.
        """
        if trail.n_rows != self._n_learned:
            raise ValueError(
                f"this trail has noted {trail.n_rows} rows where the state has learned {self._n_learned}: "
                "give the same trail to every call of learn"
            )
        cells, trail = self._cells.copy(), trail.fork()
        if len(self._waiting):
            self._learn_block(cells, self._waiting, self._waiting_weights, trail=trail)
        order = cells.order()
        place = np.searchsorted(cells.keys[order], trail.ends())
        return place.astype(np.int64)

    def condensed(self, min_rows: float = 1) -> tuple[Floats, Floats, Floats]:
        """Return nodes, counts and variances in which every node stands for at least ``min_rows`` rows.

        Small cells join their nearest neighbour, smallest first. If there are fewer rows in all, nothing is returned.

        Parameters
        ----------
        min_rows : float, default=1

        Returns
        -------
        nodes : ndarray of shape (k, d)
        counts : ndarray of shape (k,)
        variances : ndarray of shape (k, d)
        """
        if not min_rows >= 0 or not np.isfinite(min_rows):
            raise ValueError(f"min_rows must be a number of at least 0; it is {min_rows!r}")
        return merge_small(self.nodes, self.counts, self.variances, self.scales, float(min_rows))

    def copy(self) -> Reservoir:
        """Return an independent copy."""
        result = Reservoir(self.n_features, self.max_nodes, self.salt, self.scale)
        result._cells, result._n_learned = self._cells.copy(), self._n_learned
        result._waiting, result._waiting_weights = self._waiting.copy(), self._waiting_weights.copy()
        return result

    def thinned(self, max_nodes: int) -> Reservoir:
        """Return a state of at most `max_nodes` nodes for the same rows; this one, if it has no more than that.

        It is for reading and merging: rows that wait for their block to fill are learned, so that learning on would
        not be the same as in one pass.
        """
        if self.n_nodes <= max_nodes:
            return self
        result = Reservoir(self.n_features, max_nodes, self.salt, self.scale)
        result._cells, result._n_learned = self._settled.copy(), self.n_seen
        result._cells._shrink(max_nodes)
        return result

    @classmethod
    def merge(cls, states: Iterable[Reservoir]) -> Reservoir:
        """Return one state for the rows of all: the seeds are those of one pass over all rows.

        The states stay as they are. They must agree in ``n_features``, ``max_nodes``, ``salt`` and ``scale``.
        """
        result: Reservoir | None = None
        waiting: list[tuple[Floats, Floats]] = []
        for state in states:
            if result is None:
                result = cls(state.n_features, state.max_nodes, state.salt, state.scale)
            for name in ("n_features", "max_nodes", "salt", "scale"):
                ours, theirs = getattr(result, name), getattr(state, name)
                if ours != theirs:
                    raise ValueError(f"states to be merged must have the same {name}; found {ours} and {theirs}")
            result._cells.absorb(state._cells, result.max_nodes)
            result._n_learned += state._n_learned
            waiting.append((state._waiting, state._waiting_weights))
        if result is None:
            raise ValueError("there are no states to merge")
        for rows, weights in waiting:
            result.learn(rows, weights)
        return result

    # ------------------------------------------------------------ storage

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-able description and the arrays that together are this state."""
        cells, k = self._cells, self._cells.k
        meta: dict[str, Any] = {
            "n_features": self.n_features,
            "max_nodes": self.max_nodes,
            "salt": self.salt,
            "n_learned": self._n_learned,
            "bar": cells.bar,
        }
        if self.scale != "auto":
            meta["scale"] = self.scale
        arrays: dict[str, NDArray[Any]] = {
            "seeds": cells.seeds[:k].copy(),
            "means": cells.means[:k].copy(),
            "squares": cells.squares[:k].copy(),
            "weights": cells.totals[:k].copy(),
            "scales": cells.scales.copy(),
            "waiting": self._waiting.copy(),
            "waiting_weights": self._waiting_weights.copy(),
        }
        if cells.present is not None and cells.spots is not None:
            arrays["present"], arrays["spots"] = cells.present[:k].copy(), cells.spots[:k].copy()
        if cells.sample is not None:
            meta["sample_bar"] = cells.sample.bar
            arrays["sample"], arrays["sample_weights"] = cells.sample.rows, cells.sample.weights
        return meta, arrays

    @classmethod
    def from_parts(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Reservoir:
        """Rebuild a state from :meth:`to_parts`; it goes on learning exactly as the original would have."""
        check_form(meta, arrays)
        state = cls(meta["n_features"], meta["max_nodes"], meta["salt"], meta.get("scale", "auto"))
        keys = state._keys(arrays["seeds"])  # not stored: they follow from the seeds
        check_content(meta, arrays, keys, BLOCK)
        state._n_learned = meta["n_learned"]
        state._waiting = np.array(arrays["waiting"])
        state._waiting_weights = np.array(arrays["waiting_weights"])
        state._cells = Cells(
            keys=keys,
            seeds=np.array(arrays["seeds"]),
            means=np.array(arrays["means"]),
            squares=np.array(arrays["squares"]),
            totals=np.array(arrays["weights"]),
            scales=np.array(arrays["scales"]),
            bar=meta["bar"],
            scale=state.scale,
        )
        if "present" in arrays:
            state._cells.present, state._cells.spots = np.array(arrays["present"]), np.array(arrays["spots"])
        if "sample" in arrays:
            sample = arrays["sample"], arrays["sample_weights"], meta["sample_bar"]
            state._cells.sample = RowSample.from_parts(*sample, SAMPLE_ROWS)
        return state


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _threads(stack: ExitStack, n_threads: int | None) -> Callable[[Callable[[int, int], None], int], None] | None:
    """A way to do work(start, stop) on pieces of range(n) on several threads; None for one."""
    if n_threads is None:
        n_threads = n_cores()
    if not _is_whole(n_threads) or n_threads < 1:
        raise ValueError(f"n_threads must be a whole number of at least 1; it is {n_threads!r}")
    if n_threads == 1:
        return None
    pool = stack.enter_context(ThreadPoolExecutor(n_threads))

    def over(work: Callable[[int, int], None], n: int) -> None:
        pieces = min(n_threads, 1 + n // 256)
        bounds = [n * piece // pieces for piece in range(pieces + 1)]
        list(pool.map(work, bounds[:-1], bounds[1:]))

    return over
