"""What a reading of nodes says of their clusters: the found ones, other numbers of them, and how probable each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fcac._split_rate import FALSE_SPLIT_RATE
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters import judge
from fcac.clusters.cuts import MOST_ODDS
from fcac.clusters.judge import Judge, Judged, judged
from fcac.clusters.leiden import relabel_in_place
from fcac.clusters.proposals import MOST_ATOMS, Hierarchy, part_of_atoms
from fcac.search.exact import NeighborLists


class Alternative(NamedTuple):
    """A number of clusters and the best partition into so many.

    Attributes
    ----------
    n_clusters : int
    probability : float
        Of this number; all numbers together have 1.
    node_labels : ndarray of shape (n_nodes,)
        Cluster of every node, 0 to ``n_clusters`` - 1.
    """

    n_clusters: int
    probability: float
    node_labels: Integers


@dataclass
class Tree:
    """A hierarchy whose borders have been judged: log-odds that the two sides of an inner node are different clusters.

    `parted` are the inner nodes that the found clusters part. `judged` is what the judge weighed, if the clusters were
    found by it: other hierarchies and cuts. `sure`, of every cluster, and `probable`, of every number, are given where
    it does not tell them.
    """

    hierarchy: Hierarchy
    odds: Floats
    parted: Booleans
    judged: Judged | None = None
    sure: Floats | None = None
    probable: Floats | None = None

    @classmethod
    def of_joins(
        cls, atom_of: Integers, joins: Sequence[tuple[int, int]], n_joined: int, sure: Floats, probable: Any = ()
    ) -> Tree:
        """A tree that was found in another way: joins of atoms down to one, and how many of them make the clusters.

        `sure` is the probability of every cluster, `probable` that of 1, 2, ... clusters, if it is known.
        """
        hierarchy = Hierarchy.of(atom_of, np.array(joins, dtype=np.int64).reshape(-1, 2))
        position = np.arange(len(joins))
        # later joins are of borders that are surer
        odds: Floats = (position - n_joined).astype(np.float64)
        return cls(hierarchy, odds, position >= n_joined, None, sure, np.asarray(probable))

    @property
    def n_clusters(self) -> int:
        """How many clusters were found."""
        return int(self.parted.sum()) + 1

    @property
    def n_most(self) -> int:
        """The largest number of clusters that can be asked for."""
        trees = [self.hierarchy] if self.judged is None else self.judged.hierarchies
        return max(tree.n_atoms for tree in trees)

    def labels(self) -> Integers:
        """Return the cluster of every node, numbered by first node."""
        return _labels(self.hierarchy, self.parted)

    def into(self, n_clusters: int) -> Tree:
        """Return the tree with the best cut of any hierarchy into so many clusters in place of the found one."""
        if self.judged is None:
            return replace(self, parted=self._nested(n_clusters))
        return _tree(self.judged, *self.judged.into(n_clusters))

    def nested(self, level: int) -> Integers:
        """Return a cut of the found clusters' own hierarchy: fewer are unions of them, more are parts of them."""
        return _labels(self.hierarchy, self._nested(level))

    def _nested(self, level: int) -> Booleans:
        left, right, p = self.hierarchy.left, self.hierarchy.right, self.hierarchy.n_atoms
        if not 1 <= level <= p:
            raise ValueError(f"level must be a number of clusters between 1 and {p}; it is {level!r}")
        parted = np.r_[np.zeros(p, dtype=bool), self.parted]
        parent, inner = self.hierarchy.parents(), np.arange(p, len(left))
        while int(parted.sum()) + 1 != level:
            if int(parted.sum()) + 1 > level:
                # the least sure of the borders with none below them
                last = inner[parted[inner] & ~parted[left[inner]] & ~parted[right[inner]]]
                parted[last[np.argmin(self.odds[last - p])]] = False
            else:
                open_ = inner[~parted[inner] & ((parent[inner] < 0) | parted[parent[inner]])]
                parted[open_[np.argmax(self.odds[open_ - p])]] = True
        found: Booleans = parted[p:]
        return found

    def cluster_probability(self) -> Floats:
        """Return for each cluster of ``labels()`` how probable it is that it is one and apart from the others.

        That its own two sides are not different clusters, and that the border to its sibling is real.
        """
        if self.sure is not None:
            return self.sure
        tree, p = self.hierarchy, self.hierarchy.n_atoms
        probable = self.probabilities()
        number = float(probable[self.n_clusters - 1]) if self.n_clusters <= len(probable) else 0.5
        # a number nobody offered, or the only one there is, is no reason to be certain
        real = Judge.fitted().real(self.odds, self.parted, min(max(number, 0.001), 0.999))
        real = np.r_[np.zeros(p), real]
        parent = tree.parents()
        at = part_of_atoms(tree.left, tree.right, np.r_[np.zeros(p, dtype=bool), self.parted])
        apart = np.where(parent >= 0, real[parent], 1.0)
        # numbered as labels() numbers them: by first node
        order = at[tree.atom_of][np.unique(self.labels(), return_index=True)[1]]
        sure: Floats = ((1 - real) * apart)[order]
        return sure

    def probabilities(self) -> Floats:
        """Return the probability of 1, 2, ... clusters; empty where only one cut is known."""
        if self.probable is not None:
            return self.probable
        if self.judged is None:
            return np.zeros(0)
        fitted = Judge.fitted()
        return judge.number_probabilities(self.judged.by_number(), fitted.warmth, fitted.doubt)

    def alternatives(self, most: int = 5) -> list[Alternative]:
        """Return the most probable numbers of clusters, the found one first."""
        probable = self.probabilities()
        if self.n_clusters > len(probable):
            return []
        order = [int(k) for k in np.argsort(-probable, kind="stable") + 1 if k != self.n_clusters and probable[k - 1]]
        found = [Alternative(self.n_clusters, float(probable[self.n_clusters - 1]), self.labels())]
        for k in order[: max(0, most - 1)]:
            labels = self.nested(k) if self.judged is None else self.into(k).labels()
            found.append(Alternative(k, float(probable[k - 1]), labels))
        return found

    def joined(self, pairs: Sequence[tuple[int, int]]) -> Tree:
        """Return the tree in which clusters of ``labels()`` are joined, pair by pair; the second of each is gone."""
        tree, p = self.hierarchy, self.hierarchy.n_atoms
        at = part_of_atoms(tree.left, tree.right, np.r_[np.zeros(p, dtype=bool), self.parted])
        clusters = at[tree.atom_of][np.unique(self.labels(), return_index=True)[1]]
        merges: list[tuple[int, int]] = []
        odds: list[float] = []
        # merges of atoms are known by the first atom of either side
        first = np.arange(len(tree.left))
        for x in range(p, len(tree.left)):
            first[x] = first[tree.left[x]]
        inside = np.zeros(len(tree.left), dtype=bool)
        inside[clusters] = True
        for x in range(len(tree.left) - 1, p - 1, -1):
            if inside[x]:
                inside[tree.left[x]] = inside[tree.right[x]] = True
        made = [x for x in range(p, len(tree.left)) if inside[x]]
        root = {int(first[c]): int(first[c]) for c in clusters}

        def merged(a: int, b: int, odd: float) -> None:
            while root[a] != a:
                a = root[a]
            while root[b] != b:
                b = root[b]
            if a != b:
                root[b] = a
                merges.append((a, b))
                odds.append(odd)

        for x in made:
            merges.append((int(first[tree.left[x]]), int(first[tree.right[x]])))
            odds.append(float(self.odds[x - p]))
        for into, gone in pairs:
            merged(int(first[clusters[into]]), int(first[clusters[gone]]), -MOST_ODDS)
        n_joined = len(merges)
        for x in range(p, len(tree.left)):
            if not inside[x]:
                merged(int(first[tree.left[x]]), int(first[tree.right[x]]), float(self.odds[x - p]))
        parted = np.arange(p - 1) >= n_joined
        built = Hierarchy.of(tree.atom_of, np.array(merges, dtype=np.int64).reshape(-1, 2))
        probable = self.probabilities().copy()
        if len(probable):
            # what spoke for the number that was found speaks for what is left of it
            of_found = float(probable[self.n_clusters - 1])
            probable[self.n_clusters - 1] = 0.0
            probable[int(parted.sum())] += of_found
        return Tree(built, np.array(odds), parted, probable=probable)


def tree_of(
    points: Floats,
    mass: Floats,
    lists: NeighborLists,
    false_split_rate: float = FALSE_SPLIT_RATE,
    wanted: int | None = None,
) -> Tree:
    """Return the judged tree of distinct points, in the coordinates in which distances are measured.

    It has the cut that the judge scores highest. `wanted` is the number of clusters that will be asked for, if it is
    known.
    """
    if len(points) < 3 or not lists[0].shape[1]:
        # nothing can be measured on two points
        n = len(points)
        alone = Hierarchy.of(np.arange(n), np.array([(0, i) for i in range(1, n)], dtype=np.int64).reshape(-1, 2))
        return Tree(alone, np.full(n - 1, -MOST_ODDS), np.zeros(n - 1, dtype=bool))
    found = judged(points, mass, lists, false_split_rate, max(MOST_ATOMS, 2 * (wanted or 1)), wanted)
    return _tree(found, int(found.cuts.tree[found.best]), found.cuts.parted[found.best])


def _tree(found: Judged, at: int, parted: Booleans) -> Tree:
    """The tree of one hierarchy; leaves that are much coarser than those of the graph's go on as these do."""
    tree, odds = found.hierarchies[at], found.odds[at]
    finer, odds_below = found.hierarchies[0], found.odds[0]
    if 2 * tree.n_atoms < finer.n_atoms:
        merges, odds_of, atom_of = _below(tree, odds, finer, odds_below)
        below = np.zeros(len(merges) - len(odds), dtype=bool)
        tree, odds, parted = Hierarchy.of(atom_of, merges), odds_of, np.r_[below, parted]
    return Tree(tree, odds, parted, found)


def _below(tree: Hierarchy, odds: Floats, finer: Hierarchy, odds_below: Floats) -> tuple[Integers, Floats, Integers]:
    """Merges of a hierarchy that starts, inside each atom of a tree, as a finer one does; their odds; and its atoms."""
    both = tree.atom_of * finer.n_atoms + finer.atom_of
    pairs, atom_of = np.unique(both, return_inverse=True)
    # by node of the finer tree: what of it is in each atom of the other
    held: list[dict[int, int]] = [{} for _ in finer.left]
    for i, (atom, own) in enumerate(zip(*np.divmod(pairs, finer.n_atoms), strict=True)):
        held[own][int(atom)] = i
    merges: list[tuple[int, int]] = []
    odds_of: list[float] = []
    for x in range(finer.n_atoms, len(finer.left)):
        one, other = held[finer.left[x]], held[finer.right[x]]
        held[x] = other | one
        for atom in sorted(one.keys() & other.keys()):
            merges.append((one[atom], other[atom]))
            odds_of.append(float(odds_below[x - finer.n_atoms]))
    first = [held[-1][atom] for atom in range(tree.n_atoms)]
    for x in range(tree.n_atoms, len(tree.left)):
        first.append(first[tree.left[x]])
        merges.append((first[tree.left[x]], first[tree.right[x]]))
    return np.array(merges, dtype=np.int64), np.r_[odds_of, odds], atom_of.astype(np.int64)


def relabel_consecutive(labels: Integers) -> Integers:
    """Renumber labels in order of first appearance.

    >>> relabel_consecutive(np.array([7, 3, 7, 0])).tolist()
    [0, 1, 0, 2]
    """
    labels = labels.astype(np.int64)
    bound = int(labels.max(initial=0)) + 1
    if labels.min(initial=0) < 0 or bound > 10 * len(labels) + 1000:
        labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        bound = len(labels)
    relabel_in_place(labels, bound)
    return labels


def _labels(tree: Hierarchy, parted: Booleans) -> Integers:
    of_atom = part_of_atoms(tree.left, tree.right, np.r_[np.zeros(tree.n_atoms, dtype=bool), parted])
    return relabel_consecutive(of_atom[tree.atom_of])
