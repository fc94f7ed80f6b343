"""``server="communities"``: the latest nodes of every site, clustered as communities of one neighbourhood graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName
from fcac._typing import Booleans, Floats, Integers
from fcac.clusters import Communities
from fcac.clusters.cluster_tree import Alternative
from fcac.clusters.tracking import Extent, Move
from fcac.codebook import Codebook
from fcac.federation.contribution import Contribution
from fcac.federation.log import Log
from fcac.federation.readout import ReadOut, Settings, Shuffler
from fcac.privacy.mechanisms import may_be_shared
from fcac.scaling import Scaling, moments

_USUAL = Settings()
_LOGGED = ("nodes", "counts", "deviation", "count_deviation")


class CommunityReadOut(ReadOut):
    """Keeps what `fcac.clusters.Communities` needs from contributions, round by round.

    A site's newer contribution takes the place of its older one, since a site always sends its whole model; a late one
    of an earlier round changes nothing.
    """

    title: ClassVar[str] = "communities"
    accepts_n_clusters: ClassVar[bool] = True
    names_last: ClassVar[bool] = True
    rescales: ClassVar[bool] = True
    condenses: ClassVar[bool] = True

    def __init__(self, settings: Settings = _USUAL) -> None:
        super().__init__(settings)
        self._model = Communities(*settings)
        self._rounds: dict[SiteName, int] = {}
        self._asked: tuple[Communities, Codebook] | None = None

    def take(self, batch: Sequence[Contribution], shuffler: Shuffler) -> None:
        """Store a round's nodes and cluster anew; the shuffle is for the paper's server only."""
        model = self._model.copy()
        rounds = dict(self._rounds)
        for item in batch:
            if item.round < rounds.get(item.site, 0):
                continue
            if len(item.nodes):
                model.set_site(item.site, item.nodes, item.counts, item.deviation, item.count_deviation)
                rounds[item.site] = item.round
            elif item.site in rounds and len(rounds) > 1 and not may_be_shared(item.privacy):
                # its rows have all grown too old; a release may be empty by its noise
                model.drop_site(item.site)
                del rounds[item.site]
        if model.sites:
            model.fit()
        self.moves = self.moves + _moves(self._model, model)
        self._model, self._rounds = model, rounds

    def without(self, site: SiteName, rest: Log, shuffler: Shuffler) -> CommunityReadOut:
        """Drop the site's nodes and cluster the others; clusters that remain keep their names."""
        other = type(self)(self.settings)
        other._rounds = {name: number for name, number in self._rounds.items() if name != site}
        model = self._model.copy()
        if site in self._rounds:
            model.drop_site(site)
            model = model.fit() if model.sites else other._model
        other._model, other.moves = model, self.moves + _moves(self._model, model)
        return other

    @property
    def model(self) -> Communities:
        """The read-out itself: lineage, hierarchy, confidence."""
        return self._model

    @property
    def scaling(self) -> Scaling:
        return self._model.scaling if self._rounds else Scaling("none", np.ones(0), "no columns yet")

    @property
    def lineage(self) -> list[Any]:
        """What happened to clusters over rounds."""
        return self._model.lineage

    @property
    def cluster_probability(self) -> dict[int, float]:
        """How probable it is of each cluster that it is one, and apart from the others."""
        return self._model.cluster_probability if self._rounds else {}

    def alternatives(self, most: int = 5) -> list[Alternative]:
        """The most probable numbers of clusters and their partitions of ``nodes``, the found one first."""
        return self._model.alternatives(most) if self._rounds else []

    @property
    def nodes(self) -> Floats:
        # sites under a private release may have sent nothing that may be shown
        return self._model.nodes if self._rounds else np.empty((0, 0))

    @property
    def counts(self) -> Integers:
        return np.rint(self._model.counts).astype(np.int64) if self._rounds else np.empty(0, np.int64)

    @property
    def node_labels(self) -> Integers:
        return self._model.node_labels if self._rounds else np.empty(0, np.int64)

    @property
    def reach(self) -> Floats:
        return self._model.reach

    def predict(self, X: Floats, n_threads: int) -> Integers:
        return self._model.predict(X)

    def label_rows(self, X: Floats, n_threads: int) -> tuple[Integers, Floats, Booleans]:
        return self._model.label_rows(X)

    def distance_to_nearest(self, X: Floats, n_threads: int) -> Floats:
        return self._model.distance_to_nearest(X)

    def left_out_distance(self, rows: Floats, weights: Floats, site: SiteName) -> Floats:
        """Take every row out of the node of its site that is nearest to it; other nodes stay as they are."""
        book, own = self._held_by(site)
        position, distance = book.nearest_few(rows, 3)
        assert book.counts is not None
        mass, mine = book.counts[position], own[position]
        holds = mine & (np.cumsum(mine, axis=1) == 1)
        rest = mass - np.minimum(weights, 1.0)[:, None]
        alone = rest <= 1e-6 * mass
        moved = distance * mass / np.where(alone, mass, rest)
        # a node of one row is either this row, and goes with it, or another one
        asked = rows[:, None, :]
        itself = ((book.nodes[position] == asked) | np.isnan(asked)).all(axis=2)
        moved = np.where(alone, np.where(itself, np.inf, distance), moved)
        nearest: Floats = np.where(holds, moved, distance).min(axis=1)
        return nearest

    def _held_by(self, site: SiteName) -> tuple[Codebook, Booleans]:
        """All nodes as a codebook, and which of them stand for rows of this site."""
        if self._asked is None or self._asked[0] is not self._model:
            # cached for one model: preparing the search takes longer than a site's share of it
            self._asked = self._model, self._model.codebook()
        return self._asked[1], self._model.points_of(site)

    def distances(self, X: Floats, n_threads: int) -> Floats:
        from scipy.spatial.distance import cdist

        result = self._model._result()
        distances: Floats = cdist(self._model._rows(X), result.placed(self.nodes))
        return distances

    def inner_nodes(self) -> Booleans | None:
        return self._model.inner_nodes()

    @property
    def counted_in(self) -> Integers | None:
        return self._model.counted_in

    def predict_with_confidence(self, X: Floats) -> tuple[Integers, Floats]:
        return self._model.predict(X, return_confidence=True)

    def clusters_at(self, level: int) -> Integers:
        return self._model.clusters_at(level)

    def export(self, share_nodes: bool) -> Codebook:
        """All nodes if they may be shared; otherwise means of several nodes each."""
        return self._model.codebook() if share_nodes else self._model.condense()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        # nodes, counts and their deviations are in the server's log already
        meta, arrays = self._model.to_parts()
        meta["rounds"] = [[site, number] for site, number in self._rounds.items()]
        return meta, {name: array for name, array in arrays.items() if name not in _LOGGED}

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], log: Log) -> None:
        rounds = dict(meta["rounds"])
        held = {item.site: item for item in log.find_all(rounds.items()) if item is not None}
        if set(held) != set(rounds) or list(meta["sites"]) != [s for s in meta["sites"] if s in held]:
            raise ValueError("the communities in this file do not fit its contributions")
        parts = dict(arrays)
        ordered = [held[site] for site in meta["sites"]]
        d = ordered[0].n_features if ordered else 0
        parts["nodes"] = np.concatenate([item.nodes for item in ordered]) if ordered else np.zeros((0, d))
        parts["counts"] = np.concatenate([item.counts for item in ordered]).astype(float) if ordered else np.zeros(0)
        flags = meta.get("noisy", [False] * len(ordered))
        noisy = [item for item, flag in zip(ordered, flags, strict=True) if flag]
        if any(item.deviation is None for item in noisy):
            raise ValueError("the communities in this file do not fit its contributions")
        if noisy:
            parts["deviation"] = np.concatenate([item.deviation for item in noisy])
            parts["count_deviation"] = np.concatenate([item.count_deviation for item in noisy])
        self._model, self._rounds = Communities.from_parts(meta, parts), rounds
        # columns and most nodes are stored with the model alone
        self.settings = self.settings._replace(blocks=self._model.blocks, max_nodes=self._model.max_nodes)


def _moves(before: Communities, after: Communities) -> list[Move]:
    """Tell how far clusters have moved from one fit to the next; nothing if there was no other fit."""
    if before.n_rounds == after.n_rounds or not before.n_rounds:
        return []
    then, now = (Extent.of(m.nodes, m.counts, m.node_labels, _scales(m)) for m in (before, after))
    return then.moves(now, after.n_rounds)


def _scales(model: Communities) -> Floats:
    """Factors of features for how far clusters have moved; a map would mix the features."""
    if model.feature_map is None:
        return model.feature_scales
    spread = np.sqrt(moments(model.nodes, model.counts)[1])
    return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
