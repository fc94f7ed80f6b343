"""Projection of nodes in d dimensions to dots in a picture, without revealing single rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats, Integers

#: A dot, or the description of a cluster, based on the sites' own nodes stands for at least this many rows.
MIN_ROWS = 5

# If the standard deviations of features differ by more than this, the widest feature would dominate the picture.
_MAX_RATIO_OF_SPREADS = 10.0


@dataclass(frozen=True)
class Projection:
    """Maps nodes to two coordinates.

    Attributes
    ----------
    directions : array of shape (d, 2)
    centre, scale : arrays of shape (d,)
    x_label, y_label : str
    is_reduced : bool
        Whether more than two features were reduced to two dimensions.
    standardised : bool
        Whether features were divided by their standard deviation first.
    shares : tuple of float
        Fraction of the nodes' variance that each direction shows.
    """

    directions: Floats
    centre: Floats
    scale: Floats
    x_label: str
    y_label: str
    is_reduced: bool = False
    standardised: bool = False
    shares: tuple[float, float] = (1.0, 0.0)

    def project(self, nodes: Floats) -> Floats:
        """Return coordinates of shape (n, 2)."""
        return ((nodes - self.centre) / self.scale) @ self.directions


def fit_projection(nodes: Floats, counts: Integers, names: list[str]) -> Projection:
    """Choose the projection of a picture: up to two features are shown directly, more by principal components.

    Parameters
    ----------
    nodes : array of shape (n, d)
    counts : array of shape (n,)
        Weights.
    names : list of str
        One per feature.
    """
    d = nodes.shape[1]
    if d <= 2:
        directions = np.eye(d, 2)
        return Projection(directions, np.zeros(d), np.ones(d), names[0], names[1] if d == 2 else "")
    weights = counts / counts.sum()
    centre = weights @ nodes
    spread = np.sqrt(weights @ (nodes - centre) ** 2)
    varying = spread > 0
    standardised = bool(varying.any() and spread.max() > _MAX_RATIO_OF_SPREADS * np.median(spread[varying]))
    scale = np.where(varying, spread, 1.0) if standardised else np.ones(d)
    centred = (nodes - centre) / scale * np.sqrt(weights)[:, None]
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = np.vstack([directions, np.zeros((2, d))])[:2]
    # the sign of a principal direction is arbitrary; fix it so that the same data give the same picture
    largest = np.abs(directions).argmax(axis=1)
    signs = np.where(directions[np.arange(2), largest] < 0, -1.0, 1.0)
    total = float((sizes**2).sum()) or 1.0
    shares = tuple(float(s) for s in (np.append(sizes, [0.0, 0.0])[:2] ** 2 / total))
    return Projection(
        (directions * signs[:, None]).T,
        centre,
        scale,
        f"First principal component ({shares[0]:.0%} of the variance)",
        f"Second principal component ({shares[1]:.0%})",
        is_reduced=True,
        standardised=standardised,
        shares=(shares[0], shares[1]),
    )


@dataclass(frozen=True)
class Dots:
    """The dots of a picture of a network.

    Attributes
    ----------
    points : array of shape (n, 2)
    counts, labels : arrays of shape (n,)
    n_merged : array of shape (n,)
        How many nodes each dot stands for.
    edges : array of shape (m, 2)
    n_hidden : int
        Number of nodes that are not drawn because their whole cluster stands for too few rows.
    """

    points: Floats
    counts: Integers
    labels: Integers
    n_merged: Integers
    edges: Integers
    n_hidden: int = 0

    @property
    def condensed(self) -> bool:
        """Whether any dot stands for several nodes, or nodes are hidden."""
        return bool(self.n_hidden or (self.n_merged > 1).any())


def plain_dots(points: Floats, counts: Integers, labels: Integers, edges: Integers) -> Dots:
    """Return one dot per node."""
    return Dots(points, counts, labels, np.ones(len(points), np.int64), edges)


def condense(
    points: Floats,
    counts: Integers,
    labels: Integers,
    edges: Integers,
    *,
    min_rows: int = 1,
    cells: int = 40,
    max_edges: int = 1500,
) -> Dots:
    """Merge neighbouring nodes of the same cluster, so that every dot stands for at least `min_rows` rows.

    Nodes that fall into the same cell of a grid over the picture become one dot at their weighted mean; a dot that is
    too light joins the nearest heavy one of its cluster, and a cluster that is too light as a whole is not drawn.

    Parameters
    ----------
    points : array of shape (n, 2)
    counts, labels : arrays of shape (n,)
    edges : array of shape (m, 2)
    min_rows : int
    cells : int
        Number of grid cells along the wider side.
    max_edges : int
        Maximum number of edges kept, those that join most nodes first.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.report.projection import condense
    >>> points = np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0], [1.0, 0.9], [0.5, 0.5]])
    >>> dots = condense(points, np.array([4, 2, 9, 1, 1]), np.array([0, 0, 1, 1, 2]), np.empty((0, 2), int), min_rows=5)
    >>> dots.counts.tolist(), dots.labels.tolist(), dots.n_hidden
    ([6, 10], [0, 1], 1)
    """
    if not len(points):
        return plain_dots(points, counts, labels, edges)
    low = points.min(axis=0)
    side = float((points.max(axis=0) - low).max()) / cells or 1.0
    cell = np.floor((points - low) / side).astype(np.int64)
    keys, group = np.unique(np.column_stack([labels, cell]), axis=0, return_inverse=True)
    group = group.ravel()
    group = _join_light_groups(points, counts, keys[:, 0], group, min_rows)
    mass = np.bincount(group[group >= 0], weights=counts[group >= 0], minlength=len(keys))
    kept = np.flatnonzero(mass >= max(min_rows, 1))
    place = np.full(len(keys) + 1, -1)
    place[kept] = np.arange(len(kept))
    group = place[group]
    inside = group >= 0
    weights = np.bincount(group[inside], weights=counts[inside], minlength=len(kept))
    centres = np.column_stack(
        [np.bincount(group[inside], weights=counts[inside] * points[inside, j], minlength=len(kept)) for j in range(2)]
    )
    ends = group[edges] if len(edges) else np.empty((0, 2), np.int64)
    ends = np.sort(ends[(ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])], axis=1)
    links, often = np.unique(ends, axis=0, return_counts=True)
    strongest = np.sort(np.argsort(-often, kind="stable")[:max_edges])
    return Dots(
        centres / np.maximum(weights, 1)[:, None],
        np.rint(weights).astype(np.int64),
        keys[kept, 0],
        np.bincount(group[inside], minlength=len(kept)),
        links[strongest],
        int((~inside).sum()),
    )


def _join_light_groups(points: Floats, counts: Integers, owner: Integers, group: Integers, min_rows: int) -> Integers:
    """Join each group that is too light to the nearest heavy one of its cluster, or all together; -1 if too light."""
    from scipy.spatial import cKDTree

    n = len(owner)
    mass = np.bincount(group, weights=counts, minlength=n)
    sums = np.column_stack([np.bincount(group, weights=counts * points[:, j], minlength=n) for j in range(2)])
    centre = sums / mass[:, None]
    target = np.arange(n)
    for label in np.unique(owner[mass < min_rows]):
        mine = np.flatnonzero(owner == label)
        light, heavy = mine[mass[mine] < min_rows], mine[mass[mine] >= min_rows]
        if len(heavy):
            target[light] = heavy[cKDTree(centre[heavy]).query(centre[light])[1]]
        else:
            target[light] = light[0] if mass[light].sum() >= min_rows else -1
    return target[group]
