"""A fair sample of rows, of bounded size: the rows with the smallest keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats
from fcac.nodes import cell_kernels as kernels

#: Bar below which every key lies (but one in 2^64).
OPEN = 2**64 - 1

# Other keys than those of a reservoir's seeds, so that being in the sample says nothing about being a seed.
_SALT = 0x5EED5A17


class RowSample:
    """A uniform sample of the distinct rows seen, each with the number of times it came.

    It is a bottom-k sample (Cohen and Kaplan, PODC 2007): a row's key is a hash of its values, and the ``size`` rows of
    the smallest keys are kept. Keys depend on values only, so order and chunks of rows do not matter, the sample of
    several sites together is made of their samples, and rows below any lower bar are a fair sample again.

    >>> rows = np.random.default_rng(0).normal(size=(5000, 2))
    >>> whole, halves = RowSample(2, 100), RowSample(2, 100)
    >>> whole.add(rows)
    >>> halves.add(rows[2500:]); halves.add(rows[:2500])
    >>> len(whole.rows), bool((whole.rows == halves.rows).all())
    (100, True)
    """

    __slots__ = ("bar", "keys", "n_features", "rows", "size", "weights")

    def __init__(self, n_features: int, size: int) -> None:
        self.n_features, self.size = n_features, size
        self.keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.rows: Floats = np.empty((0, n_features))
        self.weights: Floats = np.empty(0)
        self.bar = OPEN

    def add(self, rows: Floats, weights: Floats | None = None) -> None:
        """See rows; weights say how often each of them came."""
        rows = np.ascontiguousarray(rows + 0.0)  # adding zero makes -0.0 the same value as 0.0
        keys = keys_of(rows)
        below = np.flatnonzero(keys < np.uint64(self.bar))
        if not len(below):
            return
        added = np.ones(len(below)) if weights is None else weights[below]
        everything = np.concatenate([self.keys, keys[below]])
        came = np.concatenate([self.weights, added])
        few = self._smallest(everything)
        if few is not None:
            found, at, total = everything[few], few, came[few]
        else:
            found, at, which = np.unique(everything, return_index=True, return_inverse=True)
            total = np.bincount(which, weights=came).astype(np.float64)
        known = len(self.keys)
        picked = np.concatenate([self.rows, rows[below]])[at] if known else rows[below[at]]
        self._take(found, picked, total)

    def _smallest(self, keys: NDArray[np.uint64]) -> NDArray[np.int64] | None:
        """Return the positions of the keys that fill the sample and one more, ascending; None if any comes twice.

        Sorting these few is cheaper than sorting all, and few rows come twice.
        """
        if len(keys) <= self.size:
            return None
        few = np.argpartition(keys, self.size)[: self.size + 1]
        few = few[np.argsort(keys[few])]
        # one more key that is equal to the largest of these would be left out, but that one is left out itself
        return few if (np.diff(keys[few]) > 0).all() else None

    def _take(self, keys: NDArray[np.uint64], rows: Floats, weights: Floats) -> None:
        """Take over rows in the order of their keys, as many as there is room for."""
        if len(keys) > self.size:
            self.bar = min(self.bar, int(keys[self.size]))
        left = int(np.searchsorted(keys, np.uint64(self.bar)))
        # arrays are replaced and never changed: copies share them
        self.keys, self.rows, self.weights = keys[:left], rows[:left], weights[:left]

    def merge(self, other: RowSample) -> None:
        """See the rows that another sample has seen."""
        self.bar = min(self.bar, other.bar)
        self.add(other.rows, other.weights)
        self._take(self.keys, self.rows, self.weights)

    def below(self, bar: int) -> RowSample:
        """Return the rows whose keys are below a bar."""
        part = self.copy()
        part.bar = min(self.bar, bar)
        part._take(self.keys, self.rows, self.weights)
        return part

    def copy(self) -> RowSample:
        """Return an independent copy."""
        other = RowSample(self.n_features, self.size)
        other.keys, other.rows, other.weights, other.bar = self.keys, self.rows, self.weights, self.bar
        return other

    @classmethod
    def of(cls, rows: Floats, weights: Floats, size: int) -> RowSample:
        """Return a sample of rows that are all there."""
        sample = cls(rows.shape[1], size)
        sample.add(rows, weights)
        return sample

    @classmethod
    def from_parts(cls, rows: Floats, weights: Floats, bar: int, size: int) -> RowSample:
        """Rebuild a sample; whatever cannot be one is a ``ValueError``."""
        sample = cls(rows.shape[1], size)
        keys = keys_of(np.ascontiguousarray(rows))
        fits = len(keys) <= size and weights.shape == keys.shape and (np.diff(keys.astype(object)) > 0).all()
        if not fits or (len(keys) and int(keys[-1]) >= bar) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError("not a valid reservoir: keys or weights of the sample of rows do not fit")
        if np.isinf(rows).any():
            raise ValueError("not a valid reservoir: a value of the sample of rows is infinite")
        sample.keys, sample.rows, sample.weights, sample.bar = keys, np.array(rows), np.array(weights), bar
        return sample


def keys_of(rows: Floats) -> NDArray[np.uint64]:
    """Return the key of every row."""
    keys = np.empty(len(rows), np.uint64)
    kernels.keys_of(rows.view(np.uint64), np.uint64(_SALT), keys)
    return keys


def joint(samples: list[RowSample], most: int) -> list[RowSample]:
    """Return, of samples of several sites, about `most` rows that together are a fair sample of the rows of all."""
    bar = min((sample.bar for sample in samples), default=OPEN)
    keys = np.sort(np.concatenate([sample.below(bar).keys for sample in samples])) if samples else np.empty(0)
    if len(keys) > most:
        bar = min(bar, int(keys[most]))
    return [sample.below(bar) for sample in samples]
