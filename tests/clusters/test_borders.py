"""Borders: one cluster stays one, many are found, and both come with a number that says how sure this is."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_mutual_info_score

from fcac.clusters import Communities
from fcac.clusters.midpoints import midpoint_log_density
from fcac.clusters.snn_graph import SNNEdges
from fcac.search.exact import nearest


def fitted(X, counts=None):
    return Communities().set_site("one", X, np.ones(len(X)) if counts is None else counts).fit()


HEAPS = {
    "gauss": lambda generator, shape: generator.normal(size=shape),
    "cube": lambda generator, shape: generator.uniform(size=shape),
    "t3": lambda generator, shape: generator.standard_t(3, size=shape),
    "lognormal": lambda generator, shape: np.exp(generator.normal(size=shape)),
}


@pytest.mark.slow
@pytest.mark.parametrize("n_features", [2, 5])
@pytest.mark.parametrize("kind", sorted(HEAPS))
def test_one_cluster_is_mostly_found_as_one(kind, n_features):
    found = [fitted(HEAPS[kind](np.random.default_rng(seed), (800, n_features))).n_clusters for seed in range(6)]
    assert np.mean(np.array(found) == 1) >= 0.65


@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "n_nodes"), [(2, 1200), (2, 2000), (3, 2000)])
def test_a_few_nodes_at_the_edge_of_a_far_cluster_are_none_of_their_own(n_features, n_nodes):
    centres = np.zeros((3, n_features))
    centres[1:, :2] = [[10, 0], [5, 9]]
    for seed in range(4):
        generator = np.random.default_rng(seed)
        label = generator.integers(3, size=n_nodes)
        model = fitted(centres[label] + generator.normal(size=(n_nodes, n_features)))
        assert adjusted_mutual_info_score(label, model.node_labels) > 0.99
        assert model.n_clusters == 3


@pytest.mark.slow
def test_many_overlapping_clusters_are_all_found():
    generator = np.random.default_rng(3)
    centres = np.stack(np.meshgrid(np.arange(7), np.arange(7)), axis=-1).reshape(-1, 2) * 4.8
    label = np.repeat(np.arange(49), 80)
    model = fitted(centres[label] + generator.normal(size=(len(label), 2)))
    assert abs(model.n_clusters - 49) <= 8
    assert adjusted_mutual_info_score(label, model.node_labels) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_long_curved_clusters_are_not_cut(seed):
    # with twice the nodes the arms are still cut in most cases, though less often than before
    X, y = make_moons(1500, noise=0.08, random_state=seed)
    model = fitted(X)
    assert model.n_clusters == 2
    assert adjusted_mutual_info_score(y, model.node_labels) > 0.98


@pytest.mark.slow
def test_probability_tells_far_clusters_from_a_cut_that_might_as_well_not_be_there():
    generator = np.random.default_rng(0)
    far = np.concatenate([generator.normal(size=(400, 2)) + [20 * c, 0] for c in range(3)])
    near = np.concatenate([generator.normal(size=(400, 2)) + [3.4 * c, 0] for c in range(3)])
    sure, unsure = fitted(far), fitted(near)
    assert sorted(sure.cluster_probability) == sure.cluster_ids.tolist()
    assert all(0 <= value <= 1 for value in sure.cluster_probability.values())
    assert np.mean(list(sure.cluster_probability.values())) > np.mean(list(unsure.cluster_probability.values()))


def test_density_in_the_middle_of_edges_equals_its_definition():
    generator = np.random.default_rng(5)
    points, mass = generator.normal(size=(120, 3)), generator.integers(1, 9, size=120).astype(float)
    near, _ = nearest(points, points, 14, own=np.arange(120))
    edges = SNNEdges.of(near)
    density = midpoint_log_density(points, mass, near, edges.starts, edges.ends, 2.5)
    for v in (0, 50, 119):
        for e in range(edges.starts[v], edges.starts[v + 1]):
            u = edges.ends[e]
            known = np.unique(np.concatenate([[u, v], near[u], near[v]]))
            gaps = np.linalg.norm(points[known] - (points[u] + points[v]) / 2, axis=1)
            order = np.argsort(gaps)
            radius = (gaps[order[9]] + gaps[order[10]]) / 2
            expected = np.log(mass[known[order[:10]]].sum()) - 2.5 * np.log(radius)
            assert density[e] == pytest.approx(expected, rel=1e-5)
