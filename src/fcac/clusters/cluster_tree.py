"""The tree of clusters: what it is made of, cuts through its parts, and how it goes on above and below the clusters.

Clusters are made of tiles, tiles of atoms: small communities between which cuts are measured. A cut through the middle
of a part is a spectral bisection: atoms in the order of the second eigenvector of the normalised Laplacian (Shi and
Malik 2000), cut where least weight crosses for the smaller side, but so that both sides keep a quarter. CHAMELEON
(Karypis, Han and Kumar 1999) measures the inner connectivity of a part by such a bisection too. Joins undone give finer
clusters, and bisections finer ones still; coarser ones are joined by Ward's rule (Ward 1963), with edge weights in the
place of distances. Of so few nodes that cuts cannot be measured the clusters are found here too.

References
----------
J. Shi, J. Malik, "Normalized cuts and image segmentation", IEEE Transactions on Pattern Analysis and Machine
Intelligence 22 (2000).
G. Karypis, E.-H. Han, V. Kumar, "Chameleon: hierarchical clustering using dynamic modeling", Computer 32 (1999).
J. H. Ward, "Hierarchical grouping to optimize an objective function", Journal of the American Statistical Association
58 (1963).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from fcac._parallel import one_blas_thread
from fcac._typing import Floats, Integers
from fcac.clusters.leiden import PIECES_FROM, Search, relabel_in_place

# Resolution of the communities that are joined afterwards.
RESOLUTION = 0.5
# With fewer nodes per community than this cuts through communities cannot be measured, and the communities are those at
# the usual resolution of modularity. One node more for every three records a node stands for, up to the last number.
_MEASURABLE, _RECORDS_A_NODE_MORE, _MOST_MEASURABLE = 10, 3.0, 15
_RESOLUTION_OF_FEW, _NEVER_FEW = 1.0, 2000
# Where cuts cannot be measured, communities are joined only if clusters without any tie to each other remain. Then
# borders must be at least this strong, and no cluster may hold more than this share of the weight: a few outlying
# nodes must not set the scale.
_OF_FEW, _LARGEST_OF_FEW = 0.1, 0.6
# Clusters without a tie are as far apart as if their tie had this share of the weight inside.
_UNTIED = 1e-6
# The smaller side of a cut "through the middle" holds at least this share.
BALANCE = 0.25
# Cuts are made between atoms: communities at so many times the resolution, or at less if these are too many.
_ATOM_FACTOR, _MOST_ATOMS = 16.0, 300
# Many nodes have more communities, and a cut through one is measured badly if it has few atoms.
_MOST_ATOMS_OF_MANY = 1500
# Groups of more atoms than this get a few eigenvectors of a sparse matrix instead of all of a dense one.
_DENSE_ATOMS = 500
# The more nodes, the more communities a smooth cluster is cut into, and borders between many small tiles of it look
# like valleys. In d dimensions a resolution that falls like the d-th root of the number of nodes keeps their number
# steady; so it does, from this many nodes on.
_STEADY_FROM = 50_000


@dataclass
class Tree:
    """Atoms of the graph, and which of them form each cluster, from all apart to all together.

    Attributes
    ----------
    atom_of : ndarray of shape (n,)
        Atom of each node.
    block_weights : ndarray of shape (p, p)
        Weight between atoms, twice the inner weight on the diagonal.
    base : list of ndarray
        Atoms of every community before joining.
    joins : list of (int, int)
        Communities joined, in order (the second vanishes into the first), down to one.
    n_joined : int
        How many of the joins the rule makes. The others are for users who ask for fewer clusters.
    stability : ndarray
        Between 0 and 1 for each cluster of ``labels()``: how far its borders and its own joins are from being decided
        otherwise in this one fit; :mod:`fcac.clusters.stability` asks other fits. NaN where nodes are too few to
        measure it.
    """

    atom_of: Integers
    block_weights: Floats
    base: list[Integers]
    joins: list[tuple[int, int]] = field(default_factory=list)
    n_joined: int = 0
    stability: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def n_clusters(self) -> int:
        """Number of clusters by the rule."""
        return len(self.base) - self.n_joined

    def labels(self, n_clusters: int | None = None) -> Integers:
        """Return a cluster for every node, numbered by first node; as many clusters as wanted, or by the rule."""
        wanted = self.n_clusters if n_clusters is None else n_clusters
        groups = {g: [atoms] for g, atoms in enumerate(self.base)}
        for into, gone in self.joins[: max(0, len(self.base) - wanted)]:
            groups[into] += groups.pop(gone)
        parts = [np.concatenate(group) for group in groups.values()]
        if len(parts) < wanted:
            parts = _split(self.block_weights, parts, wanted)
        of_atom = np.zeros(len(self.block_weights), dtype=np.int64)
        for g, atoms in enumerate(parts):
            of_atom[atoms] = g
        return relabel_consecutive(of_atom[self.atom_of])


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


def steadiness(n: int, dimension: float) -> float:
    """Return the factor of the resolution that keeps the number of tiles of a smooth cluster steady.

    >>> steadiness(1000, 2.0), steadiness(200_000, 2.0)
    (1.0, 0.5)
    """
    # to the nearest half, so that slightly different lists do not mean another resolution
    return float(min(1.0, (_STEADY_FROM / n) ** (2 / max(2, np.rint(2 * dimension)))))


def few_nodes_tree(graph: sparse.csr_matrix, search: Search, records_per_node: float) -> Tree | None:
    """Return the tree of so few nodes that cuts through communities cannot be measured; None if there are enough.

    Parameters
    ----------
    graph : scipy.sparse.csr_matrix of shape (n, n), symmetric
    search : Search
        Of the graph.
    records_per_node : float
        How many records a node stands for, on average.
    """
    n = graph.shape[0]
    if n > _NEVER_FEW:
        return None
    base = search.communities(_RESOLUTION_OF_FEW)
    measurable = min(_MEASURABLE + records_per_node / _RECORDS_A_NODE_MORE, _MOST_MEASURABLE)
    if n >= measurable * (int(base.max()) + 1):
        return None
    atom_of = atoms_of(graph, search, base, RESOLUTION)
    block_weights = block_weights_of(graph, search, atom_of)
    base_of_atom = np.zeros(len(block_weights), dtype=np.int64)
    base_of_atom[atom_of] = base
    tree = Tree(atom_of, block_weights, [np.flatnonzero(base_of_atom == g) for g in range(int(base.max()) + 1)])
    joins, strengths, shares = _joins_by_strength(tree)
    return finished(tree, joins[: joins_of_few(strengths, shares)])


def finished(tree: Tree, made: list[tuple[int, int]]) -> Tree:
    """Return a tree with the joins that the rule makes, followed by those for users who ask for fewer clusters."""
    tree.n_joined = len(made)
    tree.joins = _joins_by_size(tree, made)
    tree.stability = np.full(tree.n_clusters, np.nan)
    return tree


def block_weights_of(graph: sparse.csr_matrix, search: Search, atom_of: Integers) -> Floats:
    """Return the weight between each two atoms, twice the inner weight on the diagonal."""
    n, n_atoms = graph.shape[0], int(atom_of.max()) + 1
    if n >= PIECES_FROM:
        return search.block_weights(atom_of)
    member = sparse.csr_matrix((np.ones(n), (atom_of, np.arange(n))), shape=(n_atoms, n))
    block_weights: Floats = (member @ graph @ member.T).toarray()
    return block_weights


def atoms_of(graph: sparse.csr_matrix, search: Search, base: Integers, resolution: float) -> Integers:
    """Parts of communities, few enough for dense matrices; the nodes themselves if these are few."""
    n = graph.shape[0]
    if n <= _MOST_ATOMS:
        return np.arange(n)
    factor = _ATOM_FACTOR
    if n >= PIECES_FROM:
        while factor > 1:
            atoms = search.parts(base, resolution * factor)
            if int(atoms.max()) < _MOST_ATOMS_OF_MANY:
                return atoms
            factor /= 2
        return base
    fine = search.communities(resolution * factor)
    atoms = relabel_consecutive(base * (int(fine.max()) + 1) + fine)
    while int(atoms.max()) >= _MOST_ATOMS:
        if factor <= 1:
            return base
        # coarser parts are made of the fine ones, on their much smaller graph
        factor /= 2
        member = sparse.csr_matrix((np.ones(n), (atoms, np.arange(n))), shape=(int(atoms.max()) + 1, n))
        coarse = Search(sparse.csr_matrix(member @ graph @ member.T)).communities(resolution * factor)[atoms]
        atoms = relabel_consecutive(base * (int(coarse.max()) + 1) + coarse)
    return atoms


def _borders(tree: Tree) -> Floats:
    member = np.zeros((len(tree.base), len(tree.block_weights)))
    for g, atoms in enumerate(tree.base):
        member[g, atoms] = 1
    borders: Floats = member @ tree.block_weights @ member.T
    return borders


def _absorb(border: Floats, into: int, gone: int) -> None:
    border[into] += border[gone]
    border[:, into] += border[:, gone]
    border[gone] = border[:, gone] = -1


def _joins_by_strength(tree: Tree) -> tuple[list[tuple[int, int]], list[float], list[float]]:
    """Join communities, strongest border relative to the weakest cuts through their middles first, down to one.

    Returns the joins, the strength of each border, and the share of all weight that the largest cluster held before
    each join.
    """
    border = _borders(tree)
    groups: list[Integers] = list(tree.base)
    inner = np.array([spectral_bisection(tree.block_weights, atoms)[0] for atoms in groups])
    joins, strengths, shares = [], [], []
    total = tree.block_weights.sum()
    volume = np.array([tree.block_weights[atoms].sum() for atoms in groups])
    upper = np.triu(np.ones(border.shape, dtype=bool), 1)
    for _ in range(len(groups) - 1):
        strength = border / np.maximum(np.sqrt(inner[:, None] * inner[None]), 1e-300)
        strength[~upper | (border < 0)] = -1.0
        into, gone = divmod(int(np.argmax(strength)), len(groups))
        joins.append((into, gone))
        strengths.append(float(strength[into, gone]))
        shares.append(float(volume.max() / max(total, 1e-300)))
        volume[into] += volume[gone]
        volume[gone] = 0
        groups[into] = np.concatenate([groups[into], groups[gone]])
        _absorb(border, into, gone)
        inner[into] = spectral_bisection(tree.block_weights, groups[into])[0]
    return joins, strengths, shares


def _joins_by_size(tree: Tree, made: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Continue from the joins already made, for users who ask for fewer clusters: least loss first.

    What strength cannot tell apart any more, this decides. As in Ward's rule, the loss is the squared distance of two
    clusters times the harmonic mean of their sizes, so that small ones join before large ones do. For the squared
    distance stands minus the logarithm of the weight between them, relative to the weight inside.
    """
    border, joins = _borders(tree), list(made)
    for into, gone in made:
        _absorb(border, into, gone)
    upper = np.triu(np.ones(border.shape, dtype=bool), 1)
    for _ in range(len(border) - 1 - len(made)):
        inside = np.diag(border)
        both = upper & (inside >= 0)[:, None] & (inside >= 0)[None]
        volume = np.maximum(np.where(border > 0, border, 0).sum(axis=1), 1e-300)
        size = 1 / (1 / volume[:, None] + 1 / volume[None])
        root = np.sqrt(np.maximum(inside, 1e-300))
        nearness = np.clip(border / (root[:, None] * root[None]), _UNTIED, 1.0)
        loss = np.where(both, -np.log(nearness) * size, np.inf)
        into, gone = divmod(int(np.argmin(loss)), len(border))
        joins.append((into, gone))
        _absorb(border, into, gone)
    return joins


def joins_of_few(strengths: Sequence[float], shares: Sequence[float]) -> int:
    """Return how many joins to make between so few nodes that strengths mean little, strongest border first.

    All between which there are edges, if clusters without an edge to each other remain and none of them is most of it
    all; else none.

    Parameters
    ----------
    strengths : sequence of float
        Strength of the border at each join.
    shares : sequence of float
        Share of the weight that the largest cluster holds before each join.

    >>> joins_of_few([0.9, 0.8, 0.7], [0.2, 0.3, 0.5])
    0
    >>> joins_of_few([0.9, 0.8, 0.0], [0.2, 0.3, 0.5])
    2
    >>> joins_of_few([0.9, 0.8, 0.0], [0.2, 0.6, 0.9])
    0
    """
    untied = [j for j, strength in enumerate(strengths) if strength < _UNTIED]
    made = untied[0] if untied else 0
    return made if min(strengths[:made], default=0.0) >= _OF_FEW and shares[made] <= _LARGEST_OF_FEW else 0


def spectral_bisection(block_weights: Floats, atoms: Integers) -> tuple[float, Integers]:
    """Return the weight of the weakest cut through the middle of a group of atoms, and the atoms on one side.

    The atoms are put in the order of the second eigenvector of their normalised Laplacian; of the places where both
    sides keep a quarter, the one with the least weight across per weight of the smaller side is taken. A cut off the
    middle is counted as if it cut two equal halves.
    """
    if len(atoms) < 2:
        # one atom cannot be cut: all its weight counts, so that it joins only whom most of it is tied to
        return float(block_weights[atoms].sum()) / 2, atoms
    part = block_weights[np.ix_(atoms, atoms)]
    volume = np.maximum(part.sum(axis=1), 1e-300)
    root = 1 / np.sqrt(volume)
    order = np.argsort(_second_vector(part * root[:, None] * root[None], volume) * root, kind="stable")
    part = part[np.ix_(order, order)]
    upper = np.triu(part, 1)
    across = np.cumsum(upper.sum(axis=1) - upper.sum(axis=0))[:-1]
    share = np.cumsum(volume[order])[:-1] / volume.sum()
    smaller = np.minimum(share, 1 - share)
    allowed = smaller >= BALANCE
    if not allowed.any():
        allowed[np.argmax(smaller)] = True
    value = np.where(allowed, across / np.maximum(smaller, 1e-12), np.inf)
    at = int(np.argmin(value))
    return max(float(value[at]) / 2, 0.0), atoms[order[: at + 1]]


def _second_vector(steps: Floats, volume: Floats) -> Floats:
    """Second eigenvector of the normalised Laplacian, from the normalised weights: same bits for same weights."""
    with one_blas_thread():
        if len(steps) <= _DENSE_ATOMS:
            return _dense_second_vector(steps)
        # without the first eigenvector, which is known, the second is the one with the largest value
        first = np.sqrt(volume / volume.sum())
        kept = sparse.csr_matrix(steps)
        start = np.cos(np.arange(len(steps)))
        flat = LinearOperator(steps.shape, matvec=lambda x: x + kept @ x - 2 * first * (first @ x), dtype=np.float64)
        try:
            vectors: Floats = eigsh(flat, 1, which="LA", v0=start, tol=1e-6, maxiter=1000)[1]
        except ArpackNoConvergence:
            return _dense_second_vector(steps)
        return vectors[:, 0]


def _dense_second_vector(steps: Floats) -> Floats:
    # one vector alone costs a third of all of them
    second: Floats = eigh(np.eye(len(steps)) - steps, subset_by_index=[1, 1], check_finite=False)[1][:, 0]
    return second


def _split(block_weights: Floats, parts: list[Integers], wanted: int) -> list[Integers]:
    """Split parts, weakest cut for the weight it parts first, until there are as many as wanted."""
    if wanted > len(block_weights):
        raise ValueError(
            f"n_clusters is {wanted}, but these nodes can be told apart into {len(block_weights)} parts only"
        )
    parts = list(parts)
    cuts = [_priced_bisection(block_weights, atoms) for atoms in parts]
    while len(parts) < wanted:
        at = int(np.argmin([cost for cost, _ in cuts]))
        side = np.sort(cuts[at][1])
        rest = np.setdiff1d(parts[at], side)
        parts[at : at + 1] = [side, rest]
        cuts[at : at + 1] = [_priced_bisection(block_weights, side), _priced_bisection(block_weights, rest)]
    return parts


def _priced_bisection(block_weights: Floats, atoms: Integers) -> tuple[float, Integers]:
    cut, side = spectral_bisection(block_weights, atoms)
    volume = float(block_weights[atoms].sum())
    return (cut / max(volume, 1e-300) ** 2 if len(atoms) > 1 else np.inf), side
