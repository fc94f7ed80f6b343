"""Integer sensitivity of a whole step, against neighbours chosen to break it."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.privacy.bounds import check_bounds, to_unit
from fcac.privacy.cell_statistics import (
    N_RINGS,
    UNIT,
    WEIGHT,
    cell_totals,
    cut,
    from_grid,
    nearest,
    person_weights,
    ring_edges,
    to_grid,
    widest_radius,
)


def adversarial_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Ordinary, huge, tiny, on edges, and exactly between codewords."""
    kinds = rng.integers(6, size=n)
    rows = rng.uniform(size=(n, d))
    rows[kinds == 1] *= 10.0 ** rng.uniform(0, 8, size=(int((kinds == 1).sum()), 1))
    rows[kinds == 2] *= -(10.0 ** rng.uniform(0, 8, size=(int((kinds == 2).sum()), 1)))
    rows[kinds == 3] = rng.integers(2, size=(int((kinds == 3).sum()), d))
    rows[kinds == 4] = 0.5
    rows[kinds == 5] = rng.choice([0.25, 0.5, 0.75], size=(int((kinds == 5).sum()), d))
    return rows


def worst_neighbours(n_pairs: int, seed: int) -> tuple[int, float, float]:
    """Largest change of counts, of rings, and of sums relative to the radius, over many neighbouring batches."""
    rng = np.random.default_rng(seed)
    count_change, ring_change, sum_change = 0, 0, 0.0
    for _ in range(n_pairs):
        d, n, k = int(rng.integers(1, 9)), int(rng.integers(0, 30)), int(rng.integers(1, 7))
        bounds = check_bounds(np.tile([0.0, 1.0], (d, 1)))
        codebook = to_grid(rng.choice([0.25, 0.5, 0.75], size=(k, d)) if rng.random() < 0.5 else rng.random((k, d)))
        bases = codebook if rng.random() < 0.5 else to_grid(rng.random((k, d)))
        radius = int(rng.integers(1, widest_radius(d) + 1)) if rng.random() < 0.5 else int(rng.integers(1, 50))
        rows = adversarial_rows(rng, n + 1, d)
        where = int(rng.integers(n + 1))
        full = to_grid(to_unit(rows, bounds))
        less = to_grid(to_unit(np.delete(rows, where, axis=0), bounds))
        a, b = cell_totals(full, codebook, bases, radius), cell_totals(less, codebook, bases, radius)
        count_change = max(count_change, int(np.abs(a.counts - b.counts).sum()))
        ring_change = max(ring_change, int(np.abs(a.rings - b.rings).sum()))
        moved = sum(int(v) ** 2 for v in (a.sums - b.sums).ravel())  # Python integers: no overflow, no rounding
        assert moved <= (WEIGHT * radius) ** 2
        sum_change = max(sum_change, moved / (WEIGHT * radius) ** 2)
    return count_change, ring_change, sum_change


@pytest.mark.slow
def test_one_record_moves_one_count_one_ring_and_one_sum_by_at_most_the_radius() -> None:
    count_change, ring_change, sum_change = worst_neighbours(2000, seed=0)
    assert (count_change, ring_change) == (WEIGHT, WEIGHT)
    assert 0.99 < sum_change <= 1.0  # the search does reach the limit


def worst_people(n_pairs: int, seed: int) -> tuple[float, float]:
    """Largest change of counts and of sums, relative to the limits, when a person with many rows is added."""
    rng = np.random.default_rng(seed)
    worst_count = worst_sum = 0.0
    for _ in range(n_pairs):
        d, k, m = int(rng.integers(1, 6)), int(rng.integers(1, 7)), int(rng.integers(1, 40))
        bounds = check_bounds(np.tile([0.0, 1.0], (d, 1)))
        codebook, radius = to_grid(rng.random((k, d))), int(rng.integers(1, widest_radius(d) + 1))
        people = [f"p{i}" for i in rng.integers(1, 9, size=30)]
        mine = adversarial_rows(rng, m, d)
        if rng.random() < 0.5:
            mine[:] = mine[0]  # all of a person's rows in one place: that is how far a person can reach
        given = np.vstack([adversarial_rows(rng, 30, d), mine])
        order, ids = rng.permutation(30 + m), np.array([*people, *["me"] * m])
        rows, ids = to_grid(to_unit(given, bounds))[order], ids[order]
        others = ids != "me"
        with_me = cell_totals(rows, codebook, codebook, radius, person_weights(list(ids)))
        without = cell_totals(rows[others], codebook, codebook, radius, person_weights(list(ids[others])))
        for changed in (with_me.counts - without.counts, with_me.rings - without.rings):
            assert int(np.abs(changed).sum()) == WEIGHT
            assert sum(int(v) ** 2 for v in changed) <= WEIGHT**2
            worst_count = max(worst_count, sum(int(v) ** 2 for v in changed) / WEIGHT**2)
        moved = sum(int(v) ** 2 for v in (with_me.sums - without.sums).ravel())
        assert moved <= (WEIGHT * radius) ** 2
        worst_sum = max(worst_sum, moved / (WEIGHT * radius) ** 2)
    return worst_count, worst_sum


@pytest.mark.slow
def test_a_person_with_many_rows_moves_the_totals_no_more_than_one_with_a_single_row() -> None:
    worst_count, worst_sum = worst_people(500, seed=0)
    assert worst_count == 1.0
    assert 0.98 < worst_sum <= 1.0


@pytest.mark.soak
def test_the_same_for_twenty_thousand_people() -> None:
    assert max(worst_people(20_000, seed=1)) == 1.0


@pytest.mark.parametrize("m", [1, 2, 3, 7, WEIGHT - 1, WEIGHT, WEIGHT + 1, 3000])
def test_the_weights_of_a_person_add_up_to_one_person(m: int) -> None:
    weights = person_weights(["other", *["me"] * m, "third"])
    assert (weights[0], weights[-1]) == (WEIGHT, WEIGHT)
    assert int(weights[1:-1].sum()) == WEIGHT
    assert np.ptp(weights[1:-1]) <= 1


@pytest.mark.soak
def test_the_same_for_a_hundred_thousand_neighbours() -> None:
    assert worst_neighbours(100_000, seed=1)[:2] == (WEIGHT, WEIGHT)


def test_cut_vectors_are_never_longer_and_keep_their_direction() -> None:
    rng = np.random.default_rng(0)
    long = rng.integers(-(2**16), 2**16 + 1, size=(3000, 5))
    for radius in (1, 2, 655, 40_000):
        short = cut(long, radius)
        assert max(sum(int(v) ** 2 for v in row) for row in short) <= radius**2
        assert (np.sign(short) * np.sign(long) >= 0).all()
        assert (np.abs(short) <= np.abs(long)).all()


def test_where_a_record_goes_does_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(0)
    rows = to_grid(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], size=(9000, 7)))  # many exact ties
    codebook = to_grid(rng.choice([0.25, 0.75], size=(12, 7)))
    together = nearest(rows, codebook)
    alone = np.concatenate([nearest(rows[i : i + 1], codebook) for i in range(0, 9000, 97)])
    assert np.array_equal(together[::97], alone)
    exact = ((rows[:500, None, :] - codebook[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(together[:500], exact)


def test_totals_of_blocks_add_up_and_rings_count_everybody() -> None:
    rng = np.random.default_rng(0)
    rows, codebook = to_grid(rng.random((10_000, 3))), to_grid(rng.random((4, 3)))
    totals = cell_totals(rows, codebook, codebook, widest_radius(3))
    halves = [cell_totals(part, codebook, codebook, widest_radius(3)) for part in (rows[:4000], rows[4000:])]
    for name in ("counts", "sums", "rings"):
        assert np.array_equal(getattr(totals, name), sum(getattr(half, name) for half in halves))
    assert totals.counts.sum() == totals.rings.sum() == 10_000 * WEIGHT
    squared = ((rows - codebook[nearest(rows, codebook)]) ** 2).sum(axis=1)
    by_hand = [WEIGHT * (squared <= edge).sum() for edge in ring_edges(3)]
    assert np.cumsum(totals.rings)[: N_RINGS - 1].tolist() == by_hand


def test_grid_reaches_exactly_to_the_corners() -> None:
    corners = to_grid(np.array([[0.0, 1.0, 0.5]]))
    assert corners.tolist() == [[-UNIT // 2, UNIT // 2, 0]]
    assert from_grid(corners).tolist() == [[0.0, 1.0, 0.5]]
    for d in (1, 2, 3, 64, 784):
        assert (widest_radius(d) - 1) ** 2 < d * (UNIT // 2) ** 2 <= widest_radius(d) ** 2


def test_an_empty_batch_has_empty_totals() -> None:
    totals = cell_totals(np.empty((0, 2), np.int64), np.zeros((3, 2), np.int64), np.zeros((3, 2), np.int64), 10)
    assert (totals.counts.sum(), totals.rings.sum(), np.abs(totals.sums).sum()) == (0, 0, 0)
