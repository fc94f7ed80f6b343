"""Communities: the read-out of all sites' nodes as one graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcac._sites import site_order
from fcac._split_rate import FALSE_SPLIT_RATE, check_rate
from fcac._typing import Floats, Integers
from fcac.clusters.bounded import MAX_READ, Given, Held, bounded
from fcac.clusters.cluster_tree import Alternative, relabel_consecutive
from fcac.clusters.column_metric import check_blocks, needs_map
from fcac.clusters.noisy_columns import read_columns
from fcac.clusters.noisy_nodes import (
    Reading,
    checked_noise,
    choose_tree,
    cut_as_told,
    noise_matters,
    read_noisy,
    stored_noise,
)
from fcac.clusters.snapshot import Fitted
from fcac.clusters.tracking import Change, match_clusters
from fcac.codebook import Codebook
from fcac.codebook.codebook import coarse_codebook, reaching
from fcac.novelty import is_novel
from fcac.scaling import Scaling, check_scale
from fcac.search.gaps import without_gaps
from fcac.tables.kind import Block

# Nodes around a row that vote on how firmly it belongs.
_VOTERS = 5


class Communities:
    """Clusters of the nodes of all sites: the partition that the judge holds for the best.

    The latest nodes of every site are kept; a site's new nodes replace its old ones, so nothing is counted twice and
    dropping a site forgets it exactly. ``fit`` links each node to its nearest neighbours, proposes hierarchies, and
    takes the cut with the highest score; see :mod:`fcac.clusters.judge`. The number of clusters need not be given. The
    result depends on the present nodes only, not on the order in which they came; only the numbers of clusters, which
    last over rounds, depend on it.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters, if it is known.
    blocks : sequence of Block, optional
        The columns behind the features. With categories among them distances are measured so that a category counts by
        what it shares with other columns; see :mod:`fcac.clusters.column_metric`.
    max_nodes : int, default=16000
        Most nodes that are clustered as they are. More, all sites together, are condensed to so many first, so that
        the cost does not grow with the number of sites; see :mod:`fcac.nodes.condense`.
    scale : {"auto", "none", "standard", "robust"}, default="auto"
        How features are made comparable; see :func:`fcac.scaling.scaling_of`. With categories, and where the noise of
        the nodes is known, these decide.
    false_split_rate : float, default=0.1
        How often nodes without clusters may come out as several: the higher, the more is found.

    Attributes
    ----------
    node_labels : ndarray of shape (n_nodes,)
        Lasting cluster id of each of ``nodes``; sites in sorted order, numbers as numbers.
    n_clusters : int
    cluster_ids : ndarray
        The lasting ids, sorted.
    lineage : list of Change
        What happened to clusters, round by round: each ``fit`` after a change of nodes is a round.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.clusters import Communities
    >>> rng = np.random.default_rng(0)
    >>> here, there = rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + [12, 0]
    >>> model = Communities().update({"a": (here, np.ones(200)), "b": (there, np.ones(200))}).fit()
    >>> model.n_clusters, model.predict([[0, 0], [12, 0]]).tolist()
    (2, [0, 1])
    >>> _ = model.set_site("b", there + [0, 12], np.ones(200)).fit()
    >>> [(c.kind, c.cluster) for c in model.lineage if c.round == 2]
    [('born', 2), ('died', 1)]
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        blocks: Sequence[Block] | None = None,
        max_nodes: int = MAX_READ,
        scale: str = "auto",
        false_split_rate: float = FALSE_SPLIT_RATE,
    ) -> None:
        if n_clusters is not None and (n_clusters != int(n_clusters) or n_clusters < 1):
            raise ValueError(f"n_clusters must be a whole number of at least 1, or None; it is {n_clusters!r}")
        if max_nodes != int(max_nodes) or max_nodes < 2:
            raise ValueError(f"max_nodes must be a whole number of at least 2; it is {max_nodes!r}")
        self.wanted_clusters = None if n_clusters is None else int(n_clusters)
        self.max_nodes = int(max_nodes)
        self.blocks = None if blocks is None else tuple(blocks)
        self.scale = check_scale(scale)
        self.false_split_rate = check_rate(false_split_rate)
        self.lineage: list[Change] = []
        self.n_rounds = 0
        self._sites: dict[Any, tuple[Floats, Floats]] = {}
        # deviations of positions and counts, for sites whose nodes are noisy
        self._noise: dict[Any, tuple[Floats, Floats]] = {}
        self._given: Given | None = None
        self._reading: Reading | None = None
        self._next_id = 0
        self._fitted: Fitted | None = None

    # ------------------------------------------------------------ nodes of sites

    def set_site(
        self,
        site: Any,
        nodes: ArrayLike,
        counts: ArrayLike,
        deviation: ArrayLike | None = None,
        count_deviation: ArrayLike | None = None,
    ) -> Self:
        """Store a site's nodes in place of its earlier ones; ``fit`` makes use of them.

        If most of all nodes carry deviations, and they are not very many, ``fit`` reads them as
        :mod:`fcac.clusters.noisy_nodes` says, and ``nodes`` are where they are most likely to be.

        Parameters
        ----------
        site : str or int
        nodes : array-like of shape (k, d)
        counts : array-like of shape (k,)
            Records behind each node, above zero.
        deviation : array-like of shape (k, d), optional
            Standard deviation of the noise in every value of ``nodes``, if they are noisy.
        count_deviation : array-like of shape (k,), optional
            The same of ``counts``; goes with ``deviation``.
        """
        nodes = np.array(nodes, dtype=np.float64, order="C")
        counts = np.array(counts, dtype=np.float64)
        if nodes.ndim != 2 or counts.shape != (len(nodes),):
            shapes = f"{nodes.shape} and {counts.shape}"
            raise ValueError(f"site {site!r}: nodes must be a table with one count per row; their shapes are {shapes}")
        if not np.isfinite(nodes).all() or not np.isfinite(counts).all() or (counts <= 0).any():
            raise ValueError(f"site {site!r}: nodes must be finite and counts above zero")
        others = next((held for name, (held, _) in self._sites.items() if name != site), nodes)
        if others.shape[1] != nodes.shape[1]:
            raise ValueError(
                f"site {site!r}: nodes have {nodes.shape[1]} features, those of other sites {others.shape[1]}"
            )
        noise = checked_noise(site, nodes, deviation, count_deviation)
        held, before = self._sites.get(site), self._noise.get(site)
        if held is None or not (np.array_equal(held[0], nodes) and np.array_equal(held[1], counts)):
            self._sites[site] = nodes, counts
        if noise is None:
            self._noise.pop(site, None)
        elif before is None or not (np.array_equal(before[0], noise[0]) and np.array_equal(before[1], noise[1])):
            self._noise[site] = noise
        return self

    def drop_site(self, site: Any) -> Self:
        """Forget a site's nodes; after the next ``fit`` nothing of them is left."""
        if site not in self._sites:
            raise KeyError(f"no nodes of site {site!r} are held")
        del self._sites[site]
        self._noise.pop(site, None)
        return self

    def update(self, contributions: Mapping[Any, tuple[ArrayLike, ArrayLike]]) -> Self:
        """Store the nodes and counts of several sites: ``{site: (nodes, counts)}``."""
        for site, (nodes, counts) in contributions.items():
            self.set_site(site, nodes, counts)
        return self

    def copy(self) -> Communities:
        """Return a model that can be changed while this one stays whole; arrays are shared, never written to."""
        fresh = copy.copy(self)
        fresh._sites, fresh._noise, fresh.lineage = dict(self._sites), dict(self._noise), list(self.lineage)
        return fresh

    @property
    def sites(self) -> list[Any]:
        """The sites, in the order of their nodes."""
        return site_order(self._sites)

    # ------------------------------------------------------------ clustering

    def fit(self) -> Self:
        """Cluster the nodes as they are now. Without a change since the last ``fit`` nothing happens."""
        sites = self.sites
        if not sites or not sum(len(self._sites[s][0]) for s in sites):
            raise ValueError("there are no nodes to cluster: call set_site or update first")
        before = self._fitted
        given, held, scales = self._read()
        if before is not None and before.holds(held, given.sites):
            return self
        now = self._chosen(self._fitted_to(given, held, scales))
        if self.wanted_clusters is not None:
            possible = now.tree().n_most
            if self.wanted_clusters > possible:
                warnings.warn(
                    f"n_clusters is {self.wanted_clusters}, but there are {possible} distinct places to tell apart; "
                    f"so there are {possible} clusters",
                    UserWarning,
                    stacklevel=2,
                )
            now.take_tree(cut_as_told(now.tree(), min(self.wanted_clusters, possible)))
        labels = relabel_consecutive(now.tree().labels()[now.point_of])
        if before is None or not len(before.ids):
            origin, mass_before = np.full(len(labels), -1, dtype=np.int64), {}
        else:
            origin, mass_before = now.origin(before), before.masses()
        self.n_rounds += 1
        ids, changes, self._next_id = match_clusters(
            labels, now.counts, origin, mass_before, self._next_id, self.n_rounds
        )
        now.ids = ids[labels]
        self.lineage.extend(changes)
        self._fitted = now
        return self

    def _bounded(self) -> Given:
        """Return the nodes of all sites; more than are read are condensed, as one site's."""
        self._given = bounded(self.sites, self._sites, self._noise, self.max_nodes, self.scale, self._given)
        return self._given

    def _read(self) -> tuple[Given, Held, Scaling | str]:
        """Return the nodes to cluster, denoised if their noise is known, and how features are scaled."""
        given = self._bounded()
        # noisy nodes of mixed columns are read by `read_columns`
        if needs_map(self.blocks) or not noise_matters(given.held, given.noise):
            self._reading = None
            return given, given.held, self.scale
        if self._reading is None or not self._reading.holds(given.sites, given.held, given.noise):
            self._reading = read_noisy(given.sites, given.held, given.noise)
        scaling = Scaling("noise", self._reading.scales, "columns in units of the noise added to them")
        return given, self._reading.held, scaling

    def _fitted_to(self, given: Given, held: Held, scales: Scaling | str) -> Fitted:
        noised = noise_matters(given.held, given.noise)
        return Fitted(
            held, given.sites, scales, self.blocks, noised=noised, wanted=self.wanted_clusters,
            false_split_rate=self.false_split_rate,
        )  # fmt: skip

    def _chosen(self, now: Fitted) -> Fitted:
        """Return the reading that suits the nodes: the graph or, where their noise is known, what is clearer."""
        if self._reading is not None:
            now.take_tree(choose_tree(self._reading, now))
        elif self.blocks is not None and needs_map(self.blocks):
            given = self._bounded()
            if noise_matters(given.held, given.noise):
                return read_columns(now, given.noise, self.blocks, self.wanted_clusters)
        return now

    def _result(self) -> Fitted:
        if self._fitted is None:
            raise ValueError("call fit first")
        return self._fitted

    @property
    def node_labels(self) -> Integers:
        """Lasting cluster id of every node, sites in sorted order."""
        return self._result().ids

    @property
    def nodes(self) -> Floats:
        """All nodes that are clustered, in the order of ``node_labels``."""
        return self._result().nodes

    @property
    def counts(self) -> Floats:
        """Records behind each node."""
        return self._result().counts

    @property
    def counted_in(self) -> Integers | None:
        """Which of ``nodes`` each node of the sites is counted in, sites in order; None: they are the sites' own."""
        return self._bounded().counted_in

    def points_of(self, site: Any) -> NDArray[np.bool_]:
        """Tell for every point of the search whether it stands for nodes of this site: its own alone, if they are few.

        Where nodes are condensed nearly all are of several sites; otherwise such a point stays without this one.
        """
        result, counted_in, sites = self._result(), self._bounded().counted_in, self.sites
        start = sum(len(self._sites[name][0]) for name in sites[: sites.index(site)])
        nodes = slice(start, start + len(self._sites[site][0]))
        own = np.zeros(len(result.points), dtype=bool)
        own[result.point_of[nodes if counted_in is None else counted_in[nodes]]] = True
        if counted_in is None:
            own &= result.of_one_site()
        return own

    @property
    def feature_scales(self) -> Floats:
        """Factor of every feature in the distance; where there is a map, it takes their place."""
        return self._result().scales

    @property
    def scaling(self) -> Scaling:
        """How features were made comparable, and why."""
        return self._result().scaling

    @property
    def feature_map(self) -> Floats | None:
        """Matrix from features to the coordinates in which distances are measured, where there are categories."""
        return self._result().map

    @property
    def cluster_ids(self) -> Integers:
        """Lasting ids of the present clusters, sorted."""
        return np.unique(self.node_labels)

    @property
    def n_clusters(self) -> int:
        """Number of present clusters."""
        return len(self.cluster_ids)

    @property
    def cluster_probability(self) -> dict[int, float]:
        """How probable it is of each cluster that it is one, and apart from the others."""
        result = self._result()
        tree = result.tree()
        # clusters of the tree are numbered by first point
        labels = tree.labels()
        ids = result.point_ids()[np.unique(labels, return_index=True)[1]]
        return dict(zip(ids.tolist(), tree.cluster_probability().tolist(), strict=True))

    def alternatives(self, most: int = 5) -> list[Alternative]:
        """Return the most probable numbers of clusters, each with its best partition of the nodes; the found one first.

        Empty where a private release leaves one reading only.
        """
        result = self._result()
        return [
            Alternative(other.n_clusters, other.probability, relabel_consecutive(other.node_labels[result.point_of]))
            for other in result.tree().alternatives(most)
        ]

    def clusters_at(self, level: int) -> Integers:
        """Return another cut of the same tree: a label for every node, 0 to ``level`` - 1.

        Fewer clusters are unions of the found ones, more are parts of them.

        Parameters
        ----------
        level : int
            How many clusters are wanted.

        Returns
        -------
        labels : ndarray of shape (n_nodes,)
        """
        result = self._result()
        if level != int(level):
            raise ValueError(f"level must be a whole number of clusters; it is {level!r}")
        return relabel_consecutive(result.tree().nested(int(level))[result.point_of])

    # ------------------------------------------------------------ rows

    @overload
    def predict(self, X: ArrayLike, return_confidence: Literal[False] = False, novelty: bool = False) -> Integers: ...

    @overload
    def predict(
        self, X: ArrayLike, return_confidence: Literal[True], novelty: bool = False
    ) -> tuple[Integers, Floats]: ...

    def predict(
        self, X: ArrayLike, return_confidence: bool = False, novelty: bool = False
    ) -> Integers | tuple[Integers, Floats]:
        """Return the cluster of the node nearest to each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_confidence : bool, default=False
            Also return how firmly each row belongs: the share of its nearest nodes, nearer ones counting more, that
            belong to the same cluster.
        novelty : bool, default=False
            Label -1 rows that are unlike anything seen; see :mod:`fcac.novelty`.

        Returns
        -------
        labels : ndarray of shape (n,)
        confidence : ndarray of shape (n,), if asked for
        """
        result, rows = self._result(), self._rows(X)
        if not return_confidence and not novelty:
            return result.label_search().of(rows)
        voters = min(_VOTERS, len(result.points)) if return_confidence else 1
        near, squared = result.searcher().nearest(rows, voters)
        around = result.point_ids()[near]
        labels, confidence = around[:, 0], _support(around, squared)
        if novelty:
            labels = np.where(is_novel(near[:, 0], np.sqrt(squared[:, 0]), result.reach()), -1, labels)
        return (labels, confidence) if return_confidence else labels

    def inner_nodes(self, n_neighbors: int = 20) -> NDArray[np.bool_]:
        """Tell for every node whether its nearest nodes are all of its own cluster: whether no border is near."""
        result = self._result()
        near: NDArray[Any] = result.near()[0][:, : n_neighbors - 1]
        if near.shape[1] < n_neighbors - 1:  # the lists of few nodes are shorter
            near, _ = result.searcher().nearest(result.points, min(n_neighbors, len(result.points)))
        ids = result.point_ids()
        return np.asarray((ids[near] == ids[:, None]).all(axis=1))[result.point_of]

    def distance_to_nearest(self, X: ArrayLike) -> Floats:
        """Return the distance of each row to its nearest node, in the scaled features the clusters were found in."""
        return np.sqrt(self._result().searcher().nearest(self._rows(X), 1)[1][:, 0])

    def is_novel(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Tell for every row whether it is unlike anything seen.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        novel : ndarray of bool, shape (n,)
        """
        return self.label_rows(X)[2]

    def label_rows(self, X: ArrayLike) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Return cluster, distance to the nearest node, and novelty of each row, from one search."""
        result = self._result()
        near, squared = result.searcher().nearest(self._rows(X), 1)
        position, distance = near[:, 0], np.sqrt(squared[:, 0])
        return result.point_ids()[position], distance, is_novel(position, distance, result.reach())

    @property
    def reach(self) -> Floats:
        """Distance from each node, in scaled features, beyond which a row is novel; in the order of ``nodes``."""
        result = self._result()
        return result.reach()[result.point_of]

    def _rows(self, X: ArrayLike) -> Floats:
        result = self._result()
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != result.nodes.shape[1]:
            raise ValueError(f"X must be a table with {result.nodes.shape[1]} features; its shape is {rows.shape}")
        if np.isinf(rows).any():
            raise ValueError("X holds infinity: remove these rows first")
        return result.placed(without_gaps(rows, result.nodes))

    def codebook(self) -> Codebook:
        """Return all nodes as a codebook, which reads rows exactly as this model does.

        A node that several sites sent is in it once. The order is that of the search, so that of several nodes at the
        same distance from a row both take the same one.
        """
        result = self._result()
        first = result.first
        return Codebook(
            result.nodes[first],
            result.ids[first],
            scales=result.scales,
            map=result.map,
            reach=result.reach(),
            counts=np.bincount(result.point_of, weights=result.counts),
        )

    def condense(self, max_nodes: int = 256, min_nodes: int = 3) -> Codebook:
        """Return a small codebook that predicts nearly the same and holds no site's node.

        Every codeword is the mean of at least ``min_nodes`` nodes of one cluster. A cluster of fewer nodes is left
        out, because its codeword would give a record away.

        Parameters
        ----------
        max_nodes : int, default=256
        min_nodes : int, default=3

        Returns
        -------
        Codebook
        """
        if max_nodes < 1 or min_nodes < 1:
            raise ValueError(f"max_nodes and min_nodes must be at least 1; they are {max_nodes} and {min_nodes}")
        result = self._result()
        how_many = int(max_nodes), int(min_nodes)
        means = coarse_codebook(result.nodes, result.counts, result.ids, result.scales, *how_many, map=result.map)
        return reaching(means, result.nodes, self.reach)

    # ------------------------------------------------------------ storage

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as values for JSON and arrays, for :meth:`from_parts`."""
        sites = self.sites
        names = [site.item() if isinstance(site, np.generic) else site for site in sites]
        meta: dict[str, Any] = {
            "n_clusters": self.wanted_clusters,
            "max_nodes": self.max_nodes,
            "n_rounds": self.n_rounds,
            "next_id": self._next_id,
            "lineage": [change.to_json() for change in self.lineage],
            "sites": names,
            "sizes": [len(self._sites[s][0]) for s in sites],
            "fitted": self._fitted is not None and bool(sites) and self._holds_present(),
        }
        if self.scale != "auto":
            meta["scale"] = self.scale
        if self.false_split_rate != FALSE_SPLIT_RATE:
            meta["false_split_rate"] = self.false_split_rate
        if needs_map(self.blocks):
            meta["blocks"] = [list(block) for block in self.blocks or ()]
        arrays: dict[str, NDArray[Any]] = {
            "nodes": np.concatenate([self._sites[s][0] for s in sites]) if sites else np.zeros((0, 0)),
            "counts": np.concatenate([self._sites[s][1] for s in sites]) if sites else np.zeros(0),
        }
        if meta["fitted"]:
            arrays["node_labels"] = self.node_labels
        noisy = [s for s in sites if s in self._noise]
        if noisy:
            meta["noisy"] = [s in self._noise for s in sites]
            arrays["deviation"] = np.concatenate([self._noise[s][0] for s in noisy])
            arrays["count_deviation"] = np.concatenate([self._noise[s][1] for s in noisy])
        return meta, arrays

    def _holds_present(self) -> bool:
        given, held, _ = self._read()
        return self._result().holds(held, given.sites)

    @classmethod
    def from_parts(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Communities:
        """Rebuild a model from :meth:`to_parts`; whatever does not fit together is a ValueError."""
        try:
            blocks = check_blocks(meta["blocks"]) if "blocks" in meta else None
            chosen = {name: meta[name] for name in ("scale", "false_split_rate") if name in meta}
            model = cls(meta["n_clusters"], blocks, meta["max_nodes"], **chosen)
            model.n_rounds, model._next_id = int(meta["n_rounds"]), int(meta["next_id"])
            model.lineage = [Change.from_json(values) for values in meta["lineage"]]
            sites, sizes = list(meta["sites"]), [int(size) for size in meta["sizes"]]
            nodes, counts = np.asarray(arrays["nodes"]), np.asarray(arrays["counts"])
            if len(sites) != len(sizes) or min(sizes, default=0) < 0 or not sum(sizes) == len(nodes) == len(counts):
                raise ValueError("the sizes of sites do not add up to the stored nodes")
            if blocks is not None and sum(block.width for block in blocks) != nodes.shape[1]:
                raise ValueError("the stored columns do not fit the number of features")
            ends = np.cumsum(sizes)[:-1]
            noise = stored_noise(meta.get("noisy", [False] * len(sizes)), sizes, arrays)
            for site, some, their, noised in zip(
                sites, np.split(nodes, ends), np.split(counts, ends), noise, strict=True
            ):
                model.set_site(site, some, their, *noised)
            if model.sites != sites:
                raise ValueError("the sites are not in order or not distinct")
            if meta["fitted"]:
                ids = np.asarray(arrays["node_labels"], dtype=np.int64)
                model._fitted = model._chosen(model._fitted_to(*model._read()))
                known = model._fitted.counts.shape
                if ids.shape != known or not len(ids) or ids.min() < 0 or ids.max() >= model._next_id:
                    raise ValueError("the stored labels do not fit the stored nodes")
                model._fitted.ids = ids
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"the stored communities are incomplete ({type(error).__name__}: {error})") from None
        return model


def _support(ids: Integers, squared: Floats) -> Floats:
    """Share of the neighbours' votes for the first one's cluster; a vote weighs one over the distance."""
    distance = np.sqrt(squared)
    weight = 1 / np.maximum(distance, np.maximum(1e-3 * distance[:, -1:], 1e-300))
    share: Floats = (weight * (ids == ids[:, :1])).sum(axis=1) / weight.sum(axis=1)
    return share
