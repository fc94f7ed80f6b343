"""What speaks for and against a border, for every inner node of a proposed hierarchy.

An inner node parts some nodes in two sides. Each column of evidence is a number about that parting which is the same in
all units and, as far as possible, for few and many nodes: is there a gap in the graph, a valley in the density, a
valley along the way across, do two Gaussians explain the rows better than one, do other hierarchies part the nodes
alike? None of them decides; see :mod:`fcac.clusters.judge`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fcac._parallel import one_blas_thread
from fcac._typing import Floats, Integers
from fcac.clusters.crossings import lines, ways
from fcac.clusters.evidence_sums import (
    agreement,
    borders,
    density_levels,
    leaf_order,
    meeting,
    most_below,
    reaches,
    seen_from_above,
    summed_up,
)
from fcac.clusters.mixtures import Moments
from fcac.clusters.proposals import CORE, Hierarchy

# Neighbours that distances are looked up for.
NEAREST = 10
# Share of their weight that nodes at a plane through a smooth region have on the other side.
_SMOOTH_SHARE = 0.3

#: Names of the columns of evidence, in order.
COLUMNS = (
    "gap", "dip", "local_dip", "carriers", "neck", "prominence", "contrast", "stretch", "jump", "facing",
    "facing_close",
    "line_z", "line_depth", "line_apart", "line_gain", "way_z", "way_depth", "way_apart", "gauss", "kurtosis",
    "lopsided", "nodes", "smaller", "rows", "share", "dimension", "records", "in_all", "neighbours", "features",
    "untied",
    "gap_z", "dip_z", "prominence_z", "neck_z", "gauss_z",
    "agree_1", "agree_2", "agree_3", "depth", "neck_up", "gap_up", "dip_up", "line_up", "way_up",
    "gap_in", "dip_in", "line_in", "way_in", "gauss_in", "neck_in", "score", "score_in", "score_out", "tree",
    "mixture_gain", "mixture_apart", "mixture_share", "mixture_z", "step", "ties", "volume",
)  # fmt: skip


class Nodes(NamedTuple):
    """Nodes and their neighbour graph: what evidence is taken from.

    `near` and `lengths` are neighbours and distances to the first few; `at_edges` is the log density at the middle of
    each edge, in the order of ``graph.data``, `at_nodes` that around each node; `dimension` is that of the surface the
    nodes lie on.
    """

    points: Floats
    mass: Floats
    near: NDArray[Any]
    lengths: Floats
    graph: sparse.csr_matrix
    at_edges: Floats
    at_nodes: Floats
    dimension: float


def evidence(nodes: Nodes, hierarchies: list[Hierarchy], axes: Floats, first: Moments) -> list[Floats]:
    """Return the evidence about every inner node of each hierarchy, of shape (n_atoms - 1, len(COLUMNS)).

    `first` are the moments of the first hierarchy's atoms along the axes, which others may share.
    """
    atoms = hierarchies[0].atom_of
    moments = [first if tree.atom_of is atoms else Moments.of(axes, nodes.mass, tree.atom_of) for tree in hierarchies]
    found = [_of_one(nodes, axes, moments[i], tree, i) for i, tree in enumerate(hierarchies)]
    leaves = [leaf_order(tree.left, tree.right, tree.n_atoms) for tree in hierarchies]
    at = {name: j for j, name in enumerate(COLUMNS)}
    for i, tree in enumerate(hierarchies):
        if tree.n_atoms < 2:
            continue
        others = [j for j in range(len(hierarchies)) if j != i]
        for column, j in zip(("agree_1", "agree_2", "agree_3"), others, strict=False):
            other = hierarchies[j]
            both = tree.atom_of * other.n_atoms + other.atom_of
            cross = np.bincount(both, minlength=tree.n_atoms * other.n_atoms).reshape(tree.n_atoms, -1)
            found[i][:, at[column]] = agreement(
                cross, tree.left, tree.right, leaves[i][1], leaves[i][2], other.left, other.right
            )
    return found


def _of_one(nodes: Nodes, axes: Floats, moments: Moments, tree: Hierarchy, number: int) -> Floats:
    """Evidence about one hierarchy, but for what others say of it."""
    p = tree.n_atoms
    found = np.zeros((max(p - 1, 0), len(COLUMNS)))
    if p < 2:
        return found
    left, right = tree.left, tree.right
    n = 2 * p - 1
    leaves, begin, end = leaf_order(left, right, p)
    parent = tree.parents()
    meet = meeting(left, right, p, leaves, begin, end)
    k = nodes.near.shape[1]
    sums, within = borders(
        nodes.graph.indptr,
        nodes.graph.indices,
        nodes.graph.data,
        nodes.at_edges,
        nodes.near,
        tree.atom_of,
        left,
        right,
        parent,
        meet,
    )
    place_of_atom = np.empty(p, dtype=np.int64)
    place_of_atom[leaves] = np.arange(p)
    order = np.argsort(place_of_atom[tree.atom_of], kind="stable")
    bounds = np.r_[0, np.cumsum(np.bincount(place_of_atom[tree.atom_of], minlength=p))]
    first, beyond = bounds[begin], bounds[end]
    size = (beyond - first).astype(np.float64)
    mass = nodes.mass[order]
    masses = np.r_[0.0, np.cumsum(mass)]
    records = masses[beyond] - masses[first]
    core = nodes.lengths[:, min(CORE, nodes.lengths.shape[1]) - 1]
    count, total, squares, shortest, saddle = reaches(
        nodes.near, nodes.lengths, core, nodes.at_nodes, tree.atom_of, left, right, meet
    )
    usual = total / np.maximum(count, 1)
    spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - usual**2, 0))
    few = count < 3
    usual[few], spread[few] = usual[-1], spread[-1]
    peak, median = density_levels(nodes.at_nodes[order], first, beyond, left, right)
    masses_of, sums_of, products_of = (_with_inner(of, left, right) for of in moments)
    line, gauss, volume = _gaussians(masses_of, sums_of, products_of, left, right, p, size)
    along = lines(np.ascontiguousarray(axes[order].T), mass, first, beyond, left, right, line)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ends = rank[nodes.near[order, : nodes.lengths.shape[1]]]
    way = ways(ends, nodes.lengths[order], mass, tree.atom_of[order], meet, first, beyond, left, right)

    at = {name: j for j, name in enumerate(COLUMNS)}
    inner = np.arange(p, n)
    a, b = left[inner], right[inner]
    weight = sums[0, inner]
    tied = (weight > 0).all(axis=1)
    safe = np.maximum(weight, 1e-300)
    dim = max(nodes.dimension, 1.0) if math.isfinite(nodes.dimension) else 50.0
    surface = 1 - 1 / max(dim, 1.01)

    def put(name: str, values: Any) -> None:
        found[:, at[name]] = values

    def get(name: str) -> Floats:
        column: Floats = found[:, at[name]]
        return column

    shares = np.maximum(sums[2, inner] / safe, 1e-12)
    put("gap", np.where(tied, math.log(_SMOOTH_SHARE) - 0.5 * np.log(shares[:, 0] * shares[:, 1]), 4.0))
    inside = np.where(within[0] > 0, within[1] / np.maximum(within[0], 1e-300), median)
    cross = sums[1, inner].sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
    put("dip", np.where(tied, np.minimum(inside[a], inside[b]) - cross, 4.0))
    local = np.where(
        sums[5, inner] > 0, sums[4, inner] / np.maximum(sums[5, inner], 1e-300), np.stack([inside[a], inside[b]], 1)
    )
    put("local_dip", np.where(tied, local.min(axis=1) - cross, 4.0))
    carriers = np.where(tied, 2 / (sums[3, inner] / np.maximum(weight, 1e-100) ** 2).sum(axis=1).clip(1e-300), 1.0)
    put("carriers", np.log(carriers))
    small, large = np.minimum(size[a], size[b]), np.maximum(size[a], size[b])
    # weight of a border for its size: what a surface through so many nodes would carry
    tie = np.full(n, np.nan)
    tie[inner] = np.where(tied, np.log(safe.mean(axis=1)), np.nan) - surface * np.log(small)
    known = np.isfinite(tie)
    floor = np.nanmin(tie) - 2 if known.any() else 0.0
    tie[inner] = np.where(np.isfinite(tie[inner]), tie[inner], floor)
    own = np.log(np.maximum(within[0], 1e-300) / 2) - surface * np.log(np.maximum(size, 1))
    level = np.nanmedian(tie[inner]) if known.any() else 0.0
    tie[:p] = np.where(within[0, :p] > 0, np.minimum(own[:p], level + 1), level)
    put("neck", (0.5 * (tie[a] + tie[b]) - tie[inner]).clip(-4, 6))
    above = parent[inner]
    put("neck_up", np.where(above >= 0, tie[inner] - tie[above], 0.0).clip(-4, 6))
    met = np.isfinite(saddle[inner])
    densest = np.where(met, saddle[inner], 0.0).sum(axis=1) / np.maximum(met.sum(axis=1), 1)
    top = np.where(met.any(axis=1), densest, np.minimum(median[a], median[b]) - 4)
    put("prominence", (np.minimum(peak[a], peak[b]) - top).clip(-2, 5))
    put("contrast", np.abs(median[a] - median[b]).clip(0, 5))
    third = np.where(np.isfinite(shortest[inner, 2]), shortest[inner, 2], np.maximum(usual[a], usual[b]) + 3)
    closest = np.where(np.isfinite(shortest[inner, 0]), shortest[inner, 0], third)
    put("stretch", (third - np.maximum(usual[a], usual[b])).clip(-1.5, 4))
    put("jump", (closest - np.maximum(usual[a] + 1.64 * spread[a], usual[b] + 1.64 * spread[b])).clip(-3, 3))
    facing = sums[6:9, inner].min(axis=2)
    half, quarter = max(k // 2, 1), max(k // 4, 1)
    put("facing", np.log(((half / k) ** (1 / dim) * facing[0] + 1) / (facing[1] + 1)).clip(-1, 5))
    put("facing_close", np.log(((quarter / k) ** (1 / dim) * facing[0] + 1) / (facing[2] + 1)).clip(-1, 5))
    put("line_z", along[inner, 0].clip(-3, 20))
    put("line_depth", along[inner, 1].clip(-1, 6))
    put("line_apart", along[inner, 2].clip(0, 12))
    put("line_gain", along[inner, 3].clip(-1.5, 3))
    put("kurtosis", along[inner, 4].clip(1, 10))
    put("way_z", way[inner, 0].clip(-3, 20))
    put("way_depth", way[inner, 1].clip(-1, 6))
    put("way_apart", way[inner, 2].clip(0, 8))
    put("gauss", gauss[inner].clip(-2, 6))
    put("lopsided", np.log(large / small))
    put("nodes", np.log(size[inner]))
    put("smaller", np.log(small))
    put("rows", np.log(np.minimum(records[a], records[b])))
    put("share", np.log(size[inner] / size[-1]))
    put("dimension", min(dim, 12.0))
    put("records", math.log(float(nodes.mass.mean())))
    put("in_all", math.log(len(order)))
    put("neighbours", math.log(k))
    put("features", math.log(min(nodes.points.shape[1], 60)))
    put("untied", ~tied)
    error = math.sqrt(1 / float(nodes.mass.mean()) + 0.1)
    root = np.sqrt(carriers) / error
    put("gap_z", (get("gap").clip(-2, 4) * root).clip(-10, 40))
    put("dip_z", (get("dip").clip(-3, 4) * root).clip(-15, 40))
    put("prominence_z", (get("prominence") * np.sqrt(np.minimum(small, carriers)) / error).clip(-10, 40))
    put("neck_z", (get("neck") * root).clip(-15, 50))
    put("gauss_z", np.arcsinh(get("gauss") * np.sqrt(size[inner])))
    put("tree", number)
    put("mixture_gain", along[inner, 5].clip(-0.2, 2))
    put("mixture_apart", along[inner, 6].clip(0, 10))
    put("mixture_share", along[inner, 7])
    put("mixture_z", np.arcsinh(get("mixture_gain") * size[inner]))
    put("step", np.where(tied, np.abs(local[:, 0] - local[:, 1]), 0.0).clip(0, 5))
    gaps = np.diff(nodes.lengths, axis=1)
    put("ties", (gaps <= 1e-9 * nodes.lengths[:, 1:]).mean() if gaps.size else 0.0)
    put("volume", (volume[inner] - volume[-1]).clip(-8, 2))
    found[:, at["gap"]] = get("gap").clip(-2, 4)
    found[:, at["dip"]] = get("dip").clip(-3, 4)
    found[:, at["local_dip"]] = get("local_dip").clip(-2, 4)
    score = get("gap") + get("dip") + get("neck")
    put("score", score)
    depth, out = seen_from_above(score, parent)
    put("depth", np.log1p(depth))
    for name, column, low in (
        ("gap_in", "gap", -2.0), ("dip_in", "dip", -3.0), ("line_in", "line_z", -3.0), ("way_in", "way_z", -3.0),
        ("gauss_in", "gauss", -1.0), ("neck_in", "neck", -4.0), ("score_in", "score", -5.0),
    ):  # fmt: skip
        values = get(column)
        put(name, values - most_below(values, low, left, right))
    for name, column in (("gap_up", "gap"), ("dip_up", "dip"), ("line_up", "line_z"), ("way_up", "way_z")):
        values = get(column)
        put(name, np.where(above >= 0, values - values[np.maximum(above - p, 0)], 0.0))
    put("score_out", out - score)
    return found


def _with_inner(of_atoms: Floats, left: Integers, right: Integers) -> Floats:
    """Sums of the atoms, and those of the inner nodes."""
    sums = np.zeros((len(left), *of_atoms.shape[1:]))
    sums[: len(of_atoms)] = of_atoms
    summed_up(sums, left, right)
    return sums


def _gaussians(
    total: Floats, sums: Floats, products: Floats, left: Integers, right: Integers, p: int, size: Floats
) -> tuple[Floats, Floats, Floats]:
    """Fisher's line across every inner node, and the gain in log likelihood a record of two Gaussians over one."""
    n, q = sums.shape
    means = sums / total[:, None]
    covariances = products / total[:, None, None] - means[:, :, None] * means[:, None, :]
    trace = np.maximum(np.trace(covariances, axis1=1, axis2=2) / q, 1e-300)
    eye = np.eye(q)
    # shrunk towards a sphere, as far as there are features for the nodes
    shrink = (q / (q + size))[:, None, None]
    shrunk = (1 - shrink) * covariances + (shrink * trace[:, None, None] + 1e-9 * trace[-1]) * eye
    with one_blas_thread():
        logs = np.linalg.slogdet(shrunk)[1]
        a, b = left[p:], right[p:]
        pa, pb = total[a] / total[p:], total[b] / total[p:]
        gain = np.zeros(n)
        gain[p:] = 0.5 * (logs[p:] - pa * logs[a] - pb * logs[b]) + pa * np.log(pa) + pb * np.log(pb)
        inside = pa[:, None, None] * covariances[a] + pb[:, None, None] * covariances[b]
        least = np.trace(inside, axis1=1, axis2=2) / q * (0.05 + q / size[p:]) + 1e-9 * trace[-1]
        apart = means[a] - means[b]
        line = np.zeros((n, q))
        line[p:] = np.linalg.solve(inside + least[:, None, None] * eye, apart[:, :, None])[:, :, 0]
    line /= np.maximum(np.sqrt((line**2).sum(axis=1, keepdims=True)), 1e-300)
    return line, gain, logs / (2 * q)
