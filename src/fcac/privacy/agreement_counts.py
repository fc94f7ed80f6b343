"""A site's side of an agreement on bounds and levels: noised counts of its records, in public bins and by level.

A record adds one to at most one bin of each column, so the counts of m columns have an L2 sensitivity of the square
root of m; a gap adds nothing. With ids, a person is the unit: the rows of a person share one weight in columns of
numbers, and in a category a person counts once, for the level that most of their rows have.

Bins of numbers are public, so every bin is noised and sent. Levels of a category are not: only levels that occur at the
site are noised, and a level is named only if its noised count exceeds a threshold that a level of a single person
exceeds with a probability of at most `slack` (stability-based histogram: Korolova et al., 2009; Bun, Nissim and
Stemmer, 2016). That probability is taken off delta. The proof is in docs/privacy/agreement.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from fcac import persistence
from fcac._typing import Floats, Integers
from fcac.privacy.cell_statistics import WEIGHT, person_weights
from fcac.privacy.record_ids import canonical_id
from fcac.privacy.samplers import Sampler
from fcac.privacy.zcdp import gaussian_scale
from fcac.tables.column import Column
from fcac.tables.kind import as_text
from fcac.tables.read_options import ALWAYS
from fcac.tables.schema import Schema

#: Kind of the bytes of a site's answer, see :mod:`fcac.persistence`.
KIND = "agreement"

#: Public bins of the first release: four to a decade from 1e-6 to 1e9, both signs.
COARSE = np.concatenate([-np.logspace(9, -6, 61), [0.0], np.logspace(-6, 9, 61)])

#: Longest name of a level that is sent; longer ones are free text, not levels.
LONGEST_NAME = 64
#: Most levels of a column that a site sends.
MOST_NAMES = 500


def open_numbers(schema: Schema) -> list[Column]:
    """Return the columns of numbers, and of days, that have no bounds yet."""
    return [column for column in schema.used if _is_open_number(column)]


def open_categories(schema: Schema) -> list[Column]:
    """Return the categories whose levels are not listed yet."""
    return [
        column
        for column in schema.used
        if column.how.name == "category" and column.categories is None and column.groups is None
    ]


def _is_open_number(column: Column) -> bool:
    days = column.how.name == "number" or (column.how.name == "date" and column.parts is None)
    return days and (column.min is None or column.max is None)


@dataclass
class SiteValues:
    """What a site's rows hold in the columns that are to be agreed on; it never leaves the site."""

    numbers: list[Column]
    categories: list[Column]
    _blocks: list[Floats] = field(default_factory=list)
    _names: list[list[list[str | None]]] = field(default_factory=list)

    @property
    def plain_schema(self) -> Schema | None:
        """The schema that reads the numbers in the units of the table, with gaps; None if there are none."""
        fields = [
            replace(
                column, scaling="none", center=None, spread=None, weight=1.0, missing="native", fill=None, clip=False
            )
            for column in self.numbers
        ]
        return Schema(fields) if fields else None

    def add(self, batch: Any) -> None:
        """Take in the rows of an Arrow batch that has these columns."""
        schema = self.plain_schema
        self._blocks.append(np.empty((batch.num_rows, 0)) if schema is None else schema.convert(batch).block)
        places = {name: place for place, name in enumerate(batch.schema.names)}
        self._names.append([_levels(column, batch.column(places[column.name])) for column in self.categories])

    def values(self, number: int) -> Floats:
        """Return all rows of a column of numbers, NaN for gaps."""
        return np.concatenate([np.empty(0), *(block[:, number] for block in self._blocks)])

    def names(self, number: int) -> list[str | None]:
        """Return the levels of all rows of a category, None for gaps and for what cannot be a level."""
        return [name for some in self._names for name in some[number]]


def _levels(column: Column, values: Any) -> list[str | None]:
    texts = as_text(column, values, "categories", ALWAYS).to_pylist()
    short = [None if text is None else text[: column.prefix] if column.prefix else text for text in texts]
    return [None if name is None or len(name) > LONGEST_NAME or not name.isprintable() else name for name in short]


@dataclass(frozen=True)
class NoisedCounts:
    """What a site sends in one stage: noised counts of bins and of levels, in units of 1/WEIGHT of a record.

    Only levels above the threshold are there; `scale` is the standard deviation of the noise.
    """

    bins: list[Integers]
    levels: list[dict[str, int]]
    scale: float

    def to_bytes(self, **facts: Any) -> bytes:
        """Return the answer as bytes, with facts about it."""
        arrays = {f"bins{number}": counts for number, counts in enumerate(self.bins)}
        names = [sorted(found) for found in self.levels]
        for number, some in enumerate(names):
            arrays[f"levels{number}"] = np.array([self.levels[number][name] for name in some], dtype=np.int64)
        return persistence.pack(KIND, {**facts, "scale": self.scale, "names": names}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, n_bins: Sequence[int], n_categories: int) -> NoisedCounts:
        """Read an answer that may come from anybody; raise ``ValueError`` unless it has the form asked for."""
        meta, arrays = persistence.unpack(data, kind=KIND)
        scale, names = meta.get("scale"), meta.get("names")
        if not isinstance(scale, int | float) or not 0 < scale < 1e15:
            raise ValueError("the deviation of the noise must be a positive number")
        if not isinstance(names, list) or len(names) != n_categories or not all(map(_are_names, names)):
            raise ValueError("the names of levels have an unknown form")
        bins = [_counts(arrays, f"bins{number}", n) for number, n in enumerate(n_bins)]
        counts = [_counts(arrays, f"levels{number}", len(some)) for number, some in enumerate(names)]
        levels = [dict(zip(some, own.tolist(), strict=True)) for some, own in zip(names, counts, strict=True)]
        return cls(bins, levels, float(scale))


def _are_names(some: Any) -> bool:
    return (
        isinstance(some, list)
        and len(some) <= MOST_NAMES
        and all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() for name in some)
        and len(set(some)) == len(some)
    )


def _counts(arrays: Mapping[str, Any], key: str, length: int) -> Integers:
    found = arrays.get(key)
    if found is None or found.dtype != np.int64 or found.shape != (length,) or (np.abs(found) > 2**60).any():
        raise ValueError("the counts have an unknown form")
    return np.asarray(found, dtype=np.int64)


def count_coarse(
    values: SiteValues, rho: float, slack: float, sampler: Sampler, people: Sequence[str] | None = None,
    keep: Any = None,
) -> NoisedCounts:  # fmt: skip
    """Count the records of a site in the coarse bins, and by level; with noise that costs rho, and slack for names.

    Of people, one for each row, only those with budget left are used (`keep`).
    """
    scale = gaussian_scale((len(values.numbers) + len(values.categories)) * WEIGHT**2, rho)
    bins = _count_bins(values, [COARSE] * len(values.numbers), scale, sampler, people, keep)
    least = least_count(scale, slack, len(values.categories)) if values.categories else 0
    levels = []
    for number in range(len(values.categories)):
        counts = _count_names(values.names(number), people, keep)
        names = sorted(counts)
        noised = sampler.add_noise(np.array([counts[name] * WEIGHT for name in names], dtype=np.int64), scale)
        found = {name: int(count) for name, count in zip(names, noised, strict=True) if count >= least}
        most = sorted(found, key=lambda name: (-found[name], name))[:MOST_NAMES]
        levels.append({name: found[name] for name in most})
    return NoisedCounts(bins, levels, scale)


def count_fine(
    values: SiteValues, edges: list[Floats], rho: float, sampler: Sampler, people: Sequence[str] | None = None,
    keep: Any = None,
) -> NoisedCounts:  # fmt: skip
    """Count the records of a site in the bins given for each column of numbers; with noise that costs rho."""
    scale = gaussian_scale(len(values.numbers) * WEIGHT**2, rho)
    return NoisedCounts(_count_bins(values, edges, scale, sampler, people, keep), [], scale)


def least_count(scale: float, slack: float, n_categories: int) -> int:
    """Return the threshold on noised counts, in units of 1/WEIGHT, from which a level is named.

    A level of one person has the count WEIGHT. Discrete Gaussian noise is at least m with a probability below that of
    continuous noise being at least m - 1 (Canonne, Kamath and Steinke, 2020, Proposition 25), so over all categories
    such a level is named with a probability of at most `slack`.

    >>> least_count(10 * WEIGHT, 1e-7, 1) / WEIGHT < 54
    True
    """
    tail = -float(ndtri(slack / n_categories * (1.0 - 1e-9)))
    return WEIGHT + 1 + math.ceil(scale * tail)


def histogram(values: Floats, edges: Floats, weights: Integers | None = None) -> Integers:
    """Return the weight of the records in each bin; those beyond the edges are in the first and the last one."""
    known = ~np.isnan(values)
    place = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, len(edges) - 2)
    own = np.full(len(place), WEIGHT, dtype=np.int64) if weights is None else weights[known]
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    np.add.at(counts, place, own)
    return counts


def _count_bins(
    values: SiteValues, edges: list[Floats], scale: float, sampler: Sampler, people: Sequence[str] | None, keep: Any
) -> list[Integers]:
    weights = None if people is None else person_weights([canonical_id(name) for name in people])
    if keep is not None:
        # the weight of a row depends on the rows of its own person alone, who is kept or left out as a whole
        weights = np.where(keep, np.full(len(keep), WEIGHT) if weights is None else weights, 0)
    return [
        sampler.add_noise(histogram(values.values(number), bins, weights), scale) for number, bins in enumerate(edges)
    ]


def _count_names(names: list[str | None], people: Sequence[str] | None, keep: Any) -> Counter[str]:
    """Return how many units have each level; a person has the level of most of their rows, and one only."""
    rows = range(len(names)) if keep is None else np.flatnonzero(keep).tolist()
    if people is None:
        return Counter(name for row in rows if (name := names[row]) is not None)
    own: dict[str, Counter[str]] = {}
    for row in rows:
        name = names[row]
        if name is not None:
            own.setdefault(canonical_id(people[row]), Counter())[name] += 1
    # of levels with the same number of rows, the first by name: nothing about other people decides
    return Counter(min(some, key=lambda name: (-some[name], name)) for some in own.values())
