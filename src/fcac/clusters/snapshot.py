"""The nodes as they were at one fit, and everything found from them; updated from the fit before where most stayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import Tree
from fcac.clusters.column_metric import column_map, needs_map
from fcac.clusters.hierarchy import hierarchy_of
from fcac.clusters.single_column import join_single_columns
from fcac.clusters.snn_graph import SNNEdges, neighbours_for
from fcac.clusters.stability import Stability, resampled_stability
from fcac.novelty import is_novel, reach_from_spacing
from fcac.scaling import Columns, Scaling, scaling_of
from fcac.search.exact import Searcher, distinct, is_approximate
from fcac.search.knn_lists import NeighborLists, build_lists, build_lists_approximate, update_lists
from fcac.search.morton_order import MortonOrder, grid_of
from fcac.tables.blocks import Block

# What is said of tables with categories.
_BY_COLUMN = "each column brought to one scale; a category counts by what it shares with other columns"
# If more than this share of the nodes changed, starting over is cheaper than mending the lists.
_MEND_BELOW = 0.3


class Fitted:
    """The nodes as they were at one fit, and everything found from them.

    Nodes at the same place, as several sites may send them, are one point of the graph with the records of all.

    Parameters
    ----------
    held : mapping of sites to (nodes, counts)
    sites : list
        The sites, in the order of their nodes.
    before : Fitted, optional
        An earlier fit; what is still true of it is taken over. It does not change the result, unless neighbours are
        approximate.
    scales : Scaling or str, default="auto"
        Factor of every feature in the distance, where it is known, or how it is found from the nodes.
    blocks : sequence of Block, optional
        The columns behind the features; with categories among them, distances are measured through a map.
    map : ndarray of shape (d, r), optional
        Matrix from features to the coordinates in which distances are measured, where it is known.
    noised : bool, default=False
        Whether noise was added to the nodes, so that means of columns say less.
    """

    def __init__(
        self,
        held: Mapping[Any, tuple[Floats, Floats]],
        sites: list[Any],
        before: Fitted | None = None,
        scales: Scaling | str = "auto",
        blocks: Sequence[Block] | None = None,
        map: Floats | None = None,
        noised: bool = False,
    ) -> None:
        # the columns, if clusters that one of them alone tells apart are to be joined
        self._columns = blocks if needs_map(blocks) and not noised else None
        self.places: MortonOrder
        self.sites = sites
        self.parts = [held[s] for s in sites]
        self.sizes = [len(nodes) for nodes, _ in self.parts]
        self.nodes = np.concatenate([nodes for nodes, _ in self.parts])
        self.counts = np.concatenate([counts for _, counts in self.parts])
        columns = Columns.of(self.nodes, self.counts, scale=scales if isinstance(scales, str) else "auto")
        self.scaling = scaling_of(columns, scales) if isinstance(scales, str) else scales
        self.scales = self.scaling.factors
        grid = grid_of(columns.mean, columns.variance, self.scales)
        # where each point of the fit before is now, if the points that stayed are in the same order
        self._moved: NDArray[Any] | None = None
        places = before.places.updated(self.nodes, before.nodes, self._old_nodes(before), grid) if before else None
        if places is None:
            self.places = MortonOrder(self.nodes, grid)
            if before is not None and before.places.grid is None and self.places.grid is None:
                self._moved = self._where(before)
        else:
            self.places, self._moved = places
        self.map: Floats | None = map
        if blocks is not None and needs_map(blocks):
            self.map = column_map(self.nodes, self.counts, blocks)
        if self.map is not None:
            self.scaling = Scaling("columns", self.scales, _BY_COLUMN)
        self.points = self.placed(self.nodes[self.places.first])
        self.ids: Integers = np.zeros(0, dtype=np.int64)
        self.kind, self.exact = "auto", True
        self._lists: NeighborLists | None = None
        self._edges: SNNEdges | None = None
        self._tree: Tree | None = None
        self._tree_taken = False
        self._stability: Stability | None = None
        self._searcher: Searcher | None = None
        self._reach: Floats | None = None

    def holds(self, held: Mapping[Any, tuple[Floats, Floats]], sites: list[Any]) -> bool:
        """Whether these are the nodes."""
        return self.sites == sites and all(part is held[s] for part, s in zip(self.parts, sites, strict=True))

    def placed(self, rows: Floats) -> Floats:
        """Return rows in the coordinates in which distances are measured."""
        placed: Floats = rows * self.scales if self.map is None else rows @ self.map
        return placed

    def _measures_as(self, before: Fitted) -> bool:
        """Whether distances are measured as in an earlier fit."""
        if self.map is None or before.map is None:
            return self.map is before.map and np.array_equal(self.scales, before.scales)
        return np.array_equal(self.map, before.map)

    @property
    def point_of(self) -> Integers:
        """Point of every node."""
        return self.places.point_of

    def _old_nodes(self, before: Fitted) -> Integers:
        """Which node of the earlier fit each one is; -1 if it was not there."""
        ends = np.cumsum(before.sizes)
        old = {s: (part, end) for s, part, end in zip(before.sites, before.parts, ends.tolist(), strict=True)}
        pieces = []
        for site, part in zip(self.sites, self.parts, strict=True):
            was, end = old.get(site, (None, 0))
            stays = was is part
            pieces.append(np.arange(end - len(part[0]), end) if stays else np.full(len(part[0]), -1, dtype=np.int64))
        return np.concatenate(pieces)

    def _where(self, before: Fitted) -> NDArray[np.int32]:
        """Where each point of the earlier fit is now; -1 if it is gone."""
        earlier, n = before.nodes[before.places.first], len(before.places.first)
        _, which = distinct(np.concatenate([earlier, self.nodes[self.places.first]]))
        now = np.full(int(which.max()) + 1, -1, dtype=np.int32)
        now[which[n:]] = np.arange(len(self.places.first))
        return now[which[:n]]

    def link(self, kind: str, before: Fitted | None) -> None:
        """Find neighbours, from the earlier ones if most points stayed."""
        self.kind = kind
        n, d = self.points.shape
        k = neighbours_for(n)
        self.exact = not is_approximate(kind, n, d)
        if (
            before is not None
            and before._lists is not None
            and self._moved is not None
            and (before.exact or not self.exact)
            and before._lists.near.shape[1] == k
            and self._measures_as(before)
            and (self._moved >= 0).sum() >= (1 - _MEND_BELOW) * max(n, len(before.points))
        ):
            self._searcher = before.searcher().updated(self.points, self._moved)
            edges = None if before._edges is None else (before._edges.starts, before._edges.ends)
            self._lists = update_lists(self._searcher, before._lists, self._moved, self.exact, edges)
            if before._edges is not None and self._lists.changed is not None:
                self._edges = before._edges.updated(self._moved, self._lists.near, self._lists.changed)
        else:
            self._searcher = Searcher(self.points)
            self._lists = build_lists(self._searcher, k) if self.exact else build_lists_approximate(self.points, k)

    def lists(self) -> NeighborLists:
        """Neighbours of every point."""
        if self._lists is None:
            self.link(self.kind, None)
        assert self._lists is not None
        return self._lists

    def near(self) -> tuple[NDArray[np.int32], Floats]:
        """Neighbours of every point, and squared distances to the nearest, the middle and the farthest of them."""
        near, squared, _ = self.lists()
        return near, squared

    def tree(self) -> Tree:
        """The clusters, finer and coarser ones too."""
        if self._tree is None:
            mass: Floats = np.bincount(self.point_of, weights=self.counts).astype(np.float64)
            lists = self.lists()
            if self._edges is None:
                self._edges = SNNEdges.of(lists.near)
            everything = np.arange(len(mass))
            self._tree = self._joined(hierarchy_of(self.points, mass, lists, self._edges), mass, everything)
        return self._tree

    def _joined(self, tree: Tree, mass: Floats, chosen: Integers) -> Tree:
        """Join clusters of some of the points that one column of levels alone tells apart."""
        if self._columns is None:
            return tree
        return join_single_columns(tree, self.nodes[self.places.first[chosen]], mass, self._columns)

    def take_tree(self, tree: Tree) -> None:
        """Take clusters that were found in another way than from the graph."""
        self._tree, self._tree_taken = tree, True

    def stability(self, n_clusters: int | None) -> Stability:
        """How far the clusters can be trusted; see :mod:`fcac.clusters.stability`."""
        if self._stability is None:
            if self._tree_taken:
                # noisy nodes: resampling would add to a noise that is known, and their groups know how firm they are
                tree = self.tree()
                self._stability = Stability.of_nodes(
                    tree.stability[tree.labels()][self.point_of], self.counts, self.ids
                )
            else:
                mass: Floats = np.bincount(self.point_of, weights=self.counts).astype(np.float64)
                self._stability = resampled_stability(self.points, mass, self.point_ids(), n_clusters, self._joined)
        return self._stability

    def searcher(self) -> Searcher:
        """The points, prepared for searches."""
        if self._searcher is None:
            self._searcher = Searcher(self.points)
        return self._searcher

    def point_ids(self) -> Integers:
        """Lasting cluster id of every point."""
        return self.ids[self.places.first]

    def origin(self, before: Fitted) -> Integers:
        """Old cluster of every node: its own if it was there, else that of the nearest old one, -1 far from all."""
        moved = self._where(before) if self._moved is None else self._moved
        # of use during one fit only
        self._moved = None
        stayed = np.flatnonzero(moved >= 0)
        origin = np.full(len(self.points), -1, dtype=np.int64)
        is_new = np.ones(len(self.points), dtype=bool)
        is_new[moved[stayed]] = False
        new = np.flatnonzero(is_new)
        places = self.nodes[self.places.first[new]]
        near, squared = before.searcher().nearest(before.placed(places), 1)
        far = is_novel(near[:, 0], np.sqrt(squared[:, 0]), before.reach())
        old_ids = before.point_ids()
        origin[new] = np.where(far, -1, old_ids[near[:, 0]])
        origin[moved[stayed]] = old_ids[stayed]
        return origin[self.point_of]

    def masses(self) -> dict[int, float]:
        """Records of every cluster."""
        records = np.bincount(self.ids, weights=self.counts)
        present = np.flatnonzero(np.bincount(self.ids))
        return dict(zip(present.tolist(), records[present].tolist(), strict=True))

    def reach(self) -> Floats:
        """How far from each point rows are still like what was seen."""
        if self._reach is None:
            near, squared, _ = self.lists()
            if near.shape[1]:
                self._reach = reach_from_spacing(near[:, 0], squared[:, 0], squared[:, 2])
            else:
                # a point alone has no spacing: it knows nothing but itself
                self._reach = np.zeros(len(self.points))
        return self._reach
