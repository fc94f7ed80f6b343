"""Growing networks inside FCAC: at the sites in place of CA+, at the server in place of CAE_FC.

``FCAC(site=NetworkCondenser(GNG()), server="gng")`` is FCAC with growing neural gas in both places. Importing this
module makes the servers "gng", "gwr", "asoinn" and "soinn-plus" known; such models are for comparison and cannot be
saved.

Examples
--------
>>> import numpy as np
>>> from fcac import FCAC
>>> from fcac.paper.networks import ASOINN
>>> from fcac.paper.networks.inside import NetworkCondenser
>>> rng = np.random.default_rng(0)
>>> X = np.concatenate([rng.normal(c, 0.1, size=(3000, 2)) for c in (0, 5)])
>>> X = rng.permutation(X)
>>> model = FCAC(site=NetworkCondenser(ASOINN()), server="asoinn", random_state=0)
>>> model.fit(X, groups=np.arange(len(X)) % 3).n_clusters_ >= 2
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName
from fcac._typing import Floats, Integers
from fcac.codebook import Codebook
from fcac.federation.condenser import Condenser, Parts
from fcac.federation.contribution import Contribution
from fcac.federation.log import Log
from fcac.federation.readout import CodebookReadOut, Shuffler
from fcac.federation.readouts import register
from fcac.federation.readouts.cae_fc import hand_over
from fcac.paper.networks import ASOINN, GNG, GWR, SOINNPlus
from fcac.paper.networks._network import GrowingNetwork, NetworkState, learn_rows

_CANNOT = "a model with a growing network inside is for comparison and cannot be saved"


@dataclass(frozen=True)
class NetworkCondenser(Condenser):
    """A site's rows become the nodes of a growing network.

    Parameters
    ----------
    network : GrowingNetwork
        Its parameters are used; it learns nothing itself.
    """

    network: GrowingNetwork
    key: ClassVar[str] = "growing-network"

    def draft(self, state: NetworkState | None, n_features: int) -> NetworkState:
        if state is None:
            return NetworkState.empty(n_features, self.network.n_values, self.network.n_memory)
        return state.copy()

    def learn(self, draft: NetworkState, block: Floats, weights: Floats | None, n_threads: int | None) -> None:
        if weights is not None:
            raise ValueError("sample_weight: growing networks have no use for weights; leave it out")
        learn_rows(self.network, np.ascontiguousarray(block, np.float64), draft)

    def settle(self, draft: NetworkState, round: int) -> NetworkState:
        return draft

    def nodes(self, state: NetworkState) -> tuple[Floats, NDArray[Any]]:
        # a node that was put between two others may have won nothing yet
        counts = np.maximum(state.values[: state.size, 0], 1).astype(np.int64)
        return state.nodes[: state.size].copy(), counts

    def to_parts(self, state: NetworkState) -> Parts:
        raise ValueError(_CANNOT)

    def from_parts(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NetworkState:
        raise ValueError(_CANNOT)


class NetworkReadOut(CodebookReadOut):
    """A growing network learns every round's nodes, in the order of the paper's server; distances are Euclidean."""

    network: ClassVar[GrowingNetwork]
    count_noun: ClassVar[str] = "wins"
    nodes_are_contributed: ClassVar[bool] = False

    _state: NetworkState | None = None

    def take(self, batch: Sequence[Contribution], shuffler: Shuffler) -> None:
        if self._state is None:
            state = NetworkState.empty(batch[0].n_features, self.network.n_values, self.network.n_memory)
        else:
            state = self._state.copy()
        learn_rows(self.network, hand_over(batch, shuffler(batch)), state)
        self._state = state
        self._book = Codebook(
            state.nodes[: state.size].copy(), state.components(), counts=np.maximum(state.values[: state.size, 0], 1)
        )

    def without(self, site: SiteName, rest: Log, shuffler: Shuffler) -> NetworkReadOut:
        """Learn what remains from the start: a network cannot unlearn a node."""
        fresh = type(self)(self.settings)
        for batch in rest.rounds:
            fresh.take(batch, shuffler)
        return fresh

    @property
    def edges(self) -> Integers:
        return np.empty((0, 2), np.int64) if self._state is None else self._state.edges

    def export(self, share_nodes: bool) -> Codebook:
        return self._codebook().replace(counts=None)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        raise ValueError(_CANNOT)

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> None:
        raise ValueError(_CANNOT)


#: The networks by the names of their servers.
INSIDE: dict[str, GrowingNetwork] = {"gng": GNG(), "gwr": GWR(), "asoinn": ASOINN(), "soinn-plus": SOINNPlus()}


def _serve(name: str, network: GrowingNetwork) -> None:
    title = f"{type(network).__name__} over the sites' nodes"
    register(name, type(f"{type(network).__name__}ReadOut", (NetworkReadOut,), {"network": network, "title": title}))


for _name, _network in INSIDE.items():
    _serve(_name, _network)
