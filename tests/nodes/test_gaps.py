"""Rows with gaps in a reservoir: compared over what they have, learned from who has it, stored and merged."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.nodes import Reservoir, Trail
from fcac.nodes.aging import combined
from fcac.nodes.reservoir import BLOCK
from fcac.search.gaps import GapFiller, without_gaps


def holed(n: int, seed: int = 0, share: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = rng.integers(4, size=n)
    rows = 8.0 * np.eye(4, 6)[group] + rng.normal(size=(n, 6))
    return np.where(rng.random(rows.shape) < share, np.nan, rows), group


def same(a: Reservoir, b: Reservoir) -> bool:
    ours, theirs = a.to_parts(), b.to_parts()
    return ours[0] == theirs[0] and all(np.array_equal(ours[1][k], theirs[1][k], equal_nan=True) for k in ours[1])


def test_means_are_of_the_rows_that_have_a_feature():
    rows, _ = holed(20_000)
    state = Reservoir(6, 300).learn(rows)
    cells = state._settled
    assert cells.present is not None
    np.testing.assert_allclose(cells.present[: cells.k].sum(axis=0), (~np.isnan(rows)).sum(axis=0))
    sums = (cells.means[: cells.k] * cells.present[: cells.k]).sum(axis=0)
    np.testing.assert_allclose(sums, np.nansum(rows, axis=0))
    assert np.isfinite(state.nodes).all()
    assert state.counts.sum() == len(rows)


@pytest.mark.slow
def test_nodes_of_rows_with_gaps_keep_groups_apart():
    rows, group = holed(20_000)
    trail = Trail()
    state = Reservoir(6, 300).learn(rows, trail=trail)
    node = state.nodes_of(trail)
    known = ~np.isnan(rows[:, :4]).any(axis=1)
    majority = np.array([np.bincount(group[node == k], minlength=4).argmax() for k in range(state.n_nodes)])
    assert (majority[node] == group)[known].mean() > 0.97
    assert (majority[node] == group).mean() > 0.85


def test_chunks_threads_and_storage_make_no_difference():
    rows, _ = holed(3 * BLOCK + 100)
    whole = Reservoir(6, 500).learn(rows)
    pieces = Reservoir(6, 500)
    for start in range(0, len(rows), 777):
        pieces.learn(rows[start : start + 777], n_threads=1 + start % 2)
    assert same(whole, pieces)
    again = Reservoir.from_parts(*whole.to_parts())
    more, _ = holed(BLOCK, 1)
    assert same(whole.learn(more), again.learn(more))


def test_a_first_gap_may_come_late_and_states_with_and_without_gaps_merge():
    rows, _ = holed(4 * BLOCK)
    full = np.where(np.isnan(rows), 0.0, rows)
    late = Reservoir(6, 200).learn(full).learn(rows)
    assert late._cells.present is not None
    one, other = Reservoir(6, 200).learn(full), Reservoir(6, 200).learn(rows)
    for merged in (Reservoir.merge([one, other]), Reservoir.merge([other, one])):
        assert merged.counts.sum() == late.counts.sum() == 8 * BLOCK
        assert np.isfinite(merged.nodes).all()
    aged = combined([(one, 0.5), (other, 1.0)], 6, 200)
    assert aged.counts.sum() == pytest.approx(6 * BLOCK)
    assert np.isfinite(aged.nodes).all()
    assert one._cells.present is None  # states that are read stay as they are


def test_damaged_gaps_are_refused():
    rows, _ = holed(BLOCK)
    meta, arrays = Reservoir(6, 100).learn(rows).to_parts()
    for name, bad in (
        ("present", arrays["present"][:-1]),
        ("present", arrays["present"] + 1e9),
        ("spots", np.full_like(arrays["spots"], np.nan)),
    ):
        with pytest.raises(ValueError, match="not a valid reservoir"):
            Reservoir.from_parts(meta, {**arrays, name: bad})
    without = {name: array for name, array in arrays.items() if name != "present"}
    with pytest.raises(ValueError, match="not a valid reservoir"):
        Reservoir.from_parts(meta, without)


@pytest.mark.slow
def test_gaps_are_filled_from_rows_that_are_alike():
    rows, group = holed(3000)
    truth = 8.0 * np.eye(4, 6)[group]
    gaps = np.isnan(rows)
    filled = GapFiller(rows, most=3000).fill(rows, np.arange(3000))
    assert np.isfinite(filled).all()
    assert np.array_equal(filled[~gaps], rows[~gaps])
    by_mean = np.abs(np.nanmean(rows, axis=0) - truth)[gaps].mean()
    assert np.abs(filled - truth)[gaps].mean() < 0.7 * by_mean
    assert without_gaps(truth, truth) is truth
    alone = GapFiller(np.full((3, 2), np.nan)).fill(np.array([[np.nan, 1.0]]))
    assert alone.tolist() == [[0.0, 1.0]]
