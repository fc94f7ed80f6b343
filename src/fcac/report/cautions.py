"""Warnings in plain words: what a reader should know before relying on the clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._text import counted, listed
from fcac._typing import Floats
from fcac.clusters.stability import DOUBTFUL
from fcac.tables.shown_column import ShownColumn, percent

if TYPE_CHECKING:
    from fcac.report.data import Cluster, Novelty

_FEW_NODES = 8
_FEW_ROWS = 30
_NEARLY_ALL = 0.9
_MANY_NOVEL = 0.05
_RULES = 0.8
_MOSTLY = 0.5
_HARDLY_CONDENSED = 0.9
_FEW_ROWS_PER_SITE = 100
_NOISY = 0.3
_MAX_LISTED = 6


def cautions(
    clusters: Sequence[Cluster],
    *,
    n_sites: int,
    site_rows: Mapping[Any, int],
    novelty: Novelty | None,
    columns: Sequence[ShownColumn],
    variances: Floats,
    nodes_per_row: float,
    n_dropped: int,
    n_read: int,
) -> list[str]:
    """Return warnings, the most general first.

    Parameters
    ----------
    clusters : sequence of Cluster
    n_sites : int
    site_rows : mapping of site to rows
    novelty : Novelty or None
    columns : sequence of ShownColumn
    variances : array of shape (d,)
        Variance of each feature as it counts in the distance.
    nodes_per_row : float
    n_dropped, n_read : int
        Rows that were left out, and rows that were read; 0 if it is not known.
    """
    told = []
    if len(clusters) == 1:
        told.append(
            "Only one cluster was found: no border in these rows is clear enough. That can be the truth; it can also "
            "mean that columns without meaning for the question hide the others."
        )
    if n_dropped:
        of = f" of {n_read:,}" if n_read else ""
        told.append(
            f"{counted(n_dropped, 'row')}{of} had missing values and {'was' if n_dropped == 1 else 'were'} left out, "
            "as the schema says. If values are not missing by chance, clusters can be missing, too."
        )
    if novelty is not None and novelty.n_rows and novelty.n_novel / novelty.n_rows > _MANY_NOVEL:
        told.append(
            f"{percent(novelty.n_novel / novelty.n_rows)} of the rows are unlike anything the model has learned. "
            "Their clusters are guesses: fit again, or look at these rows."
        )
    ruling = _ruling(columns, variances)
    if ruling:
        told.append(
            f"{ruling} makes up more than {_RULES:.0%} of all distances, because of its scale: the other columns "
            "hardly count. If that is not meant, give it a scaling in the schema."
        )
    if nodes_per_row > _HARDLY_CONDENSED and sum(site_rows.values()) < _FEW_ROWS_PER_SITE * n_sites:
        told.append(
            f"There are fewer than {_FEW_ROWS_PER_SITE} rows per site, and nearly every row is a node of its own: "
            "small clusters can be chance."
        )
    told += _about_clusters(clusters, n_sites, site_rows)
    return told


def _ruling(columns: Sequence[ShownColumn], variances: Floats) -> str:
    """The column that decides nearly alone, if there are three or more."""
    if len(columns) < 3 or not variances.sum() > 0:
        return ""
    of_column = np.array([variances[list(column.features)].sum() for column in columns])
    top = int(np.argmax(of_column))
    return columns[top].name if of_column[top] > _RULES * of_column.sum() else ""


def _about_clusters(clusters: Sequence[Cluster], n_sites: int, site_rows: Mapping[Any, int]) -> list[str]:
    told = []
    few = [c for c in clusters if c.n_nodes < _FEW_NODES or c.rows < _FEW_ROWS]
    if few:
        told.append(
            f"{_named(few)} {'rests' if len(few) == 1 else 'rest'} on fewer than {_FEW_NODES} nodes or {_FEW_ROWS} "
            f"rows: read what is said of {'it' if len(few) == 1 else 'them'} with care."
        )
    if n_sites > 1:
        total = sum(site_rows.values()) or 1
        alone = [
            c
            for c in clusters
            if c.site_shares
            and next(iter(c.site_shares.values())) >= _NEARLY_ALL
            and site_rows.get(next(iter(c.site_shares)), 0) / total < _NEARLY_ALL
        ]
        if alone:
            told.append(
                f"{_named(alone)} {'comes' if len(alone) == 1 else 'come each'} nearly all from one site. That can be "
                "a kind of row that only this site has, or the way in which it measures."
            )
    weak = [c for c in clusters if c.stability is not None and c.stability < DOUBTFUL]
    shaky = sum(c.rows for c in weak) / (sum(c.rows for c in clusters) or 1)
    if len(weak) > 1 and shaky >= _MOSTLY:
        told.append(
            f"{len(weak)} of {len(clusters)} clusters, with {percent(shaky)} of the rows, are not stable: with "
            "slightly different rows they would be split or joined differently. Do not rely on their number. Look at "
            "fewer clusters in the tree, or leave out columns that cut across all groups, such as a month or a yes/no."
        )
    elif weak:
        told.append(
            f"{_named(weak)} {'is' if len(weak) == 1 else 'are'} not stable: with slightly different rows "
            f"{'it' if len(weak) == 1 else 'they'} might be split, or joined to a neighbour."
        )
    noisy = [c for c in clusters if c.rows_error is not None and c.rows and 2 * c.rows_error / c.rows > _NOISY]
    if noisy:
        told.append(
            f"The size of {_named(noisy, first=False)} is uncertain by more than {_NOISY:.0%} because of the noise "
            "that protects the records."
        )
    return told


def _named(clusters: Sequence[Cluster], first: bool = True) -> str:
    names = [str(c.label) for c in clusters]
    word = "cluster" if len(names) == 1 else "clusters"
    joined = f"{', '.join(names[:-1])} and {names[-1]}" if 1 < len(names) <= _MAX_LISTED else listed(names, _MAX_LISTED)
    return f"{word.capitalize() if first else word} {joined}"
