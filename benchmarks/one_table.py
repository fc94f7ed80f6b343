"""One table, nobody says how many clusters: does `FCAC()` find them? From rows to labels, each figure beside its bar.

    python benchmarks/one_table.py [GROUP ...] [--quick] [--data DIR] [--json FILE]

GROUP is one of gaussians, orders, one, sorted, unequal, text, shapes, paper, novelty, speed, large; all by default.
--quick takes fewer and smaller tables, some two minutes in all; large and paper then run only if they are asked for.
DIR holds ``shapes/*.npz`` (X, y0, y1, ...; label 0 is noise and left out; the best of several labellings counts),
``text-snippets.npz`` (X, y) and the sets of the paper; without it these three groups are left out. The exit code is 1
if a bar is missed.

Defaults are chosen on everything but the sets of the paper, which are a check afterwards.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import adjusted_mutual_info_score as ami
from sklearn.metrics import adjusted_rand_score as ari
from sklearn.metrics import normalized_mutual_info_score as nmi

import fcac
from fcac import FCAC, load
from fcac.paper.grid import permuted_sites
from fcac.paper.simulated_sites import as_groups, dirichlet, iid
from novelty import KINDS, measure


class Found(NamedTuple):
    """One line of the table."""

    what: str
    reached: str
    bar: str = ""
    met: bool | None = None


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


def shapes(data: Path, quick: bool) -> Iterator[Found]:
    """Shape sets: no number given, the number given, and ten sites."""
    ways: dict[str, list[tuple[float, float, bool]]] = {"no k": [], "k given": [], "Dirichlet .5": [], "IID": []}
    for path in sorted((data / "shapes").glob("*.npz"))[:: 3 if quick else 1]:
        with np.load(path) as held:
            X = held["X"].astype(np.float64)
            truths = [held[f"y{i}"] for i in range(20) if f"y{i}" in held.files]
        ways["no k"].append(best(labels(X), truths))
        ways["k given"].append(max(best(labels(X, k=len(np.unique(y[y != 0]))), [y]) for y in truths))
        for way, parts in (("Dirichlet .5", dirichlet(truths[0], 10, 0.5, 0, 5)), ("IID", iid(truths[0], 10, 0))):
            rows, groups = as_groups(parts)
            site = np.empty(len(X), np.int64)
            site[rows] = groups
            ways[way].append(best(labels(X, site), truths))
        print(f"  {path.stem}: " + ", ".join(f"{w} {s[-1][0]:.2f}/{s[-1][1]:.2f}" for w, s in ways.items()), flush=True)
    mean = {way: np.mean([(a, b, c) for a, b, c in scores], axis=0) for way, scores in ways.items()}
    bars = {"no k": (".75 / .82, number 55 %", bool((mean["no k"] >= (0.75, 0.82, 0.55)).all())),
            "k given": (".81 / .85", bool((mean["k given"][:2] >= (0.81, 0.85)).all()))}  # fmt: skip
    for way, (a, b, number) in mean.items():
        near = bool((mean[way][:2] >= mean["no k"][:2] - 0.02).all())
        right = "" if way == "k given" else f", number {number:.0%}"
        title = way if way in bars else f"ten sites, {way}"
        yield Found(
            f"{len(ways[way])} shapes, {title}: ARI / AMI",
            f"{a:.3f} / {b:.3f}{right}",
            *bars.get(way, ("within .02 of one site", near)),
        )


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


def possible(X: Any, y: Any) -> float:
    """AMI of the best there is for Gaussians of one width: the nearest of the true centres."""
    centres = np.array([X[y == c].mean(axis=0) for c in range(y.max() + 1)])
    nearest = [cdist(X[i : i + 50_000], centres).argmin(axis=1) for i in range(0, len(X), 50_000)]
    return float(ami(y, np.concatenate(nearest)))


def gaussians(data: Path, quick: bool) -> Iterator[Found]:
    """Far Gaussians, one and ten sites."""
    reached, best_possible, right, wrong = [], [], [], []
    cases = [
        *((1_000, 2, 2), (1_200, 2, 3), (1_000, 10, 8), (1_000, 100, 10), (2_000, 3, 4), (5_000, 10, 50)),
        *((5_000, 50, 50), (20_000, 2, 100), (20_000, 20, 100), (100_000, 10, 20), (100_000, 50, 50)),
        *((100_000, 100, 100), (1_000_000, 5, 20)),
    ]
    for n, d, k in cases:
        if quick and n > 5_000:
            continue
        for seed in range(8 if n < 5_000 else 2 if n <= 20_000 else 1):
            X, y = far(n, d, k, seed)
            for sites in (1, 10):
                found = labels(X, None if sites == 1 else np.arange(n) % sites)
                reached.append(ami(y, found))
                best_possible.append(possible(X, y))
                right.append(len(np.unique(found)) == len(np.unique(y)))
                if not right[-1]:
                    wrong.append(f"{len(np.unique(found))} in {n:,} x {d} of {k}, seed {seed}, {sites} sites")
    behind = np.minimum(best_possible, 0.99) - reached
    yield Found(
        f"far Gaussians, {len(reached)} tables: AMI, right number",
        f"worst {min(reached):.3f} (nearest true centre: {min(best_possible):.3f}), "
        f"{np.mean(np.array(reached) >= 0.99):.1%} at .99; number {np.mean(right):.1%} {'; '.join(wrong)}",
        ".99, or the nearest true centre's, in all; number 95 %",
        bool(behind.max() <= 0 and np.mean(right) >= 0.95),
    )


def standardised(X: Any) -> Any:
    """Every feature with mean 0 and deviation 1."""
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)


def orders(data: Path, quick: bool) -> Iterator[Found]:
    """scikit-learn's digits, breast cancer and wine, in 20 row orders."""
    bars = {"digits": ((0.88, 0.85), (0.83, 0.78)), "breast cancer": ((0.0, 0.5),) * 2, "wine": ((0.0, 0.75),) * 2}
    n_orders = 3 if quick else 20
    for name, loaded in (("digits", load_digits), ("breast cancer", load_breast_cancer), ("wine", load_wine)):
        X, y = loaded(return_X_y=True)
        for number, (way, rows) in enumerate((("raw", X), ("standardised", standardised(X)))):
            scores = []
            for seed in range(n_orders):
                order = np.random.default_rng(seed).permutation(len(rows))
                scores.append(ami(y[order], labels(rows[order])))
            mean, least = bars[name][number]
            yield Found(
                f"{name}, {way}, {n_orders} orders: AMI",
                f"mean {np.mean(scores):.3f}, worst {min(scores):.3f}",
                (f"mean {mean:.2f}, " if mean else "") + f"worst {least:.2f}",
                np.mean(scores) >= mean and min(scores) >= least,
            )


def text(data: Path, quick: bool) -> Iterator[Found]:
    """Sentence embeddings of 256 features."""
    with np.load(data / "text-snippets.npz") as held:
        X, y = held["X"].astype(np.float64), held["y"]
    found = labels(X)
    reached = nmi(y, found)
    yield Found(
        "text embeddings: NMI",
        f"{reached:.3f} ({len(np.unique(found))} clusters, {len(np.unique(y))} topics)",
        ".63",
        reached >= 0.63,
    )


def one(data: Path, quick: bool) -> Iterator[Found]:
    """A single cluster of five kinds: one cluster, please."""
    draw: dict[str, Callable[[Any, int, int], Any]] = {
        "Gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
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
            for n in (100, 1_000, *(() if quick else (10_000, *((100_000,) if d <= 10 else ())))):
                X = make(np.random.default_rng(1000 * d + n), n, d)
                right[kind].append(len(np.unique(labels(X))) == 1)
    everything = [is_one for found in right.values() for is_one in found]
    by_kind = ", ".join(f"{kind} {np.mean(found):.0%}" for kind, found in right.items())
    yield Found(
        f"one heap, {len(everything)} tables: found as one",
        f"{np.mean(everything):.0%} ({by_kind})",
        "85 %",
        np.mean(everything) >= 0.85,
    )


def by_class(data: Path, quick: bool) -> Iterator[Found]:
    """Rows sorted by cluster instead of shuffled."""
    gaps = []
    sets = [load_digits(return_X_y=True), far(20_000, 10, 20, 5), *([] if quick else [far(50_000, 2, 30, 6)])]
    for X, y in sets:
        order = np.argsort(y, kind="stable")
        gaps.append(abs(ami(y, labels(X)) - ami(y[order], labels(X[order]))))
    yield Found(
        "rows sorted by cluster against shuffled: AMI", f"{max(gaps):.3f} apart", "within .02", max(gaps) <= 0.02
    )


def unequal(data: Path, quick: bool) -> Iterator[Found]:
    """Clusters from .2 % of 50,000 rows on: all of at least 100 rows found."""
    for d in (2, 10) if quick else (2, 5, 10, 20, 50):
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
        yield Found(f"unequal sizes, d = {d}: found", f"{held} of 20, AMI {ami(y, found):.3f}", "all", held == 20)


# Smallest first. What version 0.1.0 reached on them is in docs/results.
PAPER = (
    "hill-valley",
    "phoneme",
    "ozone-level-8hr",
    "optdigits",
    "mozilla4",
    "pendigits",
    "MagicTelescope",
    "Bioresponse",
    "skin-segmentation",
    "Fashion-MNIST",
)
PAPER_BARS = {"optdigits": 0.93, "pendigits": 0.87}


def paper(data: Path, quick: bool) -> Iterator[Found]:
    """The paper's sets under its protocol: a check, nothing is chosen on them."""
    for name in PAPER[:6] if quick else PAPER:
        for scenario in ("iid", "non-iid"):
            scores = []
            for number in range(1 if quick or name == "Fashion-MNIST" else 3):
                X, y, sites = permuted_sites(name, scenario, number, str(data))
                scores.append(ami(y, FCAC(random_state=number).fit(sites).predict(X)))
            bar = PAPER_BARS.get(name)
            yield Found(
                f"{name}, {scenario}, {len(scores)} trials: AMI",
                f"{np.mean(scores):.3f}",
                "" if bar is None else f"{bar:.2f}",
                None if bar is None else np.mean(scores) >= bar,
            )


def novelty(data: Path, quick: bool) -> Iterator[Found]:
    """Fresh rows called novel at alpha = .01, for each kind of data."""
    for kind in KINDS:
        shares = [measure(kind, sites, "communities")[:3] for sites in ((1,) if quick else (1, 5, 20))]
        fresh = [share[0] for share in shares]
        yield Found(
            f"novel at alpha 1 %, {kind}: fresh rows",
            f"{min(fresh):.2f} to {max(fresh):.2f} %; far rows {min(share[1] for share in shares):.0f} %",
            ".3 to 3 %",
            0.3 <= min(fresh) <= max(fresh) <= 3,
        )


def peak() -> float:
    """Return the largest memory since the last call, in MB; Linux only."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) / 1024


def speed(data: Path, quick: bool) -> Iterator[Found]:
    """1,000,000 rows of 10 features, fit and labels, beside k-means that is told the number of clusters."""
    n = 200_000 if quick else 1_000_000
    X, y = far(n, 10, 20, 0)
    labels(X[:5000])
    KMeans(20, n_init=1, random_state=0).fit(X[:5000])
    took, beside, scores = {}, {}, {}
    for name, cluster in (
        ("fcac", lambda: FCAC(random_state=0).fit_predict(X)),
        ("k-means", lambda: KMeans(20, n_init=1, random_state=0).fit_predict(X)),
    ):
        peak()
        before, started = peak(), time.process_time()
        found = cluster()
        took[name] = time.process_time() - started
        beside[name], scores[name] = peak() - before, (ami(y, found), len(np.unique(found)))
    ratio = took["fcac"] / took["k-means"]
    yield Found(
        f"{n:,} x 10, fit and labels, CPU against k-means told k",
        f"{ratio:.1f} times ({took['fcac']:.1f} s against {took['k-means']:.1f} s), AMI {scores['fcac'][0]:.3f}, "
        f"{scores['fcac'][1]} of 20, {beside['fcac']:.0f} MB (k-means {beside['k-means']:.0f} MB)",
        "4 times, right, 300 MB",
        ratio <= 4 and scores["fcac"][0] >= 0.99 and scores["fcac"][1] == 20 and beside["fcac"] <= 300,
    )


def large(data: Path, quick: bool) -> Iterator[Found]:
    """10,000,000 rows of 20 features from Parquet, by the command."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    blocks = 10 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "rows.parquet", None
        rng = np.random.default_rng(0)
        centres = rng.uniform(0, 40, size=(20, 20))
        for _ in range(blocks):
            rows = (centres[rng.integers(20, size=100_000)] + rng.standard_normal((100_000, 20))).astype(np.float32)
            batch = pa.RecordBatch.from_arrays([pa.array(c) for c in rows.T], [f"x{j}" for j in range(20)])
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="none", use_dictionary=False)
            writer.write_batch(batch)
        assert writer is not None
        writer.close()
        model = Path(folder) / "model.fcac"
        subprocess.run([sys.executable, "-m", "fcac", "fit", str(path), "-o", str(model)], check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        memory = used.ru_maxrss / 1024
        yield Found(
            f"{blocks * 100_000:,} x 20 from Parquet",
            f"{memory:.0f} MB, {used.ru_utime + used.ru_stime:.0f} s of CPU, {load(model).n_clusters_} of 20 clusters",
            "2,000 MB",
            memory < 2_000,
        )


GROUPS: dict[str, Callable[[Path, bool], Iterator[Found]]] = {
    "gaussians": gaussians, "orders": orders, "one": one, "sorted": by_class, "unequal": unequal, "text": text,
    "shapes": shapes, "novelty": novelty, "speed": speed, "large": large, "paper": paper,
}  # fmt: skip
NEED_DATA, NOT_QUICK = ("shapes", "text", "paper"), ("large", "paper")


def main() -> int:
    """Run the groups asked for and print a line for each finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.data is None and any(name in NEED_DATA for name in given.groups):
        parser.error("shapes, text and paper need --data")
    wanted = given.groups or [name for name in GROUPS if (given.data is not None or name not in NEED_DATA)
                              and not (given.quick and name in NOT_QUICK)]  # fmt: skip
    print(
        f"{date.today()}, fcac {fcac.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"scikit-learn {sklearn.__version__}, {platform.machine()}{', quick' if given.quick else ''}\n"
    )
    print("| what | reached | bar | |\n|---|---|---|---|", flush=True)
    findings: list[Found] = []
    for name in wanted:
        for found in GROUPS[name](given.data or Path(), given.quick):
            findings.append(found)
            verdict = "" if found.met is None else "yes" if found.met else "**missed**"
            print(f"| {found.what} | {found.reached} | {found.bar} | {verdict} |", flush=True)
    if given.json is not None:
        rows = [{**found._asdict(), "met": None if found.met is None else bool(found.met)} for found in findings]
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(found.met is not None and not found.met for found in findings))


if __name__ == "__main__":
    sys.exit(main())
