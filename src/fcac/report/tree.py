"""The hierarchy above and below the clusters: nested cuts, sizes, and how they join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats, Integers
from fcac.federation import Server

# How many more clusters than were found the finest cut has: as many again, within these numbers.
_FEWEST_MORE, _MOST_MORE = 4, 24
_MOST_FOUND = 250


@dataclass(frozen=True)
class Branch:
    """A set of nodes that is a cluster in some of the cuts.

    Attributes
    ----------
    born, ends : int
        It is one of the clusters in cuts into `born` to `ends` clusters.
    rows : float
    parent : int
        Position of the branch it was part of in coarser cuts; -1 for the one that holds everything.
    children : tuple of int
        What it splits into; empty at the finest cut.
    cluster : int or None
        The found cluster that it is; None above and below the found cut.
    """

    born: int
    ends: int
    rows: float
    parent: int
    children: tuple[int, ...]
    cluster: int | None


@dataclass(frozen=True)
class TreeData:
    """All branches, and where each node of the server is in the finest cut.

    Attributes
    ----------
    branches : list of Branch
    n_found : int
        Number of clusters that were found.
    n_finest : int
    leaf_of : array of shape (n,)
        Branch of every node in the finest cut.
    """

    branches: list[Branch]
    n_found: int
    n_finest: int
    leaf_of: Integers

    @property
    def leaves(self) -> list[int]:
        """Branches of the finest cut, in an order in which no two branches cross."""
        order: list[int] = []

        waiting = [0]
        while waiting:
            at = waiting.pop()
            children = self.branches[at].children
            if children:
                waiting += sorted(children, key=lambda c: self.branches[c].rows)
            else:
                order.append(at)
        return order


def make_tree(server: Server) -> TreeData | None:
    """Return the hierarchy of a server's clusters; None where it has none, or for a single cut."""
    labels = server.node_labels
    n_found = len(np.unique(labels))
    if not hasattr(server.readout, "model") or not 0 < n_found <= _MOST_FOUND:
        return None
    counts = server.counts.astype(np.float64)
    more = int(np.clip(n_found, _FEWEST_MORE, _MOST_MORE))
    cuts = [np.zeros(len(labels), np.int64)]
    for level in range(2, n_found + more + 1):
        try:
            cut = server.readout.clusters_at(level)
        except ValueError:
            break  # there are not more parts
        if not _refines(cut, cuts[-1]):
            return None
        cuts.append(cut)
    if len(cuts) < max(n_found, 2) or not _same_partition(cuts[n_found - 1], labels):
        return None  # clusters of an earlier version of the read-out: another tree
    return _grown(cuts, labels, counts, n_found)


def _refines(fine: Integers, coarse: Integers) -> bool:
    """Whether every part of the first lies in one part of the second."""
    pairs = np.unique(np.column_stack([fine, coarse]), axis=0)
    return len(pairs) == len(np.unique(fine))


def _same_partition(one: Integers, other: Integers) -> bool:
    return _refines(one, other) and _refines(other, one)


def _grown(cuts: list[Integers], labels: Integers, counts: Floats, n_found: int) -> TreeData:
    born, ends, parent = [1], [len(cuts)], [-1]
    children: list[list[int]] = [[]]
    member: list[Integers] = [np.arange(len(labels))]
    current = {int(cuts[0][0]): 0}
    for number in range(1, len(cuts)):
        cut, following = cuts[number], {}
        inside: dict[int, list[int]] = {}
        first = {int(v): int(i) for v, i in zip(*np.unique(cut, return_index=True), strict=True)}
        for value, position in first.items():
            inside.setdefault(current[int(cuts[number - 1][position])], []).append(value)
        for branch, values in inside.items():
            if len(values) == 1:
                following[values[0]] = branch
                continue
            ends[branch] = number
            for value in values:
                nodes = np.flatnonzero(cut == value)
                born.append(number + 1)
                ends.append(len(cuts))
                parent.append(branch)
                children.append([])
                member.append(nodes)
                children[branch].append(len(born) - 1)
                following[value] = len(born) - 1
        current = following
    leaf_of = np.zeros(len(labels), np.int64)
    for value, branch in current.items():
        leaf_of[cuts[-1] == value] = branch
    branches = [
        Branch(
            born[b],
            ends[b],
            float(counts[member[b]].sum()),
            parent[b],
            tuple(children[b]),
            int(labels[member[b][0]]) if born[b] <= n_found <= ends[b] else None,
        )
        for b in range(len(born))
    ]
    return TreeData(branches, n_found, len(cuts), leaf_of)
