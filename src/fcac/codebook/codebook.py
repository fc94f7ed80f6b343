"""Only what `predict` needs: nodes, their clusters and how to measure; what is exported and what sites fetch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._rows import Rows
from fcac._typing import Floats, Integers
from fcac.art.network import Network, Rules
from fcac.tables.schema import Schema, schema_in


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
    threshold : float
        Distance beyond which a row is unlike anything seen.
    feature_names : list of str, optional
    counts : array of shape (K,), optional
        Records behind each node, where they may be known; an exported codebook has none.
    schema : Schema, optional
        How rows become the features meant here; `fcac predict` reads tables by it.

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
        threshold: float = np.inf,
        feature_names: list[str] | None = None,
        counts: Any = None,
        schema: Schema | None = None,
    ) -> None:
        self.nodes: Floats = np.ascontiguousarray(nodes, dtype=np.float64)
        self.labels: Integers = np.ascontiguousarray(labels, dtype=np.int64)
        self.bandwidth = None if bandwidth is None else float(bandwidth)
        self.scale: Floats | None = None if scale is None else np.ascontiguousarray(scale, dtype=np.float64)
        self.threshold = float(threshold)
        self.feature_names = feature_names
        self.counts: Floats | None = None if counts is None else np.ascontiguousarray(counts, dtype=np.float64)
        self.schema = schema
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
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise ValueError("a codebook needs one name per feature")
        if self.counts is not None and (self.counts.shape != (len(self.nodes),) or not (self.counts >= 0).all()):
            raise ValueError("the counts of a codebook must not be negative, one per node")
        if self.schema is not None and self.schema.n_features != self.n_features:
            raise ValueError(
                f"the schema has {self.schema.n_features} features, the nodes of this codebook {self.n_features}"
            )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.nodes.shape[1])

    @property
    def scales(self) -> Floats:
        """Factor of every feature in the Euclidean distance: one over `scale`."""
        return np.ones(self.n_features) if self.scale is None else 1.0 / self.scale

    def nearest(self, X: Any) -> tuple[Integers, Floats]:
        """Return position of, and distance to, the nearest node of every row."""
        rows = Rows(X, "Codebook")
        if rows.n_features != self.n_features:
            raise ValueError(f"X has {rows.n_features} features, the codebook has {self.n_features}")
        read = self._network().nearest if self.bandwidth is not None else self._nearest_euclidean
        parts = [read(block) for block in rows.blocks()]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def predict(self, X: Any) -> Integers:
        """Return the cluster of every row."""
        return self.labels[self.nearest(X)[0]]

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Tell for every row whether it is unlike anything seen."""
        return self.nearest(X)[1] > self.threshold

    def _network(self) -> Network:
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
            "bandwidths": np.full(n, self.bandwidth),
            "recency": np.arange(n),
            "edges": np.empty((0, 2), np.int64),
            "edge_ages": np.empty(0, np.int64),
            "clock": np.array([1.0, self.bandwidth, 0.0]),
            "pending": np.empty((0, self.n_features)),
        }
        return Network.from_parts(meta, arrays)

    def _nearest_euclidean(self, block: Floats) -> tuple[Integers, Floats]:
        from sklearn.metrics import pairwise_distances_argmin_min

        scale = 1.0 if self.scale is None else self.scale
        position, distance = pairwise_distances_argmin_min(block / scale, self.nodes / scale)
        return position.astype(np.int64), distance

    # ------------------------------------------------------------ storage

    def _storable_params(self) -> dict[str, Any]:
        return {}

    def _to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = {"nodes": self.nodes, "labels": self.labels}
        if self.scale is not None:
            arrays["scale"] = self.scale
        if self.counts is not None:
            arrays["counts"] = self.counts
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
        return cls(
            arrays["nodes"],
            arrays["labels"],
            bandwidth=meta["bandwidth"],
            scale=arrays.get("scale"),
            threshold=np.inf if meta["threshold"] is None else meta["threshold"],
            feature_names=meta["feature_names"],
            counts=arrays.get("counts"),
            schema=schema_in(meta),
        )
