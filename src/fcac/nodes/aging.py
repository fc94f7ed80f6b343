"""Rows that age: a state for every round, weighted by its age when it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fcac._typing import Floats
from fcac.nodes import cell_kernels as kernels
from fcac.nodes.cells import SAMPLE_ROWS, Cells
from fcac.nodes.reservoir import Reservoir
from fcac.nodes.sample import OPEN, RowSample
from fcac.scaling import Columns, scaling_of

# Rows that count for less than this are forgotten: seven half-lives.
_LEAST = 2.0**-7


@dataclass(frozen=True)
class Forgetting:
    """How rows lose weight with the rounds that pass: by half every so many, or all at once outside a window.

    After seven half-lives a row is forgotten.

    >>> Forgetting.parse("half-life=5").weight(10), Forgetting.parse("window=3").weight(3)
    (0.25, 0.0)
    >>> Forgetting.parse("none") is None
    True
    """

    half_life: float | None = None
    window: int | None = None

    @classmethod
    def parse(cls, text: str) -> Forgetting | None:
        """Read "none", "half-life=ROUNDS" or "window=ROUNDS"; None means that nothing is forgotten."""
        name, _, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        try:
            if text == "none":
                return None
            if name == "half-life" and 0 < float(value) < math.inf:
                return cls(half_life=float(value))
            if name == "window" and int(value) >= 1:
                return cls(window=int(value))
        except ValueError:
            pass
        raise ValueError(
            f'forgetting must be "none", "half-life=ROUNDS" or "window=ROUNDS", as in "half-life=5"; it is {text!r}'
        )

    def __str__(self) -> str:
        return f"window={self.window}" if self.half_life is None else f"half-life={self.half_life:g}"

    def weight(self, age: int) -> float:
        """Return what a row counts that is `age` rounds old; 0 if it is forgotten."""
        if self.window is not None:
            return 1.0 if age < self.window else 0.0
        assert self.half_life is not None
        weight = 2.0 ** (-age / self.half_life)
        return weight if weight >= _LEAST else 0.0


class Aged(NamedTuple):
    """What a site has learned in each round that still counts, oldest first; it is replaced and never changed."""

    n_features: int
    round: int
    parts: tuple[tuple[int, Reservoir], ...]

    def after(self, round: int, learned: Reservoir, forgetting: Forgetting) -> Aged:
        """Return the state after the next round: rounds that no longer count are gone, old ones are thinned."""
        kept = []
        for number, state in (*self.parts, (round, learned)):
            weight = forgetting.weight(round - number)
            if weight > 0 and state.n_seen:
                # of rows that count half as much, half as many nodes are needed
                kept.append((number, state.thinned(max(2, math.ceil(weight * learned.max_nodes)))))
        return Aged(self.n_features, round, tuple(kept))

    def read(self, forgetting: Forgetting, max_nodes: int) -> Reservoir:
        """Return one state for all rounds, in which rows count by their age; it is for reading only."""
        weighed = [(state, forgetting.weight(self.round - number)) for number, state in self.parts]
        return combined(weighed, self.n_features, max_nodes)


def combined(weighed: Sequence[tuple[Reservoir, float]], n_features: int, max_nodes: int) -> Reservoir:
    """Return one state for the rows of several, each counted with a factor; for reading only.

    A seed stays as likely as its rows count, by its key (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, ICDE
    2009); the cell of one that goes joins the nearest that stays. So nodes weigh about the same, old or new, and are
    many where weight is.
    """
    if len(weighed) == 1 and weighed[0][1] == 1.0 and weighed[0][0].max_nodes <= max_nodes:
        return weighed[0][0]
    scale = weighed[0][0].scale if weighed else "auto"
    result = Reservoir(n_features, max_nodes, scale=scale)
    parts = [(state._settled, factor) for state, factor in weighed]
    if not parts:
        return result
    keys = np.concatenate([cells.keys[: cells.k] for cells, _ in parts])
    seeds = np.concatenate([cells.seeds[: cells.k] for cells, _ in parts])
    means = np.concatenate([cells.means[: cells.k] for cells, _ in parts])
    totals = np.concatenate([cells.totals[: cells.k] * factor for cells, factor in parts])
    gaps = any(cells.present is not None for cells, _ in parts)
    if gaps:
        parts = [(cells.copy(), factor) for cells, factor in parts]
        for part, _ in parts:
            part.open_gaps()
    squares = np.concatenate([cells.squares[: cells.k] * factor for cells, factor in parts])
    factors = np.concatenate([np.full(cells.k, factor) for cells, factor in parts])
    distinct, which = np.unique(keys, return_inverse=True)
    rank = np.full(len(distinct), np.inf)
    np.minimum.at(rank, which, keys.astype(np.float64) / factors)
    stays = np.zeros(len(distinct), bool)
    likely = max(1, min(max_nodes, int((rank < OPEN).sum())))
    stays[np.argsort(rank, kind="stable")[:likely]] = True
    place = np.where(stays, np.cumsum(stays) - 1, -1)[which]
    left, first = distinct[stays], np.full(len(distinct), -1, np.int64)
    first[which[::-1]] = np.arange(len(keys))[::-1]
    k = len(left)
    none: Floats = np.zeros((k, n_features))
    cells = Cells(left, seeds[first[stays]], none, none.copy(), np.zeros(k), np.ones(n_features), OPEN, scale)
    spots, known = seeds, totals
    if gaps:
        present, spots = (
            np.concatenate([getattr(part, name)[: part.k] * factor for part, factor in stacked])
            for name, stacked in (("present", parts), ("spots", [(part, 1.0) for part, _ in parts]))
        )
        cells.present, cells.spots = np.zeros((k, n_features)), spots[first[stays]]
        known = present
    cells.scales = scaling_of(Columns.of(means, known, squares, scale), scale).factors
    staying, away = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
    if len(away):
        place[away] = cells._nearest(spots[away] * cells.scales, k, None)
    # those that stay first, so that a cell begins with its own rows
    order = np.concatenate([staying, away])
    theirs, mine = (means, squares, totals), (cells.means, cells.squares, cells.totals)
    if gaps:
        kernels.add_cells_with_gaps(order, place[order], *theirs, present, *mine, cells.present)
    else:
        kernels.add_cells(order, place[order], *theirs, *mine)
    cells.sample = RowSample(n_features, SAMPLE_ROWS)
    for part, factor in parts:
        sample = part.row_sample().copy()
        sample.weights = sample.weights * factor
        cells.sample.merge(sample)
    result._cells, result._n_learned = cells, sum(state.n_seen for state, _ in weighed)
    return result
