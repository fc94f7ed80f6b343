"""Cuts of hierarchies: the best of all by their odds, compared over the cells of all hierarchies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fcac.clusters import cuts
from fcac.clusters.proposals import Hierarchy, part_of_atoms


def drawn_tree(rng: np.random.Generator, atom_of: np.ndarray) -> tuple[Hierarchy, np.ndarray]:
    """A random binary tree over the atoms, and a gain for each inner node."""
    p = int(atom_of.max()) + 1
    alive, merges = list(range(p)), []
    while len(alive) > 1:
        a, b = sorted(rng.choice(len(alive), 2, replace=False))
        merges.append((alive[a], alive[b]))
        alive.pop(b)
    return Hierarchy.of(atom_of, np.array(merges)), rng.normal(size=p - 1)


def all_cuts(tree: Hierarchy, gain: np.ndarray) -> dict[int, float]:
    """The best sum of gains for every number of parts, by looking at all cuts."""
    p, parents = tree.n_atoms, tree.parents()
    best: dict[int, float] = {}
    for made in product([False, True], repeat=p - 1):
        reached = all(parents[x] < 0 or made[parents[x] - p] for x in range(p, 2 * p - 1) if made[x - p])
        if reached:
            k = sum(made) + 1
            best[k] = max(best.get(k, -np.inf), float(gain[list(made)].sum()))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    tree, gain = drawn_tree(rng, np.arange(9))
    best = all_cuts(tree, gain)
    sums, leftwards = cuts.best_cuts(tree.left, tree.right, gain, 9)
    for k, wanted in best.items():
        assert sums[k] == pytest.approx(wanted)
        made = cuts.parted_into(tree.left, tree.right, leftwards, k)
        assert gain[made[9:]].sum() == pytest.approx(wanted)
        assert len(np.unique(part_of_atoms(tree.left, tree.right, made))) == k


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_what_all_hierarchies_leave_whole_and_partitions_of_them_are_compared_by_rows(seed):
    rng = np.random.default_rng(seed)
    trees, odds = zip(*(drawn_tree(rng, rng.permutation(np.arange(60) % p)) for p in (12, 5, 1)), strict=True)
    cells, in_cells = cuts.cells_of(list(trees))
    assert in_cells.sum() == 60
    assert len({tuple(cell) for cell in cells.T}) == len(in_cells)
    shapes = [(tree.left, tree.right) for tree in trees]
    offered = cuts.offered(shapes, list(odds), cells)
    assert set(offered.tree) == {0, 1, 2}
    # every node's cell, and so its label in every cut
    place = {tuple(cell): c for c, cell in enumerate(cells.T.tolist())}
    cell_of = [place[tuple(int(tree.atom_of[i]) for tree in trees)] for i in range(60)]
    labels = offered.labels[:, cell_of]
    for t, k, parted, of_node in zip(offered.tree, offered.number, offered.parted, labels, strict=True):
        assert parted.sum() + 1 == k == of_node.max() + 1
        made = np.r_[np.zeros(trees[t].n_atoms, dtype=bool), parted]
        own = part_of_atoms(trees[t].left, trees[t].right, made)[trees[t].atom_of]
        assert adjusted_rand_score(own, of_node) == 1.0
    alike = cuts.adjusted_rand(offered.labels, offered.number, offered.labels, offered.number, in_cells.astype(float))
    for i, j in rng.integers(len(labels), size=(40, 2)):
        assert alike[i, j] == pytest.approx(adjusted_rand_score(labels[i], labels[j]))


def test_cuts_into_a_number_are_described_as_among_all_others():
    rng = np.random.default_rng(7)
    trees, odds = zip(*(drawn_tree(rng, rng.permutation(np.arange(60) % p)) for p in (12, 9)), strict=True)
    shapes = [(tree.left, tree.right) for tree in trees]
    cells, in_cells = cuts.cells_of(list(trees))
    evidence = [rng.normal(size=(tree.n_atoms - 1, len(cuts.COLUMNS))) for tree in trees]
    usual = cuts.offered(shapes, list(odds), cells)
    rows = cuts.described(usual, shapes, list(odds), evidence, in_cells)
    assert len(rows) == len(usual.tree)
    assert np.isfinite(rows).all()
    told = cuts.offered(shapes, list(odds), cells, 4)
    assert told.number.tolist() == [4, 4]
    again = cuts.described(told, shapes, list(odds), evidence, in_cells, usual)
    np.testing.assert_allclose(again, rows[usual.number == 4])
