"""One table, nobody says how many clusters: does `FCAC()` find them? End to end, from rows to labels.

    python benchmarks/one_table.py [GROUP ...] [--data DIR] [--json FILE]

GROUP is one of shapes, gaussians, orders, text, one, sorted, unequal, speed, large; all by default. speed takes a
minute and 1 GB of memory, large some minutes and 1 GB of disk. DIR holds ``shapes/*.npz`` (X,
y0, y1, ...; label 0 is noise and left out; the best of several labellings counts) and ``text-snippets.npz`` (X, y);
without it these two groups are left out. Every line says what was reached and, where there is one, the bar.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import adjusted_mutual_info_score as ami
from sklearn.metrics import adjusted_rand_score as ari
from sklearn.metrics import normalized_mutual_info_score as nmi

from fcac import FCAC, load
from fcac.tables.partition import as_groups, dirichlet, iid

Found = dict[str, Any]


def labels(X: Any, groups: Any = None, k: int | None = None) -> Any:
    """Fit and label one table."""
    return FCAC(n_clusters=k, random_state=0).fit(X, groups=groups).predict(X)


def best(found: Any, truths: list[Any], noise: int | None = 0) -> tuple[float, float, bool]:
    """ARI, AMI and whether the number is right, for the reference that fits best."""
    scores = []
    for y in truths:
        kept = y != noise if noise is not None else np.ones(len(y), bool)
        right = len(np.unique(found[kept])) == len(np.unique(y[kept]))
        scores.append((ari(y[kept], found[kept]), ami(y[kept], found[kept]), right))
    return max(scores)


# ---------------------------------------------------------------- groups


def shapes(data: Path) -> Iterator[Found]:
    """Shape sets: no number given, the number given, and ten sites."""
    ways: dict[str, list[tuple[float, float, bool]]] = {"no k": [], "k given": [], "dirichlet": [], "iid": []}
    for path in sorted((data / "shapes").glob("*.npz")):
        with np.load(path) as held:
            X = held["X"].astype(np.float64)
            truths = [held[f"y{i}"] for i in range(20) if f"y{i}" in held.files]
        ways["no k"].append(best(labels(X), truths))
        ways["k given"].append(max(best(labels(X, k=len(np.unique(y[y != 0]))), [y]) for y in truths))
        for way, parts in (("dirichlet", dirichlet(truths[0], 10, 0.5, 0, 5)), ("iid", iid(truths[0], 10, 0))):
            rows, groups = as_groups(parts)
            site = np.empty(len(X), np.int64)
            site[rows] = groups
            ways[way].append(best(labels(X, site), truths))
        print(f"  {path.stem}: " + ", ".join(f"{w} {s[-1][0]:.2f}/{s[-1][1]:.2f}" for w, s in ways.items()), flush=True)
    bars = {"no k": ".75 / .82, number 55 %", "k given": ".81 / .85", "dirichlet": "one site - .02", "iid": "the same"}
    for way, scores in ways.items():
        means = np.mean([(a, b, c) for a, b, c in scores], axis=0)
        yield {"what": f"{len(scores)} shapes, {way}", "ari": means[0], "ami": means[1], "number": means[2],
               "bar": bars[way]}  # fmt: skip


def far(n: int, d: int, k: int, seed: int) -> tuple[Any, Any]:
    """Unit Gaussians far enough apart that the nearest centre is right in 99 % and more."""
    rng = np.random.default_rng(seed)
    centres: list[Any] = []
    side = 8.0 * k ** (1 / d)
    while len(centres) < k:
        one = rng.uniform(0, side, size=d)
        if all(np.linalg.norm(one - other) > 6.5 for other in centres):
            centres.append(one)
        side *= 1.002
    y = rng.integers(k, size=n)
    return np.array(centres)[y] + rng.normal(size=(n, d)), y


def gaussians(data: Path) -> Iterator[Found]:
    """Far Gaussians, one and ten sites."""
    reached, right, worst = [], [], (1.0, "")
    cases = [(1_000, 2, 2), (1_000, 10, 8), (1_000, 100, 10), (5_000, 10, 50), (5_000, 50, 50), (20_000, 2, 100),
             (20_000, 20, 100), (100_000, 10, 20), (100_000, 50, 50), (100_000, 100, 100),
             (1_000_000, 5, 20)]  # fmt: skip
    for n, d, k in cases:
        for seed in range(2 if n <= 20_000 else 1):
            X, y = far(n, d, k, seed)
            for sites in (1, 10):
                found = labels(X, None if sites == 1 else np.arange(n) % sites)
                reached.append(ami(y, found))
                right.append(len(np.unique(found)) == len(np.unique(y)))
                worst = min(worst, (reached[-1], f"{n:,} x {d}, {k} clusters, {sites} sites"))
    yield {"what": f"{len(reached)} far Gaussian tables", "ami": float(np.mean(reached)),
           "number": float(np.mean(right)),
           "worst": f"{worst[0]:.3f} ({worst[1]})", "bar": "AMI .99 in all, number 95 %"}  # fmt: skip


def standardised(X: Any) -> Any:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)


def orders(data: Path) -> Iterator[Found]:
    """scikit-learn's digits, breast cancer and wine, in 20 row orders."""
    bars = {"digits": ("mean .88, worst .85", "mean .83, worst .78"), "cancer": ("worst .50",) * 2,
            "wine": ("worst .75",) * 2}  # fmt: skip
    for name, loaded in (("digits", load_digits), ("cancer", load_breast_cancer), ("wine", load_wine)):
        X, y = loaded(return_X_y=True)
        for number, (way, rows) in enumerate((("raw", X), ("standardised", standardised(X)))):
            scores = []
            for seed in range(20):
                order = np.random.default_rng(seed).permutation(len(rows))
                scores.append(ami(y[order], labels(rows[order])))
            yield {"what": f"{name}, {way}, 20 orders", "ami": float(np.mean(scores)), "worst": f"{min(scores):.3f}",
                   "bar": bars[name][number]}  # fmt: skip


def text(data: Path) -> Iterator[Found]:
    """Sentence embeddings of 256 features."""
    with np.load(data / "text-snippets.npz") as held:
        X, y = held["X"].astype(np.float64), held["y"]
    found = labels(X)
    yield {"what": "text embeddings", "nmi": nmi(y, found), "number": f"{len(np.unique(found))} of {len(np.unique(y))}",
           "bar": "NMI .63"}  # fmt: skip


def one(data: Path) -> Iterator[Found]:
    """A single cluster of five kinds: one cluster, please."""
    draw: dict[str, Callable[[Any, int, int], Any]] = {
        "gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
        "cube": lambda rng, n, d: rng.uniform(size=(n, d)),
        "disc": lambda rng, n, d: (
            (lambda z: z / np.linalg.norm(z, axis=1, keepdims=True))(rng.normal(size=(n, d)))
            * rng.uniform(size=(n, 1)) ** (1 / d)
        ),
        "t3": lambda rng, n, d: rng.standard_t(3, size=(n, d)),
        "lognormal": lambda rng, n, d: np.exp(rng.normal(size=(n, d))),
    }
    right: dict[str, list[bool]] = {kind: [] for kind in draw}
    for kind, make in draw.items():
        for d in (1, 2, 3, 5, 10, 20, 50, 100):
            for n in (100, 1_000, 10_000, *((100_000,) if d <= 10 else ())):
                X = make(np.random.default_rng(1000 * d + n), n, d)
                right[kind].append(len(np.unique(labels(X))) == 1)
    everything = [is_one for found in right.values() for is_one in found]
    by_kind = ", ".join(f"{kind} {np.mean(found):.2f}" for kind, found in right.items())
    yield {"what": f"one cluster, {len(everything)} tables", "number": float(np.mean(everything)), "by kind": by_kind,
           "bar": "85 %"}  # fmt: skip


def by_class(data: Path) -> Iterator[Found]:
    """Rows sorted by cluster instead of shuffled."""
    gaps = []
    sets = [far(20_000, 10, 20, 5), far(50_000, 2, 30, 6), load_digits(return_X_y=True)]
    for X, y in sets:
        order = np.argsort(y, kind="stable")
        gaps.append(abs(ami(y, labels(X)) - ami(y[order], labels(X[order]))))
    yield {"what": "sorted against shuffled", "worst": f"{max(gaps):.3f}", "bar": "within .02"}


def unequal(data: Path) -> Iterator[Found]:
    """Clusters from .2 % of 50,000 rows on: all of at least 100 rows found."""
    for d in (2, 5, 10, 20, 50):
        rng = np.random.default_rng(d)
        X, y = far(50_000, d, 20, d)
        share = np.geomspace(0.002, 0.2, 20)
        keep = np.concatenate([np.flatnonzero(y == c)[: max(100, int(50_000 * s))] for c, s in enumerate(share)])
        keep = rng.permutation(keep)
        X, y = X[keep], y[keep]
        found = labels(X)
        held = 0
        for c in range(20):
            inside = found[y == c]
            label = np.bincount(inside - inside.min()).argmax() + inside.min()
            held += (inside == label).mean() > 0.9 and (y[found == label] == c).mean() > 0.9
        yield {"what": f"unequal sizes, d = {d}", "found": f"{held} of 20", "ami": ami(y, found), "bar": "20 of 20"}


def peak() -> float:
    """Return the largest memory since the last call, in MB; Linux only."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) / 1024


def speed(data: Path) -> Iterator[Found]:
    """1,000,000 rows of 10 features, fit and labels, beside k-means that is told the number of clusters."""
    X, y = far(1_000_000, 10, 20, 0)
    labels(X[:5000])
    KMeans(20, n_init=1, random_state=0).fit(X[:5000])
    took, beside = {}, {}
    for name, cluster in (
        ("fcac", lambda: FCAC(random_state=0).fit_predict(X)),
        ("k-means", lambda: KMeans(20, n_init=1, random_state=0).fit_predict(X)),
    ):
        peak()
        before, started = peak(), time.process_time()
        found = cluster()
        took[name] = time.process_time() - started
        beside[name] = peak() - before
        yield {"what": f"1,000,000 x 10, {name}", "seconds": took[name], "ami": ami(y, found),
               "number": f"{len(np.unique(found))} of 20", "MB": f"{beside[name]:.0f}"}  # fmt: skip
    yield {"what": "1,000,000 x 10, fcac / k-means", "ratio": took["fcac"] / took["k-means"], "bar": "4, 300 MB"}


def large(data: Path) -> Iterator[Found]:
    """10,000,000 rows of 20 features from Parquet, by the command."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "rows.parquet", None
        rng = np.random.default_rng(0)
        centres = rng.uniform(0, 40, size=(20, 20))
        for _ in range(100):
            rows = (centres[rng.integers(20, size=100_000)] + rng.standard_normal((100_000, 20))).astype(np.float32)
            batch = pa.RecordBatch.from_arrays([pa.array(c) for c in rows.T], [f"x{j}" for j in range(20)])
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="none", use_dictionary=False)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
        model = Path(folder) / "model.fcac"
        subprocess.run([sys.executable, "-m", "fcac", "fit", str(path), "-o", str(model)], check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        yield {"what": "10,000,000 x 20 from Parquet", "seconds": used.ru_utime + used.ru_stime,
               "number": f"{load(model).n_clusters_} of 20", "MB": f"{used.ru_maxrss / 1024:.0f}",
               "bar": "2,000 MB"}  # fmt: skip


GROUPS: dict[str, Callable[[Path], Iterator[Found]]] = {
    "gaussians": gaussians, "orders": orders, "one": one, "sorted": by_class, "unequal": unequal, "text": text,
    "shapes": shapes, "speed": speed, "large": large,
}  # fmt: skip


def main() -> None:
    """Run the groups asked for and print a line for each finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], default=[])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.data is None:
        print("no --data: shapes and text are left out", file=sys.stderr)
    wanted = given.groups or [name for name in GROUPS if given.data is not None or name not in ("shapes", "text")]
    findings: list[Found] = []
    for name in wanted:
        started = time.process_time()
        for found in GROUPS[name](given.data or Path()):
            findings.append(found)
            shown = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
            print(f"{shown}  [{time.process_time() - started:.0f} s]", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(findings, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
