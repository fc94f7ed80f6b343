"""Network: room for growth, restoring, and refusing what no network could be."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pytest

from fcac.art.network import Network, Rules
from testing import simd_calls

PLUS, FC = Rules(False), Rules(True)


def learned(rules, n=500, d=3, seed=0):
    network = Network(d, rules)
    network.learn(np.random.default_rng(seed).normal(size=(n, d)))
    return network


# ---------------------------------------------------------------- arithmetic


def test_sums_follow_numpy_s_order():
    rng = np.random.default_rng(0)
    for n in [*range(1, 40), 127, 128, 129, 136, 255, 256, 257, 1000, 1776, 5000]:
        values = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)
        assert simd_calls.pairwise_sum(values, n) == np.add.reduce(values)
        both = np.concatenate([values, rng.normal(size=n)])
        assert simd_calls.dot(both, 0, n, n) == np.add.reduce(both[:n] * both[n:])


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 17, 64])
def test_spreads_are_numpy_s(d):
    rng = np.random.default_rng(d)
    points, rows = rng.normal(size=(50, d)) + 1e3, rng.permutation(50)[:23]
    points[:, 0] = 0.1  # a mean of equal numbers that is off by a bit must not look like spread
    out = np.empty(d)
    simd_calls.spreads(points, rows, len(rows), out)
    expected = points[rows].std(axis=0, ddof=1)
    expected[0] = 0.0
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    assert out[0] == 0.0
    simd_calls.spreads(points, rows, 1, out)
    np.testing.assert_array_equal(out, 0.0)


@pytest.mark.parametrize("d", [*range(1, 20), 64, 101, 784])
def test_bandwidths_are_the_formula_s(d):
    rng = np.random.default_rng(d)
    for spreads in (rng.lognormal(size=d), rng.integers(1, 4, d), np.where(rng.random(d) < 0.6, 0.0, rng.random(d))):
        points = rng.normal(size=(7, d)) * spreads
        network = Network(d, PLUS)
        network.learn(points)
        std = points.std(axis=0, ddof=1)
        std[std == 0] = 1e-6
        expected = np.median((4 / (2 + d)) ** (1 / (4 + d)) * std * 7 ** (-1 / (4 + d)))
        np.testing.assert_allclose(network.settled().bandwidths, expected, rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 8, 13, 64, 128, 129, 400])
def test_correntropy_is_within_a_bit_of_numpy_s(d):
    rng = np.random.default_rng(d)
    points, nodes, width = rng.normal(size=(40, d)), rng.normal(size=(30, d)), 0.7
    out = np.empty((40, 30))
    simd_calls.correntropies(points, nodes, width, out)
    expected = np.exp(-((points[:, None] - nodes) ** 2) / (2 * width**2)).mean(axis=-1)
    np.testing.assert_allclose(out, expected, rtol=4e-16 * max(1, np.log2(d)), atol=1e-300)
    # integers on a lattice: equal differences give equal sums, whatever the order of features
    lattice = rng.integers(-3, 4, (20, d)).astype(float)
    forward, backward = np.empty((20, 20)), np.empty((20, 20))
    simd_calls.correntropies(lattice, lattice, width, forward)
    simd_calls.correntropies(-lattice, -lattice, width, backward)
    np.testing.assert_array_equal(forward, backward)
    np.testing.assert_array_equal(forward, forward.T)
    np.testing.assert_array_equal(forward.diagonal(), 1.0)


@pytest.mark.parametrize("width", [5e-324, 1e-170, 1e-160, 1e-6, 1.0, 1e150, 1e300])
def test_correntropy_at_any_width(width):
    points = np.array([[0.0, width, 2 * width, 1.0, np.inf]])
    out = np.empty((1, 1))
    simd_calls.correntropies(points, np.zeros((1, 5)), width, out)
    expected = np.exp([0.0, -0.5, -2.0]).sum()
    alone = np.exp(-0.5 * min((1.0 / width if width > 1e-300 else np.inf), 1e3) ** 2)
    assert out[0, 0] == pytest.approx((expected + alone) / 5, rel=1e-12)


def test_cim_never_takes_the_root_of_a_negative_number():
    values = np.array([1.0 + 1e-15, 1.0, 0.0, 0.75])
    simd_calls.cims(values)
    np.testing.assert_array_equal(values, [0.0, 0.0, 1.0, 0.5])


# ---------------------------------------------------------------- room


def test_memory_is_within_twice_the_state():
    # 12 d + 32 bytes per node: a node in float64 and float32, its count, bandwidth and place in the order
    rng, d = np.random.default_rng(0), 24
    X = rng.normal(size=(8000, d)) * rng.lognormal(size=(8000, 1))
    Network(d, PLUS).learn(X[:200])  # what comes with the first call is not the network's
    tracemalloc.start()
    try:
        network = Network(d, PLUS)
        network.learn(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert network.n_nodes > 2000
    state = (12 * d + 32) * network.n_nodes
    factor = 8 * network.n_active * (network.n_active + 1)  # the diversity test's, while it goes on
    assert peak < 2 * state + factor + 20_000


def test_growth_in_the_middle_of_a_block_changes_nothing():
    X = np.random.default_rng(0).uniform(size=(4000, 6))
    for rules in (PLUS, FC):
        whole, single = Network(6, rules), Network(6, rules)
        whole.learn(X)
        for row in X:
            single.learn(row[None])
        (meta, arrays), (other_meta, other_arrays) = whole.to_parts(), single.to_parts()
        assert meta == other_meta
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], other_arrays[name])


def test_an_interrupt_while_growing_loses_no_point(monkeypatch):
    X = np.random.default_rng(0).uniform(size=(3000, 4))
    network, expected, grow, rng = Network(4, FC), Network(4, FC), Network._grow, np.random.default_rng(0)
    expected.learn(X)

    def interrupted(self, *names):
        if rng.random() < 0.4:
            raise KeyboardInterrupt
        grow(self, *names)

    monkeypatch.setattr(Network, "_grow", interrupted)
    n_interrupts = 0
    while network.n_seen < len(X):
        # what was learned is a whole number of points, and learning can go on behind it
        try:
            network.learn(X[network.n_seen :])
        except KeyboardInterrupt:
            n_interrupts += 1
    assert n_interrupts > 3
    (meta, arrays), (other_meta, other_arrays) = network.to_parts(), expected.to_parts()
    assert meta == other_meta
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other_arrays[name])


def test_a_copy_is_independent():
    network = learned(FC)
    other = network.copy()
    before = network.nodes
    other.learn(np.random.default_rng(1).normal(size=(300, 3)) + 9.0)
    np.testing.assert_array_equal(network.nodes, before)
    assert other.n_seen == network.n_seen + 300


def test_an_empty_network_says_so():
    network = Network(3, PLUS)
    assert network.n_nodes == 0
    assert network.threshold == 1.0
    assert network.n_active == np.inf
    for method in (network.nearest, network.distances):
        with pytest.raises(ValueError, match="no nodes yet"):
            method(np.zeros((2, 3)))
    network.learn(np.empty((0, 3)))
    assert network.n_seen == 0


def test_the_screening_copy_follows_a_bandwidth_that_leaves_its_range():
    rng = np.random.default_rng(0)
    # thirty equal rows make a bandwidth of a millionth; then the scale jumps, up and down again
    X = np.concatenate([np.ones((30, 2)), rng.normal(size=(600, 2)) * 1e9, rng.normal(size=(600, 2)) * 1e-9])
    for rules in (PLUS, FC):
        network = Network(2, rules)
        network.learn(X)
        position, distance = network.nearest(X)
        every = network.distances(X)
        np.testing.assert_array_equal(position, every.argmin(axis=1))
        np.testing.assert_array_equal(distance, every.min(axis=1))


# ---------------------------------------------------------------- parts


def parts(rules=FC, n=400):
    meta, arrays = learned(rules, n).to_parts()
    return copy.deepcopy(meta), {name: array.copy() for name, array in arrays.items()}


def test_parts_make_the_same_network():
    for rules in (PLUS, FC, Rules(True, True, 2, 1e-6, 1.0)):
        for n in (3, 10, 12, 400):
            meta, arrays = learned(rules, n).to_parts()
            other_meta, other_arrays = Network.from_parts(meta, arrays).to_parts()
            assert meta == other_meta
            for name in arrays:
                np.testing.assert_array_equal(arrays[name], other_arrays[name])


def set_item(name, index, value):
    def change(meta, arrays):
        arrays[name][index] = value

    return change


def replace(name, make):
    def change(meta, arrays):
        arrays[name] = make(arrays[name])

    return change


def set_meta(name, value):
    def change(meta, arrays):
        meta[name] = value

    return change


def set_rule(name, value):
    def change(meta, arrays):
        meta["rules"][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace("nodes", lambda a: a.astype(np.float32)), "'nodes' is missing or has the wrong shape or type"),
        (replace("nodes", lambda a: a[:, :2]), "number of features differs"),
        (replace("nodes", lambda a: a[:-1]), "do not match|not an ordering"),
        (replace("nodes", lambda a: a.ravel()), "wrong shape or type"),
        (set_item("nodes", (0, 0), np.nan), "not finite or too large"),
        (set_item("nodes", (0, 0), -np.inf), "not finite or too large"),
        (set_item("nodes", (0, 0), 1e200), "not finite or too large"),
        (set_item("counts", 0, 0), "count is not positive"),
        (set_item("counts", 0, 2**62), "count is not positive"),
        (set_item("bandwidths", 0, 0.0), "bandwidth is not a positive"),
        (set_item("bandwidths", 0, np.nan), "bandwidth is not a positive"),
        (set_item("bandwidths", 0, 5e-324), "bandwidth is not a positive"),
        (set_item("recency", 0, 10**9), "not an ordering"),
        (set_item("recency", 0, -1), "not an ordering"),
        (replace("recency", lambda a: a[[0, 0, *range(2, len(a))]]), "not an ordering"),
        (set_item("edges", (0, 1), 10**9), "does not exist"),
        (set_item("edges", (0, 0), -1), "does not exist"),
        (replace("edges", lambda a: a[:, ::-1]), "does not exist"),
        (replace("edges", lambda a: np.repeat(a[:1], len(a), axis=0)), "occurs twice"),
        (set_item("edge_ages", 0, 0), "age of an edge"),
        (replace("edge_ages", lambda a: a[:-1]), "do not match"),
        (set_item("clock", 0, 2.0), "threshold"),
        (set_item("clock", 0, np.nan), "clock"),
        (set_item("clock", 1, 0.0), "bandwidth"),
        (replace("clock", lambda a: a[:1]), "clock"),
        (replace("pending", lambda a: np.zeros((50, 3))), "holds back too many"),
        (replace("pending", lambda a: np.zeros((2, 3))), "holds rows back although"),
        (set_meta("n_features", 2**40), "number of features differs"),
        (set_meta("n_features", -1), "n_features is not a count"),
        (set_meta("n_features", 3.0), "n_features is not a count"),
        (set_meta("n_learned", True), "n_learned is not a count"),
        (set_meta("n_learned", 0), "seen no points"),
        (set_meta("n_lost", 1), "lost some"),
        (set_meta("n_active", 2**60), "n_active is not a count"),
        (set_meta("n_active", 0), "rules cannot produce|initial phase"),
        (set_meta("n_deleted_edges", None), "n_deleted_edges is not a count"),
        (set_meta("rules", None), "rules"),
        (set_rule("topological", "yes"), "rules"),
        (set_rule("topological", False), "rules cannot produce"),
        (set_rule("min_nodes", 0), "rules"),
        (set_rule("min_nodes", 2**70), "rules"),
        (set_rule("diversity_threshold", 0.0), "rules"),
        (set_rule("diversity_threshold", "1"), "rules"),
        (set_rule("age_iqr_factor", -1.0), "rules"),
        (set_rule("another", 1), "rules"),
    ],
)
def test_parts_that_no_network_could_have_are_refused(change, message):
    meta, arrays = parts()
    assert len(arrays["edges"]) > 2
    change(meta, arrays)
    with pytest.raises(ValueError, match=message):
        Network.from_parts(meta, arrays)


@pytest.mark.parametrize("name", ["nodes", "counts", "edges", "clock", "pending"])
def test_missing_parts_are_named(name):
    meta, arrays = parts()
    del arrays[name]
    with pytest.raises(ValueError, match=f"{name!r} is missing"):
        Network.from_parts(meta, arrays)


def test_many_features_without_a_row_allocate_nothing():
    meta, arrays = learned(PLUS, 3).to_parts()
    meta["n_features"] = 2**40
    arrays["nodes"], arrays["pending"] = np.empty((0, 2**40)), np.empty((0, 2**40))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too many features for having no rows"):
            Network.from_parts(meta, arrays)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
