"""``server="cae-fc"``: the paper's server. CAE_FC learns every round's nodes; clusters are its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName
from fcac._typing import Booleans, Floats, Integers
from fcac.art.network import Network, Rules
from fcac.codebook import Codebook
from fcac.federation.contribution import Contribution
from fcac.federation.log import Log
from fcac.federation.readout import ReadOut, Shuffler
from fcac.novelty import is_novel

_CAE_FC = Rules(topological=True)


class ComponentReadOut(ReadOut):
    """The paper's read-out: a topological network over the nodes of all rounds, read as connected components.

    Nodes of a round are handed over in two groups, those with high winning counts first, each group shuffled, and
    learned one by one (Masuyama et al., "Privacy-preserving Continual Federated Clustering via Adaptive Resonance
    Theory"). The network goes on over rounds.
    """

    title: ClassVar[str] = "the paper's network"
    count_noun: ClassVar[str] = "wins"
    nodes_are_contributed: ClassVar[bool] = False
    condenser: ClassVar[Literal["reservoir", "ca-plus"]] = "ca-plus"
    max_replayed_nodes: ClassVar[int] = 300_000

    _network: Network | None = None
    _settled: Network | None = None

    def take(self, batch: Sequence[Contribution], shuffler: Shuffler) -> None:
        network = Network(batch[0].n_features, _CAE_FC) if self._network is None else self._network.copy()
        network.learn(hand_over(batch, shuffler(batch)))
        self._network, self._settled = network, None

    def without(self, site: SiteName, rest: Log, shuffler: Shuffler) -> ComponentReadOut:
        """Learn what remains from the start: a network cannot unlearn a node."""
        fresh = type(self)(self.settings)
        for batch in rest.rounds:
            fresh.take(batch, shuffler)
        return fresh

    @property
    def network(self) -> Network | None:
        """The network as it would be if the data ended here; None before the first round."""
        return None if self._network is None else self.settled()

    def settled(self) -> Network:
        """Return the network as it would be if the data ended here."""
        if self._network is None:
            raise ValueError("this server has no contributions yet")
        if self._settled is None:
            self._settled = self._network.settled()
        return self._settled

    @property
    def nodes(self) -> Floats:
        return self.settled().nodes

    @property
    def counts(self) -> Integers:
        return self.settled().counts

    @property
    def edges(self) -> Integers:
        return self.settled().edges_with_ages()[0]

    @property
    def node_labels(self) -> Integers:
        return self.settled().components()

    @property
    def reach(self) -> Floats:
        network = self.settled()
        return np.full(len(network.readable_labels()), network.threshold)

    def predict(self, X: Floats, n_threads: int) -> Integers:
        network = self.settled()
        return network.readable_labels()[network.nearest(X, n_threads)[0]]

    def distance_to_nearest(self, X: Floats, n_threads: int) -> Floats:
        return self.settled().nearest(X, n_threads)[1]

    def label_rows(self, X: Floats, n_threads: int) -> tuple[Integers, Floats, Booleans]:
        network = self.settled()
        position, distance = network.nearest(X, n_threads)
        return network.readable_labels()[position], distance, is_novel(position, distance, self.reach)

    def distances(self, X: Floats, n_threads: int) -> Floats:
        return self.settled().distances(X, n_threads)

    def export(self, share_nodes: bool) -> Codebook:
        """The server's own nodes are moving averages over sites; they are what predict needs."""
        network = self.settled()
        _, arrays = network.to_parts()
        width = float(arrays["bandwidths"].mean())
        return Codebook(arrays["nodes"], network.readable_labels(), bandwidth=width, reach=self.reach)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return ({}, {}) if self._network is None else self._network.to_parts()

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> None:
        self._network = Network.from_parts(meta, arrays) if log.n_rounds else None
        if self._network is not None and self._network.n_features != log.n_features:
            raise ValueError("the network in this file does not fit its contributions")


def hand_over(batch: Sequence[Contribution], shuffler: np.random.RandomState) -> Floats:
    """Order a round's nodes for the paper's server: often-winning nodes of all sites first, each group shuffled.

    A node belongs to the first group if its count reaches the 75th percentile of its own site's counts.
    """
    often = [_often(item.counts) for item in batch]
    n_strong, n_nodes = sum(int(mask.sum()) for mask in often), sum(map(len, often))
    # Where each node goes, first those of the strong group: nodes are then written once, without a list of copies.
    place = np.empty(n_nodes, np.int64)
    for start, stop in ((0, n_strong), (n_strong, n_nodes)):
        order = np.arange(stop - start)
        shuffler.shuffle(order)
        place[start + order] = np.arange(start, stop)
    ordered = np.empty((n_nodes, batch[0].n_features))
    at_strong, at_weak = 0, n_strong
    for item, mask in zip(batch, often, strict=True):
        until_strong = at_strong + int(mask.sum())
        until_weak = at_weak + len(mask) - int(mask.sum())
        ordered[place[at_strong:until_strong]] = item.nodes[mask]
        ordered[place[at_weak:until_weak]] = item.nodes[~mask]
        at_strong, at_weak = until_strong, until_weak
    return ordered


def _often(counts: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which counts reach the 75th percentile of all of them.

    The percentile lies between two neighbours of the sorted counts (or on one), so reaching it is reaching the upper
    one; this is far faster than computing it, which counts with 100,000 sites.
    """
    if not len(counts):
        return np.empty(0, np.bool_)
    reached: NDArray[np.bool_] = counts >= np.sort(counts)[-(-3 * (len(counts) - 1) // 4)]
    return reached
