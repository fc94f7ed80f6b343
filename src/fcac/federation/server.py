"""The server: absorbs contributions round by round and holds the clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, order_key, plain_site
from fcac._typing import Floats, Integers
from fcac.art.network import Network, Rules
from fcac.codebook import Codebook
from fcac.federation.contribution import Contribution
from fcac.federation.log import Entry, Log
from fcac.novelty import is_novel
from fcac.tables.schema import Schema

KINDS = ("cae-fc", "communities")
_CAE_FC = Rules(topological=True)


class Server:
    """Grows clusters from the nodes that sites contribute.

    ``kind="cae-fc"`` is the paper's server: nodes of a round are handed over in two groups, those with high winning
    counts first, each group shuffled, and learned one by one by CAE_FC, which goes on over rounds; clusters are its
    connected components. ``kind="communities"`` keeps the latest nodes of every site and reads clusters off their
    neighbourhood graph.

    Contributions are kept, for :meth:`forget` and for recognising repeats: memory grows by (features + 1) x 8 bytes
    for every node of every contribution, and forgetting costs one replay of what remains.

    Parameters
    ----------
    kind : {"cae-fc", "communities"}
    random_state : int, default=0
        Seed of the shuffles. Round 1 uses it as it is; a later round's shuffle depends on it and on the round's number
        only, so that a replay without a site is exact.
    n_clusters : int, optional
        For communities alone: number of clusters, for who knows it.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.federation import Server, Site
    >>> rng = np.random.default_rng(0)
    >>> server = Server()
    >>> sites = [Site(name) for name in ("a", "b")]
    >>> accepted = server.absorb([site.contribute(rng.normal(size=(500, 2))) for site in sites])
    >>> len(accepted), server.n_rounds, server.sites
    (2, 1, ['a', 'b'])
    """

    def __init__(self, kind: str = "cae-fc", random_state: int = 0, n_clusters: int | None = None) -> None:
        if kind not in KINDS:
            raise ValueError(f"server kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if n_clusters is not None and kind != "communities":
            raise ValueError(
                'n_clusters is for server="communities" alone: the paper\'s server finds the number itself'
            )
        self.kind = kind
        self.random_state = int(random_state)
        self.n_clusters_wanted = n_clusters
        #: returns this server as it was after its first n rounds, where those states were kept; None where not
        self.past: Callable[[int], Server | None] | None = None
        self._log = Log()
        self._reader = _make_reader(kind, n_clusters)

    # ------------------------------------------------------------ rounds

    def check(self, contribution: Contribution) -> bool:
        """Tell whether a contribution is new (True) or a repeat (False); raise ``ValueError`` if it cannot be taken."""
        if not isinstance(contribution, Contribution):
            raise ValueError(f"expected a Contribution, got {type(contribution).__name__}")
        d = self.n_features
        if d is not None and contribution.n_features != d:
            raise ValueError(
                f"site {contribution.site} sent nodes of {contribution.n_features} features, the federation has {d}"
            )
        known = self._log.find(contribution.key)
        if known is None:
            return True
        if known == contribution:
            return False
        raise ValueError(
            f"site {contribution.site} sent round {contribution.round} twice with different content: "
            "a round counts once; send new rows in a new round"
        )

    def absorb(self, contributions: Iterable[Contribution]) -> list[Contribution]:
        """Close one round with these contributions, in whatever order they arrived.

        A contribution that is already in is ignored; a late one (of an earlier round) takes part in this round. If
        any cannot be taken, nothing is.

        Parameters
        ----------
        contributions : iterable of Contribution

        Returns
        -------
        accepted : list of Contribution
            Those that were new, in the order of sites. Nothing new: no round is closed.
        """
        fresh: dict[tuple[SiteName, int], Contribution] = {}
        for item in contributions:
            if not self.check(item):
                continue
            if item.key in fresh and fresh[item.key] != item:
                raise ValueError(f"site {item.site} sent round {item.round} twice with different content in one list")
            fresh[item.key] = item
        accepted = sorted(fresh.values(), key=lambda item: (order_key(item.site), item.round))
        if len({item.n_features for item in accepted}) > 1:
            widths = ", ".join(f"{item.site}: {item.n_features}" for item in accepted)
            raise ValueError(f"contributions differ in their number of features ({widths})")
        if accepted:
            self._reader.take(accepted, self._shuffler(accepted))
            self._log.add(accepted)
        return accepted

    def forget(self, site: SiteName) -> None:
        """Become the server that would have been if this site had never contributed, exactly.

        The paper's server replays what remains; communities drop the site's nodes and cluster the others, where
        clusters keep the names they had.

        Parameters
        ----------
        site : str or int
        """
        name = plain_site(site)
        if name not in self.sites:
            known = ", ".join(map(str, self.sites)) or "none"
            raise ValueError(f"no contribution of site {name!r} is here; sites known: {known}")
        log = self._log.without(name)
        if self.kind == "communities":
            self._reader.drop(name)
        else:
            reader = _ComponentReader()
            for batch in log.rounds:
                reader.take(batch, self._shuffler(batch))
            self._reader = reader
        self._log, self.past = log, None

    def _shuffler(self, batch: Sequence[Contribution]) -> np.random.RandomState:
        """Random generator of a round, from the seed and the round's number only."""
        number = max(item.round for item in batch)
        if number == 1:
            return np.random.RandomState(self.random_state)
        return np.random.RandomState(np.random.SeedSequence([self.random_state, number]).generate_state(4))

    # ------------------------------------------------------------ what there is

    @property
    def log(self) -> list[list[Contribution]]:
        """Absorbed contributions, one list per round, sites in order."""
        return self._log.rounds

    @property
    def history(self) -> list[list[Entry]]:
        """The log without nodes: who contributed how much, and under which privacy."""
        return self._log.entries()

    @property
    def n_rounds(self) -> int:
        """Rounds closed with at least one contribution."""
        return self._log.n_rounds

    @property
    def sites(self) -> list[SiteName]:
        """Sites that have contributed, in order."""
        return self._log.sites

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first contribution."""
        return self._log.n_features

    def latest(self) -> dict[SiteName, Contribution]:
        """Return the contribution with the highest round of every site."""
        return self._log.latest()

    @property
    def released(self) -> bool:
        """Whether every contribution came from `NodeRelease`, so that nodes may be shared."""
        return self._log.released

    @property
    def has_nodes(self) -> bool:
        """Whether any node was ever contributed."""
        return self._log.has_nodes

    def was_contributed(self, points: Floats) -> NDArray[np.bool_]:
        """Tell for every point whether it is, bit for bit, a node that a site has ever contributed."""
        return self._log.holds(points)

    # ------------------------------------------------------------ reading

    @property
    def reader(self) -> Any:
        """What turns nodes into clusters: the read-out behind predict."""
        return self._reader

    @property
    def network(self) -> Network:
        """The CAE_FC network (paper's server), as it would be if the data ended here."""
        if not isinstance(self._reader, _ComponentReader):
            raise AttributeError("server='communities' has no CAE_FC network")
        return self._reader.settled()

    @property
    def nodes(self) -> Floats:
        """Nodes that stand behind the clusters."""
        nodes: Floats = self._reader.nodes
        return nodes

    @property
    def counts(self) -> Integers:
        """Winning count of every node (at the server for the paper's, at the sites for communities)."""
        counts: Integers = self._reader.counts
        return counts

    @property
    def edges(self) -> Integers:
        """Linked nodes, as positions (m, 2)."""
        edges: Integers = self._reader.edges
        return edges

    @property
    def node_labels(self) -> Integers:
        """Cluster of every node."""
        labels: Integers = self._reader.node_labels
        return labels

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(np.unique(self.node_labels))

    @property
    def threshold(self) -> float:
        """The farthest reach of any node: a row farther from all of them is unlike anything seen."""
        return float(self.reach.max())

    @property
    def reach(self) -> Floats:
        """Distance from each node beyond which a row is unlike anything seen; see :mod:`fcac.novelty`."""
        self._require_nodes()
        reach: Floats = self._reader.reach
        return reach

    def predict(self, X: Floats, n_threads: int = 1) -> Integers:
        """Return the cluster of every row of a float64 array."""
        self._require_nodes()
        labels: Integers = self._reader.predict(X, n_threads)
        return labels

    def distance_to_nearest(self, X: Floats, n_threads: int = 1) -> Floats:
        """Return the distance of every row to its nearest node."""
        self._require_nodes()
        distance: Floats = self._reader.distance_to_nearest(X, n_threads)
        return distance

    def is_novel(self, X: Floats, n_threads: int = 1) -> NDArray[np.bool_]:
        """Tell for every row whether it is unlike anything seen."""
        return self.label_rows(X, n_threads)[2]

    def label_rows(self, X: Floats, n_threads: int = 1) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Return cluster, distance to the nearest node, and novelty of every row, from one search."""
        self._require_nodes()
        read: tuple[Integers, Floats, NDArray[np.bool_]] = self._reader.label_rows(X, n_threads)
        return read

    def distances(self, X: Floats, n_threads: int = 1) -> Floats:
        """Return the distance of every row to every node."""
        self._require_nodes()
        distances: Floats = self._reader.distances(X, n_threads)
        return distances

    def export(
        self, share_nodes: bool = False, feature_names: list[str] | None = None, schema: Schema | None = None
    ) -> Codebook:
        """Return only what predict needs; see :meth:`fcac.FCAC.export`."""
        self._require_nodes()
        book: Codebook = self._reader.export(share_nodes or self.released)
        return book.replace(feature_names=feature_names, schema=schema, counts=None)

    def _require_nodes(self) -> None:
        if not self.n_rounds:
            raise ValueError("this server has no contributions yet")

    # ------------------------------------------------------------ storage

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a description and arrays that restore this server, contributions included."""
        log = self.log
        items = [item for batch in log for item in batch]
        statements: list[dict[str, Any]] = []
        entries = []
        for number, batch in enumerate(log):
            for item in batch:
                if item.privacy not in statements:
                    statements.append(item.privacy)
                entries.append([item.site, item.round, number, statements.index(item.privacy)])
        meta, arrays = self.state_parts()
        meta |= {"entries": entries, "statements": statements}
        if items:
            arrays["log_nodes"] = np.concatenate([item.nodes for item in items])
            arrays["log_counts"] = np.concatenate([item.counts for item in items])
            arrays["log_sizes"] = np.array([len(item.nodes) for item in items], np.int64)
        return meta, arrays

    def state_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a description and arrays that restore this server beside its log; see :meth:`resume`."""
        reader_meta, arrays = self._reader.to_parts()
        meta = {
            "kind": self.kind,
            "random_state": self.random_state,
            "n_clusters": self.n_clusters_wanted,
            "reader": reader_meta,
        }
        return meta, {f"reader_{name}": array for name, array in arrays.items()}

    @classmethod
    def resume(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> Server:
        """Rebuild a server from :meth:`state_parts` and its log; it goes on exactly as the original would have."""
        server = cls(meta["kind"], meta["random_state"], meta["n_clusters"])
        server._log = log
        parts = {name.removeprefix("reader_"): array for name, array in arrays.items() if name.startswith("reader_")}
        server._reader.restore(meta["reader"], parts, log)
        return server

    @classmethod
    def from_parts(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Server:
        """Rebuild a server from :meth:`to_parts`; it goes on exactly as the original would have."""
        entries, statements = meta["entries"], meta["statements"]
        batches: list[list[Contribution]] = []
        if entries:
            nodes, counts, sizes = arrays["log_nodes"], arrays["log_counts"], arrays["log_sizes"]
            ends = np.cumsum(sizes)
            if len(sizes) != len(entries) or (sizes < 0).any() or ends[-1] != len(nodes) or len(counts) != len(nodes):
                raise ValueError("the contributions in this file do not fit their index")
            for (site, number, batch, statement), end, size in zip(entries, ends, sizes, strict=True):
                if batch not in (len(batches) - 1, len(batches)):
                    raise ValueError("the rounds in this file are out of order")
                if batch == len(batches):
                    batches.append([])
                rows = slice(int(end - size), int(end))
                batches[-1].append(Contribution(site, number, nodes[rows], counts[rows], statements[statement]))
        log = Log()
        for items in batches:
            log.add(items)
        return cls.resume(meta, arrays, log)


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


def _often(counts: Integers) -> NDArray[np.bool_]:
    """Tell which counts reach the 75th percentile of all of them.

    The percentile lies between two neighbours of the sorted counts (or on one), so reaching it is reaching the upper
    one; this is far faster than computing it, which counts with 100,000 sites.
    """
    if not len(counts):
        return np.empty(0, np.bool_)
    reached: NDArray[np.bool_] = counts >= np.sort(counts)[-(-3 * (len(counts) - 1) // 4)]
    return reached


class _ComponentReader:
    """The paper's read-out: CAE_FC over the nodes of every round; clusters are connected components."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._settled: Network | None = None

    def take(self, batch: Sequence[Contribution], shuffler: np.random.RandomState) -> None:
        network = Network(batch[0].n_features, _CAE_FC) if self._network is None else self._network.copy()
        network.learn(hand_over(batch, shuffler))
        self._network, self._settled = network, None

    def settled(self) -> Network:
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

    def label_rows(self, X: Floats, n_threads: int) -> tuple[Integers, Floats, NDArray[np.bool_]]:
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


def _make_reader(kind: str, n_clusters: int | None) -> Any:
    if kind == "cae-fc":
        return _ComponentReader()
    from fcac.federation.community_readout import CommunityReader

    return CommunityReader(n_clusters)
