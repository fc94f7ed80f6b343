"""Tables as the fit of the judge sees them: evidence about proposed hierarchies, and which borders are real."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.clusters.cuts import cells_of
from fcac.clusters.judge import examined
from fcac.clusters.snapshot import Fitted
from fcac.nodes import Reservoir

from .families import GROUPS, make
from .parts import Labels, Rows

MOST_NODES = 4000
N_TREES = 4


@dataclass(frozen=True)
class Tree:
    """One proposed hierarchy: its shape, evidence, the best cut, and the true clusters of the rows in every atom.

    Attributes
    ----------
    left, right : ndarray of shape (2 * n_atoms - 1,)
    evidence : ndarray of shape (n_atoms - 1, n_columns)
    real : ndarray of shape (n_atoms - 1,)
        Whether the best cut parts this inner node.
    below : ndarray of shape (n_atoms - 1,)
        How far below the last parted one it is.
    told : ndarray of shape (n_atoms - 1,)
        Whether there are labelled rows on both sides.
    rows : ndarray of shape (n_atoms, n_true_clusters)
    """

    left: NDArray[Any]
    right: NDArray[Any]
    evidence: NDArray[Any]
    real: NDArray[Any]
    below: NDArray[Any]
    told: NDArray[Any]
    rows: NDArray[Any]


@dataclass(frozen=True)
class Table:
    """One generated table: its hierarchies, the atom of each that a cell lies in, and how many nodes the cells have."""

    name: str
    seed: int
    n_rows: int
    n_clusters: int
    trees: list[Tree]
    cells: NDArray[Any]
    in_cells: NDArray[Any]

    @property
    def group(self) -> str:
        return GROUPS[self.name]


def nodes_of(X: Rows, most: int) -> tuple[Fitted, Labels]:
    """The nodes of a table as the product condenses and scales them, and the distinct point of every row."""
    reservoir = Reservoir(X.shape[1], most)
    reservoir.learn(np.ascontiguousarray(X), None, 1, None)
    fitted = Fitted({0: (np.array(reservoir.nodes), np.array(reservoir.counts, dtype=np.float64))}, [0])
    return fitted, fitted.searcher().nearest(fitted.placed(X), 1)[0][:, 0]


def most_nodes(n_rows: int, seed: int) -> int:
    """How many nodes a table is condensed to: of every third one far fewer, so that many rows stand behind each.

    Large tables have 250 rows a node and more, which tables of at most 20,000 rows would not show otherwise.
    """
    rng = np.random.default_rng([n_rows, seed])
    if seed % 3 or n_rows < 300:
        return MOST_NODES
    return int(np.exp(rng.uniform(np.log(60), np.log(min(n_rows / 2, MOST_NODES)))))


def table_of(name: str, seed: int) -> Table | None:
    """Draw a table and look at it; None if the judge would not be asked."""
    X, y = make(name, seed)
    if len(X) < 4:
        return None
    fitted, point_of = nodes_of(X, most_nodes(len(X), seed))
    if fitted.holds_levels:
        return None  # read as latent classes, not by the judge
    mass = np.bincount(fitted.point_of, weights=fitted.counts).astype(np.float64)
    hierarchies, evidence = examined(fitted.points, mass, fitted.lists())
    n_true, told = int(y.max()) + 1, y >= 0
    trees = []
    for tree, rows in zip(hierarchies, evidence, strict=True):
        at = tree.atom_of[point_of][told] * n_true + y[told]
        held = np.bincount(at, minlength=tree.n_atoms * n_true).reshape(-1, n_true)
        real, below, both = best_parting(tree.left, tree.right, held)
        trees.append(Tree(tree.left, tree.right, rows.astype(np.float32), real, below, both, held))
    return Table(name, seed, len(X), n_true, trees, *cells_of(hierarchies))


def best_parting(left: Labels, right: Labels, held: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Which inner nodes to part so that most pairs of rows are parted rightly, less those that are parted wrongly."""
    n = len(left)
    p = (n + 1) // 2
    rows = np.zeros((n, held.shape[1]))
    rows[:p] = held
    worth, smaller = np.zeros(n), np.zeros(n)
    for x in range(p, n):
        a, b = rows[left[x]], rows[right[x]]
        rows[x] = a + b
        worth[x] = max(0.0, a.sum() * b.sum() - 2 * (a @ b) + worth[left[x]] + worth[right[x]])
        smaller[x] = min(a.sum(), b.sum())
    real, below = np.zeros(n, dtype=bool), np.full(n, -1)
    below[n - 1] = 0
    for x in range(n - 1, p - 1, -1):
        real[x] = below[x] == 0 and worth[x] > 0
        below[left[x]] = below[right[x]] = 0 if real[x] else below[x] + 1
    return real[p:], below[p:].astype(np.int16), smaller[p:] > 0


# ------------------------------------------------------------ files


def kept(path: Path, tables: list[Table]) -> None:
    """Write tables to a file, all at once."""
    arrays: dict[str, Any] = {"names": np.array([t.name for t in tables])}
    arrays["numbers"] = np.array([(t.seed, t.n_rows, t.n_clusters) for t in tables])
    for i, table in enumerate(tables):
        for j, tree in enumerate(table.trees):
            arrays |= {f"{i}.{j}.{key}": value for key, value in vars(tree).items()}
        arrays |= {f"{i}.cells": table.cells, f"{i}.in_cells": table.in_cells}
    temporary = path.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.replace(path)


def read(path: Path) -> list[Table]:
    """Read what `kept` wrote."""
    found = []
    with np.load(path, allow_pickle=False) as parts:
        for i, (name, numbers) in enumerate(zip(parts["names"], parts["numbers"], strict=True)):
            trees = [Tree(**{key: parts[f"{i}.{j}.{key}"] for key in Tree.__annotations__}) for j in range(N_TREES)]
            cells = parts[f"{i}.cells"], parts[f"{i}.in_cells"]
            found.append(Table(str(name), *(int(v) for v in numbers), trees, *cells))
    return found
