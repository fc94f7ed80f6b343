"""Noisy nodes of mixed tables: factors that columns share, and which reading is taken."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score as ami

from fcac import FCAC
from fcac.clusters import Communities
from fcac.clusters.noisy_columns import shared_factors, ward_groups
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.column import Column
from fcac.tables.kind import Block
from fcac.tables.schema import Schema
from testing.tables import hospital, mixed

BLOCKS = (*[Block(1, "number")] * 4, Block(3, "category"), Block(2, "category"))


def noisy_nodes(seed: int, n: int = 150, noise: float = 0.4):
    """Return nodes of three groups that four numbers and a category tell, and another category does not."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    means = np.array([[0.0, 0.0, 0.0, 0.0], [4.0, 0.0, 3.0, 0.0], [0.0, 4.0, 0.0, 3.0]])
    level = np.where(rng.random(n) < 0.8, group, rng.integers(3, size=n))
    nodes = np.column_stack(
        [means[group] + rng.normal(size=(n, 4)) / 2, 2 * np.eye(3)[level], 2 * np.eye(2)[rng.integers(2, size=n)]]
    )
    deviation = np.full(nodes.shape, noise)
    return nodes + noise * rng.normal(size=nodes.shape), deviation, rng.uniform(20, 60, size=n), group


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_groups_that_columns_share_are_found_with_their_number(seed: int) -> None:
    nodes, deviation, counts, group = noisy_nodes(seed)
    assert shared_factors(nodes, deviation**2, counts, BLOCKS).shape == (9, 2)
    model = Communities(blocks=BLOCKS).set_site("a", nodes, counts, deviation, np.full(150, 5.0)).fit()
    assert model.n_clusters == 3
    assert model.feature_map.shape == (9, 2)
    assert ami(group, model.node_labels) > 0.9
    assert all(0.0 <= value <= 1.0 for value in model.cluster_probability.values())


@pytest.mark.slow
def test_sites_in_another_order_and_a_stored_model_give_the_same_clusters() -> None:
    nodes, deviation, counts, _ = noisy_nodes(4)
    halves = {"a": slice(0, 70), "b": slice(70, 150)}
    one, two = Communities(blocks=BLOCKS), Communities(blocks=BLOCKS)
    for site, part in halves.items():
        one.set_site(site, nodes[part], counts[part], deviation[part], np.full(len(counts[part]), 5.0))
    for site, part in reversed(halves.items()):
        two.set_site(site, nodes[part], counts[part], deviation[part], np.full(len(counts[part]), 5.0))
    np.testing.assert_array_equal(one.fit().node_labels, two.fit().node_labels)
    again = Communities.from_parts(*one.to_parts())
    np.testing.assert_array_equal(again.node_labels, one.node_labels)
    np.testing.assert_array_equal(again.predict(nodes), one.predict(nodes))
    np.testing.assert_array_equal(again.clusters_at(2), one.clusters_at(2))
    assert one.fit().n_rounds == 1


def test_a_known_number_of_clusters_is_kept() -> None:
    nodes, deviation, counts, _ = noisy_nodes(5)
    model = Communities(5, blocks=BLOCKS).set_site("a", nodes, counts, deviation, np.full(150, 5.0)).fit()
    assert model.n_clusters == 5


def test_columns_that_share_nothing_have_no_factor_and_are_left_to_the_graph() -> None:
    rng = np.random.default_rng(0)
    nodes = np.column_stack([rng.normal(size=(200, 4)), np.eye(3)[rng.integers(3, size=200)], rng.random((200, 2))])
    assert shared_factors(nodes, np.full(nodes.shape, 1e-4), np.ones(200), BLOCKS) is None
    model = Communities(blocks=BLOCKS).set_site("a", nodes, np.ones(200), np.full(nodes.shape, 0.01), np.ones(200))
    without = Communities(blocks=BLOCKS).set_site("a", nodes, np.ones(200)).fit()
    np.testing.assert_array_equal(model.fit().node_labels, without.node_labels)


def test_ward_joins_what_adds_least_to_the_variance() -> None:
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(16, 2)), rng.uniform(1, 5, size=16)
    groups = ward_groups(points, weights, 16)
    parts = [[i] for i in range(16)]
    into = {i: i for i in range(16)}

    def inside(part: list[int]) -> float:
        middle = np.average(points[part], axis=0, weights=weights[part])
        return float(weights[part] @ ((points[part] - middle) ** 2).sum(axis=1))

    for i, j in groups.joins:
        live = sorted(set(into.values()))
        costs = {
            (a, b): inside(parts[a] + parts[b]) - inside(parts[a]) - inside(parts[b])
            for a in live
            for b in live
            if a < b
        }
        assert costs[i, j] == pytest.approx(min(costs.values()))
        parts[i] += parts[j]
        for node in parts[j]:
            into[node] = i
    assert len(parts[0]) == 16


def test_very_few_nodes_are_left_to_the_graph() -> None:
    nodes, deviation, counts, _ = noisy_nodes(0, n=8)
    model = Communities(blocks=BLOCKS).set_site("a", nodes, counts, deviation, np.full(8, 5.0)).fit()
    assert model.feature_map.shape[1] > 2


@pytest.mark.slow
def test_a_hospitals_table_is_clustered_from_private_releases() -> None:
    bounds = {"age": (0, 110), "haemoglobin": (5, 25), "sodium": (110, 180), "creatinine": (0, 6)}
    columns = [Column(name, min=low, max=high, missing="native") for name, (low, high) in bounds.items()]
    columns += [Column("crp", min=0.1, max=500, scaling="log", missing="native")]
    columns += [Column(name, kind="category", missing="native") for name in ("sex", "diagnosis")]
    columns += [
        Column("emergency", kind="boolean"),
        Column("admitted", kind="date", min="2021-01-01", max="2023-12-31"),
    ]
    schema = Schema(columns, bounds_are_public=True)
    table, group = hospital(7)
    release = NodeRelease(4, schema.require_bounds(), sampler=InsecureTestSampler(7))
    model = FCAC(random_state=0, privacy=release).fit(table, groups="hospital", schema=schema, public_groups=True)
    assert model.n_clusters_ == 3
    assert ami(group, model.labels_) > 0.85


def test_groups_that_are_clearly_two_are_split_and_others_are_not() -> None:
    rng = np.random.default_rng(4)
    kind = np.repeat(np.arange(4), 30)
    # four kinds on a plane: two factors would mean three
    points = np.array([[0.0, 0.0], [3.0, 0.0], [6.0, 0.0], [0.0, 4.0]])[kind] + rng.normal(size=(120, 2)) / 3
    weights = rng.uniform(20, 60, size=120)
    assert ami(kind, ward_groups(points, weights, 3, more=True).labels) > 0.95
    assert len(np.unique(ward_groups(points, weights, 3).labels)) == 3
    for dimension in (1, 2, 5):
        cloud = rng.normal(size=(100, dimension))
        assert len(np.unique(ward_groups(cloud, np.ones(100), 1, more=True).labels)) == 1


@pytest.mark.slow
def test_groups_that_only_categories_tell_are_not_lost_to_a_graph_without_structure() -> None:
    table, group = mixed("categories", 31, n_groups=5, n_levels=8)
    columns = [Column(f"n{j}", min=-6, max=6) for j in range(5)]
    columns += [Column(f"c{j}", kind="category", categories=[f"v{v}" for v in range(8)]) for j in range(5)]
    schema = Schema(columns, bounds_are_public=True)
    release = NodeRelease(4, schema.require_bounds(), sampler=InsecureTestSampler(5))
    model = FCAC(random_state=0, privacy=release).fit(table, schema=schema)
    assert model.n_clusters_ == 5
    assert ami(group, model.labels_) > 0.9
