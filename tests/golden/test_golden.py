"""What sites send and store, what is charged, and what clusters come of it, is what it was when it was recorded.

See ``record.py``. Digests are those of one kind of machine (x86-64, Linux): where the mathematical library rounds an
exponential differently, they may differ although nothing is wrong with the program.
"""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from cases import CASES, blobs, sha, traces
from record import HERE

RECORDED = sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.rglob("*.json"))


def same(found: Any, wanted: Any) -> bool:
    """Compare facts; costs go through logarithms, which libraries round differently."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == (pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else wanted))


def test_the_rows_are_those_that_were_recorded() -> None:
    """If this fails, the rows are other ones, and every other failure follows from it."""
    assert sha(blobs(100, 1)) == "699f1de95465e7081f9cff59718c65e3"


def test_every_case_is_recorded() -> None:
    assert {name for name in CASES if f"contributions/{name}" in RECORDED} == set(CASES)
    assert {"ledger/charged", "ledger/summed"} <= set(RECORDED)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(RECORDED, key=lambda path: path.split("/")[::-1]))
def test_trace(path: str) -> None:
    trace, name = path.split("/")
    if name == "text" and importlib.util.find_spec("wordllama") is None:
        pytest.skip("wordllama is not installed: pip install 'fcac[text]'")
    wanted = json.loads((HERE / f"{path}.json").read_text("utf-8"))
    found = traces(name)[trace]
    assert same(found, wanted), {"found": found, "recorded": wanted}
