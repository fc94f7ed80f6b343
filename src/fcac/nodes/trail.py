"""Where rows went: the node that each learned row is counted in, without a second search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


class Trail:
    """Notes, while a reservoir learns, in whose cell each row was counted and which cell each lost cell joined.

    Given to :meth:`fcac.nodes.Reservoir.learn`; read with :meth:`fcac.nodes.Reservoir.nodes_of`. It needs eight
    bytes per row.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.nodes import Reservoir, Trail
    >>> rows = np.random.default_rng(0).normal(size=(10_000, 2))
    >>> trail = Trail()
    >>> state = Reservoir(2, max_nodes=100).learn(rows, trail=trail)
    >>> bool((np.bincount(state.nodes_of(trail), minlength=state.n_nodes) == state.counts).all())
    True
    """

    def __init__(self) -> None:
        self._counted: list[Keys] = []
        self._lost: list[Keys] = []
        self._joined: list[Keys] = []

    @property
    def n_rows(self) -> int:
        """Rows noted; those that wait for their block to fill are not among them yet."""
        return sum(len(keys) for keys in self._counted)

    def count(self, keys: Keys) -> None:
        """Note the keys of the seeds in whose cells rows are counted."""
        self._counted.append(keys)

    def join(self, lost: Keys, joined: Keys) -> None:
        """Note that cells were lost and which ones took their rows."""
        self._lost.append(lost)
        self._joined.append(joined)

    def extend(self, other: Trail) -> None:
        """Note what another trail has noted since."""
        self._counted += other._counted
        self._lost += other._lost
        self._joined += other._joined

    def fork(self) -> Trail:
        """Return a trail that goes on from here on its own."""
        other = Trail()
        other.extend(self)
        return other

    def ends(self) -> Keys:
        """Return, for every row noted, the key of the seed in whose cell it is counted now."""
        none = np.empty(0, np.uint64)
        counted = np.concatenate([none, *self._counted])
        lost, joined = np.concatenate([none, *self._lost]), np.concatenate([none, *self._joined])
        keys = np.unique(np.concatenate([lost, joined]))
        towards = np.arange(len(keys))
        # a lost seed never comes back, so following the notes comes to an end
        towards[np.searchsorted(keys, lost)] = np.searchsorted(keys, joined)
        while True:
            further = towards[towards]
            if np.array_equal(further, towards):
                break
            towards = further
        if not len(keys):
            return counted
        at = np.minimum(np.searchsorted(keys, counted), len(keys) - 1)
        return np.where(keys[at] == counted, keys[towards[at]], counted)
