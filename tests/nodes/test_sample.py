"""The sample of rows: fair, bounded, the same in any order and chunks, and of single rows."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.nodes import Reservoir
from fcac.nodes.sample import RowSample, joint


def rows_of(n: int = 6000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


def same(a: RowSample, b: RowSample) -> bool:
    return a.bar == b.bar and all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("keys", "rows", "weights"))


def test_order_chunks_and_repeats_do_not_matter() -> None:
    rows = rows_of()
    whole = RowSample.of(rows, np.full(len(rows), 2.0), 500)
    parts = RowSample(3, 500)
    for piece in np.array_split(np.concatenate([rows[::-1], rows]), 17):
        parts.add(piece)
    assert same(whole, parts)
    assert (whole.weights == 2).all()
    assert len(whole.rows) == 500


def test_samples_of_parts_make_the_sample_of_all() -> None:
    rows = rows_of()
    one = RowSample.of(rows[:1000], np.ones(1000), 500)
    one.merge(RowSample.of(rows[1000:], np.ones(5000), 500))
    assert same(one, RowSample.of(rows, np.ones(6000), 500))


def test_a_reservoir_keeps_the_sample_of_one_pass_whatever_the_calls() -> None:
    rows = rows_of(30_000)
    expected = RowSample.of(rows, np.ones(len(rows)), 4000)
    small = Reservoir(3, max_nodes=300)
    for piece in np.array_split(rows, 7):
        small.learn(piece)
    assert same(small.sample, expected)
    assert same(
        Reservoir.merge([Reservoir(3, 300).learn(rows[:250]), Reservoir(3, 300).learn(rows[250:])]).sample, expected
    )
    again = Reservoir.from_parts(*small.to_parts())
    assert same(again.sample, expected)
    again.learn(rows[:5000])
    assert set(np.unique(again.sample.weights)) == {1.0, 2.0}
    # while every row is a seed nothing is kept twice
    few = Reservoir(3).learn(rows[:2000])
    assert "sample" not in few.to_parts()[1]
    assert same(few.sample, RowSample.of(rows[:2000], np.ones(2000), 4000))


def test_sites_of_unequal_size_give_a_fair_sample_of_all_rows() -> None:
    large, small = rows_of(50_000, 1), rows_of(5000, 2)
    samples = [RowSample.of(rows, np.ones(len(rows)), 1000) for rows in (large, small)]
    a, b = joint(samples, 4000)
    assert 900 < len(a.rows) <= 1000
    assert 60 < len(b.rows) < 150
    assert sum(len(part.rows) for part in joint(samples, 200)) == 200


def test_a_sample_that_is_none_is_refused() -> None:
    sample = RowSample.of(rows_of(), np.ones(6000), 50)
    assert same(RowSample.from_parts(sample.rows, sample.weights, sample.bar, 50), sample)
    for rows, weights, bar, size in (
        (sample.rows[::-1], sample.weights, sample.bar, 50),
        (sample.rows, -sample.weights, sample.bar, 50),
        (sample.rows, sample.weights, 5, 50),
        (sample.rows, sample.weights, sample.bar, 10),
    ):
        with pytest.raises(ValueError, match="sample"):
            RowSample.from_parts(np.ascontiguousarray(rows), weights, bar, size)
