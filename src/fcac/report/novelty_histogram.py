"""Rows counted for a report, block by block: exact sizes, and how far rows are from what was learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._rows import Rows, column_names
from fcac._typing import Floats, Integers
from fcac.federation import Server

#: Turns a table with named columns into rows of features.
Reader = Callable[[Any], Rows]

_N_BINS = 50
# The histogram of novelty extends to this many thresholds; larger distances share the last bar.
_REACH = 2.0


@dataclass(frozen=True)
class Novelty:
    """Histogram of the distance of known and of novel rows to their nearest node.

    The last bar also includes everything beyond the last edge. `threshold` is None if it differs between nodes.
    """

    edges: Floats
    known: Integers
    novel: Integers
    threshold: float | None

    @property
    def n_novel(self) -> int:
        """Number of rows unlike anything seen."""
        return int(self.novel.sum())

    @property
    def n_rows(self) -> int:
        """Number of all rows."""
        return int(self.known.sum()) + self.n_novel

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the histogram as a table."""
        pairs = zip(self.known, self.novel, strict=True)
        return [
            (f"{self.edges[k]:.3g} to {self.edges[k + 1]:.3g}", f"{known:,}", f"{novel:,}")
            for k, (known, novel) in enumerate(pairs)
            if known or novel
        ]


@dataclass(frozen=True)
class CountedRows:
    """Rows by cluster and by novelty."""

    by_cluster: dict[int, int]
    novelty: Novelty


def count_rows(
    server: Server, rows: Any, limit: float | None, read: Callable[[Any], Rows] | None = None
) -> CountedRows:
    """Label rows block by block; only counts are kept.

    `limit` is the distance beyond which a row is novel, None if it is another one for every node. Where there is a
    schema, `read` turns a table with named columns into rows of features; rows without names are features already.
    """
    threshold = float(server.reach.max()) if limit is None else limit
    is_same = limit is not None or bool((server.reach == threshold).all())
    # if thresholds differ between nodes, a node of few rows must not stretch the histogram
    usual = threshold if is_same else float(np.average(server.reach, weights=server.counts))
    reach = _REACH * usual if 0 < usual < np.inf else 1.0
    edges = np.linspace(0.0, reach, _N_BINS + 1)
    bars = np.zeros((2, _N_BINS), np.int64)
    by_cluster: dict[int, int] = {}
    for piece in _pieces(rows):
        if read is not None and column_names(piece) is not None:
            table = read(piece)
        else:
            table = Rows(piece, "report", allow_empty=True, allow_gaps=read is not None)
        if table.n_features != server.n_features:
            raise ValueError(f"rows have {table.n_features} features, the model has {server.n_features}")
        for block in table.blocks():
            labels, distance, novel = server.label_rows(block, reach=limit)
            distance = np.minimum(distance, reach)
            bars[0] += np.histogram(distance[~novel], edges)[0]
            bars[1] += np.histogram(distance[novel], edges)[0]
            for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
                by_cluster[int(label)] = by_cluster.get(int(label), 0) + int(n)
    if not by_cluster:
        raise ValueError("rows are empty: leave rows out, or pass the rows the model has learned")
    return CountedRows(by_cluster, Novelty(edges, bars[0], bars[1], threshold if is_same else None))


def _pieces(rows: Any) -> Iterator[Any]:
    if isinstance(rows, Mapping):
        yield from rows.values()
    elif hasattr(rows, "__next__"):
        for item in rows:
            yield item[1] if isinstance(item, tuple) else item
    else:
        yield rows
