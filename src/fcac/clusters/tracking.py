"""Names that last: which cluster of this round is which of the last, and what became of each.

Clusters of two rounds are matched by an optimal assignment of the records they share (Kuhn's Hungarian method, 1955),
and the transitions are those of MONIC (Spiliopoulou and others 2006): born, died, split, merged, grew, shrank, moved.
What differs: a name is kept only by a pair that shares most of the records of one of them, and records that new nodes
bring are counted where the nearest old node was.

References
----------
H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics Quarterly 2 (1955).
M. Spiliopoulou, I. Ntoutsi, Y. Theodoridis, R. Schult, "MONIC: modeling and monitoring cluster transitions", KDD
(2006).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from fcac._typing import Floats, Integers


class Change(NamedTuple):
    """One event in the life of a cluster.

    Attributes
    ----------
    round : int
    kind : str
        "born", "grew", "shrank", "merged", "split" or "died". A cluster whose mass did not change has no event.
    cluster : int
        The cluster's lasting id: of the result for "merged", of the origin for "split".
    others : tuple of int
        Clusters that went into it ("merged") or came out of it ("split"), its own id included if it lived on.
    mass_before, mass_after : float
        Records behind its nodes.
    """

    round: int
    kind: str
    cluster: int
    others: tuple[int, ...]
    mass_before: float
    mass_after: float

    def to_json(self) -> list[Any]:
        return [self.round, self.kind, self.cluster, list(self.others), self.mass_before, self.mass_after]

    @classmethod
    def from_json(cls, values: Any) -> Change:
        if len(values) != 6:
            raise ValueError("a change in the stored lineage is incomplete")
        number, kind, cluster, others, before, after = values
        return cls(int(number), str(kind), int(cluster), tuple(int(o) for o in others), float(before), float(after))


class Move(NamedTuple):
    """How far a cluster that lives on has moved in a round, between its centres before and after.

    1 is the root mean square distance of its nodes from its centre before, in the scaled features of that time.
    """

    round: int
    cluster: int
    moved: float


class Extent(NamedTuple):
    """Centres of clusters, and how far their nodes lie from them; taken from one result."""

    ids: Integers
    centres: Floats
    spreads: Floats
    scales: Floats

    @classmethod
    def of(cls, nodes: Floats, counts: Floats, labels: Integers, scales: Floats) -> Extent:
        """Return the extent of every cluster; nodes count by their rows."""
        ids, which = np.unique(labels, return_inverse=True)
        mass = np.bincount(which, weights=counts)
        centres = np.zeros((len(ids), nodes.shape[1]))
        np.add.at(centres, which, nodes * counts[:, None])
        centres /= mass[:, None]
        squared = (((nodes - centres[which]) * scales) ** 2).sum(axis=1)
        return cls(ids, centres, np.sqrt(np.bincount(which, weights=counts * squared) / mass), scales)

    def moves(self, later: Extent, round_: int) -> list[Move]:
        """Return how far the clusters have moved that are in a later result too."""
        both, mine, theirs = np.intersect1d(self.ids, later.ids, return_indices=True)
        apart = np.sqrt((((later.centres[theirs] - self.centres[mine]) * self.scales) ** 2).sum(axis=1))
        spread = self.spreads[mine]
        moved = np.divide(apart, spread, out=np.where(apart > 0, np.inf, 0.0), where=spread > 0)
        return [Move(round_, int(name), float(by)) for name, by in zip(both, moved, strict=True)]


def match_clusters(
    labels: Integers, counts: Floats, origin: Integers, mass_before: dict[int, float], next_id: int, round_: int
) -> tuple[Integers, list[Change], int]:
    """Give the clusters of this round lasting ids, and tell what happened; `next_id` was never given.

    An old cluster and a new one are the same if they share most of the records of one of them; where several claim a
    name, the pairing with the most shared records wins. `origin` is the old cluster of each node, -1 in new territory.
    Clusters that are new get their ids by size, the largest first, so that after a first fit cluster 0 is the largest.

    >>> ids, changes, _ = match_clusters(
    ...     np.array([0, 0, 1]), np.array([5.0, 4.0, 7.0]), np.array([0, 1, -1]), {0: 5.0, 1: 4.0}, 2, 1
    ... )
    >>> ids.tolist(), [(c.kind, c.cluster, c.others) for c in changes]
    ([0, 2], [('merged', 0, (0, 1)), ('born', 2, ())])
    """
    n_new = int(labels.max()) + 1
    old = sorted(mass_before)
    row = {o: r for r, o in enumerate(old)}
    shared = np.zeros((len(old), n_new))
    known = origin >= 0
    np.add.at(
        shared, (np.array([row[o] for o in origin[known].tolist()], dtype=np.int64), labels[known]), counts[known]
    )
    after = np.bincount(labels, weights=counts, minlength=n_new)
    flown = shared.sum(axis=1)
    mostly_into = (shared > 0) & (shared >= 0.5 * flown[:, None])
    mostly_from = (shared > 0) & (shared >= 0.5 * after[None])

    ids = np.full(n_new, -1, dtype=np.int64)
    for r, c in zip(*linear_sum_assignment(-shared), strict=True):
        if mostly_into[r, c] or mostly_from[r, c]:
            ids[c] = old[r]
    changes = []
    unnamed = np.flatnonzero(ids < 0)
    unnamed = unnamed[np.argsort(-after[unnamed], kind="stable")]
    ids[unnamed] = next_id + np.arange(len(unnamed))
    next_id += len(unnamed)

    explained_old, explained_new = set(), set()
    for c in range(n_new):
        parents = np.flatnonzero(mostly_into[:, c])
        if len(parents) > 1:
            before = sum(mass_before[old[r]] for r in parents)
            changes.append(
                Change(round_, "merged", int(ids[c]), tuple(old[r] for r in parents), before, float(after[c]))
            )
            explained_old.update(parents.tolist())
            explained_new.add(c)
    for r in range(len(old)):
        children = np.flatnonzero(mostly_from[r])
        if len(children) > 1:
            names = tuple(sorted(int(ids[c]) for c in children))
            changes.append(Change(round_, "split", old[r], names, mass_before[old[r]], float(after[children].sum())))
            explained_old.add(r)
            explained_new.update(children.tolist())
    for c in np.argsort(ids):
        name, mass = int(ids[c]), float(after[c])
        if c in explained_new:
            continue
        if name not in mass_before:
            changes.append(Change(round_, "born", name, (), 0.0, mass))
        elif mass != mass_before[name]:
            kind = "grew" if mass > mass_before[name] else "shrank"
            changes.append(Change(round_, kind, name, (), mass_before[name], mass))
    living = set(ids.tolist())
    for r, name in enumerate(old):
        if name not in living and r not in explained_old:
            changes.append(Change(round_, "died", name, (), mass_before[name], 0.0))
    return ids, changes, next_id
