"""The programs in benchmarks/ are run by hand; that they still find what they import is checked here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
#: In an interpreter of its own: Spark is missing on some machines, and nothing of the programs is to stay loaded.
LOADED = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
"""


@pytest.mark.slow
def test_every_program_finds_what_it_imports() -> None:
    names = sorted(".".join(path.relative_to(BENCHMARKS).with_suffix("").parts) for path in BENCHMARKS.rglob("*.py"))
    assert len(names) > 20
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
