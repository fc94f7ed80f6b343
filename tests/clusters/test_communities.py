"""The communities read-out: exact and independent of history, names that last, and clusters where clusters are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine, make_moons
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac import CAPlus
from fcac.clusters import Change, Communities
from fcac.clusters.snn_graph import neighbours_for
from fcac.clusters.tracking import match_clusters
from fcac.paper.splits import paper_dirichlet
from fcac.search.exact import distinct, nearest
from testing.data import sites_with_nodes
from testing.graphs import shared_neighbour_graph


def contributions(X, y, n_sites, seed=0):
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X[order], y[order]
    sites = {}
    for site, rows in enumerate(paper_dirichlet(y, n_sites, min_rows=10)):
        model = CAPlus().fit(X[rows])
        sites[site] = model.nodes_, model.counts_
    return sites


def brute_force(points, queries, k, own):
    lists = []
    for query, self_at in zip(queries, own, strict=True):
        squared = np.zeros(len(points))
        for j in range(points.shape[1]):
            squared += (query[j] - points[:, j]) ** 2
        if self_at >= 0:
            squared[self_at] = np.inf
        lists.append(np.lexsort((np.arange(len(points)), squared))[:k])
    return np.array(lists)


# ---------------------------------------------------------------- neighbours


@pytest.mark.parametrize("n_features", [2, 30])
@pytest.mark.parametrize("lattice", [False, True])
def test_neighbours_equal_brute_force_with_ties_to_the_lower_position(n_features, lattice):
    generator = np.random.default_rng(1)
    points = generator.normal(size=(300, n_features))
    if lattice:
        points = generator.integers(0, 3, size=(300, n_features)).astype(float)
    own = np.arange(300)
    found, squared = nearest(points, points, 9, own)
    assert np.array_equal(found, brute_force(points, points, 9, own))
    assert (np.diff(squared, axis=1) >= 0).all()


def test_distinct_points_do_not_depend_on_order_and_zero_has_no_sign():
    points = np.random.default_rng(0).integers(0, 4, size=(200, 2)).astype(float)
    points[0] = [-0.0, 1.0]
    points[1] = [0.0, 1.0]
    first, which = distinct(points)
    assert np.array_equal(points[first][which], points)
    assert which[0] == which[1]
    shuffled = np.random.default_rng(1).permutation(200)
    again, _ = distinct(points[shuffled])
    assert np.array_equal(points[shuffled][again], points[first])


# ---------------------------------------------------------------- graph and tree


def test_neighbours_stay_a_small_share():
    numbers = [neighbours_for(n) for n in (1, 2, 4, 30, 100, 1000, 10**6)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert numbers[-1] == 30
    assert neighbours_for(60) <= 4


def test_graph_is_symmetric_and_heavier_where_records_are():
    points = np.random.default_rng(0).normal(size=(80, 2))
    near, squared = nearest(points, points, 6, np.arange(80))
    light = shared_neighbour_graph(near, squared, np.ones(80))
    assert abs(light - light.T).max() < 1e-12
    assert light.diagonal().sum() == 0
    counts = np.ones(80)
    counts[0] = 100
    heavy = shared_neighbour_graph(near, squared, counts)
    assert heavy[0].sum() > light[0].sum()


def test_ties_between_different_densities_weigh_less():
    line = np.concatenate([np.arange(40.0), 40 + 3 * np.arange(40.0)])[:, None]
    near, squared = nearest(line, line, 6, np.arange(80))
    plain = shared_neighbour_graph(near, np.ones_like(squared), np.ones(80))
    graph = shared_neighbour_graph(near, squared, np.ones(80))
    # far from the change of spacing nothing is different; across it ties are weaker, by no more than the ratio
    assert graph[10, 11] == plain[10, 11]
    assert plain[38, 42] / 3 <= graph[38, 42] < plain[38, 42]
    # the unit of distance does not matter
    assert abs(shared_neighbour_graph(near, squared * 1e6, np.ones(80)) - graph).max() < 1e-12


def test_cuts_of_the_tree_are_nested():
    model = Communities().update(sites_with_nodes(3, n_blobs=6)).fit()
    finer = model.clusters_at(25)
    assert len(np.unique(finer)) == 25
    for level in (24, 12, model.n_clusters, 4, 2, 1):
        coarser = model.clusters_at(level)
        assert len(np.unique(coarser)) == level
        # every finer cluster lies in one coarser cluster
        assert len(np.unique(np.stack([finer, coarser]), axis=1).T) == len(np.unique(finer))
        finer = coarser
    found = model.clusters_at(model.n_clusters)
    assert adjusted_rand_score(found, model.node_labels) == 1


@pytest.mark.slow
def test_disconnected_graphs_and_single_nodes_are_clustered():
    assert Communities().set_site("a", [[1.0, 2.0]], [3]).fit().n_clusters == 1
    two = Communities(n_clusters=2).set_site("a", [[0.0], [9.0]], [1, 1]).fit()
    assert two.n_clusters == 2
    far = np.concatenate([np.random.default_rng(s).normal(1000 * s, 1, size=(80, 3)) for s in range(3)])
    assert Communities().set_site("a", far, np.ones(240)).fit().n_clusters == 3


def test_equal_nodes_of_many_sites_are_one_point():
    nodes = np.random.default_rng(0).normal(size=(150, 2)) + np.repeat([[0, 0], [15, 0]], 75, axis=0)
    one = Communities().set_site(0, nodes, np.full(150, 40)).fit()
    many = Communities().update({site: (nodes, np.ones(150)) for site in range(40)}).fit()
    assert many.n_clusters == one.n_clusters
    assert np.array_equal(many.node_labels[:150], one.node_labels)
    assert len(many._result().tree().hierarchy.atom_of) == 150


# ---------------------------------------------------------------- clusters


def three_gaussians(seed):
    generator = np.random.default_rng(seed)
    centres = np.array([[0.5, 0.75], [0.25, 0.3], [0.75, 0.3]])
    X = np.concatenate([generator.normal(c, 0.08, size=(15000, 2)) for c in centres])
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    a, b, c = np.split(X[:15000], 4), np.split(X[15000:30000], 2), np.split(X[30000:], 2)
    rounds = [
        (a[0], a[1]),
        (generator.permutation(np.concatenate([a[2], b[0]])), generator.permutation(np.concatenate([a[3], c[0]]))),
        (b[1], c[1]),
    ]
    return X, np.repeat([0, 1, 2], 15000), rounds


@pytest.mark.slow
def test_a_far_group_of_few_does_not_set_the_scale():
    # without it, five overlapping clusters; with it, they must not be joined into one
    generator = np.random.default_rng(70)
    y = np.repeat(np.arange(5), 600)
    X = np.array([[0, 0], [3, 0], [0, 3], [3, 3], [6, 3]])[y] + generator.normal(size=(3000, 2)) * 0.75
    X, y = np.concatenate([X, generator.normal(size=(70, 2)) * 0.5 + [20, -15]]), np.append(y, np.full(70, 5))
    model = Communities().update(contributions(X, y, 12)).fit()
    assert adjusted_mutual_info_score(y, model.predict(X)) > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_demo_gives_exactly_three_clusters_after_round_three(seed):
    X, y, rounds = three_gaussians(seed)
    sites, model = (CAPlus(), CAPlus()), Communities()
    for batches in rounds:
        for name, (site, rows) in enumerate(zip(sites, batches, strict=True)):
            site.partial_fit(rows)
            model.set_site(name, site.nodes_, site.counts_)
        model.fit()
    assert model.n_clusters == 3
    assert adjusted_rand_score(y, model.predict(X)) >= 0.95


@pytest.mark.slow
def test_digits_at_sites_without_a_number_of_clusters():
    X, y = load_digits(return_X_y=True)
    model = Communities().update(contributions(X, y, 16)).fit()
    assert adjusted_mutual_info_score(y, model.predict(X)) > 0.8
    assert 8 <= model.n_clusters <= 24


def test_wine_needs_its_features_on_one_scale():
    X, y = load_wine(return_X_y=True)
    model = Communities().set_site(0, X, np.ones(len(X))).fit()
    assert (model.feature_scales != 1).any()
    assert adjusted_mutual_info_score(y, model.predict(X)) > 0.6


def test_given_number_of_clusters_is_kept():
    X, y = make_moons(1500, noise=0.05, random_state=0)
    model = Communities(n_clusters=2).update(contributions(X, y, 5)).fit()
    assert model.n_clusters == 2
    assert adjusted_rand_score(y, model.predict(X)) > 0.95


# ---------------------------------------------------------------- continual


@pytest.mark.slow
def test_ten_rounds_of_coming_going_and_drift_equal_one_shot():
    generator = np.random.default_rng(5)
    held = sites_with_nodes(5, n_sites=20)
    model = Communities().update(held).fit()
    for number in range(10):
        leaving, changing = generator.choice(list(held), 2, replace=False)
        model.drop_site(leaving)
        del held[leaving]
        held[changing] = held[changing][0] + generator.normal(0, 0.3, size=held[changing][0].shape), held[changing][1]
        held[100 + number] = sites_with_nodes(5 + number, n_sites=1)[0]
        model.update({site: held[site] for site in (changing, 100 + number)}).fit()
    anew = Communities().update(dict(reversed(held.items()))).fit()
    assert np.array_equal(model.nodes, anew.nodes)
    assert np.array_equal(model._result().near()[0], anew._result().near()[0])
    assert adjusted_rand_score(model.node_labels, anew.node_labels) == 1
    X = generator.normal(size=(500, 3)) * 6
    assert adjusted_rand_score(model.predict(X), anew.predict(X)) == 1


def label_of_nodes(model, held):
    sites = [site for site in model.sites for _ in held[site][0]]
    return dict(zip(zip(sites, map(tuple, model.nodes), strict=True), model.node_labels, strict=True))


@pytest.mark.slow
def test_ids_stay_while_sites_come_and_go():
    generator = np.random.default_rng(8)
    pool = sites_with_nodes(8, n_sites=30)
    held = {site: pool[site] for site in range(15)}
    model = Communities().update(held).fit()
    for number in range(10):
        before = label_of_nodes(model, held)
        leaving = generator.choice(list(held))
        del held[leaving]
        held[15 + number] = pool[15 + number]
        model.drop_site(leaving).set_site(15 + number, *pool[15 + number]).fit()
        kept = [before[node] == label for node, label in label_of_nodes(model, held).items() if node in before]
        assert np.mean(kept) > 0.9  # a border may come or go with a site


@pytest.mark.slow
def test_a_dropped_site_leaves_nothing_behind():
    held = sites_with_nodes(7)
    model = Communities().update(held).fit()
    model.drop_site(3).fit()
    del held[3]
    anew = Communities().update(held).fit()
    assert np.array_equal(model.nodes, anew.nodes)
    assert adjusted_rand_score(model.node_labels, anew.node_labels) == 1
    with pytest.raises(KeyError, match="3"):
        model.drop_site(3)


def test_fitting_again_without_change_is_no_round():
    model = Communities().update(sites_with_nodes(8)).fit()
    labels, lineage = model.node_labels, list(model.lineage)
    model.update(sites_with_nodes(8)).fit()
    assert model.n_rounds == 1
    assert model.node_labels is labels
    assert model.lineage == lineage


def cloud(seed, centre, n=200):
    return np.random.default_rng(seed).normal(centre, 1.0, size=(n, 4)), np.ones(n)


@pytest.mark.slow
def test_names_last_and_lineage_tells_birth_growth_and_death():
    model = Communities().update({"a": cloud(0, 0), "b": cloud(1, 10)}).fit()
    zero, ten = model.predict([[0] * 4, [10] * 4])
    model.update({"c": cloud(2, 0), "d": cloud(3, 30)}).fit()
    assert model.predict([[0] * 4, [10] * 4]).tolist() == [zero, ten]
    events = {(c.kind, c.cluster) for c in model.lineage if c.round == 2}
    (new,) = set(model.cluster_ids) - {zero, ten}
    assert events == {("grew", zero), ("born", new)}
    model.drop_site("b").fit()
    assert ("died", ten) in {(c.kind, c.cluster) for c in model.lineage if c.round == 3}
    model.set_site("b", *cloud(9, 60)).fit()
    # a name is never given twice
    assert model.predict([[60] * 4])[0] not in (zero, ten, new)


def test_lineage_tells_merging_and_splitting():
    counts, before = np.full(6, 10.0), {4: 30.0, 7: 30.0}
    ids, changes, next_id = match_clusters(np.zeros(6, dtype=int), counts, np.repeat([4, 7], 3), before, 8, 2)
    assert [(c.kind, c.cluster, c.others) for c in changes] == [("merged", ids[0], (4, 7))]
    assert next_id == 8
    ids, changes, next_id = match_clusters(np.repeat([0, 1], 3), counts, np.full(6, 4), {4: 60.0}, 8, 3)
    assert sorted(ids) == [4, 8]
    assert [(c.kind, c.cluster, c.others) for c in changes] == [("split", 4, (4, 8))]
    assert next_id == 9
    assert Change.from_json(json.loads(json.dumps(changes[0].to_json()))) == changes[0]


# ---------------------------------------------------------------- rows


def test_confidence_is_high_inside_and_lower_between():
    model = Communities().update({"a": cloud(0, 0), "b": cloud(1, 7)}).fit()
    labels, confidence = model.predict([[0] * 4, [7] * 4, [3.5] * 4], return_confidence=True)
    assert labels[0] != labels[1]
    assert confidence[0] == confidence[1] == 1
    assert ((confidence > 0) & (confidence <= 1)).all()
    assert model.predict([[0] * 4]).tolist() == labels[:1].tolist()


def test_novel_rows_are_marked_only_if_asked():
    model = Communities().update({"a": cloud(0, 0), "b": cloud(1, 10)}).fit()
    rows = np.array([[0.0] * 4, [10.0] * 4, [50.0] * 4])
    assert (model.predict(rows) >= 0).all()
    assert (model.predict(rows, novelty=True) == -1).tolist() == [False, False, True]
    seen = np.concatenate([cloud(20, 0, 2000)[0], cloud(21, 10, 2000)[0]])
    assert (model.predict(seen, novelty=True) == -1).mean() < 0.03
    assert model.distance_to_nearest(rows)[2] > 50


@pytest.mark.slow
def test_codebook_predicts_nearly_the_same_and_holds_no_node():
    X, y = load_digits(return_X_y=True)
    model = Communities().update(contributions(X, y, 10)).fit()
    book = model.condense(max_nodes=200)
    assert len(book.nodes) <= 200
    assert adjusted_mutual_info_score(model.predict(X), book.predict(X)) > 0.85
    nodes = {node.tobytes() for node in model.nodes}
    assert not any(word.tobytes() in nodes for word in book.nodes)
    with pytest.raises(ValueError, match="min_nodes"):
        Communities().set_site(0, [[1.0]], [1]).fit().condense()


# ---------------------------------------------------------------- storage and errors


@pytest.mark.slow
def test_state_survives_storage_and_goes_on_alike():
    held = sites_with_nodes(11)
    held["north"] = held.pop(0)
    model = Communities().update(held).fit()
    meta, arrays = model.to_parts()
    again = Communities.from_parts(json.loads(json.dumps(meta)), arrays)
    assert np.array_equal(again.node_labels, model.node_labels)
    assert again.lineage == model.lineage
    X = np.random.default_rng(0).normal(size=(200, 3)) * 6
    assert np.array_equal(again.predict(X, novelty=True), model.predict(X, novelty=True))
    assert np.array_equal(again.clusters_at(7), model.clusters_at(7))
    for one in (model, again):
        one.drop_site(2).set_site("south", *sites_with_nodes(12)[1]).fit()
    assert np.array_equal(again.node_labels, model.node_labels)
    assert again.lineage == model.lineage


@pytest.mark.parametrize(
    "damage",
    [
        lambda meta, arrays: meta.pop("sites"),
        lambda meta, arrays: meta.update(sizes=[1] * len(meta["sizes"])),
        lambda meta, arrays: meta.update(sites=meta["sites"][::-1]),
        lambda meta, arrays: arrays.pop("node_labels"),
        lambda meta, arrays: arrays.update(node_labels=arrays["node_labels"] + 10**6),
        lambda meta, arrays: arrays.update(counts=-arrays["counts"]),
        lambda meta, arrays: meta.update(lineage=[[1]]),
    ],
)
def test_damaged_state_is_refused(damage):
    meta, arrays = Communities().update(sites_with_nodes(13)).fit().to_parts()
    damage(meta, arrays)
    with pytest.raises(ValueError, match=r"stored|sites|counts|lineage"):
        Communities.from_parts(meta, arrays)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="n_clusters"):
        Communities(n_clusters=0)
    with pytest.raises(ValueError, match="max_nodes"):
        Communities(max_nodes=1)
    model = Communities()
    with pytest.raises(ValueError, match="no nodes"):
        model.fit()
    with pytest.raises(ValueError, match=r"'x'.*one count per row"):
        model.set_site("x", [[1.0]], [1, 2])
    with pytest.raises(ValueError, match="above zero"):
        model.set_site("x", [[1.0]], [0])
    with pytest.raises(ValueError, match="call fit first"):
        model.predict([[1.0]])
    model.set_site("x", [[1.0]], [1])
    with pytest.raises(ValueError, match="2 features"):
        model.set_site("y", [[1.0, 2.0]], [1])
    model.fit()
    with pytest.raises(ValueError, match="1 features"):
        model.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf]])
    with pytest.raises(ValueError, match="level"):
        model.clusters_at(5)
