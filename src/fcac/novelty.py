"""When a row is novel: the one definition, for estimators, commands, exports, sites and the report.

Rows are compared with prototypes: nodes, or means of nodes where nodes may not be handed out. Every prototype has a
reach, a distance in the metric in which rows are compared with it. A row is novel if it lies farther from its nearest
prototype than that prototype reaches. Servers differ in where reaches come from, and in nothing else:

- the paper's server: the similarity threshold V for every node, the distance at which learning would open a new node;
- communities: the spacing of nodes around each node, see :func:`reach_from_spacing`;
- a codebook of means: as far as the nodes around each mean reach, see :func:`reach_of_means`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats

# Nodes lie within the common multiple of the spacing of their nearest node, all but this share of them.
_FARTHER_OUT = 0.001


def is_novel(position: NDArray[Any], distance: Floats, reach: Floats) -> NDArray[np.bool_]:
    """Tell for every row whether it is unlike anything seen.

    Parameters
    ----------
    position : array of int, shape (n,)
        Nearest prototype of each row.
    distance : array of shape (n,)
        Distance to it.
    reach : array of shape (K,)
        Reach of every prototype.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.novelty import is_novel
    >>> is_novel(np.array([0, 1]), np.array([2.0, 2.0]), reach=np.array([1.0, 3.0])).tolist()
    [True, False]
    """
    novel: NDArray[np.bool_] = distance > reach[position]
    return novel


def reach_from_spacing(nearest: NDArray[Any], squared: Floats, spacing: Floats) -> Floats:
    """Return the reach of every node, from how densely nodes lie around it.

    It is the same multiple of the spacing everywhere: the smallest from 1 on within which 99.9 % of the nodes lie of
    the node nearest to them.

    Parameters
    ----------
    nearest : array of int, shape (K,)
        The other node nearest to each node.
    squared : array of shape (K,)
        Squared distance to it.
    spacing : array of shape (K,)
        Squared distance of every node to the farthest of its listed neighbours.
    """
    around = spacing[nearest]
    ratio = np.sqrt(np.divide(squared, around, out=np.full(len(squared), np.inf), where=around > 0))
    usual = ratio[np.isfinite(ratio)]
    # with few nodes the quantile says little, so a reach is never below the spacing itself
    multiple = max(1.0, float(np.quantile(usual, 1 - _FARTHER_OUT))) if len(usual) else 1.0
    reach: Floats = multiple * np.sqrt(spacing)
    return reach


def reach_of_means(n_means: int, position: NDArray[Any], distance: Floats, reach: Floats) -> Floats:
    """Return the reach of means that stand for nodes: as far as the nodes around each of them reach.

    A row at the edge of a node's reach may lie on any side of the node. It is taken to lie at a right angle to the
    direction from the mean to the node, as nearly all directions do where there are many features.

    Parameters
    ----------
    n_means : int
    position : array of int, shape (K,)
        Nearest mean of each node.
    distance : array of shape (K,)
        Distance to it.
    reach : array of shape (K,)
        Reach of each node.

    Returns
    -------
    reach : array of shape (n_means,)
        A mean nearest to no node reaches as far as the one that reaches least.
    """
    covered = np.full(n_means, -np.inf)
    np.maximum.at(covered, position, np.hypot(distance, reach))
    is_used = covered >= 0
    return np.where(is_used, covered, covered[is_used].min(initial=np.inf))
