"""What a server does with contributions: the interface, and a base for servers that keep every site's latest nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, site_order
from fcac._split_rate import FALSE_SPLIT_RATE, check_rate
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters.bounded import MAX_READ
from fcac.clusters.tracking import Move
from fcac.codebook import Codebook
from fcac.codebook.codebook import coarse_codebook
from fcac.federation.contribution import Contribution
from fcac.federation.log import Log
from fcac.scaling import Scaling, check_scale
from fcac.tables.kind import Block

#: Gives the random generator of a round, from the server's seed and the round's number only.
Shuffler = Callable[[Sequence[Contribution]], np.random.RandomState]

# A node this near a row is the row.
_SAME = 1e-6


class Settings(NamedTuple):
    """How nodes are read; what each means stands at :class:`fcac.federation.Server`."""

    n_clusters: int | None = None
    blocks: tuple[Block, ...] | None = None
    max_nodes: int = MAX_READ
    scale: str = "auto"
    false_split_rate: float = FALSE_SPLIT_RATE


_USUAL = Settings()


class ReadOut(ABC):
    """Turns the nodes that sites contribute into clusters.

    To add a server, put a subclass into a file of ``fcac/federation/readouts``; the file's name is the server's name.
    `LatestNodes` does all but the clustering for servers that look at the latest nodes of every site.

    Attributes
    ----------
    title : str
        The server in a report's words.
    count_noun : str
        What a node's count is a number of: "rows", or "wins" where nodes compete.
    accepts_n_clusters : bool
        Whether a user may say how many clusters are wanted.
    nodes_are_contributed : bool
        Whether the nodes behind the clusters are the sites' own, which can be records.
    names_last : bool
        Whether a cluster keeps its id from round to round.
    rescales : bool
        Whether it makes columns comparable; otherwise distances are those of the columns as they are.
    condenser : {"reservoir", "ca-plus"}
        How sites turn rows into nodes for this server.
    condenses : bool
        Whether it condenses nodes beyond `max_nodes` before it reads them.
    max_replayed_nodes : int
        Contributed nodes beyond which a report does not replay all rounds.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str]
    count_noun: ClassVar[str] = "rows"
    accepts_n_clusters: ClassVar[bool] = False
    nodes_are_contributed: ClassVar[bool] = True
    names_last: ClassVar[bool] = False
    rescales: ClassVar[bool] = False
    condenser: ClassVar[Literal["reservoir", "ca-plus"]] = "reservoir"
    condenses: ClassVar[bool] = False
    max_replayed_nodes: ClassVar[int] = 60_000

    def __init__(self, settings: Settings = _USUAL) -> None:
        if settings.n_clusters is not None and not self.accepts_n_clusters:
            raise ValueError(
                f'n_clusters: server="{self.name}" finds the number of clusters itself; leave n_clusters out, '
                'or use server="communities"'
            )
        check_rate(settings.false_split_rate)
        if check_scale(settings.scale) not in ("auto", "none") and not self.rescales:
            raise ValueError(
                f'scale: server="{self.name}" compares columns as they are; leave scale out, or use '
                'server="communities"'
            )
        self.settings = settings
        #: how far clusters have moved, round by round, where names last and as far as this program has seen it
        self.moves: list[Move] = []

    # ------------------------------------------------------------ learning

    @abstractmethod
    def take(self, batch: Sequence[Contribution], shuffler: Shuffler) -> None:
        """Take in the contributions of one round, sites in order. A failure must leave everything as it was."""

    @abstractmethod
    def without(self, site: SiteName, rest: Log, shuffler: Shuffler) -> Self:
        """Return the read-out as it would be if a site had never contributed; `rest` is the log without it."""

    # ------------------------------------------------------------ what there is

    @property
    @abstractmethod
    def nodes(self) -> Floats:
        """Nodes behind the clusters."""

    @property
    @abstractmethod
    def counts(self) -> Integers:
        """Count of every node."""

    @property
    @abstractmethod
    def node_labels(self) -> Integers:
        """Cluster of every node."""

    @property
    def scaling(self) -> Scaling:
        """How columns were made comparable."""
        return Scaling("none", np.ones(self.nodes.shape[1]), f"columns as they are: {self.title} rescales nothing")

    @property
    def edges(self) -> Integers:
        """Linked nodes, as positions (m, 2)."""
        return np.empty((0, 2), np.int64)

    @property
    def lineage(self) -> list[Any]:
        """What happened to clusters over rounds, where names last."""
        return []

    @property
    def n_told(self) -> tuple[int, int]:
        """How many changes and how many moves of clusters it has told of so far."""
        return len(self.lineage), len(self.moves)

    # ------------------------------------------------------------ reading rows

    @property
    @abstractmethod
    def reach(self) -> Floats:
        """Distance from each node beyond which a row is novel; see :mod:`fcac.novelty`."""

    @abstractmethod
    def predict(self, X: Floats, n_threads: int) -> Integers:
        """Return the cluster of every row."""

    @abstractmethod
    def label_rows(self, X: Floats, n_threads: int) -> tuple[Integers, Floats, Booleans]:
        """Return cluster, distance to the nearest node, and novelty of every row, from one search."""

    @abstractmethod
    def distance_to_nearest(self, X: Floats, n_threads: int) -> Floats:
        """Return the distance of every row to its nearest node."""

    @abstractmethod
    def distances(self, X: Floats, n_threads: int) -> Floats:
        """Return the distance of every row to every node."""

    def left_out_distance(self, rows: Floats, weights: Floats, site: SiteName) -> Floats:
        """Return the distance of a site's rows to their nearest node, as if they had not been learned.

        Here a row is left out of a node only if the node is this row, which came so many times, and nothing else.
        """
        nearest = np.empty(len(rows))
        for start in range(0, len(rows), 256):
            apart = self.distances(rows[start : start + 256], 1)
            apart[apart < _SAME] = np.inf
            nearest[start : start + 256] = apart.min(axis=1)
        return nearest

    @property
    def counted_in(self) -> Integers | None:
        """Which of the server's nodes each node of the sites is counted in; None where they are its own, or unknown."""
        return None

    def inner_nodes(self) -> Booleans | None:
        """Tell for every node whether the nodes around it are all of its cluster; None if the server cannot tell."""
        return None

    def predict_with_confidence(self, X: Floats) -> tuple[Integers, Floats]:
        """Return the cluster of every row and how firmly it belongs, where the server can tell."""
        raise AttributeError(f'confidence: server="{self.name}" has no soft membership; use server="communities"')

    def clusters_at(self, level: int) -> Integers:
        """Return another cut of the hierarchy, where the server has one."""
        raise AttributeError(f'clusters_at: server="{self.name}" has no hierarchy; use server="communities"')

    @abstractmethod
    def export(self, share_nodes: bool) -> Codebook:
        """Return what predict needs; without `share_nodes` it must not hold a node that a site contributed."""

    # ------------------------------------------------------------ storage

    @abstractmethod
    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as values for JSON and arrays, without what the log holds already."""

    @abstractmethod
    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> None:
        """Take over a state of :meth:`to_parts`; whatever does not fit the log is a ``ValueError``."""


class CodebookReadOut(ReadOut):
    """Base for servers that keep their nodes in a codebook, which answers all questions; distances are Euclidean."""

    _book: Codebook | None = None

    def _codebook(self) -> Codebook:
        if self._book is None:
            raise ValueError("this server has no contributions yet")
        return self._book

    @property
    def nodes(self) -> Floats:
        return self._codebook().nodes

    @property
    def counts(self) -> Integers:
        counts = self._codebook().counts
        assert counts is not None
        return np.rint(counts).astype(np.int64)

    @property
    def node_labels(self) -> Integers:
        return self._codebook().labels

    @property
    def reach(self) -> Floats:
        return self._codebook().reach

    def predict(self, X: Floats, n_threads: int) -> Integers:
        return self._codebook().predict(X)

    def label_rows(self, X: Floats, n_threads: int) -> tuple[Integers, Floats, Booleans]:
        return self._codebook().label_rows(X)

    def distance_to_nearest(self, X: Floats, n_threads: int) -> Floats:
        return self._codebook().nearest(X)[1]

    def distances(self, X: Floats, n_threads: int) -> Floats:
        from scipy.spatial.distance import cdist

        distances: Floats = cdist(X, self.nodes)
        return distances


class LatestNodes(CodebookReadOut):
    """Base for servers that cluster the latest nodes of every site at once.

    A site's newer contribution takes the place of its older one, since a site always sends its whole model; a late one
    of an earlier round changes nothing. A subclass says with :meth:`cluster` which nodes belong together.
    """

    _latest: Mapping[SiteName, Contribution] = MappingProxyType({})

    @abstractmethod
    def cluster(self, nodes: Floats, counts: Floats) -> Integers:
        """Return a label for every node, given the rows behind each."""

    def take(self, batch: Sequence[Contribution], shuffler: Shuffler) -> None:
        latest = dict(self._latest)
        for item in batch:
            if len(item.nodes) and (item.site not in latest or item.round >= latest[item.site].round):
                latest[item.site] = item
        self._adopt(latest)

    def without(self, site: SiteName, rest: Log, shuffler: Shuffler) -> Self:
        other = type(self)(self.settings)
        other._adopt({name: item for name, item in self._latest.items() if name != site})
        return other

    def _adopt(self, latest: Mapping[SiteName, Contribution]) -> None:
        book = None
        if latest:
            items = [latest[site] for site in site_order(latest)]
            nodes = np.concatenate([item.nodes for item in items])
            counts = np.concatenate([item.counts for item in items]).astype(np.float64)
            book = Codebook(nodes, self.cluster(nodes, counts), counts=counts)
        self._latest, self._book = latest, book

    def export(self, share_nodes: bool) -> Codebook:
        book = self._codebook()
        if share_nodes:
            return book.replace(counts=None)
        assert book.counts is not None
        return coarse_codebook(book.nodes, book.counts, book.labels, np.ones(book.n_features))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"rounds": [[site, item.round] for site, item in self._latest.items()]}, {}

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> None:
        rounds = dict(meta["rounds"])
        held = {item.site: item for item in log.find_all(rounds.items()) if item is not None}
        if set(held) != set(rounds):
            raise ValueError("the read-out in this file does not fit its contributions")
        self._adopt(held)
