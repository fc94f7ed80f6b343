"""The cells of a reservoir: seeds with their keys, and what each cell knows of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.nodes import cell_kernels as kernels
from fcac.nodes.sample import OPEN, RowSample
from fcac.nodes.trail import Trail
from fcac.scaling import Columns, scaling_of
from fcac.search.gaps import GapFiller
from fcac.search.seeds import SeedIndex, pivots_for

#: Rows kept beside the cells once these no longer hold every row.
SAMPLE_ROWS = 4000

# When there are too many seeds, this share of the most allowed is left, so that it seldom happens.
_KEEP = 0.9

_ARRAYS = ("keys", "seeds", "means", "squares", "totals")
# Beside them, once a row had a gap.
_GAP_ARRAYS = ("present", "spots")

# Gaps of rows are filled from so many cells, to find their seed; from rows of the same block if there are few cells.
_REFERENCES, _FEW = 128, 64


class Cells:
    """Seeds and cells as arrays with room for more; the first ``k`` places are used.

    A row whose key is below `bar` is a seed. Cells have the mean and the sum of squared deviations of their rows, in
    the features as they came, and the sum of their weights; `scales`, the factors of features in the distance to seeds,
    are renewed whenever the bar falls. Once a row had a gap (NaN), `present` is the weight of the rows in each cell
    that have each feature (where it is zero, mean and squares mean nothing), and `spots` are the seeds with their gaps
    filled, which is where they are searched.
    """

    def __init__(
        self,
        keys: NDArray[np.uint64],
        seeds: Floats,
        means: Floats,
        squares: Floats,
        totals: Floats,
        scales: Floats,
        bar: int,
        scale: str = "auto",
    ) -> None:
        self.k = len(keys)
        self.keys, self.seeds, self.means, self.squares, self.totals = keys, seeds, means, squares, totals
        self.scales, self.bar, self.scale = scales, bar, scale
        self.present: Floats | None = None
        self.spots: Floats | None = None
        # a sample of single rows; not needed while every distinct row is a seed
        self.sample: RowSample | None = None
        # only a help: what it answers depends on the seeds and their order alone
        self._index: SeedIndex | None = None

    @classmethod
    def empty(cls, d: int, scale: str = "auto") -> Cells:
        """Return cells of nothing, in d features."""
        none = np.empty((0, d))
        return cls(np.empty(0, np.uint64), none, none, none, np.empty(0), np.ones(d), OPEN, scale)

    def copy(self) -> Cells:
        """Return an independent copy, with no room to spare."""
        arrays = {name: getattr(self, name)[: self.k].copy() for name in _ARRAYS}
        other = Cells(**arrays, scales=self.scales.copy(), bar=self.bar, scale=self.scale)
        if self.present is not None and self.spots is not None:
            other.present, other.spots = self.present[: self.k].copy(), self.spots[: self.k].copy()
        other.sample = None if self.sample is None else self.sample.copy()
        return other

    def row_sample(self) -> RowSample:
        """Return a fair sample of the rows counted."""
        if self.sample is not None:
            return self.sample
        counted = np.flatnonzero(self.totals[: self.k] > 0)
        return RowSample.of(self.seeds[counted], self.totals[counted], SAMPLE_ROWS)

    @property
    def _names(self) -> tuple[str, ...]:
        return _ARRAYS if self.present is None else _ARRAYS + _GAP_ARRAYS

    def order(self) -> Integers:
        """Positions of the cells by key: the same whatever the order of rows was."""
        return np.argsort(self.keys[: self.k], kind="stable")

    def scales_now(self) -> Floats:
        """Factors of features by the rule of the read-out, on all rows counted."""
        if not self.k:
            return self.scales
        if not self.totals[: self.k].any():
            # rows of the first block that have just become seeds
            return scaling_of(
                Columns.of(self._places()[: self.k], np.ones(self.k), None, self.scale), self.scale
            ).factors
        weights = self.totals if self.present is None else self.present
        known = Columns.of(self.means[: self.k], weights[: self.k], self.squares[: self.k], self.scale)
        return scaling_of(known, self.scale).factors

    # ------------------------------------------------------------ gaps

    def open_gaps(self) -> None:
        """Begin to count, for every feature, the rows that have it; so far all had all."""
        if self.present is None:
            self.present = np.repeat(self.totals[:, None], self.means.shape[1], axis=1)
            self.spots = self.seeds.copy()

    def means_with_gaps(self) -> Floats:
        """Mean of every cell, NaN where none of its rows has a feature."""
        means = self.means[: self.k]
        return means if self.present is None else np.where(self.present[: self.k] > 0, means, np.nan)

    def whole_means(self) -> Floats:
        """Mean of every cell; features that none of its rows has are filled from the cells nearest to it."""
        means = self.means_with_gaps()
        return means if self.present is None else GapFiller(means, most=self.k).fill(means, np.arange(self.k))

    def _filled(self, rows: Floats) -> Floats:
        """Rows with their gaps filled, so that their seeds can be searched."""
        if self.k < _FEW:
            return GapFiller(rows[:_REFERENCES]).fill(rows)
        known = self.means_with_gaps()
        # cells that know every feature are compared with faster; soon most do
        whole = np.flatnonzero(~np.isnan(known[: 8 * _REFERENCES]).any(axis=1))[:_REFERENCES]
        return GapFiller(known[whole] if len(whole) >= _FEW else known[:_REFERENCES], n_neighbours=4).fill(rows)

    def _places(self) -> Floats:
        """Where seeds are searched."""
        return self.seeds if self.spots is None else self.spots

    # ------------------------------------------------------------ learning

    def take(
        self,
        rows: Floats,
        weights: Floats,
        keys: NDArray[np.uint64],
        most: int,
        over: Any = None,
        trail: Trail | None = None,
    ) -> None:
        """Count a block of rows, some of which become seeds. Gaps are NaN."""
        whole = rows
        if self.present is not None or np.isnan(rows).any():
            self.open_gaps()
            whole = self._filled(rows)
        self._reserve(self.k + len(rows))
        owner, newcomers = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        before, k = self.k, kernels.claim(keys, np.uint64(self.bar), self.keys, self.k, owner, newcomers)
        self.k = k
        self.seeds[before:k] = rows[newcomers[: k - before]]
        self.means[before:k], self.squares[before:k], self.totals[before:k] = 0.0, 0.0, 0.0
        if self.present is not None and self.spots is not None:
            self.present[before:k], self.spots[before:k] = 0.0, whole[newcomers[: k - before]]
        if k > most:
            new_place = self._shrink(most, over=over, trail=trail)
            owner[owner >= 0] = new_place[owner[owner >= 0]]
        elif k > before:
            self._extend(before)
        away = np.flatnonzero(owner < 0)
        if len(away):
            owner[away] = self._nearest(whole[away] * self.scales, most, over)
        cells = self.means, self.squares, self.totals
        if self.present is None:
            kernels.add_rows(rows, weights, owner, *cells)
        else:
            kernels.add_rows_with_gaps(rows, weights, owner, *cells, self.present)
        if self.sample is not None:
            self.sample.add(rows, weights)
        if trail is not None:
            trail.count(self.keys[owner])

    def absorb(self, other: Cells, most: int) -> None:
        """Add the cells of another state."""
        if self.sample is not None or other.sample is not None:
            self.sample = self.row_sample().copy()
            self.sample.merge(other.row_sample())
        self.bar = min(self.bar, other.bar)
        if self.present is not None or other.present is not None:
            self.open_gaps()
            if other.present is None:
                other = other.copy()
                other.open_gaps()
        self._reserve(self.k + other.k)
        owner, newcomers = np.empty(other.k, np.int64), np.empty(other.k, np.int64)
        keys = other.keys[: other.k]
        before, k = self.k, kernels.claim(keys, np.uint64(OPEN), self.keys, self.k, owner, newcomers)
        self.k, self._index = k, None
        self.seeds[before:k] = other.seeds[newcomers[: k - before]]
        self.means[before:k], self.squares[before:k], self.totals[before:k] = 0.0, 0.0, 0.0
        everything = np.arange(other.k)
        theirs, mine = (other.means, other.squares, other.totals), (self.means, self.squares, self.totals)
        if self.present is None or self.spots is None or other.spots is None:
            kernels.add_cells(everything, owner, *theirs, *mine)
        else:
            self.present[before:k], self.spots[before:k] = 0.0, other.spots[newcomers[: k - before]]
            kernels.add_cells_with_gaps(everything, owner, *theirs, other.present, *mine, self.present)
        below = int((self.keys[:k] < np.uint64(self.bar)).sum())
        if below < k or k > most:
            self._shrink(most, below if below <= most else None)

    def _reserve(self, room: int) -> None:
        if room <= len(self.keys):
            return
        for name in self._names:
            array = getattr(self, name)
            larger = np.empty((room, *array.shape[1:]), array.dtype)
            larger[: self.k] = array[: self.k]
            setattr(self, name, larger)

    def _shrink(self, most: int, left: int | None = None, over: Any = None, trail: Trail | None = None) -> Integers:
        """Keep the seeds of the smallest keys; returns the new place of every seed, -1 for those that are gone."""
        k = self.k
        if self.sample is None:
            self.sample = self.row_sample()
        self.scales = self.scales_now()
        order = self.order()
        if left is None:
            left = max(int(_KEEP * most), 1)
            self.bar = int(self.keys[order[left]])
        stay, go = order[:left], order[left:]
        for name in self._names:
            array = getattr(self, name)
            kept, gone = array[stay], array[go]
            array[:left], array[left:k] = kept, gone
        place = np.full(k, -1, np.int64)
        place[stay] = np.arange(left)
        self.k, self._index = left, None
        heavy = left + np.flatnonzero(self.totals[left:k] > 0)
        if len(heavy):
            to = self._nearest(self._places()[heavy] * self.scales, most, over)
            cells = self.means, self.squares, self.totals
            if self.present is None:
                kernels.add_cells(heavy, to, *cells, *cells)
            else:
                kernels.add_cells_with_gaps(heavy, to, *cells, self.present, *cells, self.present)
            if trail is not None:
                trail.join(self.keys[heavy], self.keys[to])
        return place

    def _nearest(self, scaled: Floats, most: int, over: Any) -> Integers:
        if self._index is None:
            # the pivots are the first places: they stay until the bar falls, when all seeds are put in order of keys
            seeds = self._places()[: self.k] * self.scales
            self._index = SeedIndex(seeds, pivots_for(most), self.k + max(64, self.k // 4))
        return self._index.nearest(scaled, over)

    def _extend(self, before: int) -> None:
        """Tell the index about new seeds, unless it has no room: then it is made anew when it is needed."""
        if self._index is not None and self.k <= self._index.room:
            self._index.add(self._places()[before : self.k] * self.scales)
        else:
            self._index = None
