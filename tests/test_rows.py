"""Rows: tables read block by block."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import CAPlus
from fcac._rows import Rows

X = np.random.default_rng(0).normal(size=(1000, 3))


def test_blocks_are_float64_contiguous_and_in_order(monkeypatch):
    monkeypatch.setattr("fcac._rows._BLOCK_BYTES", 24 * 64)
    frame = pd.DataFrame(X, columns=list("abc"))
    for table in (X, np.asfortranarray(X), frame, pa.Table.from_pandas(frame), X.tolist(), frame.astype("Float64")):
        rows = Rows(table)
        blocks = list(rows.blocks())
        assert (rows.n_rows, rows.n_features) == (1000, 3)
        assert [len(block) for block in blocks] == [64] * 15 + [40]
        for block in blocks:
            assert block.dtype == np.float64
            assert block.flags.c_contiguous
            assert block.flags.writeable
        np.testing.assert_array_equal(np.concatenate(blocks), X)


def test_rows_that_are_ready_are_not_copied():
    (block,) = Rows(X).blocks()
    assert np.shares_memory(block, X)


def test_a_read_only_map_is_copied_block_by_block(tmp_path):
    np.save(tmp_path / "x.npy", X)
    (block,) = Rows(np.load(tmp_path / "x.npy", mmap_mode="r")).blocks()
    block[:] = 0.0  # the kernels ask for writable arrays; the file stays as it is
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_zero_rows():
    with pytest.raises(ValueError, match="0 sample"):
        Rows(np.empty((0, 3)))
    for table in (np.empty((0, 3)), pd.DataFrame({"a": [], "b": [], "c": []}, dtype=float), pa.table({"a": [1.0]})[:0]):
        rows = Rows(table, allow_empty=True)
        assert rows.n_rows == 0
        assert sum(len(block) for block in rows.blocks()) == 0


def test_one_row_longer_than_a_block():
    wide = np.arange(4_000_000.0).reshape(2, -1)
    assert [block.shape for block in Rows(wide).blocks()] == [(1, 2_000_000)] * 2


@pytest.mark.parametrize("kind", ["uint8", "float32", "map", "fortran", "arrow", "frame"])
def test_memory_beside_a_large_table_is_one_block(kind, tmp_path):
    rng = np.random.default_rng(0)
    large = rng.integers(0, 5, (600_000, 8), dtype=np.uint8)  # 38 MB as float64
    if kind == "map":
        np.save(tmp_path / "x.npy", large)
        large = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "float32":
        large = large.astype(np.float32)
    elif kind == "fortran":
        large = np.asfortranarray(large.astype(np.float64))
    elif kind == "frame":
        large = pd.DataFrame(large)
    elif kind == "arrow":
        large = pa.table({str(j): large[:, j] for j in range(8)})
    tracemalloc.start()
    try:
        Rows(large, CAPlus())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the block as it was, as float64, and what checking it takes; never the table
    assert peak < 3 * 8_000_000
