"""How far clusters can be trusted, without labels: do they come back when nodes are left out and the rule is moved?

Cluster-wise assessment by resampling (Hennig 2007): half of the nodes are clustered anew, several times. A cluster's
stability is the mean, over these fits, of the Jaccard similarity between the cluster and the most similar one that is
found again, both restricted to the nodes of that fit. Hennig reads a value above 0.75 as a cluster that is really
there, one below 0.6 with distrust, and 0.5 as a cluster that dissolves.

Two things differ. Nodes count by the records they stand for. And every fit also asks more or less of a border than the
fit that is judged, because a cluster that depends on the strictness of a threshold is as arbitrary as one that depends
on the sample: so the number covers scales of the hierarchy as well (as persistence over scales does, for instance in
Campello, Moulavi and Sander 2013).

Only nodes are used. It works in a federation and on private releases, and costs nothing of a privacy budget. It cannot
tell that clusters were missed in every fit alike: one cluster that hides two is stable.

References
----------
C. Hennig, "Cluster-wise assessment of cluster stability", Computational Statistics & Data Analysis 52 (2007).
R. Campello, D. Moulavi, J. Sander, "Density-based clustering based on hierarchical density estimates", PAKDD (2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import Tree
from fcac.clusters.hierarchy import hierarchy_of

# Values below are read with distrust, as Hennig advises.
DOUBTFUL = 0.6
# Factors on what is asked of a border, one fit each: evenly on both sides of the rule in force. Ten fits know a mean of
# Jaccard similarities to about a twentieth.
_STRICTNESS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.1, 1.2, 1.3, 1.4)
# Share of the nodes in a fit, and how many nodes at most, so that the cost is bounded.
_SHARE, _MOST_NODES = 0.5, 5000
# Fewer nodes than this in a fit do not tell anything.
_FEWEST_NODES = 30


class Stability(NamedTuple):
    """How stable clusters are, each value between 0 (arbitrary) and 1.

    Attributes
    ----------
    of_cluster : mapping of int to float
        By cluster; NaN where there are too few nodes to tell.
    overall : float
        Mean over clusters, each counted by its records.
    """

    of_cluster: Mapping[int, float]
    overall: float

    @classmethod
    def of_nodes(cls, values: Floats, mass: Floats, labels: Integers) -> Stability:
        """Return the stability of clusters, given a value for each node, its records and its cluster."""
        of_cluster = {
            int(k): float(np.average(values[labels == k], weights=mass[labels == k])) for k in np.unique(labels)
        }
        return cls(of_cluster, float(np.average(values, weights=mass)))

    @property
    def doubtful(self) -> list[int]:
        """The clusters that might as well be other ones, sorted."""
        return sorted(k for k, value in self.of_cluster.items() if value < DOUBTFUL)


def resampled_stability(
    points: Floats,
    mass: Floats,
    labels: Integers,
    n_clusters: int | None = None,
    joined: Callable[[Tree, Floats, Integers], Tree] | None = None,
) -> Stability:
    """Return how well clusters are found again in subsets of the nodes.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Distinct places of nodes, in scaled features.
    mass : ndarray of shape (n,)
        Records at each.
    labels : ndarray of shape (n,)
        Cluster of each.
    n_clusters : int, optional
        Number of clusters, if it was given and not found.
    joined : callable, optional
        What is done to a tree after it was found, given the records and the numbers of its points.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.clusters.stability import resampled_stability
    >>> rng = np.random.default_rng(0)
    >>> here, there = rng.normal(size=(150, 2)), rng.normal(size=(150, 2)) + [15, 0]
    >>> points, labels = np.concatenate([here, there]), np.repeat([0, 1], 150)
    >>> bool(resampled_stability(points, np.ones(300), labels).overall > 0.9)
    True
    >>> halved = (here[:, 0] > 0).astype(int)
    >>> resampled_stability(here, np.ones(150), halved).doubtful
    [0, 1]
    """
    names, label = np.unique(labels, return_inverse=True)
    n, n_names = len(points), len(names)
    size = min(int(np.ceil(_SHARE * n)), _MOST_NODES)
    if size < _FEWEST_NODES:
        return Stability({int(k): float("nan") for k in names}, float("nan"))
    total, fits = np.zeros(n_names), np.zeros(n_names)
    # one generator with one seed: the number is a property of the nodes, not of chance
    generator = np.random.default_rng(0)
    for strictness in _STRICTNESS:
        chosen = np.sort(generator.choice(n, size, replace=False))
        tree = hierarchy_of(np.ascontiguousarray(points[chosen]), mass[chosen], strictness=strictness)
        tree = tree if joined is None else joined(tree, mass[chosen], chosen)
        found = tree.labels(None if n_clusters is None else min(n_clusters, len(tree.block_weights)))
        best, present = _best_jaccard(label[chosen], found, mass[chosen], n_names)
        total += best
        fits += present
    with np.errstate(invalid="ignore"):
        value = np.where(fits > 0, total / fits, np.nan)
    records = np.bincount(label, weights=mass, minlength=n_names)
    known = ~np.isnan(value)
    overall = float(np.average(value[known], weights=records[known])) if known.any() else float("nan")
    return Stability({int(k): float(v) for k, v in zip(names, value, strict=True)}, overall)


def _best_jaccard(label: Integers, found: Integers, mass: Floats, n_labels: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Largest Jaccard similarity of each cluster to one that was found, by records; and whether it has any."""
    n_found = int(found.max()) + 1
    both = np.bincount(label * n_found + found, weights=mass, minlength=n_labels * n_found).reshape(n_labels, n_found)
    ours, theirs = both.sum(axis=1), both.sum(axis=0)
    union = ours[:, None] + theirs[None] - both
    best: Floats = (both / np.maximum(union, 1e-300)).max(axis=1)
    return best, ours > 0
