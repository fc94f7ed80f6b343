"""The read-out for nodes that carry deviations: alone, in a model, and through a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fcac.clusters import Communities
from fcac.federation import Contribution, Server, Site
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler

Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def noisy_nodes(n_groups: int, each: int, noise: float, seed: int, d: int = 10) -> Nodes:
    """Nodes, counts, deviations of both, and the truth; features in very different units."""
    rng = np.random.default_rng(seed)
    truth = np.tile(np.arange(n_groups), each)
    units = 10.0 ** np.arange(d)
    deviation = noise * rng.uniform(0.7, 1.4, (len(truth), 1)) * units
    nodes = rng.uniform(size=(n_groups, d))[truth] * units + deviation * rng.normal(size=(len(truth), d))
    return nodes, np.full(len(truth), 60.0), deviation, np.full(len(truth), 4.0), truth


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(((a[:, None] == a) == (b[:, None] == b)).all())


def ring(n: int, radius: float, noise: float, rng: np.random.Generator) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return radius * np.c_[np.cos(angle), np.sin(angle)] + noise * rng.normal(size=(n, 2))


def test_ten_noisy_nodes_are_enough_whatever_the_units() -> None:
    nodes, counts, deviation, of_counts, truth = noisy_nodes(3, 4, 0.12, seed=0)
    model = Communities().set_site("a", nodes, counts, deviation, of_counts).fit()
    labels, places = model.node_labels, model.nodes
    assert agree(labels, truth)
    centres = np.array([nodes[truth == g].mean(axis=0) for g in range(3)])[truth]
    assert np.abs((places - centres) / deviation).mean() < np.abs((nodes - centres) / deviation).mean()


@pytest.mark.slow
def test_shapes_are_found_by_the_graph_once_noise_is_small() -> None:
    rng = np.random.default_rng(1)
    nodes = np.concatenate([ring(120, 1.0, 0.02, rng), ring(160, 2.5, 0.02, rng)])
    noise = np.full((280, 2), 0.02), np.full(280, 2.0)
    model = Communities().set_site("a", nodes, np.full(280, 40.0), *noise).fit()
    assert agree(model.node_labels, np.repeat([0, 1], [120, 160]))


def test_the_number_of_clusters_can_be_told() -> None:
    nodes, counts, deviation, of_counts, _ = noisy_nodes(5, 6, 0.1, seed=2)
    model = Communities(3).set_site("a", nodes, counts, deviation, of_counts).fit()
    assert model.n_clusters == 3
    assert len(np.unique(model.clusters_at(7))) == 7
    assert set(model.cluster_probability) == set(model.cluster_ids.tolist())
    found = Communities().set_site("a", nodes, counts, deviation, of_counts).fit()
    # the five that are there are surer than three that join some of them
    assert found.n_clusters == 5
    assert min(found.cluster_probability.values()) > 0.5 > min(model.cluster_probability.values())


def test_among_many_exact_nodes_a_few_noisy_ones_are_read_like_them() -> None:
    nodes, counts, deviation, of_counts, truth = noisy_nodes(4, 30, 0.02, seed=3)
    model = Communities().set_site("noisy", nodes[:20], counts[:20], deviation[:20], of_counts[:20])
    model.set_site("plain", nodes[20:], counts[20:]).fit()
    assert agree(model.node_labels, truth)
    np.testing.assert_array_equal(model.nodes, nodes)
    plain = Communities().set_site("noisy", nodes[:20], counts[:20]).set_site("plain", nodes[20:], counts[20:]).fit()
    np.testing.assert_array_equal(plain.node_labels, model.node_labels)


def test_very_many_noisy_nodes_are_left_to_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, counts, deviation, of_counts, truth = noisy_nodes(4, 30, 0.02, seed=6)
    monkeypatch.setattr("fcac.clusters.noisy_nodes._MOST_VALUES", nodes.size - 1)
    model = Communities().set_site("a", nodes, counts, deviation, of_counts).fit()
    np.testing.assert_array_equal(model.nodes, nodes)
    assert agree(model.node_labels, truth)


def test_fitting_twice_and_storing_change_nothing() -> None:
    nodes, counts, deviation, of_counts, _ = noisy_nodes(4, 6, 0.3, seed=4)
    model = Communities()
    for site in range(3):
        part = slice(8 * site, 8 * site + 8)
        model.set_site(site, nodes[part], counts[part], deviation[part], of_counts[part])
    model.fit()
    rounds, places = model.n_rounds, model.nodes
    assert model.fit().n_rounds == rounds
    again = Communities.from_parts(*model.to_parts())
    np.testing.assert_array_equal(again.nodes, places)
    np.testing.assert_array_equal(again.predict(nodes), model.predict(nodes))
    np.testing.assert_array_equal(again.clusters_at(2), model.clusters_at(2))
    model.drop_site(2).fit()
    assert model.n_rounds == rounds + 1
    assert len(model.nodes) == 16


@pytest.mark.parametrize(
    ("deviation", "of_counts", "message"),
    [
        (np.ones((2, 2)), None, "give deviation and count_deviation, or neither"),
        (np.ones((2, 1)), np.ones(2), "shapes of nodes and counts"),
        (np.full((2, 2), np.nan), np.ones(2), "finite and at least 0"),
        (-np.ones((2, 2)), np.ones(2), "finite and at least 0"),
    ],
)
def test_wrong_deviations_are_refused(deviation: Any, of_counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Communities().set_site("a", np.zeros((2, 2)), [1, 1], deviation, of_counts)


def test_a_release_reaches_the_server_with_its_deviations() -> None:
    rng = np.random.default_rng(5)
    centres = rng.uniform(0.1, 0.9, (5, 6))
    truth = rng.integers(0, 5, 3000)
    rows = centres[truth] + 0.04 * rng.normal(size=(3000, 6))
    bounds = np.tile([0.0, 1.0], (6, 1))
    sites = [Site(name, NodeRelease(1.0, bounds, sampler=InsecureTestSampler(i))) for i, name in enumerate("abc")]
    sent = [site.contribute(part) for site, part in zip(sites, np.split(rows, 3), strict=True)]
    assert all(item.deviation is not None and item.deviation.shape == item.nodes.shape for item in sent)

    server = Server("communities")
    server.learn([Contribution.from_bytes(item.to_bytes()) for item in sent])
    from sklearn.metrics import adjusted_mutual_info_score

    assert adjusted_mutual_info_score(truth, server.predict(rows)) > 0.95
    again = Server.from_parts(*server.to_parts())
    np.testing.assert_array_equal(again.predict(rows), server.predict(rows))
    np.testing.assert_array_equal(server.export().predict(rows), server.predict(rows))
    assert [item == back for item, back in zip(server.log[0], again.log[0], strict=True)] == [True] * 3
    later = sites[0].contribute(rows[:500])
    again.learn([later])
    server.learn([later])
    np.testing.assert_array_equal(again.node_labels, server.node_labels)
    server.forget("a")
    assert server.sites == ["b", "c"]
    assert len(server.nodes) == len(sent[1].nodes) + len(sent[2].nodes)


def test_a_contribution_keeps_its_deviations() -> None:
    item = Contribution("a", 1, [[0.0, 1.0]], [3], {}, [[0.1, 0.2]], [0.5])
    back = Contribution.from_bytes(item.to_bytes())
    assert back == item
    assert back.deviation is not None
    assert back.deviation.tolist() == np.float32([[0.1, 0.2]]).tolist()
    assert Contribution("a", 1, [[0.0, 1.0]], [3]) != item
    with pytest.raises(ValueError, match="neither"):
        Contribution("a", 1, [[0.0]], [3], {}, [[0.1]])
    with pytest.raises(ValueError, match="shape"):
        Contribution("a", 1, [[0.0]], [3], {}, [0.1], [0.5])
    with pytest.raises(ValueError, match="at least 0"):
        Contribution("a", 1, [[0.0]], [3], {}, [[-0.1]], [0.5])
