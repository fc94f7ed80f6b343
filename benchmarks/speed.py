"""How fast the clusterers are, beside their contenders, in one run: ratios and bars.

    python benchmarks/speed.py [--data-dir DIR] [--quick]

Contenders take turns and the best of several turns counts, because other programs disturb single ones. Everything runs
on one core; kernels are compiled before the clock starts, except where starting is what is measured. With --data-dir
(NAME.npz files with an array X) real tables join the synthetic ones. Writes results/speed.json and results/speed.png.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np
from rich.console import Console
from rich.table import Table

from contenders import BruteForce, ca_plus, cae_fc, dbstream, k_means, mini_batch_k_means, plain_numpy
from fcac import CAPlus
from speed_data import blobs, images

RESULTS = Path(__file__).parent / "results"
LARGE = 5000  # K x d from which the stricter bar against C holds


# ---------------------------------------------------------------- data


def tables(data_dir: str | None) -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    found = {
        "2-D normal": rng.normal(size=(16_000, 2)),
        "3-D blobs": blobs(16_000, 3, 60),
        "8-D normal": rng.normal(size=(4000, 8)),
        "16-D blobs": blobs(6000, 16, 400),
        "digits": rng.permutation(load_digits().data),
        "images": images(2500),
    }
    for path in sorted(Path(data_dir).glob("*.npz")) if data_dir else []:
        with np.load(path) as content:
            X = content["X"]
        n = 60_000 if X.shape[1] < 5 else 6000 if X.shape[1] < 500 else 2000
        found[path.stem] = X[rng.permutation(len(X))[:n]].astype(np.float64)
    return found


# ---------------------------------------------------------------- the clock


def race(runners: dict, seconds: float, turns: int = 3) -> dict[str, float]:
    """Let all runners take turns; return the least CPU seconds each has needed."""
    best, begun, turn = dict.fromkeys(runners, np.inf), time.perf_counter(), 0
    while turn < turns or time.perf_counter() - begun < seconds:
        for name, run in runners.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
        turn += 1
        if time.perf_counter() - begun > 10 * seconds:
            break
    return best


class Bars:
    """Ratios with their bars."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def add(self, what: str, on: str, value: float, bar: float, at_least: bool = False, unit: str = "x") -> None:
        passed = value >= bar if at_least else value <= bar
        self.rows.append(
            {"what": what, "on": on, "value": value, "bar": bar, "at_least": at_least, "unit": unit, "passed": passed}
        )

    def show(self, console: Console) -> None:
        table = Table("what", "on", "measured", "bar", "", title="Bars")
        for row in self.rows:
            sign = "≥" if row["at_least"] else "≤"
            verdict = "[green]holds[/]" if row["passed"] else "[red]missed[/]"
            bar = f"{sign} {row['bar']:g} {row['unit']}"
            table.add_row(row["what"], row["on"], f"{row['value']:.2f} {row['unit']}", bar, verdict)
        console.print(table)


# ---------------------------------------------------------------- what is measured


def measure_fits(data: dict[str, np.ndarray], bars: Bars, seconds: float, console: Console) -> list[dict]:
    brute, rows = BruteForce(), []
    columns = ("data", "n", "d", "K", "CA+", "CAE_FC", "plain C", "NumPy", "MiniBatchKMeans", "DBSTREAM")
    table = Table(*columns, title="One pass over the rows, microseconds per row")
    for name, X in data.items():
        network = ca_plus(X)
        n_nodes, d = network.n_nodes, X.shape[1]
        if not np.array_equal(network.counts, brute.fit(X)):
            console.print(f"[yellow]{name}: C and CA+ end in different counts (ties)[/]")
        least = race(
            {"CA+": lambda X=X: ca_plus(X), "CAE_FC": lambda X=X: cae_fc(X), "plain C": lambda X=X: brute.fit(X)},
            seconds,
        )
        few = X[:2000]
        few_least = race(
            {"CA+": lambda few=few: ca_plus(few), "NumPy": lambda few=few: plain_numpy(few)}, seconds / 2, 2
        )
        others = race({"MiniBatchKMeans": lambda X=X, k=n_nodes: mini_batch_k_means(X, k)}, 0.0, 1)
        stream = X[:300]
        stream_least = race({"DBSTREAM": lambda stream=stream: dbstream(stream)}, 0.0, 1)
        row = {"data": name, "n": len(X), "d": d, "K": n_nodes}
        row |= {key: value / len(X) for key, value in {**least, **others}.items()}
        row |= {"NumPy": few_least["NumPy"] / len(few), "DBSTREAM": stream_least["DBSTREAM"] / len(stream)}
        rows.append(row)
        table.add_row(name, *(str(row[key]) for key in columns[1:4]), *(f"{row[key] * 1e6:.2f}" for key in columns[4:]))
        on = f"{name}, K·d = {n_nodes * d}"
        bars.add("CA+ against plain C", on, least["CA+"] / least["plain C"], 0.5 if n_nodes * d >= LARGE else 1.0)
        bars.add("CA+ faster than NumPy", on, few_least["NumPy"] / few_least["CA+"], 20, at_least=True)
        bars.add("CAE_FC against CA+", on, least["CAE_FC"] / least["CA+"], 1.5)
    console.print(table)
    return rows


def measure_predict(data: dict[str, np.ndarray], bars: Bars, seconds: float, console: Console) -> list[dict]:
    rows, table = [], Table("data", "rows", "d", "K", "CA+", "KMeans", title="predict, microseconds per row")
    for name, X in data.items():
        model = CAPlus().fit(X)
        rival = k_means(model.nodes_)
        queries = np.ascontiguousarray(np.tile(X, (1 + 12_000 // len(X), 1))[: 12_000 if X.shape[1] < 200 else 3000])
        least = race(
            {"CA+": lambda m=model, q=queries: m.predict(q), "KMeans": lambda m=rival, q=queries: m.predict(q)}, seconds
        )
        row = {"data": name, "n": len(queries), "d": X.shape[1], "K": len(model.nodes_)}
        row |= {key: value / len(queries) for key, value in least.items()}
        rows.append(row)
        figures = [str(row["n"]), str(row["d"]), str(row["K"]), f"{row['CA+'] * 1e6:.2f}", f"{row['KMeans'] * 1e6:.2f}"]
        table.add_row(name, *figures)
        on = f"{name}, K·d = {row['K'] * row['d']}"
        bars.add("predict against KMeans.predict", on, least["CA+"] / least["KMeans"], 2.0)
    console.print(table)
    return rows


START = """
import time
import numpy as np, sklearn.base
X = np.random.default_rng(0).normal(size=(300, 3))
begun = time.process_time()
from fcac import CAPlus
CAPlus().fit(X)
print(time.process_time() - begun, time.process_time())
"""


def measure_start(bars: Bars, console: Console, turns: int) -> dict[str, float]:
    """CPU seconds until the first fit is done, in fresh processes, without and with compiled code at hand."""
    first, cached = [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            for found in (first, cached):
                done = subprocess.run(
                    [sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=True
                )
                found.append([float(word) for word in done.stdout.split()])
    (own_first, all_first), (own_cached, all_cached) = np.min(first, axis=0), np.min(cached, axis=0)
    console.print(
        f"Start: the first-ever fit takes {own_first:.2f} s of CPU, with compiled code at hand {own_cached:.2f} s; "
        f"with Python, NumPy and scikit-learn {all_first:.2f} s and {all_cached:.2f} s."
    )
    bars.add("first-ever fit", "CPU, scikit-learn's import apart", own_first, 5.0, unit="s")
    bars.add("start with compiled code", "CPU, scikit-learn's import apart", own_cached, 1.0, unit="s")
    return {"first": own_first, "cached": own_cached, "first_process": all_first, "cached_process": all_cached}


def measure_memory(bars: Bars) -> list[dict]:
    """Peak beside the input, against 12 d + 32 bytes per node; a block of rows is a view here and takes none."""
    rows, rng = [], np.random.default_rng(0)
    for d in (4, 24, 200):
        X = rng.normal(size=(8000, d)) * rng.lognormal(size=(8000, 1))
        CAPlus().fit(X[:500])
        tracemalloc.start()
        n_nodes = ca_plus(X).n_nodes
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        ratio = peak / (n_nodes * (12 * d + 32))
        rows.append({"d": d, "K": n_nodes, "peak": peak, "ratio": ratio})
        bars.add("memory against 12 d + 32 bytes per node", f"d = {d}, K = {n_nodes}", ratio, 2.0)
    return rows


def measure_growth(quick: bool) -> dict[str, list[dict]]:
    """Cost per row as n, d and K grow, the other two about the same."""
    brute, found = BruteForce(), {}
    sizes = {
        "n": [(n, blobs(n, 16, 100)) for n in (1000, 4000, 16_000, 64_000)[: 3 if quick else 4]],
        "d": [(d, blobs(2000, d, 60, seed=d)) for d in (2, 8, 32, 128, 512, 1024)[: 4 if quick else 6]],
        "K": [(k, blobs(max(4000, 8 * k), 16, k)) for k in (10, 40, 160, 640, 2560)[: 4 if quick else 5]],
    }
    for what, cases in sizes.items():
        found[what] = []
        for size, X in cases:
            few = X[:400]
            least = race({"CA+": lambda X=X: ca_plus(X), "CAE_FC": lambda X=X: cae_fc(X)}, 0.5, 2)
            least |= race({"plain C": lambda X=X: brute.fit(X)}, 0.2, 1)
            numpy_seconds = race({"NumPy": lambda few=few: plain_numpy(few)}, 0.0, 1)["NumPy"]
            n_nodes = ca_plus(X).n_nodes
            row = {what: n_nodes if what == "K" else size, "n_rows": len(X), "n_nodes": n_nodes}
            row |= {name: value / len(X) for name, value in least.items()} | {"NumPy": numpy_seconds / len(few)}
            found[what].append(row)
    return found


def draw(growth: dict[str, list[dict]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    labels = {"n": "rows n (16 features)", "d": "features d (2,000 rows)", "K": "nodes K (16 features)"}
    colours = {"CA+": "#1b6ca8", "CAE_FC": "#3aa17e", "plain C": "#c2571a", "NumPy": "#777777"}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True)
    for axis, (what, rows) in zip(axes, growth.items(), strict=True):
        for name, colour in colours.items():
            axis.loglog([row[what] for row in rows], [row[name] * 1e6 for row in rows], "o-", color=colour, label=name)
        axis.set_xlabel(labels[what])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("microseconds per row")
    axes[0].legend(frameon=False)
    figure.suptitle("One pass: how the cost per row grows (NumPy: first 400 rows)")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="directory with NAME.npz files, each with an array X")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    options = parser.parse_args()
    console, bars = Console(width=140), Bars()
    seconds = 0.4 if options.quick else 1.5
    data = tables(options.data_dir)
    cae_fc(data["2-D normal"][:500])  # compile outside the clock
    CAPlus().fit(data["2-D normal"][:500]).predict(data["2-D normal"][:50])
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "fit": measure_fits(data, bars, seconds, console),
        "predict": measure_predict(data, bars, seconds, console),
        "start": measure_start(bars, console, 1 if options.quick else 3),
        "memory": measure_memory(bars),
        "growth": measure_growth(options.quick),
    }
    bars.show(console)
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({**result, "bars": bars.rows}, indent=1, default=lambda value: value.item())
    (RESULTS / "speed.json").write_text(text + "\n")
    draw(result["growth"], RESULTS / "speed.png")
    missed = sum(not row["passed"] for row in bars.rows)
    console.print(f"{len(bars.rows) - missed} of {len(bars.rows)} bars hold. Written: {RESULTS}/speed.json, speed.png")


if __name__ == "__main__":
    main()
