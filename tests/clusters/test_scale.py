"""Many nodes: searching in boxes, and condensing what would be too many to read."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score

from fcac.clusters import Communities
from fcac.clusters.cluster_tree import relabel_consecutive
from fcac.clusters.snn_graph import dimension_of
from fcac.search.box_tree import BoxTree, spatial_order
from fcac.search.exact import nearest
from testing.data import mixture
from testing.graphs import shared_neighbour_graph


def plain_lists(points, queries, k, own):
    squared = np.zeros((len(queries), len(points)))
    for j in range(points.shape[1]):
        squared += (queries[:, j, None] - points[None, :, j]) ** 2
    rows = np.flatnonzero(own >= 0)
    squared[rows, own[rows]] = np.inf
    place = np.broadcast_to(np.arange(len(points)), squared.shape)
    order = np.lexsort((place, squared), axis=1)[:, :k]
    return order, np.take_along_axis(squared, order, 1)


@pytest.mark.parametrize("n", [1, 2, 40, 97, 2500])
@pytest.mark.parametrize("n_features", [1, 3, 17])
@pytest.mark.parametrize("lattice", [False, True])
def test_boxes_find_exactly_the_nearest_with_ties_to_the_lower_position(n, n_features, lattice):
    generator = np.random.default_rng(n + n_features)
    points = generator.integers(0, 4, size=(n, n_features)).astype(float) if lattice else mixture(n, n_features, n)
    queries = np.concatenate([points[:300], generator.normal(size=(20, n_features)) * 5])
    own = np.append(np.arange(len(points[:300])), np.full(20, -1))
    k = min(12, n - 1)
    found, squared = BoxTree(points).nearest(queries, k, own)
    expected, expected_squared = plain_lists(points, queries, k, own)
    assert np.array_equal(found, expected)
    assert np.array_equal(squared, expected_squared)


def test_order_in_space_keeps_neighbours_together_and_leaves_nobody_out():
    points = mixture(4000, 3, 3)
    order = spatial_order(points)
    assert np.array_equal(np.sort(order), np.arange(4000))
    step = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    assert step < 0.4 * np.linalg.norm(np.diff(points, axis=0), axis=1).mean()


def test_compiled_graph_equals_its_definition():
    points = mixture(200, 3, 9)
    near, squared = nearest(points, points, 7, np.arange(200))
    counts = np.random.default_rng(0).integers(1, 50, size=200).astype(float)
    graph = shared_neighbour_graph(near, squared, counts)
    lists = [set(row) | {v} for v, row in enumerate(near.tolist())]
    tied = np.array([[u != v and (u in lists[v] or v in lists[u]) for u in range(200)] for v in range(200)])
    mass = np.sqrt(counts)
    around = tied @ mass + mass
    overlap = np.array([[len(a & b) / len(a | b) for b in lists] for a in lists])
    stands_for = mass[:, None] * mass[None] * (0.5 / around[:, None] + 0.5 / around[None])
    reach = np.sqrt(squared[:, 2]) + np.sqrt(squared[:, 6])
    density = np.minimum(reach[:, None], reach[None]) / np.maximum(reach[:, None], reach[None])
    power = int(dimension_of(squared[:, 2], squared[:, 6], 7))
    assert power == 2
    weights = overlap * stands_for * density**power
    assert np.allclose(graph.toarray(), np.where(tied, weights, 0), rtol=1e-12, atol=0)
    assert sparse.issparse(graph)
    assert graph.has_sorted_indices


# ---------------------------------------------------------------- more nodes than are read


def blobs_of_sites(n_sites, n=400, n_features=3):
    """Nodes of sites, and the blob of each."""
    generator = np.random.default_rng(3)
    centres = generator.uniform(-12, 12, size=(6, n_features))
    held, blobs = {}, []
    for site in range(n_sites):
        blob = generator.integers(6, size=n)
        nodes = centres[blob] + generator.normal(size=(n, n_features))
        held[site] = nodes, np.ceil(generator.pareto(1.5, size=n)).clip(1, 100)
        blobs.append(blob)
    return held, np.concatenate(blobs)


def test_more_nodes_than_are_read_are_condensed_and_nothing_is_lost():
    held, blobs = blobs_of_sites(8)
    model = Communities(max_nodes=600).update(held).fit()
    counted_in = model.counted_in
    counts = np.concatenate([counts for _, counts in held.values()])
    assert len(model.nodes) == 600
    assert np.allclose(np.bincount(counted_in, weights=counts), model.counts)
    nodes = np.concatenate([nodes for nodes, _ in held.values()])
    assert np.allclose(model.counts @ model.nodes, counts @ nodes)
    assert adjusted_mutual_info_score(blobs, model.node_labels[counted_in]) > 0.98
    assert Communities(max_nodes=3200).update(held).fit().counted_in is None


def test_a_condensed_model_forgets_a_site_exactly():
    held, _ = blobs_of_sites(8)
    model = Communities(max_nodes=600).update(held).fit().drop_site(3).fit()
    rest = {site: part for site, part in held.items() if site != 3}
    anew = Communities(max_nodes=600).update(dict(reversed(rest.items()))).fit()
    assert np.array_equal(model.nodes, anew.nodes)
    assert np.array_equal(model.counts, anew.counts)
    assert np.array_equal(relabel_consecutive(model.node_labels), relabel_consecutive(anew.node_labels))


def test_clusters_keep_their_names_when_nodes_become_too_many_to_be_read():
    held, _ = blobs_of_sites(8)
    model = Communities(max_nodes=600).update({0: held[0]}).fit()
    before = {label: model.nodes[model.node_labels == label].mean(axis=0) for label in model.cluster_ids}
    model.update(held).fit()
    assert set(model.cluster_ids) == set(before)
    for label, centre in before.items():
        assert np.linalg.norm(model.nodes[model.node_labels == label].mean(axis=0) - centre) < 1


def test_a_condensed_model_survives_storage():
    held, _ = blobs_of_sites(8)
    model = Communities(max_nodes=600).update(held).fit()
    again = Communities.from_parts(*model.to_parts())
    assert again.max_nodes == 600
    assert np.array_equal(again.nodes, model.nodes)
    assert np.array_equal(again.node_labels, model.node_labels)
    meta, _ = again.to_parts()
    assert meta["fitted"]


def test_noise_of_nodes_goes_on_where_they_are_condensed():
    held, _ = blobs_of_sites(4, n=100)
    model = Communities(max_nodes=90)
    for site, (nodes, counts) in held.items():
        model.set_site(site, nodes, counts, np.full(nodes.shape, 0.5), np.ones(100))
    given = model._bounded()
    (deviation, of_counts), (nodes, counts) = given.noise["all sites"], given.held["all sites"]
    heaviest = np.argmax(np.bincount(given.counted_in))
    own = np.concatenate([counts for _, counts in held.values()])[given.counted_in == heaviest]
    assert np.allclose(deviation[heaviest], 0.5 * np.sqrt((own**2).sum()) / own.sum())
    assert np.isclose(of_counts[heaviest], np.sqrt(len(own)))
    assert len(nodes) == len(counts) == 90
