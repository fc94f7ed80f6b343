"""How much memory and time a private release of a large table takes: `fcac fit --epsilon`, and a site of a federation.

``python benchmarks/streamed_release.py --rows 10000000 --folder /tmp/big`` writes a Parquet file of 20 features there,
unless it exists, and prints one line for each way of using it. The bar is 1 GB for 10,000,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

N_FEATURES = 20
NAMES = [f"x{number}" for number in range(N_FEATURES)]

AS_SITE = """
import json, sys
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import SiteAgent
sent = SiteAgent(SiteSettings.load(sys.argv[1])).contribute(1, 0)
print(len(sent), "bytes sent")
"""


def write_table(path: Path, n_rows: int) -> None:
    """Write five Gaussian clusters, 100,000 rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    middles = rng.uniform(0.2, 0.8, (5, N_FEATURES))
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, 100_000):
            n = min(100_000, n_rows - start)
            rows = rng.normal(middles[rng.integers(5, size=n)], 0.04)
            writer.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True)), schema=schema))


def measured(name: str, command: list[str]) -> None:
    """Run a command; print its wall and CPU seconds and its largest resident set."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = process.stdout.read() if process.stdout is not None else ""
    _, code, used = os.wait4(process.pid, 0)
    facts = {
        "run": name,
        "code": os.waitstatus_to_exitcode(code),
        "seconds": round(time.monotonic() - started),
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
        "peak_mb": round(used.ru_maxrss / 1024),
        "said": said.strip().splitlines()[-6:],
    }
    print(json.dumps(facts), flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", choices=["table", "fit", "site"], help="one part of it")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(chosen.folder)
    table = chosen.folder / f"rows-{chosen.rows}.parquet"
    if not table.exists():
        write_table(table.with_suffix(".part"), chosen.rows)
        table.with_suffix(".part").rename(table)
    print(json.dumps({"file_mb": round(table.stat().st_size / 2**20), "own_peak_mb": _own_peak()}), flush=True)
    bounds = "".join(f"{name} = {{ min = 0, max = 1 }}\n" for name in NAMES)
    schema = chosen.folder / "schema.toml"
    schema.write_text(f"fcac_schema = 1\nbounds_are_public = true\n\n[columns]\n{bounds}")
    if chosen.only in (None, "fit"):
        out = chosen.folder / "model.fcac"
        ledger = ["--ledger", str(chosen.folder / f"{os.getpid()}.db"), "--budget", "4"]
        command = ["fit", str(table), "--schema", str(schema), "--epsilon", "1", *ledger, "--out", str(out), "--force"]
        measured("fcac fit --epsilon 1", [sys.executable, "-m", "fcac", *command])
    if chosen.only in (None, "site"):
        _as_site(chosen.folder, schema, table)


def _as_site(folder: Path, schema: Path, table: Path) -> None:
    from fcac.deployment import study
    from fcac.deployment.rehearsal import join_here
    from fcac.deployment.site_setup import site_settings, store_settings

    root = study.init(folder / f"study-{os.getpid()}", schema)
    bundle = join_here(root, "north", folder / f"bundle-{os.getpid()}")
    state = folder / f"state-{os.getpid()}"
    settings = site_settings(bundle, str(table), state, epsilon=1.0, budget=4.0, delta=1e-6)
    stored = store_settings(settings)
    measured("fcac federation site, one round", [sys.executable, "-c", AS_SITE, str(stored)])


def _own_peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
