"""What a reading of nodes says of their clusters: the found ones, other numbers of them, and how probable each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fcac._split_rate import FALSE_SPLIT_RATE
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters import judge
from fcac.clusters.judge import Judge, Parting
from fcac.clusters.leiden import relabel_in_place
from fcac.clusters.proposals import MOST_ATOMS, Hierarchy
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

    `parted` are the inner nodes that the found clusters part. `by_number` are log-odds of the best cut into 1, 2, ...
    clusters, empty where only one cut is known. `others` are further hierarchies with their odds, for users who ask for
    a number of clusters. `sure`, of every cluster, and `probable`, of every number, are given where the odds of borders
    do not tell them.
    """

    hierarchy: Hierarchy
    odds: Floats
    parted: Booleans
    by_number: Floats
    others: Sequence[tuple[Hierarchy, Floats]] = ()
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
        return cls(hierarchy, odds, position >= n_joined, np.zeros(0), sure=sure, probable=np.asarray(probable))

    @property
    def n_clusters(self) -> int:
        """How many clusters were found."""
        return int(self.parted.sum()) + 1

    @property
    def n_most(self) -> int:
        """The largest number of clusters that can be asked for."""
        return max(tree.n_atoms for tree, _ in self._all())

    def _all(self) -> list[tuple[Hierarchy, Floats]]:
        return [(self.hierarchy, self.odds), *self.others]

    def labels(self) -> Integers:
        """Return the cluster of every node, numbered by first node."""
        return _labels(self.hierarchy, self.parted)

    def into(self, n_clusters: int) -> Tree:
        """Return the tree with the best cut of any hierarchy into so many clusters in place of the found one."""
        if not len(self.by_number):
            return replace(self, parted=self._nested(n_clusters))
        best: tuple[float, int, Booleans] | None = None
        for at, (tree, odds) in enumerate(everything := self._all()):
            if n_clusters <= tree.n_atoms:
                worth, parted = _cut_into(tree, odds, n_clusters)
                if best is None or worth > best[0]:
                    best = worth, at, parted
        if best is None:
            raise ValueError(
                f"n_clusters is {n_clusters}, but these nodes can be told apart into {self.n_most} parts only"
            )
        hierarchy, odds = everything.pop(best[1])
        most = min(hierarchy.n_atoms, max(judge.MOST_NUMBER, n_clusters))
        by_number = judge.best_cuts(hierarchy.left, hierarchy.right, np.minimum(odds, judge.MOST_ODDS), most)[0][1:]
        return Tree(hierarchy, odds, best[2], by_number, everything)

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
        fitted = Judge.fitted()
        real = np.r_[np.zeros(p), 1 / (1 + np.exp(-(fitted.slope * self.odds + fitted.intercept)))]
        parent = tree.parents()
        at = judge.part_of_atoms(tree.left, tree.right, np.r_[np.zeros(p, dtype=bool), self.parted])
        apart = np.where(parent >= 0, real[parent], 1.0)
        # numbered as labels() numbers them: by first node
        order = at[tree.atom_of][np.unique(self.labels(), return_index=True)[1]]
        sure: Floats = ((1 - real) * apart)[order]
        return sure

    def probabilities(self) -> Floats:
        """Return the probability of 1, 2, ... clusters; empty where only one cut is known."""
        if self.probable is not None:
            return self.probable
        if not len(self.by_number):
            return np.zeros(0)
        fitted = Judge.fitted()
        return judge.number_probabilities(self.by_number, fitted.warmth, fitted.doubt)

    def alternatives(self, most: int = 5) -> list[Alternative]:
        """Return the most probable numbers of clusters, the found one first."""
        probable = self.probabilities()
        order = [int(k) for k in np.argsort(-probable, kind="stable") + 1 if k != self.n_clusters]
        found = (
            []
            if not len(probable)
            else [Alternative(self.n_clusters, float(probable[self.n_clusters - 1]), self.labels())]
        )
        for k in order[: max(0, most - len(found))]:
            parted = _cut_into(self.hierarchy, self.odds, k)[1] if len(self.by_number) else self._nested(k)
            found.append(Alternative(k, float(probable[k - 1]), _labels(self.hierarchy, parted)))
        return found

    def joined(self, pairs: Sequence[tuple[int, int]]) -> Tree:
        """Return the tree in which clusters of ``labels()`` are joined, pair by pair; the second of each is gone."""
        tree, p = self.hierarchy, self.hierarchy.n_atoms
        at = judge.part_of_atoms(tree.left, tree.right, np.r_[np.zeros(p, dtype=bool), self.parted])
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
            merged(int(first[clusters[into]]), int(first[clusters[gone]]), -judge.MOST_ODDS)
        n_joined = len(merges)
        for x in range(p, len(tree.left)):
            if not inside[x]:
                merged(int(first[tree.left[x]]), int(first[tree.right[x]]), float(self.odds[x - p]))
        parted = np.arange(p - 1) >= n_joined
        built = Hierarchy.of(tree.atom_of, np.array(merges, dtype=np.int64).reshape(-1, 2))
        gain = np.minimum(np.array(odds), judge.MOST_ODDS)
        most = min(p, max(judge.MOST_NUMBER, int(parted.sum()) + 1))
        return Tree(built, np.array(odds), parted, judge.best_cuts(built.left, built.right, gain, most)[0][1:])


def tree_of(
    points: Floats,
    mass: Floats,
    lists: NeighborLists,
    false_split_rate: float = FALSE_SPLIT_RATE,
    at_least: int = 1,
) -> Tree:
    """Return the judged tree of distinct points, in the coordinates in which distances are measured.

    Of the three hierarchies that are proposed, each is cut by the same odds, and the one whose clusters agree most with
    the others' is taken. `at_least` is how many clusters one must be able to ask for, where there are so many points.
    """
    if len(points) < 3 or not lists[0].shape[1]:
        # nothing can be measured on two points
        n = len(points)
        alone = Hierarchy.of(np.arange(n), np.array([(0, i) for i in range(1, n)], dtype=np.int64).reshape(-1, 2))
        return Tree(alone, np.full(n - 1, -judge.MOST_ODDS), np.zeros(n - 1, dtype=bool), np.zeros(0))
    fitted = Judge.fitted()
    asked = fitted.asked_for(false_split_rate)
    hierarchies, evidence = judge.examined(points, mass, lists, max(MOST_ATOMS, 2 * at_least))
    odds = [fitted.log_odds(rows) - asked for rows in evidence]
    cuts = [Parting.best(tree.left, tree.right, of) for tree, of in zip(hierarchies, odds, strict=True)]
    shared = {}
    for i in range(len(hierarchies)):
        for j in range(i):
            one, other = hierarchies[i], hierarchies[j]
            both = np.bincount(one.atom_of * other.n_atoms + other.atom_of, minlength=one.n_atoms * other.n_atoms)
            shared[i, j] = both.reshape(one.n_atoms, -1)
    at = judge.chosen(cuts, shared)
    others = [(tree, of) for i, (tree, of) in enumerate(zip(hierarchies, odds, strict=True)) if i != at]
    return Tree(hierarchies[at], odds[at], cuts[at].parted, cuts[at].by_number, others)


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
    of_atom = judge.part_of_atoms(tree.left, tree.right, np.r_[np.zeros(tree.n_atoms, dtype=bool), parted])
    return relabel_consecutive(of_atom[tree.atom_of])


def _cut_into(tree: Hierarchy, odds: Floats, wanted: int) -> tuple[float, Booleans]:
    gain = np.minimum(odds, judge.MOST_ODDS)
    worth, leftwards = judge.best_cuts(tree.left, tree.right, gain, wanted)
    parted: Booleans = judge.parted_into(tree.left, tree.right, leftwards, wanted)[tree.n_atoms :]
    return float(worth[wanted]), parted
