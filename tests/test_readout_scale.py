"""Many nodes: searching in boxes, approximate lists, graphs in memory order, and what continual use does to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac.readout import Communities
from fcac.readout import model as readout_model
from fcac.readout.approximate import nearest_approximate
from fcac.readout.boxes import Boxes, spatial_order
from fcac.readout.graph import dimension_of, shared_neighbour_graph
from fcac.readout.neighbours import nearest


def mixture(n, n_features, seed, centres_seed=0, n_blobs=8):
    centres = np.random.default_rng(centres_seed).uniform(-8, 8, size=(n_blobs, n_features))
    generator = np.random.default_rng(seed)
    return centres[generator.integers(n_blobs, size=n)] + generator.normal(size=(n, n_features))


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
    found, squared = Boxes(points).nearest(queries, k, own)
    expected, expected_squared = plain_lists(points, queries, k, own)
    assert np.array_equal(found, expected)
    assert np.array_equal(squared, expected_squared)


def test_boxes_tell_who_reaches_a_query():
    points, queries = mixture(1500, 4, 1), mixture(60, 4, 2)
    reach = np.random.default_rng(0).uniform(-1, 6, size=1500)
    asker, asked, squared = Boxes(points).reached_from(queries, reach)
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


def test_order_in_memory_does_not_show_in_the_result(monkeypatch):
    nodes, counts = mixture(3000, 6, 10), np.ones(3000)
    plain = Communities().set_site(0, nodes, counts).fit()
    monkeypatch.setattr(readout_model, "_ORDER_FROM", 100)
    ordered = Communities().set_site(0, nodes, counts).fit()
    assert adjusted_mutual_info_score(plain.node_labels, ordered.node_labels) > 0.99


@pytest.mark.parametrize("neighbors", ["approximate", "exact"])
def test_ten_rounds_of_many_nodes_are_close_to_one_shot(neighbors, monkeypatch):
    """Sites join, leave and drift; lists are mended every round, the graph is put in memory order as with very many."""
    monkeypatch.setattr(readout_model, "_ORDER_FROM", 1000)
    held = {site: (mixture(120, 14, site), np.full(120, 1.0 + site % 3)) for site in range(50)}
    model = Communities(neighbors=neighbors).update(held).fit()
    generator = np.random.default_rng(0)
    for number in range(10):
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
