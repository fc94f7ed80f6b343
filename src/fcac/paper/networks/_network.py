"""What the growing networks share: learning row by row, clusters as connected components, and their state."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted, validate_data

from fcac._typing import Floats, Integers

# Nodes for which there is room at first.
_ROOM = 64


@dataclass
class NetworkState:
    """A network at one moment; see :mod:`fcac.paper.networks._graph` for what the arrays hold."""

    nodes: Floats
    ages: NDArray[np.int32]
    values: Floats
    memory: Floats

    @classmethod
    def empty(cls, n_features: int, n_values: int, n_memory: int) -> NetworkState:
        """Return a network without nodes."""
        return cls(
            np.zeros((_ROOM, n_features)),
            np.full((_ROOM, _ROOM), -1, np.int32),
            np.zeros((_ROOM, n_values)),
            np.zeros(n_memory),
        )

    @property
    def size(self) -> int:
        """Number of nodes."""
        return int(self.memory[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.nodes.shape[1])

    @property
    def edges(self) -> Integers:
        """Joined nodes, as positions (m, 2), the smaller one first."""
        n = self.size
        return np.argwhere(np.triu(self.ages[:n, :n] >= 0, 1)).astype(np.int64)

    def copy(self) -> NetworkState:
        """Return a network that learns on without changing this one."""
        return NetworkState(self.nodes.copy(), self.ages.copy(), self.values.copy(), self.memory.copy())

    def grow(self) -> None:
        """Make room for twice as many nodes."""
        room = len(self.nodes)
        self.nodes = np.concatenate([self.nodes, np.zeros_like(self.nodes)])
        self.values = np.concatenate([self.values, np.zeros_like(self.values)])
        ages = np.full((2 * room, 2 * room), -1, np.int32)
        ages[:room, :room] = self.ages
        self.ages = ages

    def components(self) -> Integers:
        """Return the connected component of every node, numbered in the order of their oldest nodes."""
        n, edges = self.size, self.edges
        graph = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
        labels: Integers = connected_components(graph, directed=False)[1].astype(np.int64)
        return labels


class GrowingNetwork(ClusterMixin, BaseEstimator, ABC):
    """Base class of networks that learn one row after the other; clusters are their connected components."""

    #: Columns of `NetworkState.values` and entries of `NetworkState.memory`.
    n_values: ClassVar[int] = 1
    n_memory: ClassVar[int] = 2

    state_: NetworkState

    #: The compiled loop: learns rows from a start on, and returns the first row for which there was no room.
    _loop: ClassVar[Any]
    _parameter_constraints: ClassVar[dict[str, list[Any]]]

    def _learn(self, X: Floats, start: int, state: NetworkState) -> int:
        """Learn rows from `start` on, and return the first row that was not learned because the arrays were full."""
        parameters = np.array([getattr(self, name) for name in self._parameter_constraints], np.float64)
        return int(type(self)._loop(X, start, state.nodes, state.ages, state.values, state.memory, parameters))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget what was learned before, and learn the rows of X once, in their order."""
        return self._go_on(X, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with the rows of X; how rows are divided among calls does not matter."""
        return self._go_on(X, reset=not hasattr(self, "state_"))

    def _go_on(self, X: Any, *, reset: bool) -> Self:
        self._validate_params()
        # rows that cannot be written to would be a type of their own, for which everything is compiled once more
        rows = np.require(validate_data(self, X, reset=reset, dtype=np.float64), requirements=["C", "W"])
        state = NetworkState.empty(rows.shape[1], self.n_values, self.n_memory) if reset else self.state_.copy()
        learn_rows(self, rows, state)
        self.state_, self._last_rows = state, rows
        return self

    def predict(self, X: Any) -> Integers:
        """Return the cluster of the node nearest to each row (Euclidean)."""
        check_is_fitted(self, "state_")
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        nearest: Integers = self.state_.components()[pairwise_distances_argmin(rows, self.nodes_)]
        return nearest

    @property
    def nodes_(self) -> Floats:
        """Positions of the nodes."""
        return self.state_.nodes[: self.state_.size]

    @property
    def counts_(self) -> Floats:
        """Number of rows that each node has won."""
        return self.state_.values[: self.state_.size, 0]

    @property
    def edges_(self) -> Integers:
        """Joined nodes, as positions (m, 2)."""
        return self.state_.edges

    @property
    def n_clusters_(self) -> int:
        """Number of connected components."""
        return int(self.state_.components().max()) + 1

    @property
    def labels_(self) -> Integers:
        """Clusters of the rows of the last call."""
        return self.predict(self._last_rows)


def learn_rows(network: GrowingNetwork, X: Floats, state: NetworkState) -> None:
    """Let a state learn all rows, and make room for nodes as they are needed."""
    at = 0
    while at < len(X):
        at = network._learn(X, at, state)
        if at < len(X):
            state.grow()
