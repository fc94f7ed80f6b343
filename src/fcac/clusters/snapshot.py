"""The nodes as they were at one fit, and everything found from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._split_rate import FALSE_SPLIT_RATE
from fcac._typing import Floats, Integers
from fcac.clusters.cluster_tree import Tree, tree_of
from fcac.clusters.column_metric import column_map, needs_map
from fcac.clusters.latent_classes import latent_tree, levels_of
from fcac.clusters.single_column import cutting_columns, join_single_columns, without
from fcac.clusters.snn_graph import neighbours_for
from fcac.novelty import is_novel, reach_from_spacing
from fcac.scaling import Columns, Scaling, scaling_of
from fcac.search.exact import LabelSearch, NeighborLists, Searcher, build_lists, distinct
from fcac.tables.kind import Block

# What is said of tables with categories.
_BY_COLUMN = "each column brought to one scale; a category counts by what it shares with other columns"
_BY_LEVELS = "columns hold levels only: clusters are latent classes, found by which levels go together"


class Fitted:
    """The nodes as they were at one fit, and everything found from them.

    Nodes at the same place, as several sites may send them, or as a map leaves them that takes no notice of a category,
    are one point of the graph with the records of all. `scales` and `map` are given where they are known; with
    categories among the blocks, distances are measured through a map. Means of columns say less where noise was added.
    """

    def __init__(
        self,
        held: Mapping[Any, tuple[Floats, Floats]],
        sites: list[Any],
        scales: Scaling | str = "auto",
        blocks: Sequence[Block] | None = None,
        map: Floats | None = None,
        noised: bool = False,
        wanted: int | None = None,
        false_split_rate: float = FALSE_SPLIT_RATE,
    ) -> None:
        self._asked = false_split_rate, wanted
        # the columns, if clusters that one of them alone tells apart are to be joined
        self._columns = blocks if needs_map(blocks) and not noised else None
        self.sites = sites
        self.parts = [held[s] for s in sites]
        self.sizes = [len(nodes) for nodes, _ in self.parts]
        self.nodes = np.concatenate([nodes for nodes, _ in self.parts])
        self.counts = np.concatenate([counts for _, counts in self.parts])
        if isinstance(scales, str):
            scales = scaling_of(Columns.of(self.nodes, self.counts, scale=scales), scales)
        self.scaling, self.scales = scales, scales.factors
        self.first, self.point_of = distinct(self.nodes)
        self.map: Floats | None = map
        if blocks is not None and needs_map(blocks):
            self.map = column_map(self.nodes, self.counts, blocks)
        if self.map is not None:
            self.scaling = Scaling("columns", self.scales, _BY_COLUMN)
        self._wanted = wanted
        self._levels = None if noised or map is not None else levels_of(self.nodes[self.first], self._mass(), blocks)
        if self._levels is not None:
            self.scaling = Scaling("levels", self.scales, _BY_LEVELS)
        elif self.map is not None:
            here, at = _in_order(self.placed(self.nodes[self.first]))
            self.first, self.point_of = self.first[here], at[self.point_of]
        self.points = self.placed(self.nodes[self.first])
        self.ids: Integers = np.zeros(0, dtype=np.int64)
        self._lists: NeighborLists | None = None
        self._tree: Tree | None = None
        self._searcher: Searcher | None = None
        self._label_search: LabelSearch | None = None
        self._reach: Floats | None = None
        self._of_one_site: NDArray[np.bool_] | None = None

    @property
    def holds_levels(self) -> bool:
        """Whether the nodes are read as latent classes, because there are levels only in them."""
        return self._levels is not None

    def holds(self, held: Mapping[Any, tuple[Floats, Floats]], sites: list[Any]) -> bool:
        """Whether these are the nodes."""
        return self.sites == sites and all(part is held[s] for part, s in zip(self.parts, sites, strict=True))

    def placed(self, rows: Floats) -> Floats:
        """Return rows in the coordinates in which distances are measured."""
        placed: Floats = rows * self.scales if self.map is None else rows @ self.map
        return placed

    def _where(self, before: Fitted) -> Integers:
        """Where each point of the earlier fit is now; -1 if it is gone."""
        earlier, n = before.nodes[before.first], len(before.first)
        _, which = distinct(np.concatenate([earlier, self.nodes]))
        now = np.full(int(which.max()) + 1, -1)
        now[which[n:]] = self.point_of
        return now[which[:n]]

    def lists(self) -> NeighborLists:
        """Neighbours of every point."""
        if self._lists is None:
            self._lists = build_lists(self.searcher(), neighbours_for(len(self.points)))
        return self._lists

    def near(self) -> tuple[NDArray[np.int32], Floats]:
        """Neighbours of every point, and squared distances to the nearest, the middle and the farthest of them."""
        return self.lists()

    def tree(self) -> Tree:
        """The clusters, finer and coarser ones too."""
        if self._tree is None and self._levels is not None:
            self.take_tree(latent_tree(self._levels, self._wanted))
        if self._tree is None:
            mass = self._mass()
            self._tree = tree_of(self.points, mass, self.lists(), *self._asked)
            if self._columns is not None:
                self._tree = self._across_columns(self._tree, self._columns)
        return self._tree

    def _across_columns(self, tree: Tree, blocks: Sequence[Block]) -> Tree:
        """Judge again without columns of levels that cut across the groups: one alone would tell two clusters apart."""
        rows, mass, deaf_to = self.nodes, self.counts, set[int]()
        while cutting := cutting_columns(tree.labels()[self.point_of], rows, mass, blocks) - deaf_to:
            deaf_to |= cutting
            assert self.map is not None
            points = rows[self.first] @ without(self.map, deaf_to, blocks)
            if len(distinct(points)[0]) < len(points):
                break  # rows that only these columns tell apart: there is no density between them
            lists = build_lists(Searcher(points), neighbours_for(len(points)))
            tree = tree_of(points, self._mass(), lists, *self._asked)
        return join_single_columns(tree, self.point_of, rows, mass, blocks)

    def _mass(self) -> Floats:
        """Records at every point."""
        return np.bincount(self.point_of, weights=self.counts).astype(np.float64)

    def take_tree(self, tree: Tree) -> None:
        """Take clusters that were found in another way than from the graph."""
        self._tree = tree

    def searcher(self) -> Searcher:
        """The points, prepared for searches."""
        if self._searcher is None:
            self._searcher = Searcher(self.points)
        return self._searcher

    def label_search(self) -> LabelSearch:
        """The points, prepared for finding the cluster of the nearest."""
        if self._label_search is None:
            self._label_search = LabelSearch(self.searcher(), self.point_ids())
        return self._label_search

    def point_ids(self) -> Integers:
        """Lasting cluster id of every point."""
        return self.ids[self.first]

    def of_one_site(self) -> NDArray[np.bool_]:
        """Tell for every point whether its nodes are all of one site."""
        if self._of_one_site is None:
            owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
            first, last = np.full(len(self.points), len(self.sizes)), np.full(len(self.points), -1)
            np.minimum.at(first, self.point_of, owner)
            np.maximum.at(last, self.point_of, owner)
            self._of_one_site = first == last
        return self._of_one_site

    def origin(self, before: Fitted) -> Integers:
        """Old cluster of every node: its own if it was there, else that of the nearest old one, -1 far from all."""
        moved = self._where(before)
        stayed = np.flatnonzero(moved >= 0)
        origin = np.full(len(self.points), -1, dtype=np.int64)
        is_new = np.ones(len(self.points), dtype=bool)
        is_new[moved[stayed]] = False
        new = np.flatnonzero(is_new)
        places = self.nodes[self.first[new]]
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
            near, squared = self.lists()
            if near.shape[1]:
                self._reach = reach_from_spacing(near[:, 0], squared[:, 0], squared[:, 2])
            else:
                # a point alone has no spacing: it knows nothing but itself
                self._reach = np.zeros(len(self.points))
        return self._reach


def _in_order(points: Floats) -> tuple[Integers, Integers]:
    """The first position of every distinct point, in order, and for each point which of these it equals."""
    first, which = distinct(points)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[which]
