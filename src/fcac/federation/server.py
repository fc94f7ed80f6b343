"""The server: absorbs contributions round by round and holds the clusters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, order_key, plain_site
from fcac._split_rate import FALSE_SPLIT_RATE
from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.clusters.bounded import MAX_READ
from fcac.codebook import Codebook
from fcac.federation import readouts
from fcac.federation.contribution import Contribution
from fcac.federation.log import Entry, Extract, Log
from fcac.federation.readout import ReadOut, Settings
from fcac.nodes.sample import RowSample
from fcac.scaling import Scaling
from fcac.tables.kind import Block
from fcac.tables.schema import Schema


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
        Number of clusters, if it is known; only some servers accept it.
    blocks : sequence of Block, optional
        The columns behind the features, as :attr:`fcac.tables.schema.Schema.blocks` tells them; communities measure
        distances by them if there are categories.
    max_nodes : int, optional
        Most nodes that communities read as they are (default 16,000): more, all sites together, are condensed to so
        many before they are read, and the cost of a round grows no further. Contributions are kept whole.
    scale : {"auto", "none", "standard", "robust"}, default="auto"
        How columns are made comparable; see :func:`fcac.scaling.scaling_of`. The paper's server takes them as they are.
    bounds : array-like of shape (d, 2), optional
        Public bounds of the features, without which :meth:`absorb` takes no release with noise.

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

    def __init__(
        self,
        kind: str = "communities",
        random_state: int = 0,
        n_clusters: int | None = None,
        blocks: Sequence[Block] | None = None,
        max_nodes: int | None = None,
        scale: str = "auto",
        false_split_rate: float = FALSE_SPLIT_RATE,
        bounds: Any = None,
    ) -> None:
        columns, most = None if blocks is None else tuple(blocks), MAX_READ if max_nodes is None else max_nodes
        #: what turns nodes into clusters
        self.readout: ReadOut = readouts.find(kind)(Settings(n_clusters, columns, most, scale, false_split_rate))
        self.kind = kind
        self.random_state = int(random_state)
        self.bounds = None if bounds is None else np.array(bounds, dtype=np.float64)
        #: returns this server as it was after its first n rounds, where those states were kept; None where not
        self.past: Callable[[int], Server | None] | None = None
        self._log = Log()

    def __repr__(self) -> str:
        told = [repr(self.kind), counted(self.n_rounds, "round"), counted(len(self.sites), "site")]
        if self.n_rounds:
            told += [counted(len(self.nodes), "node"), counted(self.n_clusters, "cluster")]
        return f"Server({', '.join(told)})"

    def extract(self, rounds: Sequence[int] = ()) -> Server:
        """Return what readers of this server need, in memory: no file is read for it, and it absorbs nothing.

        Parameters
        ----------
        rounds : sequence of int
            Earlier rounds after which its state is wanted too, where those were kept.
        """
        twin = copy.copy(self)
        if self.past is not None:  # otherwise the log is in memory
            twin._log = Extract(self._log)
            states = {number: self.past(number) for number in rounds if number < self.n_rounds}
            kept = {number: state.extract() for number, state in states.items() if state is not None}
            twin.past = kept.get
        return twin

    def blank(self, kind: str | None = None) -> Server:
        """Return a server of the same settings that has absorbed nothing; of another kind, if one is named."""
        settings = self.readout.settings
        if kind is not None:
            settings = settings._replace(n_clusters=None, scale="auto")
        return Server(kind or self.kind, self.random_state, *settings, self.bounds)

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
        any cannot be taken, nothing is. The noise that a contribution states must be that of a release within
        `bounds` (:func:`fcac.federation.admission.admit`), since nodes are weighed by it.

        Parameters
        ----------
        contributions : iterable of Contribution

        Returns
        -------
        accepted : list of Contribution
            Those that were new, in the order of sites. Nothing new: no round is closed.
        """
        items = list(contributions)
        for item in items:
            if isinstance(item, Contribution) and item.deviation is not None:
                from fcac.federation.admission import admit

                admit(item, self.bounds)
        return self.learn(items)

    def learn(self, contributions: Iterable[Contribution]) -> list[Contribution]:
        """As :meth:`absorb`, for what was made in this process, or was checked where it arrived and then capped."""
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
            self.readout.take(accepted, self._shuffler)
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
        self.readout = self.readout.without(name, log, self._shuffler)
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

    def restate(self, said: Mapping[SiteName, Mapping[str, Any]]) -> None:
        """Bring the statements of the newest contributions of these sites up to date: what was spent since counts."""
        self._log.restate(said)

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
    def nodes(self) -> Floats:
        """Nodes that stand behind the clusters."""
        nodes = self.readout.nodes
        return nodes if len(nodes) else np.empty((0, self.n_features or 0))

    @property
    def counts(self) -> Integers:
        """Winning count of every node (at the server for the paper's, at the sites for communities)."""
        return self.readout.counts

    @property
    def node_labels(self) -> Integers:
        """Cluster of every node."""
        return self.readout.node_labels

    @property
    def scaling(self) -> Scaling:
        """How columns were made comparable, and why."""
        return self.readout.scaling

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(np.unique(self.node_labels))

    @property
    def reach(self) -> Floats:
        """Distance from each node beyond which a row is unlike anything seen; see :mod:`fcac.novelty`."""
        return self.readout.reach

    def predict(self, X: Floats, n_threads: int = 1) -> Integers:
        """Return the cluster of every row of a float64 array."""
        return self.readout.predict(X, n_threads)

    def label_rows(
        self, X: Floats, n_threads: int = 1, reach: float | None = None
    ) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Return cluster, distance to the nearest node, and novelty of every row, from one search.

        Parameters
        ----------
        X : array of shape (n, d)
        n_threads : int, default=1
        reach : float, optional
            Distance beyond which a row is novel; by default that of the nearest node, see :attr:`reach`.
        """
        labels, distance, novel = self.readout.label_rows(X, n_threads)
        return labels, distance, novel if reach is None else distance > reach

    def export(
        self,
        share_nodes: bool = False,
        feature_names: list[str] | None = None,
        schema: Schema | None = None,
        samples: Mapping[SiteName, RowSample] | None = None,
    ) -> Codebook:
        """Return only what predict needs; see :meth:`fcac.FCAC.export`.

        With samples of the sites' rows the codebook knows rates of false alarms.
        """
        if not self.n_rounds:
            raise ValueError("this server has no contributions yet")
        share_nodes = share_nodes or self.released
        book = self.readout.export(share_nodes)
        if samples:
            from fcac.federation.asking import calibrate, calibrate_codebook

            if share_nodes or not self.readout.nodes_are_contributed or book.counts is None:
                book = book.replace(calibration=calibrate(self.readout, samples))
            else:
                nodes = {site: item.nodes for site, item in self.latest().items()}
                book = book.replace(calibration=calibrate_codebook(book, samples, nodes, book.counts))
        return book.replace(feature_names=feature_names, schema=schema, counts=None)

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
        noisy = [item for item in items if item.deviation is not None]
        if noisy:
            arrays["log_noisy"] = np.array([item.deviation is not None for item in items], np.uint8)
            arrays["log_deviation"] = np.concatenate([item.deviation for item in noisy])
            arrays["log_count_deviation"] = np.concatenate([item.count_deviation for item in noisy])
        return meta, arrays

    def state_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a description and arrays that restore this server beside its log; see :meth:`resume`."""
        reader_meta, arrays = self.readout.to_parts()
        settings = self.readout.settings
        meta = {
            "kind": self.kind,
            "random_state": self.random_state,
            "n_clusters": settings.n_clusters,
            "reader": reader_meta,
        }
        if self.bounds is not None:
            meta["bounds"] = self.bounds.tolist()
        if settings.scale != "auto":
            meta["scale"] = settings.scale
        if settings.false_split_rate != FALSE_SPLIT_RATE:
            meta["false_split_rate"] = settings.false_split_rate
        return meta, {f"reader_{name}": array for name, array in arrays.items()}

    @classmethod
    def resume(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> Server:
        """Rebuild a server from :meth:`state_parts` and its log; it goes on exactly as the original would have."""
        chosen = {name: meta[name] for name in ("scale", "false_split_rate", "bounds") if name in meta}
        server = cls(meta["kind"], meta["random_state"], meta["n_clusters"], **chosen)
        server._log = log
        parts = {name.removeprefix("reader_"): array for name, array in arrays.items() if name.startswith("reader_")}
        server.readout.restore(meta["reader"], parts, log)
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
            noise = _stored_noise(arrays, sizes)
            for (site, number, batch, statement), end, size, noised in zip(entries, ends, sizes, noise, strict=True):
                if batch not in (len(batches) - 1, len(batches)):
                    raise ValueError("the rounds in this file are out of order")
                if batch == len(batches):
                    batches.append([])
                rows = slice(int(end - size), int(end))
                batches[-1].append(
                    Contribution(site, number, nodes[rows], counts[rows], statements[statement], *noised)
                )
        log = Log()
        for items in batches:
            log.add(items)
        return cls.resume(meta, arrays, log)


def _stored_noise(arrays: dict[str, NDArray[Any]], sizes: NDArray[Any]) -> list[tuple[Any, Any]]:
    """Return the deviations of every stored contribution; (None, None) for those that carried none."""
    if "log_noisy" not in arrays:
        return [(None, None)] * len(sizes)
    noisy = np.asarray(arrays["log_noisy"]).astype(bool)
    ends = np.cumsum(np.where(noisy, sizes, 0))
    found, counts = arrays["log_deviation"], arrays["log_count_deviation"]
    if noisy.shape != sizes.shape or not len(found) == len(counts) == ends[-1]:
        raise ValueError("the deviations in this file do not fit its contributions")
    return [
        (found[end - size : end], counts[end - size : end]) if has else (None, None)
        for has, end, size in zip(noisy.tolist(), ends.tolist(), sizes.tolist(), strict=True)
    ]
