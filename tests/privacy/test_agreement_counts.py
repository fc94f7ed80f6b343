"""What a site counts for an agreement: its sensitivity, its threshold for names, and its bytes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcac import persistence
from fcac.privacy.agreement_counts import (
    COARSE,
    KIND,
    NoisedCounts,
    SiteValues,
    count_coarse,
    histogram,
    least_count,
)
from fcac.privacy.cell_statistics import WEIGHT
from fcac.privacy.samplers import InsecureTestSampler, OpenDPSampler
from fcac.tables.column import Column
from fcac.tables.schema import as_batch

NUMBERS, CATEGORIES = [Column("x", missing="native"), Column("y")], [Column("c", kind="category")]
NO_NOISE = InsecureTestSampler(0, factor=0.0)


def values(frame: pd.DataFrame) -> SiteValues:
    found = SiteValues(NUMBERS, CATEGORIES)
    found.add(as_batch(frame))
    return found


def frame(n: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    return pd.DataFrame({"x": x, "y": rng.lognormal(3, 4, n), "c": rng.choice(["a", "b", "n/a", "z"], n)})


def test_one_record_changes_one_bin_by_its_weight():
    rng = np.random.default_rng(0)
    some = np.concatenate([rng.normal(size=200), rng.lognormal(5, 4, 200), [np.nan, np.inf, -np.inf, 0.0]])
    whole = histogram(some, COARSE)
    assert whole.sum() == (len(some) - 1) * WEIGHT
    for gone in range(len(some)):
        change = whole - histogram(np.delete(some, gone), COARSE)
        assert np.abs(change).sum() == (0 if np.isnan(some[gone]) else WEIGHT)


def everything(table: pd.DataFrame, people: list[str] | None) -> dict[tuple[int, str], int]:
    """All counts without noise, those of levels included, whatever the threshold."""
    found = count_coarse(values(table), 1e9, 0.49, NO_NOISE, people)
    flat = {(column, str(place)): int(n) for column, bins in enumerate(found.bins) for place, n in enumerate(bins)}
    return flat | {(9, name): n for name, n in found.levels[0].items()}


@pytest.mark.parametrize("by_person", [False, True])
def test_one_unit_moves_all_counts_by_no_more_than_the_sensitivity(by_person: bool):
    table = pd.concat(
        [frame()] * 3, ignore_index=True
    )  # levels of at least three records, so that none is at the limit
    people = [f"p{i % 40}" for i in range(len(table))] if by_person else None
    whole = everything(table, people)
    for gone in (people[0], people[7]) if people else ("0", "7"):
        kept = [p != gone for p in people] if people else [i != int(gone) for i in range(len(table))]
        rest = everything(table[kept], None if people is None else [p for p, k in zip(people, kept, strict=True) if k])
        moved = [whole.get(key, 0) - rest.get(key, 0) for key in {*whole, *rest}]
        assert 0 < sum(n * n for n in moved) <= 3 * WEIGHT**2


def test_a_person_has_one_level_however_many_rows():
    table = pd.DataFrame({"x": [1.0] * 30, "y": [1.0] * 30, "c": [f"level {i}" for i in range(30)]})
    found = count_coarse(values(table), 1e9, 0.49, NO_NOISE, ["ann"] * 30)
    assert all(len(levels) <= 1 for levels in found.levels)
    many = pd.concat([table, table.assign(c="level 7")], ignore_index=True)
    people = [*["ann"] * 30, *(f"p{i}" for i in range(30))]
    (levels,) = count_coarse(values(many), 1e9, 0.49, NO_NOISE, people).levels
    assert levels == {"level 7": 30 * WEIGHT}


def test_rows_of_people_who_are_left_out_count_nowhere():
    table = frame(100)
    keep = np.arange(100) < 50
    people = [str(i) for i in range(100)]
    found = count_coarse(values(table), 1e9, 0.49, NO_NOISE, people, keep)
    alone = count_coarse(values(table[:50]), 1e9, 0.49, NO_NOISE, people[:50])
    assert all((a == b).all() for a, b in zip(found.bins, alone.bins, strict=True))
    assert found.levels == alone.levels


def test_a_level_of_one_person_is_hardly_ever_named():
    # OpenDP's noise, at a slack that can be counted
    scale, slack = 3.0 * WEIGHT, 0.05
    noised = OpenDPSampler().add_noise(np.full(3000, WEIGHT, dtype=np.int64), scale)
    share = (noised >= least_count(scale, slack, 1)).mean()
    assert 0.03 < share < 0.07  # 0.05 give or take five deviations


def test_what_is_no_level_is_not_sent():
    table = pd.DataFrame({"x": 1.0, "y": 1.0, "c": ["a\nb"] * 50 + ["l" * 65] * 50 + ["?"] * 50 + ["fine"] * 50})
    (levels,) = count_coarse(values(table), 1.0, 1e-7, InsecureTestSampler(0)).levels
    assert list(levels) == ["fine"]


def test_prefixes_are_the_levels():
    found = SiteValues([], [Column("icd", kind="category", prefix=1)])
    found.add(as_batch(pd.DataFrame({"icd": ["I10", "I20", "J45"] * 40})))
    assert list(count_coarse(found, 1.0, 1e-7, InsecureTestSampler(0)).levels[0]) == ["I", "J"]


def test_bytes_come_back_and_other_bytes_are_refused():
    sent = count_coarse(values(frame()), 1.0, 1e-7, InsecureTestSampler(0))
    read = NoisedCounts.from_bytes(sent.to_bytes(stage=1), [122, 122], 1)
    assert (read.levels, read.scale) == (sent.levels, sent.scale)
    assert all((a == b).all() for a, b in zip(read.bins, sent.bins, strict=True))

    def packed(scale=1.0, names=((),), bins=(0,) * 122):
        arrays = {
            "bins0": np.array(bins),
            "bins1": np.zeros(122, np.int64),
            "levels0": np.zeros(len(names[0]), np.int64),
        }
        return persistence.pack(KIND, {"scale": scale, "names": [list(some) for some in names]}, arrays)

    for bad, words in (
        (packed(scale=0.0), "deviation"),
        (packed(scale="x"), "deviation"),
        (packed(names=(("a", "a"),)), "names"),
        (packed(names=(("a\x1b",),)), "names"),
        (packed(names=(("x" * 65,),)), "names"),
        (packed(bins=(0,) * 7), "counts"),
        (packed(bins=(2**61,) * 122), "counts"),
        (packed(bins=(0.5,) * 122), "counts"),
        (b"GET /", "FCAC"),
    ):
        with pytest.raises(ValueError, match=words):
            NoisedCounts.from_bytes(bad, [122, 122], 1)
