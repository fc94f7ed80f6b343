"""Speed of the clusterers beside their contenders, in one run: ratios, bars, and one picture of how cost grows.

    python benchmarks/speed.py [--quick]        (what `make bench` runs)

Contenders: the same rules in plain NumPy; in plain C, compiled on the spot with AVX2 and a vectorised exponential
(brute force); scikit-learn's MiniBatchKMeans.partial_fit and KMeans.predict at the same number of nodes; river's
DBSTREAM. These machines are noisy: contenders take turns, the fastest of several turns counts, and only ratios mean
something. Fits use one core; predictions may use all, on both sides.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits

from fcac import CAEFC, CAPlus
from plain_numpy import PlainNetwork

HERE = Path(__file__).parent
REPEATS = 5


# ---------------------------------------------------------------- data


def gaussian(n: int, d: int, heaps: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 3, size=(heaps, d))
    return centres[rng.integers(heaps, size=n)] + rng.normal(size=(n, d))


def pixels(n: int, seed: int = 0) -> np.ndarray:
    """Rows of 784 smooth grey values in [-1, 1], like small pictures."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((n, 7, 7)) * rng.random((n, 1, 1)) + rng.random((10, 7, 7))[rng.integers(10, size=n)]
    return np.kron(coarse, np.ones((1, 4, 4))).reshape(n, 784) - 1.0


def data_sets(quick: bool) -> dict[str, np.ndarray]:
    digits, _ = load_digits(return_X_y=True)
    share = 4 if quick else 1
    return {
        "2-D Gaussian, 16,000 rows": gaussian(16000 // share, 2),
        "8-D, 20 heaps, 10,000 rows": gaussian(10000 // share, 8, 20),
        "digits, 64 features, 1,797 rows": digits[:: 1 if not quick else 3].copy(),
        "64-D, 30 heaps, 4,000 rows": gaussian(4000 // share, 64, 30),
        "pictures, 784 features, 2,000 rows": pixels(2000 // share),
    }


# ---------------------------------------------------------------- contenders


class BruteForceC:
    """CA+ in C, every node computed for every point."""

    def __init__(self, folder: str) -> None:
        library = Path(folder) / "brute_force.so"
        flags = ["-O3", "-mavx2", "-mfma", "-ffast-math", "-shared", "-fPIC"]
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, *flags, str(HERE / "brute_force.c"), "-o", str(library), "-lm"], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.ca_plus.restype = ctypes.c_long

    def fit(self, X: np.ndarray) -> int:
        counts, threshold = ctypes.POINTER(ctypes.c_long)(), ctypes.c_double()
        n, d = X.shape
        rows = X.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        k = self._library.ca_plus(
            rows, ctypes.c_long(n), ctypes.c_long(d), ctypes.byref(counts), ctypes.byref(threshold)
        )
        self._library.release(counts)
        return int(k)


def fastest(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Let contenders take turns; the fastest turn of each counts."""
    best = dict.fromkeys(contenders, np.inf)
    for _ in range(repeats):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def fit_with_dbstream(X: np.ndarray) -> None:
    from river import cluster

    model = cluster.DBSTREAM()
    for row in X:
        model.learn_one(dict(enumerate(row)))


# ---------------------------------------------------------------- measurements


def compare_fits(name: str, X: np.ndarray, brute: BruteForceC, repeats: int) -> dict[str, float]:
    k, d = len(CAPlus().fit(X).nodes_), X.shape[1]
    if brute.fit(X) != k:
        print(f"note: {name}: the C version ends with another number of nodes (its arithmetic is relaxed)")
    few = X[: max(200, min(len(X), 400_000 // (k * d) + 200))]
    times = fastest(
        {
            "ca+": lambda: CAPlus().fit(X),
            "cae-fc": lambda: CAEFC().fit(X),
            "c": lambda: brute.fit(X),
            "minibatch": lambda: MiniBatchKMeans(min(k, len(X) // 2), n_init=1).partial_fit(X),
        },
        repeats,
    )
    slow = fastest({"numpy": lambda: PlainNetwork(False).fit(few), "ours": lambda: CAPlus().fit(few)}, 2)
    stream = X[:500]
    river = fastest({"river": lambda: fit_with_dbstream(stream), "ours": lambda: CAPlus().fit(stream)}, 1)
    return {
        "nodes": k,
        "k_times_d": k * d,
        "seconds": times["ca+"],
        "to_c": times["ca+"] / times["c"],
        "cae_fc_to_ca_plus": times["cae-fc"] / times["ca+"],
        "numpy_to_ca_plus": slow["numpy"] / slow["ours"],
        "minibatch_to_ca_plus": times["minibatch"] / times["ca+"],
        "dbstream_to_ca_plus": river["river"] / river["ours"],
    }


def compare_predictions(X: np.ndarray, repeats: int) -> dict[str, float]:
    model = CAPlus().fit(X)
    k = min(len(model.nodes_), len(X) // 2)
    centres = KMeans(k, n_init=1, max_iter=1, init=X[:k].copy()).fit(X)
    many = np.tile(X, (max(1, 20_000 // len(X)), 1))
    times = fastest({"ours": lambda: model.predict(many), "kmeans": lambda: centres.predict(many)}, repeats)
    return {"predict_to_kmeans": times["ours"] / times["kmeans"]}


def start_times() -> dict[str, float]:
    """CPU seconds of a first fit ever, and of one with compiled kernels at hand, interpreter and imports included."""
    code = (
        "import numpy as np, resource\nfrom fcac import CAPlus\n"
        "CAPlus().fit(np.random.default_rng(0).normal(size=(100, 3))).predict([[0.0, 0.0, 0.0]])\n"
        "use = resource.getrusage(resource.RUSAGE_SELF)\nprint(use.ru_utime + use.ru_stime)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        runs = [
            float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
            for _ in range(3)
        ]
    return {"first_fit_cpu_seconds": runs[0], "cached_start_cpu_seconds": min(runs[1:])}


def memory_beside_input() -> dict[str, float]:
    """Peak of Python-side memory in a fit, over the size of the state (12 d + 32 bytes per node) plus one block."""
    import tracemalloc

    X = gaussian(20000, 32, 200)
    CAPlus().fit(X[:100])
    tracemalloc.start()
    model = CAPlus().fit(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    state = len(model.nodes_) * (12 * X.shape[1] + 32)
    return {"state_bytes": state, "peak_bytes": peak, "peak_to_state": peak / state}


def growth(brute: BruteForceC, quick: bool) -> dict[str, dict[str, list[float]]]:
    """Seconds by number of rows, features and nodes."""
    n = 2000 if quick else 8000
    axes = {
        "rows": {m: gaussian(m, 8, 10) for m in (n // 4, n // 2, n, 2 * n)},
        "features": {d: gaussian(n // 2, d, 10) for d in (2, 8, 32, 128)},
        "nodes": {h: gaussian(n // 2, 8, h) for h in (1, 10, 100, 1000)},
    }
    result: dict[str, dict[str, list[float]]] = {}
    for axis, sets in axes.items():
        lines: dict[str, list[float]] = {"x": [], "CA+": [], "CAE_FC": [], "C, brute force": []}
        for value, X in sets.items():
            model = CAPlus().fit(X)
            times = fastest(
                {
                    "CA+": lambda X=X: CAPlus().fit(X),
                    "CAE_FC": lambda X=X: CAEFC().fit(X),
                    "C, brute force": lambda X=X: brute.fit(X),
                },
                3,
            )
            lines["x"].append(float(len(model.nodes_) if axis == "nodes" else value))
            for name, seconds in times.items():
                lines[name].append(seconds)
        result[axis] = lines
    return result


def draw(lines: dict[str, dict[str, list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(lines), figsize=(12, 3.8), sharey=True, layout="constrained")
    for panel, (axis, curves) in zip(panels, lines.items(), strict=True):
        for (name, seconds), marker in zip(list(curves.items())[1:], "os^", strict=True):
            panel.loglog(curves["x"], seconds, marker=marker, label=name)
        panel.set_xlabel(f"number of {axis}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds of a fit, one core")
    panels[0].legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the rows, fewer turns")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    repeats = 2 if options.quick else REPEATS
    console, out = Console(width=150), HERE / "results"
    out.mkdir(exist_ok=True)
    results: dict[str, object] = {"fits": {}, "start": start_times(), "memory": memory_beside_input()}
    table = Table(
        "data", "nodes", "CA+ / C", "bar", "CAE_FC / CA+", "NumPy / CA+", "predict / KMeans", "MiniBatch", "river"
    )
    with tempfile.TemporaryDirectory() as folder:
        brute = BruteForceC(folder)
        for name, X in data_sets(options.quick).items():
            X = np.ascontiguousarray(X, dtype=float)
            found = {**compare_fits(name, X, brute, repeats), **compare_predictions(X, repeats)}
            results["fits"][name] = found  # type: ignore[index]
            bar = 0.5 if found["k_times_d"] >= 5000 else 1.0
            table.add_row(
                name,
                str(found["nodes"]),
                marked(found["to_c"], bar),
                f"<= {bar}",
                marked(found["cae_fc_to_ca_plus"], 1.5),
                f"{found['numpy_to_ca_plus']:.0f}x",
                marked(found["predict_to_kmeans"], 2.0),
                f"{found['minibatch_to_ca_plus']:.1f}x",
                f"{found['dbstream_to_ca_plus']:.0f}x",
            )
        results["growth"] = growth(brute, options.quick)
    console.print(table)
    start, memory = results["start"], results["memory"]
    console.print(
        f"first fit ever {start['first_fit_cpu_seconds']:.1f} s CPU (bar 5), with compiled kernels "  # type: ignore[index]
        f"{start['cached_start_cpu_seconds']:.2f} s CPU (bar 1); memory beside the input "  # type: ignore[index]
        f"{memory['peak_to_state']:.2f} x the state (bar 2)"
    )  # type: ignore[index]
    draw(results["growth"], out / "speed.png")  # type: ignore[arg-type]
    if not options.quick:
        (out / "speed.json").write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"picture: {out / 'speed.png'}")


def marked(ratio: float, bar: float) -> str:
    return f"{ratio:.2f}" if ratio <= bar else f"[bold red]{ratio:.2f} (bar {bar})[/]"


if __name__ == "__main__":
    main()
