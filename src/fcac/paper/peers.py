"""Clusterers of one table from other packages, called through their public interfaces.

Those that must be told the number of clusters are marked; the others find it. Packages that are not installed are
named, with what to install; nothing of theirs is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers

# Distances to so many neighbours make the graph for Leiden; scanpy and others use 15.
_N_NEIGHBOURS = 15
# Growing networks learn row by row for as long as there are rows. GNG has its 100 nodes after 10,000 of them; as many
# again let edges across gaps grow old.
_PRESENTATIONS = 20_000


@dataclass(frozen=True)
class Peer:
    """A clusterer to compare with.

    Attributes
    ----------
    labels : callable
        Takes rows, the number of clusters and a seed; returns labels. Rows called noise have label -1.
    told_k : bool
        Whether it is told the number of clusters.
    module : str
        The module it needs.
    """

    labels: Callable[[Floats, int, int], Integers]
    told_k: bool
    module: str = "sklearn"


def _fcac(X: Floats, k: int, seed: int) -> Integers:
    from fcac.model.fcac import FCAC

    return FCAC(random_state=seed).fit(X).labels_


def _fcac_told(X: Floats, k: int, seed: int) -> Integers:
    from fcac.model.fcac import FCAC

    return FCAC(n_clusters=k, random_state=seed).fit(X).labels_


def _paper(X: Floats, k: int, seed: int) -> Integers:
    from fcac.model.fcac import FCAC

    return FCAC(server="cae-fc", random_state=seed).fit(X).labels_


def _network(name: str) -> Callable[[Floats, int, int], Integers]:
    def labels(X: Floats, k: int, seed: int) -> Integers:
        from sklearn.base import clone

        from fcac.paper.networks.inside import INSIDE

        found: Integers = clone(INSIDE[name]).fit(presented(X, seed)).predict(_unit(X))
        return found

    return labels


def presented(X: Floats, seed: int) -> Floats:
    """Return rows as a growing network is to see them: every feature in [0, 1], small tables again and again.

    Thresholds of such networks are distances and their edges age by rows won: in large units every row is unlike every
    node, and in one pass over a small table no edge is ever old enough to be removed. The first pass keeps the order
    of the rows; each further one has an order of its own.
    """
    rows, rng = _unit(X), np.random.default_rng(seed)
    more = (rng.permutation(len(rows)) for _ in range(-(-_PRESENTATIONS // len(rows)) - 1))
    return np.concatenate([rows, *(rows[order] for order in more)])


def _unit(X: Floats) -> Floats:
    from sklearn.preprocessing import minmax_scale

    unit: Floats = minmax_scale(X)
    return unit


def _hdbscan(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.cluster import HDBSCAN

    # scikit-learn's default, and the value its guide starts with
    return np.asarray(HDBSCAN(min_cluster_size=5, copy=True).fit_predict(X))


def _plscan(X: Floats, k: int, seed: int) -> Integers:
    from fast_hdbscan import PLSCAN

    return np.asarray(PLSCAN().fit_predict(X))


def _genie(X: Floats, k: int, seed: int) -> Integers:
    from genieclust import Genie

    return np.asarray(Genie(n_clusters=k).fit_predict(X))


def _leiden(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.neighbors import kneighbors_graph
    from sknetwork.clustering import Leiden

    graph = kneighbors_graph(X, min(_N_NEIGHBOURS, len(X) - 1))
    return np.asarray(Leiden(random_state=seed).fit_predict(graph.maximum(graph.T)))


def _kmeans(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(X))


def _mixture(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.mixture import GaussianMixture

    # without this, a component that meets constant features has no inverse
    return np.asarray(GaussianMixture(k, reg_covar=1e-3, random_state=seed).fit_predict(X))


def _ward(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.cluster import AgglomerativeClustering

    return np.asarray(AgglomerativeClustering(k).fit_predict(X))


def _birch(X: Floats, k: int, seed: int) -> Integers:
    from sklearn.cluster import Birch

    return np.asarray(Birch(n_clusters=k).fit_predict(X))


#: The clusterers of one table, by the names they have in the tables.
PEERS: dict[str, Peer] = {
    "fcac": Peer(_fcac, False),
    "fcac (k given)": Peer(_fcac_told, True),
    "FCAC of the paper": Peer(_paper, False),
    "HDBSCAN": Peer(_hdbscan, False),
    "PLSCAN": Peer(_plscan, False, "fast_hdbscan"),
    "Leiden": Peer(_leiden, False, "sknetwork"),
    "GNG": Peer(_network("gng"), False),
    "GWR": Peer(_network("gwr"), False),
    "ASOINN": Peer(_network("asoinn"), False),
    "SOINN+": Peer(_network("soinn-plus"), False),
    "Genie (k given)": Peer(_genie, True, "genieclust"),
    "k-means (k given)": Peer(_kmeans, True),
    "Gaussian mixture (k given)": Peer(_mixture, True),
    "Ward (k given)": Peer(_ward, True),
    "BIRCH (k given)": Peer(_birch, True),
}


_PACKAGES = {
    "fast_hdbscan": "fast-hdbscan",
    "genieclust": "genieclust",
    "river": "river",
    "sknetwork": "scikit-network",
}
# Stream clusterers, which have no place among those of one table.
_STREAMS = {"DBSTREAM": "river", "CluStream (k given)": "river"}


def missing(names: Sequence[str]) -> dict[str, str]:
    """Return those of the named peers whose package is not installed, each with what to install."""
    absent = {}
    for name in names:
        module = PEERS[name].module if name in PEERS else _STREAMS.get(name, "sklearn")
        if find_spec(module) is None:
            absent[name] = f"it needs {_PACKAGES[module]}: pip install 'fcac[peers]'"
    return absent


def labels_of(name: str, X: Any, k: int, seed: int) -> Integers:
    """Return the labels that a clusterer gives to rows."""
    return PEERS[name].labels(np.ascontiguousarray(X, np.float64), k, seed).astype(np.int64)
