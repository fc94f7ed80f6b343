"""Rows that are written once and read several times, in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcac.persistence import row_spool
from fcac.persistence.row_spool import RowSpool


@pytest.mark.parametrize("limit", [0, 1000, 2**25])
def test_rows_come_back_in_order_from_memory_and_from_a_file(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_spool, "MEMORY_BYTES", limit)
    monkeypatch.setattr(row_spool, "_BLOCK_BYTES", 200)
    pieces = [np.random.default_rng(n).normal(size=(n, 3)) for n in (5, 0, 40, 1)]
    spool = RowSpool(tmp_path)
    for piece in pieces:
        spool.append(piece)
    pieces[0][:] = 7.0  # what was added does not change with the caller's array
    for _ in range(2):
        rows = np.concatenate(list(spool.blocks()))
        np.testing.assert_array_equal(rows[5:], np.concatenate(pieces)[5:])
        assert not (rows[:5] == 7.0).any()
    np.testing.assert_array_equal(spool.array(), rows)
    assert (spool.n_rows, spool.n_features) == (46, 3)
    assert list(tmp_path.iterdir()) == []  # the file has no name
    spool.close()
    assert spool.n_rows == 0
    assert list(spool.blocks()) == []


def test_rows_of_another_width_are_refused() -> None:
    spool = RowSpool()
    spool.append(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="3 features were added before, these have 2"):
        spool.append(np.zeros((2, 2)))
