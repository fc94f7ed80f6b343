"""A site's network between rounds, without spare capacity, so that one process can hold 100,000 of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.art.network import Network


class CompactNetwork:
    """A network that is not learning, without its working arrays and spare capacity.

    It goes on exactly as the original would have (:meth:`to_network`). Nodes and counts are read-only, so that they can
    be sent without a copy; of `Network.to_parts`, arrays that are views of larger ones are copied.

    >>> from fcac.art.network import Rules
    >>> network = Network(2, Rules(topological=False))
    >>> network.learn(np.random.default_rng(0).normal(size=(50, 2)))
    >>> compact = CompactNetwork(*network.to_parts())
    >>> bool((compact.to_network().nodes == network.nodes).all()), compact.n_features
    (True, 2)
    """

    __slots__ = ("_arrays", "_meta")

    def __init__(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._meta = {**meta, "rules": _one_dict(tuple(sorted(meta["rules"].items())))}
        self._arrays = {name: _compact(array) for name, array in arrays.items()}

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._meta["n_features"])

    def to_network(self) -> Network:
        """Return an independent network that can learn."""
        return Network.from_parts(self._meta, self._arrays)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the parts, as :meth:`fcac.art.network.Network.to_parts` does."""
        return {**self._meta, "rules": dict(self._meta["rules"])}, dict(self._arrays)

    def settled_nodes(self) -> tuple[Floats, Integers]:
        """Return nodes and counts as they would be if the data ended here."""
        if len(self._arrays["pending"]):
            settled = self.to_network().settled()
            return settled.nodes, settled.counts
        return self._arrays["nodes"], self._arrays["counts"]


def _compact(array: NDArray[Any]) -> NDArray[Any]:
    if not array.size:
        return _empty(array.shape, array.dtype.str)
    own = np.array(array, order="C")
    own.flags.writeable = False
    return own


@lru_cache(maxsize=64)
def _empty(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return one empty array shared by all networks: the object costs more than its content."""
    return np.empty(shape, dtype)


@lru_cache(maxsize=64)
def _one_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return one dictionary shared by all networks with equal items."""
    return dict(items)
