"""The hierarchy above and below the clusters: nested cuts, sizes, and how they join."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.federation import Server
from fcac.report.dots import Dots
from fcac.tables.shown_column import percent

if TYPE_CHECKING:
    from fcac.report.report_data import ReportData

# How many more clusters than were found the finest cut has: as many again, within these numbers.
_FEWEST_MORE, _MOST_MORE = 4, 24
_MOST_FOUND = 250


@dataclass(frozen=True)
class Branch:
    """A set of nodes that is one of the clusters in cuts into `born` to `ends` clusters.

    `parent` is the position of the branch it was part of in coarser cuts, -1 for the one that holds everything;
    `children` are what it splits into. `cluster` is the found cluster that it is, None above and below the found cut.
    """

    born: int
    ends: int
    rows: float
    parent: int
    children: tuple[int, ...]
    cluster: int | None


@dataclass(frozen=True)
class Dendrogram:
    """All branches, and the branch of each node of the server in the finest cut (`leaf_of`)."""

    branches: list[Branch]
    n_found: int
    n_finest: int
    leaf_of: Integers

    def cluster_of(self, number: int) -> int | None:
        """Return the found cluster that a branch is or is part of; None above the found cut."""
        while number >= 0:
            branch = self.branches[number]
            if branch.cluster is not None or branch.born <= self.n_found:
                return branch.cluster
            number = branch.parent
        return None

    def leaves_below(self, number: int) -> list[int]:
        """Return the branches of the finest cut that a branch splits into."""
        children = self.branches[number].children
        return [leaf for child in children for leaf in self.leaves_below(child)] if children else [number]

    def middles(self, places: dict[int, float]) -> dict[int, float]:
        """Return where every branch stands, given where its leaves do."""
        middle = dict(places)
        for number in range(len(self.branches) - 1, -1, -1):
            children = self.branches[number].children
            if children:
                middle[number] = sum(middle[c] for c in children) / len(children)
        return middle

    def lines(self) -> list[tuple[str, ...]]:
        """Return a line for each found cluster: its rows, their share, and the cuts in which it is one."""
        total = self.branches[0].rows or 1.0
        found = sorted((b for b in self.branches if b.cluster is not None), key=lambda b: b.cluster or 0)
        return [
            (f"Cluster {b.cluster}", f"{round(b.rows):,}", percent(b.rows / total), str(b.born),
             str(b.ends + 1) if b.children else "–")
            for b in found
        ]  # fmt: skip

    def leaf_of_dots(self, dots: Dots) -> Integers:
        """Return for every dot the position of the leaf that most of its nodes are in."""
        position = {branch: at for at, branch in enumerate(self.leaves)}
        of_node = np.array([position[b] for b in self.leaf_of.tolist()])
        drawn = dots.group >= 0
        mass = np.zeros((len(dots.points), len(position)))
        np.add.at(mass, (dots.group[drawn], of_node[drawn]), 1.0)
        leaf: Integers = mass.argmax(axis=1)
        return leaf

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


def make_dendrogram(server: Server) -> Dendrogram | None:
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
        return None  # clusters of another tree
    return _grown(cuts, labels, counts, n_found)


def _refines(fine: Integers, coarse: Integers) -> bool:
    """Whether every part of the first lies in one part of the second."""
    pairs = np.unique(np.column_stack([fine, coarse]), axis=0)
    return len(pairs) == len(np.unique(fine))


def _same_partition(one: Integers, other: Integers) -> bool:
    return _refines(one, other) and _refines(other, one)


def _grown(cuts: list[Integers], labels: Integers, counts: Floats, n_found: int) -> Dendrogram:
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
    return Dendrogram(branches, n_found, len(cuts), leaf_of)


# ------------------------------------------------------------ as a chart

_TREE_WIDTH, _TREE_HEIGHT, _TOP, _BOTTOM, _SIDE = 960, 320, 22, 8, 34
_LEVELS_TOLD = (1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200)
_MAX_NUMBERED = 60
_LEAST_GAP = 24.0
_LEAST_GAP_ON_PHONE = 48.0  # letters are twice as large there


def tree_chart(data: ReportData, tree: Dendrogram) -> dict[str, Any]:
    """Return the tree: joins above the found cut, splits below it; branches are as thick as they have rows."""
    leaves = tree.leaves
    step = (_TREE_WIDTH - 2 * _SIDE) / max(len(leaves), 1)
    middle = tree.middles({leaf: _SIDE + step * (at + 0.5) for at, leaf in enumerate(leaves)})
    total = tree.branches[0].rows or 1.0
    branches, numbers = [], []
    for number, branch in enumerate(tree.branches):
        x, top, bottom = middle[number], _height(branch.born, tree), _height(branch.ends + 1, tree)
        path = f"M{x:.0f} {top}V{bottom}"
        if branch.children:
            ends = [middle[c] for c in branch.children]
            path += f"M{min(ends):.0f} {bottom}H{max(ends):.0f}"
        cluster = tree.cluster_of(number)
        branches.append(
            {"path": path, "label": cluster, "colour": "cx" if cluster is None else data.found.style(cluster).colour,
             "width": f"{1.2 + 9 * math.sqrt(branch.rows / total):.1f}", "tip": _branch_in_words(data, tree, number)}
        )  # fmt: skip
        if branch.cluster is not None and tree.n_found <= _MAX_NUMBERED:
            numbers.append((x, _height(min(tree.n_found + 0.5, branch.ends + 0.5), tree), branch.cluster))
    texts, last, last_on_phone = [], -math.inf, -math.inf
    for x, y, cluster in sorted(numbers):
        if x - last >= _LEAST_GAP:  # numbers side by side must not run into each other
            spare = x - last_on_phone < _LEAST_GAP_ON_PHONE
            texts.append({"x": round(x), "y": y, "label": cluster, "spare": spare})
            last, last_on_phone = x, last_on_phone if spare else x
    return {
        "width": _TREE_WIDTH,
        "height": _TREE_HEIGHT,
        "branches": branches,
        "numbers": texts,
        "cut": f"M32 {_height(tree.n_found + 0.5, tree)}H{_TREE_WIDTH - 6}",
        "ticks": [(level, _height(level + 0.5, tree) + 4) for level in _LEVELS_TOLD if level <= tree.n_finest],
    }


def tree_data(data: ReportData) -> dict[str, Any] | None:
    """Return what the script needs to show another cut: branches, where heights are, and how probable numbers are."""
    tree = data.tree
    if tree is None:
        return None
    position = {branch: at for at, branch in enumerate(tree.leaves)}
    branches = []
    for number, branch in enumerate(tree.branches):
        below = tree.leaves_below(number)
        at = [position[leaf] for leaf in below]
        found = [c for c in (tree.cluster_of(b) for b in (number, *below)) if c is not None]
        # from which to which cut it is a cluster, its leaves, and the style of its largest found cluster
        rank = min((data.found.style(c).rank for c in found), default=0)
        branches.append([branch.born, branch.ends, min(at), max(at), round(branch.rows), rank])
    return {
        "found": tree.n_found,
        "finest": tree.n_finest,
        "branches": branches,
        "heights": [_height(level + 0.5, tree) for level in range(1, tree.n_finest + 1)],
        "probable": {str(level): percent(p) for level, p in data.probabilities.items()},
    }


def _height(level: float, tree: Dendrogram) -> int:
    """Height of a cut into so many clusters: logarithmic, since few clusters matter more."""
    return round(_TOP + (_TREE_HEIGHT - _TOP - _BOTTOM) * math.log(level) / math.log(tree.n_finest + 1))


def _branch_in_words(data: ReportData, tree: Dendrogram, number: int) -> str:
    branch = tree.branches[number]
    rows = counted(round(branch.rows), "row")
    if branch.cluster is not None:
        name = data.profiles.name(branch.cluster)
        return f"Cluster {branch.cluster}{f' ({name})' if name else ''}: {rows}"
    found = tree.cluster_of(number)
    if found is None:
        return f"{rows}, together up to {counted(branch.ends, 'cluster')}"
    return f"Part of cluster {found}: {rows}, apart from {counted(branch.born, 'cluster')} on"
