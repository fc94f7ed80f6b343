"""The reservoir: bounded, one pass, the same in any chunks, fair to any order, exact to store and to merge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from sklearn.metrics import adjusted_mutual_info_score

from fcac.clusters import Communities
from fcac.nodes import Reservoir, Trail
from fcac.nodes.condense import merge_small
from fcac.nodes.reservoir import BLOCK
from fcac.search.seeds import SeedIndex, pivots_for


def blobs(n: int, d: int, k: int, seed: int = 0, apart: float = 12.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d)) * apart / np.sqrt(min(d, 4))
    y = rng.integers(k, size=n)
    return centres[y] + rng.normal(size=(n, d)), y


def same(a: Reservoir, b: Reservoir) -> bool:
    (meta, arrays), (other_meta, others) = a.to_parts(), b.to_parts()
    return meta == other_meta and all(np.array_equal(arrays[name], others[name]) for name in arrays)


def in_chunks(state: Reservoir, rows: np.ndarray, cuts: list[int], **options: object) -> Reservoir:
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        state.learn(rows[low:high], **options)
    return state


# ---------------------------------------------------------------- one pass, any chunks


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 3 * BLOCK),
    st.integers(1, 30),
    st.sampled_from([2, 50, 300]),
    st.lists(st.integers(0, 3 * BLOCK), max_size=5),
)
def test_any_chunks_give_the_same_state(n: int, d: int, most: int, cuts: list[int]) -> None:
    rows = np.random.default_rng(n).normal(size=(n, d))
    whole = Reservoir(d, most).learn(rows)
    pieces = in_chunks(Reservoir(d, most), rows, [min(cut, n) for cut in cuts])
    assert same(whole, pieces)
    assert np.array_equal(whole.nodes, pieces.nodes)


def test_reading_between_chunks_changes_nothing() -> None:
    rows = blobs(9000, 4, 5)[0]
    read = Reservoir(4, 200)
    for start in range(0, 9000, 1000):
        read.learn(rows[start : start + 1000])
        assert read.counts.sum() == start + 1000
    assert same(read, Reservoir(4, 200).learn(rows))


def test_storing_between_chunks_changes_nothing() -> None:
    rows = blobs(9000, 4, 5)[0]
    state = Reservoir(4, 200, salt=7)
    for start in range(0, 9000, 1500):
        state = Reservoir.from_parts(*state.learn(rows[start : start + 1500]).to_parts())
    assert same(state, Reservoir(4, 200, salt=7).learn(rows))


@pytest.mark.parametrize("d", [3, 60])
def test_threads_change_nothing(d: int) -> None:
    rows = blobs(8000, d, 5)[0]
    assert same(Reservoir(d, 300).learn(rows, n_threads=1), Reservoir(d, 300).learn(rows, n_threads=5))


# ---------------------------------------------------------------- what it holds


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "most"), [(5, 1, 8000), (20_000, 1, 100), (20_000, 40, 150), (6000, 300, 64)])
def test_nodes_are_bounded_and_stand_for_all_rows(n: int, d: int, most: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n, d)) * 3 + 5
    state = Reservoir(d, most).learn(rows)
    assert state.n_nodes <= most
    assert state.n_nodes >= min(n, 0.85 * most)
    assert state.counts.sum() == n == state.n_seen
    assert np.allclose(state.counts @ state.nodes / n, rows.mean(axis=0))
    # variance between nodes and within them is that of the rows
    between = state.counts @ (state.nodes - rows.mean(axis=0)) ** 2 / n
    within = state.counts @ state.variances / n
    assert np.allclose(between + within, rows.var(axis=0))
    assert np.allclose(state.spreads, state.variances @ state.scales**2)


def test_few_rows_are_their_own_nodes() -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 3))
    state = Reservoir(3, 3000).learn(rows)
    assert np.array_equal(np.sort(state.nodes, axis=0), np.sort(rows, axis=0))
    assert (state.counts == 1).all()
    assert (state.spreads == 0).all()


def test_repeated_rows_are_one_node() -> None:
    rows = np.repeat(np.arange(40.0)[:, None], 500, axis=0)
    state = Reservoir(1, 50).learn(np.random.default_rng(0).permutation(rows))
    assert state.n_nodes == 40
    assert (state.counts == 500).all()
    zeros = Reservoir(2).learn([[0.0, -0.0], [-0.0, 0.0]])
    assert zeros.n_nodes == 1


def test_empty_state() -> None:
    state = Reservoir(3).learn(np.empty((0, 3)))
    assert state.n_nodes == state.n_seen == 0
    assert state.nodes.shape == state.variances.shape == (0, 3)
    assert state.counts.shape == state.spreads.shape == (0,)
    assert state.condensed(5)[0].shape == (0, 3)
    assert same(Reservoir.from_parts(*state.to_parts()), state)


@pytest.mark.slow
def test_memory_does_not_grow_with_rows() -> None:
    state = Reservoir(2, 100)
    for seed in range(40):
        state.learn(np.random.default_rng(seed).normal(size=(5000, 2)))
    assert len(state._cells.keys) <= 100 + BLOCK
    assert len(state._waiting) < BLOCK


# ---------------------------------------------------------------- order


def test_seeds_do_not_depend_on_the_order_of_rows() -> None:
    rows = blobs(30_000, 5, 6)[0]
    one = Reservoir(5, 300).learn(rows)
    other = Reservoir(5, 300).learn(np.random.default_rng(1).permutation(rows))
    bar = np.uint64(min(one._settled.bar, other._settled.bar))
    keys = [state._settled.keys[: state.n_nodes] for state in (one, other)]
    assert (keys[0] < bar).sum() > 250
    assert np.array_equal(*(np.sort(k[k < bar]) for k in keys))


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 10, 50])
def test_sorted_rows_are_as_good_as_shuffled(d: int) -> None:
    rows, y = blobs(30_000, d, 10, seed=d)
    found = []
    for order in (np.argsort(y, kind="stable"), np.random.default_rng(0).permutation(len(y))):
        state = Reservoir(d, 1000).learn(rows[order])
        model = Communities().update({0: (state.nodes, state.counts)}).fit()
        found.append(adjusted_mutual_info_score(y, model.predict(rows)))
        # nodes go with rows, whatever came first
        share = np.bincount(y, minlength=10) / len(y)
        near = cKDTree(rows).query(state.nodes)[1]
        assert np.abs(np.bincount(y[near], minlength=10) / len(near) - share).max() < 0.04
    assert min(found) > 0.8
    # two of ten overlapping clusters in two dimensions may be read as one in either order
    assert abs(found[0] - found[1]) < (0.05 if d == 2 else 0.02)


# ---------------------------------------------------------------- weights and merging


def test_a_weight_is_a_repetition() -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(1500, 3)), rng.integers(0, 4, size=1500)
    weighted = Reservoir(3, 2000).learn(rows, weights)
    repeated = Reservoir(3, 2000).learn(np.repeat(rows, weights, axis=0))
    assert np.allclose(weighted.nodes, repeated.nodes)
    assert np.allclose(weighted.counts, repeated.counts)
    assert weighted.n_seen == (weights > 0).sum()


@pytest.mark.slow
def test_merged_partitions_have_the_seeds_of_one_pass() -> None:
    rows, y = blobs(40_000, 6, 12)
    one = Reservoir(6, 500).learn(rows)
    parts = [Reservoir(6, 500).learn(rows[y % 4 == part]) for part in range(4)]
    before = [part.to_parts() for part in parts]
    merged = Reservoir.merge(parts)
    for part, (meta, arrays) in zip(parts, before, strict=True):
        assert part.to_parts()[0] == meta
        assert all(np.array_equal(part.to_parts()[1][name], arrays[name]) for name in arrays)
    assert merged.n_nodes <= 500
    assert merged.n_seen == len(rows)
    assert np.isclose(merged.counts.sum(), len(rows))
    assert np.allclose(merged.counts @ merged.nodes / len(rows), rows.mean(axis=0))
    bar = min(one._settled.bar, merged._settled.bar)
    keys = [s._settled.keys[: s.n_nodes] for s in (one, merged)]
    assert np.array_equal(*(np.sort(k[k < np.uint64(bar)]) for k in keys))
    model = Communities().update({0: (merged.nodes, merged.counts)}).fit()
    assert adjusted_mutual_info_score(y, model.predict(rows)) > 0.95
    pairwise = Reservoir.merge([Reservoir.merge(parts[:2]), Reservoir.merge(parts[2:])])
    assert np.isclose(pairwise.counts.sum(), len(rows))


def test_merged_small_states_are_all_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    merged = Reservoir.merge([Reservoir(2).learn(rows[:1000]), Reservoir(2).learn(rows[500:])])
    assert merged.n_nodes == 3000
    assert merged.counts.sum() == 3500


def test_states_that_do_not_fit_are_not_merged() -> None:
    with pytest.raises(ValueError, match="no states"):
        Reservoir.merge([])
    for other in (Reservoir(3), Reservoir(2, 10), Reservoir(2, salt=1)):
        with pytest.raises(ValueError, match="must have the same"):
            Reservoir.merge([Reservoir(2), other])


# ---------------------------------------------------------------- least rows


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 3.5, 10])
def test_no_node_stands_for_fewer_rows(m: float) -> None:
    rows = blobs(2500, 4, 5)[0]
    state = Reservoir(4, 2000).learn(rows)
    nodes, counts, variances = state.condensed(m)
    assert counts.min() >= m
    assert np.isclose(counts.sum(), 2500)
    assert np.allclose(counts @ nodes / 2500, rows.mean(axis=0))
    total = counts @ (variances + (nodes - rows.mean(axis=0)) ** 2) / 2500
    assert np.allclose(total, rows.var(axis=0))
    assert len(nodes) > 2500 / m / 3


def test_fewer_rows_than_the_least_give_nothing() -> None:
    assert len(merge_small(np.zeros((1, 2)), np.array([4.0]), np.zeros((1, 2)), np.ones(2), 5)[0]) == 0
    assert len(Reservoir(2).learn([[1.0, 2], [3, 4]]).condensed(3)[0]) == 0
    with pytest.raises(ValueError, match="min_rows"):
        Reservoir(2).condensed(-1)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("rows", "weights", "match"),
    [
        ([[1.0]], None, "2 features"),
        ([1.0, 2.0], None, "2 features"),
        ([[1.0, np.inf]], None, "infinity"),
        ([[1.0, 1e151]], None, "beyond"),
        ([[1.0, 2.0]], [1.0, 2.0], "one number per row"),
        ([[1.0, 2.0]], [-1.0], "below zero"),
        ([[1.0, 2.0]], [np.nan], "finite"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_learned(rows: object, weights: object, match: str) -> None:
    state = Reservoir(2, 50).learn(np.random.default_rng(0).normal(size=(5000, 2)))
    before = state.copy()
    with pytest.raises(ValueError, match=match):
        state.learn(rows, weights)
    assert same(state, before)


def test_an_interrupt_leaves_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(5 * BLOCK, 2))
    state = Reservoir(2, 50).learn(rows)
    before, calls, real = state.copy(), [], Reservoir._learn_block

    def interrupted(self: Reservoir, *args: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Reservoir, "_learn_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        state.learn(rows + 1)
    monkeypatch.undo()
    assert same(state, before)
    assert same(state.learn(rows + 1), before.learn(rows + 1))


@pytest.mark.parametrize("options", [{"n_features": 0}, {"max_nodes": 1}, {"salt": -1}, {"max_nodes": 2.5}])
def test_bad_settings_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Reservoir(**{"n_features": 2, **options})
    with pytest.raises(ValueError, match="n_threads"):
        Reservoir(2).learn(np.zeros((BLOCK, 2)), n_threads=0)


def test_damaged_parts_are_refused() -> None:
    state = Reservoir(3, 100).learn(np.random.default_rng(0).normal(size=(BLOCK + 500, 3)))
    meta, arrays = state.to_parts()
    for name in meta:
        for value in (None, -1, "x", 2**70, True):
            with pytest.raises(ValueError, match="not a valid reservoir"):
                Reservoir.from_parts({**meta, name: value}, arrays)
    for name, array in arrays.items():
        for other in (None, array[:-1], array.astype(np.float32), array[None]):
            with pytest.raises(ValueError, match="not a valid reservoir"):
                Reservoir.from_parts(meta, {**arrays, name: other})  # type: ignore[dict-item]
    twice = arrays["seeds"].copy()
    twice[1] = twice[0]
    with pytest.raises(ValueError, match="key"):
        Reservoir.from_parts(meta, {**arrays, "seeds": twice})
    for name in ("seeds", "means", "squares", "weights", "scales", "waiting", "waiting_weights"):
        bad = arrays[name].copy()
        bad.flat[0] = np.inf if name == "waiting" else np.nan  # rows that wait may have gaps
        with pytest.raises(ValueError, match="not a valid reservoir"):
            Reservoir.from_parts(meta, {**arrays, name: bad})


# ---------------------------------------------------------------- the search


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300), st.integers(0, 70), st.integers(1, 40), st.integers(0, 2**31), st.booleans())
def test_seeds_found_do_not_depend_on_how_the_index_came_about(n: int, more: int, d: int, seed: int, far: bool) -> None:
    rng = np.random.default_rng(seed)
    seeds, rows = np.rint(rng.normal(size=(n + more, d)) * 3), np.rint(rng.normal(size=(50, d)) * 3)
    if far:
        seeds[rng.integers(n + more)] = 1e30
        rows[0], rows[1] = 1e30, 1e140
    pivots = min(n, 20)
    grown = SeedIndex(seeds[:n], pivots, n + more)
    grown.add(seeds[n:])
    found = grown.nearest(rows)
    assert np.array_equal(found, SeedIndex(seeds, pivots, n + more).nearest(rows))
    if n + more <= pivots:
        expected = ((rows[:, None] - seeds) ** 2).sum(axis=2).argmin(axis=1)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(("d", "ratio"), [(2, 1.01), (10, 1.03), (60, 1.03)])
def test_seeds_found_are_nearly_the_nearest(d: int, ratio: float) -> None:
    rows = blobs(6000, d, 10)[0]
    found = SeedIndex(rows[:2000], pivots_for(2000), 2000).nearest(rows[2000:])
    least = cKDTree(rows[:2000]).query(rows[2000:])[0] ** 2
    squared = ((rows[2000:] - rows[found]) ** 2).sum(axis=1)
    assert squared.mean() < ratio**2 * least.mean()


# ---------------------------------------------------------------- trails


@pytest.mark.parametrize("most", [100, 20_000])
def test_a_trail_leads_to_the_node_that_counts_the_row(most: int) -> None:
    rows = blobs(15_000, 3, 5)[0]
    trail = Trail()
    state = in_chunks(Reservoir(3, most), rows, [10, 3000, 9000], trail=trail)
    at = state.nodes_of(trail)
    assert np.array_equal(np.bincount(at, minlength=state.n_nodes), state.counts)
    for j in range(3):
        assert np.allclose(np.bincount(at, rows[:, j]) / state.counts, state.nodes[:, j])
    assert same(state, Reservoir(3, most).learn(rows))
    state.learn(rows)
    with pytest.raises(ValueError, match="same trail"):
        state.nodes_of(trail)
    assert len(Reservoir(3).nodes_of(Trail())) == 0
