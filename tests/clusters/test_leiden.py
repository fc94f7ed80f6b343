"""The compiled search for communities: as good as the known one, connected, and always the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_digits, make_moons
from sknetwork.clustering import Louvain, get_modularity

from fcac.clusters.leiden import Search
from fcac.clusters.snn_graph import neighbours_for
from fcac.search.exact import nearest
from testing.data import scattered_blobs
from testing.graphs import shared_neighbour_graph


def graph_of(points, seed=0):
    near, squared = nearest(points, points, neighbours_for(len(points)), np.arange(len(points)))
    return shared_neighbour_graph(
        near, squared, np.random.default_rng(seed).integers(1, 30, size=len(points)).astype(float)
    )


def modular_communities(graph, resolution=1.0):
    return Search(graph).communities(resolution)


def planted(seed):
    """A sparse random graph with groups, unlike any neighbour graph: hubs, and no triangles to speak of."""
    generator = np.random.default_rng(seed)
    group = generator.integers(12, size=1500)
    pull = generator.pareto(2.0, size=1500) + 1
    ends = generator.choice(1500, size=(20_000, 2), p=pull / pull.sum())
    keep = (group[ends[:, 0]] == group[ends[:, 1]]) | (generator.random(20_000) < 0.15)
    ends = ends[keep & (ends[:, 0] != ends[:, 1])]
    one_way = sparse.csr_matrix((np.ones(len(ends)), ends.T), shape=(1500, 1500))
    return sparse.csr_matrix(one_way + one_way.T)


GRAPHS = {
    "digits": lambda: graph_of(load_digits().data),
    "moons": lambda: graph_of(make_moons(1500, noise=0.08, random_state=0)[0]),
    "plain": lambda: graph_of(scattered_blobs(4000, 2, 9, 5)),
    "many": lambda: graph_of(scattered_blobs(3000, 12, 20, 1.5)),
    "one": lambda: graph_of(scattered_blobs(2000, 3, 1, 1)),
    "planted": lambda: planted(3),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("resolution", [0.3, 0.7, 1.0, 11.2])
def test_modularity_is_at_least_that_of_the_known_search(name, resolution):
    graph = GRAPHS[name]()
    labels = modular_communities(graph, resolution)
    known = Louvain(resolution=resolution, random_state=0, shuffle_nodes=False).fit_predict(graph)
    ours, theirs = (get_modularity(graph, found, resolution=resolution) for found in (labels, known))
    assert ours >= theirs - 1e-3 * abs(theirs)


@pytest.mark.parametrize("name", ["plain", "planted"])
def test_every_community_is_connected_and_equal_graphs_give_equal_ones(name):
    graph = GRAPHS[name]()
    labels = modular_communities(graph, 1.0)
    assert np.array_equal(labels, modular_communities(graph.copy(), 1.0))
    assert labels[0] == 0
    assert np.array_equal(np.unique(labels), np.arange(labels.max() + 1))
    for community in range(labels.max() + 1):
        members = np.flatnonzero(labels == community)
        assert connected_components(graph[members][:, members])[0] == 1


def test_the_unit_of_weights_does_not_matter():
    graph = GRAPHS["plain"]()
    assert np.array_equal(modular_communities(graph, 0.7), modular_communities(graph * 1024.0, 0.7))


def test_weight_on_the_diagonal_counts_as_weight_inside():
    # two nodes that stand for much weight of their own stay apart, two that do not become one
    light, heavy = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[9.0, 1.0], [1.0, 9.0]])
    assert modular_communities(sparse.csr_matrix(light)).tolist() == [0, 0]
    assert modular_communities(sparse.csr_matrix(heavy)).tolist() == [0, 1]


def test_graphs_without_edges_and_wrong_graphs():
    assert modular_communities(sparse.csr_matrix((3, 3))).tolist() == [0, 1, 2]
    lonely = sparse.csr_matrix(np.array([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]]))
    assert modular_communities(lonely).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="square"):
        modular_communities(sparse.csr_matrix((2, 3)))
    with pytest.raises(ValueError, match="at least zero"):
        modular_communities(sparse.csr_matrix(np.array([[0, -1.0], [-1.0, 0]])))
