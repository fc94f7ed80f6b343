"""Only what `predict` needs: nodes, their clusters and how to measure; what is exported and what sites fetch."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from fcac._rows import Rows
from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.art.network import Network, Rules
from fcac.novelty import Calibration, is_novel, reach_of_means
from fcac.search.exact import nearest
from fcac.search.gaps import without_gaps
from fcac.tables.schema import Schema, schema_in

if TYPE_CHECKING:
    from fcac.search.exact import Searcher

# What a network accepts as a bandwidth at least; next to any real bandwidth it is nothing.
_NO_WIDTH = 1e-170
_LARGEST_SUM = 1e150
_PREPARED = ("_network", "_searcher", "_nodes_alone")


class Codebook:
    """Labelled nodes that label rows; it cannot learn, and knows nothing of sites or contributions.

    Parameters
    ----------
    nodes : array of shape (K, d)
    labels : array of shape (K,)
    bandwidth : float, optional
        Kernel bandwidth of the correntropy-induced metric. None: Euclidean distance after dividing by `scale`.
    scale : array of shape (d,), optional
        Divisor of each feature, with Euclidean distance.
    scales : array of shape (d,), optional
        In place of `scale`: the factor of each feature.
    map : array of shape (d, r), optional
        In place of both: the matrix from features to the coordinates in which distances are Euclidean.
    threshold : float
        Distance beyond which a row is unlike anything seen, if it is the same for all nodes.
    reach : array of shape (K,), optional
        In place of `threshold`: this distance for every node; see :mod:`fcac.novelty`.
    feature_names : list of str, optional
    counts : array of shape (K,), optional
        Records behind each node, where they may be known; an exported codebook has none.
    schema : Schema, optional
        How rows become the features meant here; `fcac predict` reads tables by it.
    calibration : Calibration, optional
        How far fresh rows lie from the nodes. With it a row is novel by a false-alarm rate, and `reach` is of no use.

    Examples
    --------
    >>> from fcac.codebook import Codebook
    >>> book = Codebook([[0.0], [9.0]], [0, 1], threshold=2.0)
    >>> book.predict([[1.0], [8.0]]).tolist(), book.is_novel([[1.0], [4.5]]).tolist()
    ([0, 1], [False, True])
    """

    def __init__(
        self,
        nodes: Any,
        labels: Any,
        *,
        bandwidth: float | None = None,
        scale: Any = None,
        scales: Any = None,
        map: Any = None,
        threshold: float = np.inf,
        reach: Any = None,
        feature_names: list[str] | None = None,
        counts: Any = None,
        schema: Schema | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.nodes: Floats = np.ascontiguousarray(nodes, dtype=np.float64)
        self.labels: Integers = np.ascontiguousarray(labels, dtype=np.int64)
        self.bandwidth = None if bandwidth is None else float(bandwidth)
        if scale is not None and scales is not None:
            raise ValueError("a codebook takes scale or scales, not both: one is the inverse of the other")
        if reach is not None and threshold != np.inf:
            raise ValueError("a codebook takes a reach for every node or one threshold for all, not both")
        # a factor is kept as it was given: its inverse, inverted again, may differ in the last bit
        self._factors: Floats | None = None if scales is None else np.ascontiguousarray(scales, dtype=np.float64)
        if self._factors is not None:
            with np.errstate(divide="ignore"):  # refused below
                scale = 1.0 / self._factors
        self.scale: Floats | None = None if scale is None else np.ascontiguousarray(scale, dtype=np.float64)
        self.map: Floats | None = None if map is None else np.ascontiguousarray(map, dtype=np.float64)
        alike = np.full(len(self.nodes), threshold) if reach is None else reach
        self.reach: Floats = np.ascontiguousarray(alike, dtype=np.float64)
        self.feature_names = feature_names
        self.counts: Floats | None = None if counts is None else np.ascontiguousarray(counts, dtype=np.float64)
        self.schema = schema
        self.calibration = calibration
        self._check()

    def _check(self) -> None:
        if self.nodes.ndim != 2 or not len(self.nodes) or not np.isfinite(self.nodes).all():
            raise ValueError("a codebook needs finite nodes of shape (nodes, features)")
        if self.labels.shape != (len(self.nodes),):
            raise ValueError("a codebook needs one label per node")
        if self.bandwidth is not None and not 0 < self.bandwidth < np.inf:
            raise ValueError("the bandwidth of a codebook must be positive")
        if self.scale is not None and (self.scale.shape != (self.n_features,) or not (self.scale > 0).all()):
            raise ValueError("the scale of a codebook must be positive, one value per feature")
        if self.map is not None:
            fits = self.map.ndim == 2 and len(self.map) == self.n_features and np.isfinite(self.map).all()
            if not fits or self.bandwidth is not None:
                raise ValueError("the map of a codebook must be finite, with one row per feature, and no bandwidth")
        if self.reach.shape != (len(self.nodes),) or not (self.reach >= 0).all():
            raise ValueError("the reach (or threshold) of a codebook must not be negative, one value per node")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise ValueError("a codebook needs one name per feature")
        if self.counts is not None and (self.counts.shape != (len(self.nodes),) or not (self.counts >= 0).all()):
            raise ValueError("the counts of a codebook must not be negative, one per node")
        if self.schema is not None and self.schema.n_features != self.n_features:
            raise ValueError(
                f"the schema has {self.schema.n_features} features, the nodes of this codebook {self.n_features}"
            )

    def __repr__(self) -> str:
        sizes = [(len(self.nodes), "node"), (len(np.unique(self.labels)), "cluster"), (self.n_features, "feature")]
        return f"Codebook({', '.join(counted(n, word) for n, word in sizes)})"

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.nodes.shape[1])

    @property
    def scales(self) -> Floats:
        """Factor of every feature in the Euclidean distance: one over `scale`."""
        if self._factors is not None:
            return self._factors
        return np.ones(self.n_features) if self.scale is None else 1.0 / self.scale

    @property
    def threshold(self) -> float:
        """The farthest reach of any node: beyond it every row is novel."""
        return float(self.reach.max())

    def replace(self, **changes: Any) -> Codebook:
        """Return a codebook that differs in the parameters named here, by their names in the constructor."""
        kept: dict[str, Any] = {
            "nodes": self.nodes,
            "labels": self.labels,
            "bandwidth": self.bandwidth,
            "map": self.map,
            "feature_names": self.feature_names,
            "counts": self.counts,
            "schema": self.schema,
            "calibration": self.calibration,
        }
        kept |= {"scale": self.scale} if self._factors is None else {"scales": self._factors}
        if "threshold" not in changes:
            kept["reach"] = self.reach
        return type(self)(**kept | changes)

    def only(self, which: NDArray[Any]) -> Codebook:
        """Return a codebook of some of the nodes, named by position or by a mask."""
        counts = None if self.counts is None else self.counts[which]
        kept = {"nodes": self.nodes[which], "labels": self.labels[which], "reach": self.reach[which]}
        # rows lie farther from fewer nodes
        return self.replace(**kept, counts=counts, calibration=None)

    def nearest(self, X: Any) -> tuple[Integers, Floats]:
        """Return position of, and distance to, the nearest node of every row."""
        # gaps are for rows that come through a schema, and the correntropy of whole rows knows none
        rows = Rows(X, "Codebook", allow_gaps=self.bandwidth is None)
        if rows.n_features != self.n_features:
            raise ValueError(f"X has {rows.n_features} features, the codebook has {self.n_features}")
        read = self._network.nearest if self.bandwidth is not None else self._nearest_euclidean
        parts = [read(block) for block in rows.blocks()]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def nearest_few(self, rows: Floats, k: int) -> tuple[Integers, Floats]:
        """Return positions of, and distances to, the k nearest nodes of every row, or all nodes if there are fewer."""
        k = min(k, len(self.nodes))
        if self.bandwidth is None:
            position, squared = self._searcher.nearest(self.placed(rows), k)
            return position, np.sqrt(squared)
        apart = self._network.distances(rows)
        position = np.argsort(apart, axis=1, kind="stable")[:, :k].astype(np.int64)
        return position, np.take_along_axis(apart, position, axis=1)

    def predict(self, X: Any) -> Integers:
        """Return the cluster of every row."""
        return self.labels[self.nearest(X)[0]]

    def is_novel(self, X: Any, alpha: float | None = None) -> NDArray[np.bool_]:
        """Tell for every row whether it is unlike anything seen.

        Parameters
        ----------
        X : array-like of shape (n, d)
        alpha : float, optional
            Share of fresh rows from what was learned that may be called novel; 0.01 by default. A codebook without
            calibration goes by the reach of its nodes; asked for a rate, it guesses from its nodes alone.

        Returns
        -------
        novel : ndarray of bool, shape (n,)
        """
        return self.label_rows(X, alpha)[2]

    def label_rows(self, X: Any, alpha: float | None = None) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Cluster, distance to the nearest node, and novelty of every row, from one search."""
        reach = self.reach_for(alpha)
        position, distance = self.nearest(X)
        return self.labels[position], distance, is_novel(position, distance, reach)

    def reach_for(self, alpha: float | None = None) -> Floats:
        """Return the distance from every node beyond which a row is novel, at a rate of false alarms."""
        if self.calibration is not None:
            return np.full(len(self.nodes), self.calibration.reach(alpha))
        if alpha is None:
            return self.reach
        alone = self._nodes_alone
        return self.reach if alone is None else np.full(len(self.nodes), alone.reach(alpha))

    def calibrated(self, X: Any) -> Codebook:
        """Return a codebook that calls about alpha of rows like these novel.

        For somebody who has usual rows at hand, such as a site that received a codebook. No noise is added: the result
        tells how far these rows lie from the nodes, so it must not leave the site unless the rows may.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Usual rows, at least two; if nodes were made from rows without privacy, others than those.

        Returns
        -------
        Codebook

        Examples
        --------
        >>> import numpy as np
        >>> usual, fresh = np.random.default_rng(0).normal(size=(2, 5000, 3))
        >>> book = Codebook(np.zeros((1, 3)), [0]).calibrated(usual)
        >>> bool(0.07 < book.is_novel(fresh, alpha=0.1).mean() < 0.13)
        True
        """
        distance = self.nearest(X)[1]
        calibration = Calibration.of(distance, np.ones(len(distance)))
        if calibration is None:
            raise ValueError(
                f"a calibration needs at least two rows, not {len(distance)}; a hundred or more are better"
            )
        return self.replace(calibration=calibration)

    @cached_property
    def _nodes_alone(self) -> Calibration | None:
        """What can be said without rows: nodes stand for rows, each measured against the others."""
        n = len(self.nodes)
        if n < 2:
            return None
        if self.bandwidth is None:
            _, squared = self._searcher.nearest(self.placed(self.nodes), 1, np.arange(n))
            return Calibration.of(np.sqrt(squared[:, 0]), np.ones(n))
        apart = self._network.distances(self.nodes)
        np.fill_diagonal(apart, np.inf)
        return Calibration.of(apart.min(axis=1), np.ones(n))

    @cached_property
    def _network(self) -> Network:
        assert self.bandwidth is not None
        n = len(self.nodes)
        rules = Rules(topological=False)
        meta = {
            "n_features": self.n_features,
            "rules": dict(vars(rules)),
            "n_learned": n,
            "n_active": n,
            "n_deleted_edges": 0,
            "n_lost": 0,
        }
        arrays: dict[str, NDArray[Any]] = {
            "nodes": self.nodes,
            "counts": np.ones(n, np.int64),
            "bandwidths": _widths_of_mean(self.bandwidth, n),
            "recency": np.arange(n),
            "edges": np.empty((0, 2), np.int64),
            "edge_ages": np.empty(0, np.int64),
            "clock": np.array([1.0, self.bandwidth, 0.0]),
            "pending": np.empty((0, self.n_features)),
        }
        return Network.from_parts(meta, arrays)

    @cached_property
    def _searcher(self) -> Searcher:
        from fcac.search.exact import Searcher

        return Searcher(self.placed(self.nodes))

    def placed(self, rows: Floats) -> Floats:
        """Return rows in the coordinates in which distances are Euclidean; gaps are filled from the nodes first."""
        rows = without_gaps(rows, self.nodes)
        placed: Floats = rows * self.scales if self.map is None else rows @ self.map
        return placed

    def _nearest_euclidean(self, block: Floats) -> tuple[Integers, Floats]:
        # the search of the communities, so that both find the same node at the same distance
        position, squared = self._searcher.nearest(self.placed(block), 1)
        return position[:, 0], np.sqrt(squared[:, 0])

    def __getstate__(self) -> dict[str, Any]:
        # copies prepare their search themselves
        return {name: value for name, value in self.__dict__.items() if name not in _PREPARED}

    # ------------------------------------------------------------ storage

    def _storable_params(self) -> dict[str, Any]:
        return {}

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {"nodes": self.nodes, "labels": self.labels}
        if self.scale is not None:
            arrays["scale"] = self.scale
            if not np.array_equal(1.0 / self.scale, self.scales):
                arrays["scales"] = self.scales
        if self.map is not None:
            arrays["map"] = self.map
        if self.counts is not None:
            arrays["counts"] = self.counts
        if self.reach.min() != self.reach.max():
            arrays["reach"] = self.reach
        if self.calibration is not None:
            arrays["calibration"] = self.calibration.distances
        # with a reach for every node this is for versions that know one threshold only
        threshold = self.threshold if np.isfinite(self.threshold) else None
        meta: dict[str, Any] = {
            "bandwidth": self.bandwidth,
            "threshold": threshold,
            "feature_names": self.feature_names,
        }
        if self.schema is not None:
            meta["schema"] = self.schema.to_toml()
        return meta, arrays

    @classmethod
    def _from_parts(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Codebook:
        measure = {"scales": arrays["scales"]} if "scales" in arrays else {"scale": arrays.get("scale")}
        threshold = np.inf if meta["threshold"] is None else meta["threshold"]
        return cls(
            arrays["nodes"],
            arrays["labels"],
            bandwidth=meta["bandwidth"],
            **measure,
            map=arrays.get("map"),
            **({"reach": arrays["reach"]} if "reach" in arrays else {"threshold": threshold}),
            feature_names=meta["feature_names"],
            counts=arrays.get("counts"),
            schema=schema_in(meta),
            calibration=Calibration(arrays["calibration"]) if "calibration" in arrays else None,
        )


def _widths_of_mean(bandwidth: float, n: int) -> Floats:
    """Bandwidths of n nodes with this mean to the last bit; the mean of n equal ones is rounded on the way."""
    total = n * bandwidth
    for sum_ in (total, np.nextafter(total, 0.0), np.nextafter(total, np.inf)):
        if sum_ / n == bandwidth and sum_ < _LARGEST_SUM and n * _NO_WIDTH < np.spacing(sum_) / 4:
            widths = np.full(n, _NO_WIDTH)
            widths[0] = sum_
            return widths
    return np.full(n, bandwidth)


def coarse_codebook(
    nodes: Floats,
    counts: Floats,
    ids: Integers,
    scales: Floats,
    max_nodes: int = 256,
    min_nodes: int = 3,
    *,
    map: Floats | None = None,
) -> Codebook:
    """Return a codebook of at most ``max_nodes`` means, each of at least ``min_nodes`` nodes of one cluster."""
    names, sizes = np.unique(ids, return_counts=True)
    large = np.argsort(-sizes, kind="stable")[:max_nodes]
    kept = [(name, size) for name, size in zip(names[large], sizes[large], strict=True) if size >= min_nodes]
    if not kept:
        raise ValueError(f"every cluster has fewer than min_nodes={min_nodes} nodes: nothing can be handed out")
    share = max_nodes / sum(size for _, size in kept)
    words, labels, masses = [], [], []
    for name, size in sorted(kept):
        members = np.flatnonzero(ids == name)
        wanted = int(np.clip(share * size, 1, size // min_nodes))
        placed = nodes[members] * scales if map is None else nodes[members] @ map
        group = _grouped(placed, counts[members], wanted, min_nodes)
        for g in range(int(group.max()) + 1):
            here = members[group == g]
            words.append(np.average(nodes[here], axis=0, weights=counts[here]))
            labels.append(name)
            masses.append(counts[here].sum())
    return Codebook(words, labels, scales=scales, map=map, counts=masses)


def reaching(means: Codebook, nodes: Floats, reach: Floats) -> Codebook:
    """Return the means with the reach that nodes give to the mean nearest to each of them.

    Nodes of clusters that are left out count too: their rows are not novel, although none of the means is of them.
    """
    position, distance = means.nearest(nodes)
    return means.replace(reach=reach_of_means(len(means.nodes), position, distance, reach))


def _grouped(points: Floats, counts: Floats, wanted: int, min_nodes: int) -> Integers:
    """Group points around ``wanted`` means; groups of too few points dissolve into their neighbours."""
    group: Integers = np.zeros(len(points), dtype=np.int64)
    # a map may leave many points at one place
    wanted = min(wanted, len(np.unique(points, axis=0)))
    if wanted > 1:
        means = KMeans(wanted, n_init=1, max_iter=20, random_state=0).fit(points, sample_weight=counts)
        group = means.labels_.astype(np.int64)
        while True:
            present, sizes = np.unique(group, return_counts=True)
            smallest = int(np.argmin(sizes))
            if sizes[smallest] >= min_nodes or len(present) == 1:
                break
            others = np.delete(present, smallest)
            loose = np.flatnonzero(group == present[smallest])
            near, _ = nearest(means.cluster_centers_[others], points[loose], 1)
            group[loose] = others[near[:, 0]]
        group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return group
