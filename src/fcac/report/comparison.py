"""Two read-outs of the same contributions: which rows their clusters share, and how far they agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fcac._typing import Floats
from fcac.report.cluster_style import ClusterStyle
from fcac.report.reading import Reading


@dataclass(frozen=True)
class Comparison:
    """A second read-out of the same contributions.

    Attributes
    ----------
    other : Reading
    rows : dict of (cluster, other's cluster) to rows
    agreement : float
        Adjusted Rand index between the two clusterings of the rows.
    """

    other: Reading
    rows: dict[tuple[int, int], int]
    agreement: float


def compared(first: Reading, second: Reading, counts: Floats) -> Comparison:
    """Compare two readings of the same nodes."""
    pairs, place = np.unique(np.column_stack([first.labels, second.labels]), axis=0, return_inverse=True)
    mass = np.bincount(place.ravel(), weights=counts, minlength=len(pairs))
    rows = {(int(a), int(b)): round(m) for (a, b), m in zip(pairs, mass, strict=True)}
    return Comparison(_matching_styles(second, first, rows), rows, adjusted_rand(rows))


def _matching_styles(second: Reading, first: Reading, rows: Mapping[tuple[int, int], int]) -> Reading:
    """Give each cluster of the second read-out the style of the first's cluster with which it shares most rows."""
    free = len(first.clusters)
    taken: set[int] = set()
    clusters = []
    for cluster in second.clusters:
        shared = [(n, -first.style(a).rank) for (a, b), n in rows.items() if b == cluster.label]
        rank = -max(shared)[1] if shared else free
        if rank in taken or not shared:
            rank, free = free, free + 1
        taken.add(rank)
        clusters.append(replace(cluster, style=ClusterStyle(rank)))
    return replace(second, clusters=clusters)


def adjusted_rand(table: Mapping[tuple[int, int], int]) -> float:
    """Return the adjusted Rand index of two clusterings, from the number of rows in each pair of clusters.

    Examples
    --------
    >>> from fcac.report.comparison import adjusted_rand
    >>> adjusted_rand({(0, 7): 10, (1, 5): 4})
    1.0
    """

    def pairs(sizes: Iterable[int]) -> float:
        return float(sum(n * (n - 1) / 2 for n in sizes))

    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for (a, b), n in table.items():
        first[a] = first.get(a, 0) + n
        second[b] = second.get(b, 0) + n
    both, one, two = pairs(table.values()), pairs(first.values()), pairs(second.values())
    total = pairs([sum(table.values())])
    expected = one * two / total if total else 0.0
    most = (one + two) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
