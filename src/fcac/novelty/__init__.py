"""When a row is novel: the one definition, for estimators, commands, exports, sites and the report.

Rows are compared with prototypes: nodes, or means of nodes where nodes may not be handed out. Every prototype has a
reach, a distance in the metric in which rows are compared with it. A row is novel if it lies farther from its nearest
prototype than that prototype reaches.

Where it is known how far fresh rows lie from the prototypes, the reach follows from a false-alarm rate alpha, and is
the same for all prototypes: alpha of the rows lie farther away; see :class:`Calibration`. There are three ways to know
it. Sites without privacy keep a sample of their rows, and measure it as if it had not been learned. Under `NodeRelease`
no rows are kept, and sites release noised counts of distances (:meth:`fcac.FCAC.calibrate_novelty`). And whoever has
usual rows at hand can measure these (:meth:`fcac.codebook.Codebook.calibrated`). Otherwise
(released nodes alone, codebooks at the hub of a federation) servers differ in where reaches come from:

- the paper's server: the similarity threshold V for every node, the distance at which learning would open a new node;
- communities: the spacing of nodes around each node, see :func:`reach_from_spacing`;
- a codebook of means: as far as the nodes around each mean reach, see :func:`reach_of_means`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats

#: False-alarm rate where none is asked for.
ALPHA = 0.01

#: Shares of rows for which a calibration keeps the distance that they exceed: twelve a decade down to one in 10,000.
SHARES = np.geomspace(1e-4, 1.0, 49)

# Nodes lie within the common multiple of the spacing of their nearest node, all but this share of them.
_FARTHER_OUT = 0.001


def is_novel(position: NDArray[Any], distance: Floats, reach: Floats) -> NDArray[np.bool_]:
    """Tell for every row, from its nearest prototype and the distance to it, whether it is unlike anything seen.

    >>> is_novel(np.array([0, 1]), np.array([2.0, 2.0]), reach=np.array([1.0, 3.0])).tolist()
    [True, False]
    """
    novel: NDArray[np.bool_] = distance > reach[position]
    return novel


def reach_from_spacing(nearest: NDArray[Any], squared: Floats, spacing: Floats) -> Floats:
    """Return the reach of every node, from how densely nodes lie around it.

    It is the same multiple of the spacing everywhere: the smallest from 1 on within which 99.9 % of the nodes lie of
    the node nearest to them. `squared` is the squared distance to that node, `spacing` that to the farthest listed
    neighbour.
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
    direction from the mean to the node, as nearly all directions do where there are many features. A mean nearest to no
    node reaches as far as the one that reaches least.
    """
    covered = np.full(n_means, -np.inf)
    np.maximum.at(covered, position, np.hypot(distance, reach))
    is_used = covered >= 0
    return np.where(is_used, covered, covered[is_used].min(initial=np.inf))


class Calibration:
    """How far fresh rows lie from the prototypes: for every share of rows, the distance that this share exceeds.

    `distances` are those that 1 in 10,000 to all of the rows exceed, in 49 equal steps of the logarithm.

    >>> measured = np.random.default_rng(0).exponential(size=100_000)
    >>> reach = Calibration.of(measured, np.ones(100_000)).reach(0.01)
    >>> bool(abs((measured > reach).mean() - 0.01) < 1e-4)
    True
    """

    def __init__(self, distances: Any) -> None:
        self.distances: Floats = np.ascontiguousarray(distances, dtype=np.float64)
        falls = self.distances.shape == SHARES.shape and (np.diff(self.distances) <= 0).all()
        if not falls or not np.isfinite(self.distances).all() or self.distances[-1] < 0:
            raise ValueError(f"a calibration needs {len(SHARES)} finite distances that do not rise")

    @classmethod
    def of(cls, distances: Floats, weights: Floats) -> Calibration | None:
        """Return the calibration from distances of rows that stand for `weights` rows each.

        Infinite distances are passed over; None if fewer than two are left.
        """
        usable = np.isfinite(distances) & (weights > 0)
        distances, weights = distances[usable], weights[usable]
        if len(distances) < 2:
            return None
        order = np.argsort(-distances, kind="stable")
        # the one more row is the fresh one: of n rows the farthest is exceeded by one in n + 1
        exceeded = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
        return cls(np.interp(np.log(SHARES), np.log(exceeded), distances[order]))

    def reach(self, alpha: float | None = None) -> float:
        """Return the distance that a share alpha of fresh rows exceeds.

        With fewer than 1 / alpha rows in the sample it is the distance of the farthest.
        """
        alpha = check_alpha(ALPHA if alpha is None else alpha)
        return float(np.interp(np.log(alpha), np.log(SHARES), self.distances))


class MeasuredNovelty(NamedTuple):
    """What a model was told about how far usual rows lie from its nodes; it holds until the model learns again.

    `means` is for the codebook that is exported where nodes may not be, None where they may. `epsilon`, `delta` and
    `n_sites` say what a noised release of distances has cost each of so many sites; None without noise.
    """

    nodes: Calibration
    means: Calibration | None = None
    epsilon: float | None = None
    delta: float | None = None
    n_sites: int | None = None


def check_alpha(alpha: Any) -> float:
    """Return a false-alarm rate, or say why it is none."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
        raise ValueError(f"alpha, the share of false alarms, must be between 0 and 1; it is {alpha!r}")
    return float(alpha)
