"""A private release that reads its rows block by block: the same result as in memory, whatever their number."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fcac._typing import Floats
from fcac.exceptions import RepeatedBatch
from fcac.federation import Site
from fcac.persistence import row_spool
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.mechanisms import node_release
from fcac.privacy.record_ids import MultisetHash, batch_mark
from fcac.privacy.samplers import InsecureTestSampler

BOUNDS = [[-4.0, 4.0]] * 3


class Blocks:
    """Rows in blocks that counts how often it is read."""

    def __init__(self, rows: Floats) -> None:
        self.rows, self.n_passes = rows, 0
        self.n_rows, self.n_features = rows.shape

    def blocks(self) -> Iterator[Floats]:
        self.n_passes += 1
        for start in range(0, self.n_rows, 701):
            yield self.rows[start : start + 701]


@pytest.fixture
def always_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_release, "MANY_VALUES", 0)
    monkeypatch.setattr("fcac.privacy.record_ids.MANY_VALUES", 0)
    monkeypatch.setattr(row_spool, "MEMORY_BYTES", 1000)


def some_rows(seed: int, gaps: bool = False) -> Floats:
    rng = np.random.default_rng(seed)
    rows: Floats = np.vstack([rng.normal(middle, 0.5, (1500, 3)) for middle in (-2, 0, 2.5)])
    if gaps:
        rows[rng.random(rows.shape) < 0.2] = np.nan
    return rows[rng.permutation(len(rows))]


def mechanism(ledger: Ledger | None = None) -> NodeRelease:
    return NodeRelease(2.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(5))


@pytest.mark.parametrize("gaps", [False, True])
def test_bit_for_bit_as_in_memory_over_two_rounds(gaps: bool, always_in_blocks: None) -> None:
    whole, in_blocks = mechanism(), mechanism()
    first = second = None
    for round, passes in ((1, 6), (2, 4)):  # one pass checks, then one for each step
        rows = some_rows(round, gaps)
        blocks = Blocks(rows)
        *_, first = whole.release(rows, first, round=round)
        *_, second = in_blocks.release(blocks, second, round=round)
        np.testing.assert_array_equal(first.nodes, second.nodes)
        np.testing.assert_array_equal(first.counts, second.counts)
        np.testing.assert_array_equal(first.deviation, second.deviation)
        assert blocks.n_passes == passes


def test_people_share_a_weight_and_the_poor_are_left_out(tmp_path: Path, always_in_blocks: None) -> None:
    rows = some_rows(1)
    ids = [f"p{n % 1000}" for n in range(len(rows))]
    found = []
    for name, given in (("a", rows), ("b", Blocks(rows))):
        ledger = Ledger(tmp_path / f"{name}.db", budget=2.5)
        # some have used up their budget before
        ledger.charge("x", ledger.rho_of(1.5), record_ids=[f"p{n}" for n in range(300)])
        found.append(mechanism(ledger).release(given, record_ids=ids)[2])
    np.testing.assert_array_equal(found[0].nodes, found[1].nodes)
    assert 500 < found[1].counts.sum() < 850  # 700 of 1,000 people


def test_a_site_spools_what_it_observes(tmp_path: Path, always_in_blocks: None) -> None:
    rows = some_rows(2)
    kept, spooled = Site("s", mechanism()), Site("s", mechanism(), tmp_path)
    for start in range(0, len(rows), 1000):
        spooled.observe(rows[start : start + 1000])
    first, second = kept.contribute(rows), spooled.contribute()
    np.testing.assert_array_equal(first.nodes, second.nodes)
    assert first.counts.tolist() == second.counts.tolist()
    # a bad row is found before anything is charged
    ledger = Ledger(tmp_path / "ledger.db", budget=2.0)
    strict = NodeRelease(1.0, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(1))
    with pytest.raises(ValueError, match="infinite"):
        strict.release(Blocks(np.vstack([rows, [[0.0, np.inf, 0.0]]])))
    assert ledger.spent() == 0


def test_the_same_rows_are_noticed_in_any_order_and_form(tmp_path: Path, always_in_blocks: None) -> None:
    rows = some_rows(3)
    ledger = Ledger(tmp_path / "ledger.db", budget=9.0)
    site = mechanism(ledger)
    state = site.release(rows)[2]
    with pytest.warns(RepeatedBatch):
        site.release(Blocks(rows[::-1]), state, round=2)


def test_marks_of_many_rows_tell_rows_apart() -> None:
    rows = some_rows(4)
    hashes = []
    for given in (rows, rows[::-1], rows[:-1], np.vstack([rows[:-1], rows[:1]])):
        hashes.append(MultisetHash())
        hashes[-1].add(given)
    marks = [batch_mark(bytes(16), given) for given in hashes]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3
    assert batch_mark(bytes(16), MultisetHash()) is None


MEASURED = """
import resource, sys
import numpy as np
from fcac.federation import Site
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
site = Site("big", NodeRelease(1.0, [[0, 1]] * 20, sampler=InsecureTestSampler(1)))
site.observe(np.zeros((10, 20)))
rng = np.random.default_rng(0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(int(sys.argv[1])):
    site.observe(rng.random((20_000, 20)))
sent = site.contribute()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, sent.counts.sum())
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """200,000 rows of 20 features are 32 MB; in memory, a release took six times as much."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, "10"], capture_output=True, text=True, check=True, env=environment
    )
    kilobytes, n_rows = (float(word) for word in run.stdout.split())
    assert abs(n_rows - 200_010) < 3000
    assert kilobytes < 90_000
