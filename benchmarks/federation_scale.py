"""Whole rounds at scale: many rows, many sites, files larger than memory. Bars from the project's design notes.

    python benchmarks/federation_scale.py [--data-dir DIR] [--quick] [--only PART]

With --data-dir or the environment variable FCAC_DATA (a directory of NAME.npz files) Fashion-MNIST and Skin are the
real sets; otherwise synthetic ones of the same shape. Each case runs in a process of its own, so that its peak memory
is its own. With --only, the other cases keep the figures they had in results/federation_scale.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

BARS = {
    "Fashion-MNIST, 100 sites": (10.0, None),
    "Skin, 100 sites": (1.0, None),
    "100,000 sites of 100 rows, 16 features": (120.0, 4.0),
    "1 GB Parquet file, 20 sites": (None, 1.0),
}


def table(name: str, data_dir: str | None, shape: tuple[int, int], values: int) -> np.ndarray:
    if data_dir:
        return np.load(Path(data_dir) / f"{name}.npz")["X"]
    rng = np.random.default_rng(0)
    centres = rng.integers(values, size=(10, shape[1]))
    noise = rng.normal(0, values / 12, size=shape)
    return np.clip(centres[rng.integers(10, size=shape[0])] + noise, 0, values).astype(np.uint8)


def fit_once(X: np.ndarray, sites: np.ndarray) -> float:
    from fcac import FCAC

    FCAC(server="cae-fc", random_state=0).fit(X[:2000], groups=sites[:2000])  # compile outside the clock
    start = time.perf_counter()
    FCAC(server="cae-fc", random_state=0).fit(X, groups=sites)
    return time.perf_counter() - start


def fashion(data_dir: str | None, quick: bool) -> float:
    X = table("Fashion-MNIST", data_dir, (7000 if quick else 70000, 784), 255)
    return fit_once(X, np.random.default_rng(0).integers(100, size=len(X)))


def skin(data_dir: str | None, quick: bool) -> float:
    X = table("skin-segmentation", data_dir, (24000 if quick else 245057, 3), 255)
    # the paper's order: rows of a site grouped by class, here by first feature's rank in the file
    return fit_once(X, np.arange(len(X)) % 100)


def many_sites(data_dir: str | None, quick: bool) -> float:
    n = 5000 if quick else 100_000
    rng = np.random.default_rng(0)
    X = rng.normal(rng.integers(10, size=(n * 100, 1)), 0.5, size=(n * 100, 16))
    return fit_once(X, np.repeat(np.arange(n), 100))


def big_file(data_dir: str | None, quick: bool) -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fcac import FCAC
    from fcac.tables import open_tables

    rng = np.random.default_rng(0)
    n_batches = 8 if quick else 80
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        writer = None
        for _ in range(n_batches):
            block = rng.normal(rng.integers(5, size=(100_000, 1)), 0.3, size=(100_000, 16))
            columns = {f"f{j}": block[:, j] for j in range(16)}
            batch = pa.table({"site": rng.integers(20, size=len(block)), **columns})
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="none", use_dictionary=False)
            writer.write_table(batch)
        writer.close()
        print(f"  file of {path.stat().st_size / 1e9:.2f} GB", flush=True)
        start = time.perf_counter()
        tables = open_tables([path], site_column="site")
        FCAC(server="cae-fc", random_state=0).play_stream(tables.pieces(), tables.n_features, tables.feature_names)
        return time.perf_counter() - start


CASES = dict(zip(BARS, (fashion, skin, many_sites, big_file), strict=True))


def measure(case: str, data_dir: str | None, quick: bool, queue) -> None:
    seconds = CASES[case](data_dir, quick)
    queue.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("FCAC_DATA"))
    parser.add_argument("--quick", action="store_true", help="a tenth of the size; bars do not apply")
    parser.add_argument("--only", help="part of a case's name")
    options = parser.parse_args()
    context, path = multiprocessing.get_context("spawn"), Path(__file__).parent / "results" / "federation_scale.json"
    results = json.loads(path.read_text()) if options.only and path.exists() else {}
    for case, (seconds_bar, memory_bar) in BARS.items():
        if options.only and options.only.lower() not in case.lower():
            continue
        queue = context.Queue()
        process = context.Process(target=measure, args=(case, options.data_dir, options.quick, queue))
        process.start()
        seconds, peak = queue.get()
        process.join()
        kept = (seconds_bar is None or seconds <= seconds_bar) and (memory_bar is None or peak <= memory_bar)
        results[case] = {
            "seconds": round(seconds, 2),
            "peak_gb": round(peak, 2),
            "bar": [seconds_bar, memory_bar],
            "data": "real" if options.data_dir and CASES[case] in (fashion, skin) else "synthetic",
        }
        print(
            f"{case}: {seconds:.2f} s, peak {peak:.2f} GB; bar {seconds_bar} s, {memory_bar} GB: "
            f"{'kept' if kept else 'MISSED'}",
            flush=True,
        )
    if not options.quick:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({case: results[case] for case in BARS if case in results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
