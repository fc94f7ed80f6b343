"""Many nodes: searching in boxes, approximate lists, graphs in memory order, and what continual use does to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac.clusters import Communities, cluster_tree, leiden
from fcac.clusters.cluster_tree import relabel_consecutive
from fcac.clusters.snn_graph import dimension_of
from fcac.search import morton_order as readout_places
from fcac.search.box_tree import BoxTree, spatial_order
from fcac.search.exact import Searcher, nearest
from fcac.search.morton_order import MortonOrder, grid_of
from fcac.search.nn_descent import nearest_approximate
from testing.data import mixture
from testing.graphs import shared_neighbour_graph


def recall(found, exact):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)])


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


def test_boxes_tell_who_reaches_a_query():
    points, queries = mixture(1500, 4, 1), mixture(60, 4, 2)
    reach = np.random.default_rng(0).uniform(-1, 6, size=1500)
    asker, asked, squared = BoxTree(points).reverse_neighbors(queries, reach)
    gaps = ((queries[:, None] - points[None]) ** 2).sum(axis=2)
    assert set(zip(asker.tolist(), asked.tolist(), strict=True)) == set(
        zip(*(part.tolist() for part in np.nonzero(gaps <= reach)), strict=True)
    )
    assert np.allclose(squared, gaps[asker, asked])


def test_order_in_space_keeps_neighbours_together_and_leaves_nobody_out():
    points = mixture(4000, 3, 3)
    order = spatial_order(points)
    assert np.array_equal(np.sort(order), np.arange(4000))
    step = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    assert step < 0.4 * np.linalg.norm(np.diff(points, axis=0), axis=1).mean()


@pytest.mark.parametrize("points", [mixture(6000, 24, 4), np.zeros((500, 3)), np.repeat(mixture(300, 5, 5), 4, axis=0)])
def test_approximate_lists_are_whole_without_the_point_itself_and_repeatable(points):
    near, squared = nearest_approximate(points, 15)
    assert (np.sort(near, axis=1)[:, 1:] != np.sort(near, axis=1)[:, :-1]).all()
    assert not (near == np.arange(len(points))[:, None]).any()
    assert near.min() >= 0
    assert near.max() < len(points)
    assert (np.diff(squared, axis=1) >= 0).all()
    again, _ = nearest_approximate(points.copy(), 15)
    assert np.array_equal(near, again)


@pytest.mark.slow
def test_approximate_lists_mended_after_a_change_are_as_good_as_new_ones():
    points = mixture(8000, 16, 6)
    near, _ = nearest_approximate(points, 18)
    changed = np.random.default_rng(7).choice(8000, 200, replace=False)
    points = points.copy()
    points[changed] = mixture(200, 16, 8)
    known = np.where(np.isin(near, changed), -1, near)
    known[changed] = -1
    mended, _ = nearest_approximate(points, 18, known)
    exact, _ = nearest(points, points, 18, np.arange(8000))
    assert recall(mended[changed], exact[changed]) > 0.95
    assert recall(mended, exact) > 0.95
    assert recall(mended, exact) > recall(nearest_approximate(points, 18)[0], exact) - 0.01


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


@pytest.mark.slow
def test_order_in_memory_does_not_show_in_the_result(monkeypatch):
    nodes, counts = mixture(3000, 6, 10), np.ones(3000)
    plain = Communities().set_site(0, nodes, counts).fit()
    monkeypatch.setattr(readout_places, "ORDER_FROM", 100)
    ordered = Communities().set_site(0, nodes, counts).fit()
    assert adjusted_mutual_info_score(plain.node_labels, ordered.node_labels) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["approximate", "exact"])
def test_rounds_of_many_nodes_are_close_to_one_shot(neighbors, monkeypatch):
    """Sites join, leave and drift; lists are mended every round, the graph is put in memory order as with very many."""
    monkeypatch.setattr(readout_places, "ORDER_FROM", 1000)
    held = {site: (mixture(120, 14, site), np.full(120, 1.0 + site % 3)) for site in range(25)}
    model = Communities(neighbors=neighbors).update(held).fit()
    generator = np.random.default_rng(0)
    for number in range(4):
        leaving, *drifting = generator.choice(list(held), 3, replace=False).tolist()
        model.drop_site(leaving)
        del held[leaving]
        for site in drifting:
            held[site] = held[site][0] + generator.normal(0, 0.3, size=held[site][0].shape), held[site][1]
        held[100 + number] = mixture(120, 14, 100 + number), np.ones(120)
        model.update({site: held[site] for site in (*drifting, 100 + number)}).fit()
    assert model._result().exact == (neighbors == "exact")
    anew = Communities(neighbors=neighbors).update(held).fit()
    assert adjusted_mutual_info_score(model.node_labels, anew.node_labels) >= 0.99
    if neighbors == "exact":
        assert np.array_equal(model._result().near()[0], anew._result().near()[0])
        assert adjusted_rand_score(model.node_labels, anew.node_labels) == 1
    else:
        truth = Communities(neighbors="exact").update(held).fit()
        assert adjusted_mutual_info_score(model.node_labels, truth.node_labels) >= 0.99


# ---------------------------------------------------------------- many nodes, in an order that lasts


@pytest.fixture(params=[6_000, pytest.param(24_000, marks=pytest.mark.soak)])
def many(request, monkeypatch):
    """A number of nodes that is treated as many; the small form has the limits moved down to it."""
    if request.param < readout_places.ORDER_FROM:
        limit = request.param * 5 // 6
        monkeypatch.setattr(readout_places, "ORDER_FROM", limit)
        for module in (leiden, cluster_tree):
            monkeypatch.setattr(module, "PIECES_FROM", limit)
    return request.param


def many_sites(n, n_features, n_sites=50, lattice=False):
    generator = np.random.default_rng(n_features)
    nodes = mixture(n, n_features, 20, n_blobs=12)
    nodes = np.rint(nodes * 50) if lattice else nodes
    counts = np.ceil(generator.pareto(1.5, size=n)).clip(1, 100)
    return dict(enumerate(zip(np.split(nodes, n_sites), np.split(counts, n_sites), strict=True)))


def play_rounds(model, held, n_rounds, lattice=False):
    """Each round one site leaves, one joins, one drifts and one has other counts."""
    generator = np.random.default_rng(0)
    for number in range(n_rounds):
        leaving, drifting, counting = generator.choice(list(held), 3, replace=False).tolist()
        model.drop_site(leaving)
        nodes, counts = held.pop(leaving)
        step = generator.normal(0, 0.3, size=nodes.shape)
        held[1000 + number] = nodes + (np.rint(step * 10) if lattice else step), counts
        held[drifting] = held[drifting][0] + (np.rint(step * 3) if lattice else step), held[drifting][1]
        held[counting] = held[counting][0], held[counting][1] + 1
        model.update({site: held[site] for site in (drifting, counting, 1000 + number)}).fit()


@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "lattice"), [(2, False), (2, True), (8, False)])
def test_many_nodes_after_changes_equal_one_shot_in_every_bit(n_features, lattice, many):
    held = many_sites(many, n_features, lattice=lattice)
    model = Communities().update(held).fit()
    assert len(model._result().points) >= readout_places.ORDER_FROM
    play_rounds(model, held, 2, lattice)
    mended, anew = model._result(), Communities().update(held).fit()._result()
    # nothing was made from nothing: every part comes from the fit before
    assert mended.exact
    assert mended.lists().changed is not None
    assert 0 < mended.lists().changed.sum() < 0.9 * len(mended.points)
    assert np.array_equal(mended.points, anew.points)
    assert np.array_equal(mended.point_of, anew.point_of)
    assert np.array_equal(mended.near()[0], anew.near()[0])
    assert np.array_equal(mended.near()[1], anew.near()[1])
    for ours, theirs in zip(mended._edges, anew._edges, strict=True):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(mended.tree().atom_of, anew.tree().atom_of)
    assert np.array_equal(mended.tree().block_weights, anew.tree().block_weights)
    assert np.array_equal(relabel_consecutive(mended.ids), relabel_consecutive(anew.ids))


@pytest.mark.slow
def test_growing_beyond_and_shrinking_below_the_order_of_many_equals_one_shot(many):
    held = many_sites(many * 11 // 12, 3, n_sites=10)
    few = {site: held[site] for site in range(9)}
    model = Communities().update(few).fit()
    assert len(model.nodes) < readout_places.ORDER_FROM
    assert np.array_equal(relabel_consecutive(model.update(held).fit().node_labels), labels_of_one_shot(held))
    assert np.array_equal(relabel_consecutive(model.drop_site(9).fit().node_labels), labels_of_one_shot(few))


def labels_of_one_shot(held):
    return relabel_consecutive(Communities().update(held).fit().node_labels)


@pytest.mark.slow
def test_many_nodes_with_approximate_lists_stay_close_to_one_shot(many):
    held = many_sites(many, 16)
    model = Communities(neighbors="approximate").update(held).fit()
    play_rounds(model, held, 2)
    result = model._result()
    assert not result.exact
    assert result.lists().changed is not None
    anew = Communities(neighbors="approximate").update(held).fit()
    assert adjusted_mutual_info_score(model.node_labels, anew.node_labels) >= 0.99
    some = np.random.default_rng(0).choice(len(result.points), 500, replace=False)
    exact, _ = Searcher(result.points).nearest(result.points[some], result.near()[0].shape[1], own=some)
    assert recall(result.near()[0][some], exact) > 0.97


def test_places_do_not_depend_on_who_sent_them():
    nodes = np.rint(mixture(30_000, 2, 21) * 30)
    grid = grid_of(nodes.mean(axis=0), nodes.var(axis=0), np.ones(2))
    places = MortonOrder(nodes, grid)
    assert len(places.first) == len(np.unique(nodes, axis=0)) >= readout_places.ORDER_FROM
    assert np.array_equal(nodes[places.first][places.point_of], nodes)
    shuffled = np.random.default_rng(1).permutation(len(nodes))
    again = MortonOrder(nodes[shuffled], grid)
    assert np.array_equal(nodes[shuffled][again.first], nodes[places.first])
    step = np.linalg.norm(np.diff(nodes[places.first], axis=0), axis=1).mean()
    assert step < 0.1 * np.linalg.norm(np.diff(nodes, axis=0), axis=1).mean()


def test_boxes_left_as_they_are_search_like_new_ones():
    points = np.rint(mixture(3000, 3, 22) * 3)
    moved = np.full(3000, -1)
    stays = np.sort(np.random.default_rng(0).choice(3000, 2900, replace=False))
    places = np.sort(np.random.default_rng(1).choice(3000, 2900, replace=False))
    moved[stays] = places
    later = np.rint(mixture(3000, 3, 23) * 3)
    later[places] = points[stays]
    mended = Searcher(points).updated(later, moved)
    assert mended.boxes is not None
    assert len(mended.boxes.names()) == 2900
    own = np.arange(3000)
    for ours, theirs in zip(mended.nearest(later, 9, own), Searcher(later).nearest(later, 9, own), strict=True):
        assert np.array_equal(ours, theirs)
