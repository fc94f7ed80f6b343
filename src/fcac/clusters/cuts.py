"""Cuts: partitions that the proposed hierarchies offer, and what speaks for each of them as a whole.

The odds of borders say which nodes of one hierarchy to part; which hierarchy shows the clusters of a table, and how far
down it goes on to part them, shows only in whole partitions: how sure the faintest border is that is parted and the
surest that is not, how far partitions of other hierarchies agree, how equal the clusters are. :func:`offered` gives the
cuts of every hierarchy that are worth most by their odds, :func:`described` a row of figures for each. The judge learns
from such rows how well a partition agrees with the true one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fcac._kernels import inner_kernel, kernel
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters.evidence import COLUMNS
from fcac.clusters.proposals import Hierarchy, part_of_atoms

# No single border counts for more: evidence that is overwhelming in one place must not pay for doubtful ones.
MOST_ODDS = 6.0
# Numbers of clusters up to this one are weighed against each other.
MOST_NUMBER = 60
# Cuts of a hierarchy that are looked at as a whole: those worth most by their odds.
_CUTS = 14

# Evidence of which a cut's parted and open borders are described.
_TOLD = (
    "gap_z", "dip_z", "neck_z", "prominence_z", "line_z", "line_depth", "line_gain", "way_z", "way_depth", "gauss",
    "gauss_z", "facing", "jump", "stretch", "agree_1", "agree_2", "agree_3", "score", "mixture_gain", "mixture_apart",
    "mixture_z", "contrast", "share", "smaller", "volume", "step", "kurtosis", "neck_in", "gauss_in", "line_in",
)  # fmt: skip
# Evidence that is the same for all of a table.
_OF_TABLE = ("in_all", "records", "features", "dimension", "neighbours", "ties")
_AT = {name: j for j, name in enumerate(COLUMNS)}
_TOLD_AT = np.array([_AT[name] for name in _TOLD])
_OF_TABLE_AT = np.array([_AT[name] for name in _OF_TABLE])
# What a number of clusters is worth that a hierarchy cannot be cut into.
_NO_CUT = -30.0


class Cuts(NamedTuple):
    """Partitions of the same cells: hierarchy, number of clusters, inner nodes that are parted, sum of log-odds.

    `labels` are clusters of cells, 0 to the number less one; `worth` is the largest sum of log-odds of any cut of each
    hierarchy into 1, 2, ... clusters.
    """

    tree: Integers
    number: Integers
    parted: list[Booleans]
    labels: Integers
    worth: list[Floats]


def cells_of(hierarchies: list[Hierarchy]) -> tuple[Integers, Integers]:
    """Return the atom of each hierarchy that cells lie in, and how many nodes they have; no atom parts a cell."""
    key = np.zeros(len(hierarchies[0].atom_of), dtype=np.int64)
    for tree in hierarchies:
        key = np.unique(key * tree.n_atoms + tree.atom_of, return_inverse=True)[1].astype(np.int64)
    first, nodes = np.unique(key, return_index=True, return_counts=True)[1:]
    return np.stack([tree.atom_of[first] for tree in hierarchies]), nodes.astype(np.int64)


def offered(
    shapes: list[tuple[Integers, Integers]], odds: list[Floats], cells: Integers, wanted: int | None = None
) -> Cuts:
    """Return the cuts that are worth most in each hierarchy, of the `wanted` number only if one is given."""
    tree: list[int] = []
    number: list[int] = []
    parted: list[Booleans] = []
    labels: list[Integers] = []
    worths: list[Floats] = []
    for t, ((left, right), of) in enumerate(zip(shapes, odds, strict=True)):
        p = len(of) + 1
        worth, leftwards = best_cuts(left, right, np.minimum(of, MOST_ODDS), min(p, wanted or MOST_NUMBER))
        worths.append(worth[1:])
        if wanted is None:
            most = np.argsort(-worth[1:], kind="stable")[:_CUTS] + 1
            numbers = np.unique(np.r_[1, most])
        else:
            numbers = np.array([wanted] if wanted <= p else [], dtype=np.int64)
        for k in numbers.tolist():
            made = parted_into(left, right, leftwards, k)
            of_atom = np.unique(part_of_atoms(left, right, made), return_inverse=True)[1]
            tree.append(t)
            number.append(k)
            parted.append(made[p:])
            labels.append(of_atom[cells[t]])
    return Cuts(np.array(tree), np.array(number), parted, np.array(labels, dtype=np.int64), worths)


def described(
    cuts: Cuts, shapes: list[tuple[Integers, Integers]], odds: list[Floats], evidence: list[Floats], in_cells: Integers,
    usual: Cuts | None = None,
) -> Floats:  # fmt: skip
    """Return a row of figures for every cut; it is compared with the cuts of `usual`, if they are others."""
    others = cuts if usual is None else usual
    nodes = in_cells.astype(np.float64)
    alike = adjusted_rand(cuts.labels, cuts.number, others.labels, others.number, nodes)
    most = np.array([worth.max() for worth in others.worth])
    behind = np.array([others.worth[t][k - 1] for t, k in zip(others.tree, others.number, strict=True)])
    behind -= most[others.tree]
    of_table = [*most, *(len(worth) for worth in others.worth)]
    rows = []
    for c, (t, k) in enumerate(zip(cuts.tree.tolist(), cuts.number.tolist(), strict=True)):
        rows.append(
            np.concatenate(
                [
                    [t, k, cuts.worth[t][k - 1]],
                    _regrets(others.worth, most, k),
                    _agreement(alike[c], others, behind, t, k),
                    _sizes(np.bincount(cuts.labels[c], nodes, k).astype(np.float64)),
                    of_table,
                    _borders(*shapes[t], odds[t], cuts.parted[c]),
                    _told(*shapes[t], evidence[t][:, _TOLD_AT], cuts.parted[c]),
                    evidence[t][-1, _OF_TABLE_AT] if len(odds[t]) else np.zeros(len(_OF_TABLE)),
                ]
            )
        )
    return np.array(rows)


def _regrets(worth: list[Floats], most: Floats, k: int) -> list[float]:
    """How much less than the most each hierarchy's best cut into `k` is worth; the least and the sum of it."""
    regrets = [float(of[k - 1] - best) if k <= len(of) else _NO_CUT for of, best in zip(worth, most, strict=True)]
    return [*regrets, max(regrets), sum(regrets)]


def _agreement(alike: Floats, others: Cuts, behind: Floats, t: int, k: int) -> Floats:
    """Agreement with each hierarchy's cuts: the most alike, that of the same number, the one worth most; their means.

    And with all cuts, weighted by what they are worth.
    """
    found = []
    for j in range(len(others.worth)):
        of_tree = others.tree == j
        at = alike[of_tree]
        same = at[others.number[of_tree] == k]
        found.append([at.max(), same[0] if len(same) else -1.0, at[behind[of_tree].argmax()]])
    by_tree = np.array(found)
    weights = [np.exp(behind / warmth) for warmth in (1.0, 4.0)]
    expected = [float(alike @ weight / weight.sum()) for weight in weights]
    return np.concatenate([by_tree.ravel(), np.delete(by_tree, t, axis=0).mean(axis=0), expected])


def _sizes(nodes: Floats) -> list[float]:
    """How equal clusters are, and how large the smallest is."""
    sizes = np.sort(nodes)
    share = sizes / sizes.sum()
    unequal = np.log(share[-1] / share[0])
    return [np.log(share[0]), share[-1], -(share * np.log(share)).sum(), np.log(sizes[0]), unequal]


# ------------------------------------------------------------ kernels


@kernel
def best_cuts(left: Any, right: Any, gain: Any, most: int) -> Any:
    """The largest sum of gains of a cut into 1, 2, ... parts below every tree node, and how many parts go left."""
    n = left.shape[0]
    p = (n + 1) // 2
    best = np.full((n, most + 1), -np.inf)
    leftwards = np.zeros((n, most + 1), dtype=np.int64)
    leaves = np.ones(n, dtype=np.int64)
    best[:, 1] = 0.0
    for x in range(p, n):
        a, b = left[x], right[x]
        leaves[x] = leaves[a] + leaves[b]
        for i in range(1, min(most, leaves[a]) + 1):
            for j in range(1, min(most - i, leaves[b]) + 1):
                sum_of = best[a, i] + best[b, j] + gain[x - p]
                if sum_of > best[x, i + j]:
                    best[x, i + j], leftwards[x, i + j] = sum_of, i
    return best[n - 1], leftwards


@kernel
def parted_into(left: Any, right: Any, leftwards: Any, wanted: int) -> Any:
    """Which inner nodes the best cut into so many parts parts."""
    n = left.shape[0]
    p = (n + 1) // 2
    parts = np.zeros(n, dtype=np.int64)
    parts[n - 1] = wanted
    parted = np.zeros(n, dtype=np.bool_)
    for x in range(n - 1, p - 1, -1):
        if parts[x] > 1:
            parted[x] = True
            parts[left[x]] = leftwards[x, parts[x]]
            parts[right[x]] = parts[x] - parts[left[x]]
    return parted


@inner_kernel
def _pairs(values: Any) -> float:
    total = 0.0
    for value in values:
        total += value * (value - 1) / 2
    return total


@kernel
def adjusted_rand(these: Any, of_these: Any, those: Any, of_those: Any, weight: Any) -> Any:
    """Adjusted Rand index of each two partitions of the same weighted cells, from their labels and numbers of parts."""
    n = weight.shape[0]
    alike = np.zeros((these.shape[0], those.shape[0]))
    all_pairs = max(weight.sum() * (weight.sum() - 1) / 2, 1.0)
    one_sum, other_sum = np.zeros(these.shape[0]), np.zeros(those.shape[0])
    for i in range(these.shape[0]):
        sizes = np.zeros(of_these[i])
        for v in range(n):
            sizes[these[i, v]] += weight[v]
        one_sum[i] = _pairs(sizes)
    for j in range(those.shape[0]):
        sizes = np.zeros(of_those[j])
        for v in range(n):
            sizes[those[j, v]] += weight[v]
        other_sum[j] = _pairs(sizes)
    for i in range(these.shape[0]):
        for j in range(those.shape[0]):
            width = of_those[j]
            held = np.zeros(of_these[i] * width)
            for v in range(n):
                held[these[i, v] * width + those[j, v]] += weight[v]
            both = _pairs(held)
            by_chance = one_sum[i] * other_sum[j] / all_pairs
            most = (one_sum[i] + other_sum[j]) / 2
            alike[i, j] = 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)
    return alike


@kernel
def _borders(left: Any, right: Any, odds: Any, parted: Any) -> Any:
    """Log-odds of parted borders, faintest to surest, and of the open ones next below; how likely all are right."""
    p = odds.shape[0] + 1
    made = np.sort(odds[parted])
    k = made.shape[0] + 1
    open_ = np.full(k, -8.0)
    at = 0
    if k == 1 and p > 1:
        open_[0] = odds[p - 2]
    for x in range(p, 2 * p - 1):
        if parted[x - p]:
            for child in (left[x], right[x]):
                if child < p or not parted[child - p]:
                    open_[at] = odds[child - p] if child >= p else -8.0
                    at += 1
    open_ = np.sort(open_)
    out = np.zeros(10)
    out[:3] = 8.0
    if k > 1:
        out[0], out[1], out[2] = made[0], made[(k - 1) // 2], made[-1]
        out[3] = made[1] if k > 2 else 8.0
    else:
        out[3] = 8.0
    for o in made:
        out[4] -= np.log1p(np.exp(-o))
    out[5], out[6] = open_[-1], open_[-2] if k > 1 else -8.0
    for o in open_:
        out[7] -= np.log1p(np.exp(o))
    out[8] = out[4] / k
    # the surest border anywhere below
    out[9] = -8.0
    for x in range(2 * p - 2, p - 1, -1):
        if not parted[x - p]:
            out[9] = max(out[9], odds[x - p])
    return out


@kernel
def _told(left: Any, right: Any, evidence: Any, parted: Any) -> Any:
    """Mean and least evidence of parted borders, and most of the open ones next below; nothing where there are none."""
    p, m = evidence.shape[0] + 1, evidence.shape[1]
    out = np.zeros(3 * m)
    n_made, n_open = 0, 0
    for x in range(p, 2 * p - 1):
        if parted[x - p]:
            n_made += 1
            for c in range(m):
                out[c] += evidence[x - p, c]
                out[m + c] = min(out[m + c], evidence[x - p, c]) if n_made > 1 else evidence[x - p, c]
        open_ = x == 2 * p - 2 and not parted[x - p]
        if open_:
            n_open += 1
            for c in range(m):
                out[2 * m + c] = max(out[2 * m + c], evidence[x - p, c]) if n_open > 1 else evidence[x - p, c]
        if parted[x - p]:
            for child in (left[x], right[x]):
                if child >= p and not parted[child - p]:
                    n_open += 1
                    for c in range(m):
                        value = evidence[child - p, c]
                        out[2 * m + c] = max(out[2 * m + c], value) if n_open > 1 else value
    if n_made:
        for c in range(m):
            out[c] /= n_made
    if not n_open:
        out[2 * m :] = -9.0
    if not n_made:
        out[: 2 * m] = -9.0
    return out
