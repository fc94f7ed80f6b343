"""Measure the condenser: quality with the communities read-out, row order, small clusters, least rows, speed.

    python benchmarks/condensing.py quality --nodes 1000 2000 4000 --data DIR
    python benchmarks/condensing.py orders | unequal | least | merge | speed | search

DIR holds ``shapes/*.npz`` (X, y0, y1, ...; label 0 is noise, left out) and ``text-snippets.npz`` (X, y); without it the
synthetic sets and scikit-learn's own are used.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac.clusters import Communities
from fcac.nodes import Reservoir

Set = tuple[str, Any, list[Any]]


# ---------------------------------------------------------------- data


def gaussians(rng: Any, n: int, d: int, k: int, apart: float = 6.0, sizes: Any = None) -> tuple[Any, Any]:
    """Round clusters of unit spread whose centres are at least ``apart`` from each other."""
    centres = np.empty((0, d))
    side = apart * max(1.0, 1.5 * k ** (1 / d) / np.sqrt(min(d, 4)))
    while len(centres) < k:
        one = rng.uniform(-side / 2, side / 2, size=d)
        if not len(centres) or ((centres - one) ** 2).sum(axis=1).min() >= apart**2:
            centres = np.vstack([centres, one])
        else:
            side *= 1.01
    y = rng.integers(k, size=n) if sizes is None else rng.permutation(np.repeat(np.arange(k), sizes))
    return centres[y] + rng.normal(size=(len(y), d)), y


def synthetic() -> Iterator[Set]:
    rng = np.random.default_rng(1)
    for n, d, k in (
        (2_000, 2, 5),
        (10_000, 2, 30),
        (50_000, 2, 100),
        (5_000, 10, 8),
        (20_000, 10, 100),
        (100_000, 10, 20),
        (5_000, 50, 8),
        (20_000, 50, 50),
        (20_000, 100, 100),
        (50_000, 5, 2),
    ):
        X, y = gaussians(rng, n, d, k)
        yield f"gauss-n{n}-d{d}-k{k}", X, [y]


def toys() -> Iterator[Set]:
    for name, load in (("digits", load_digits), ("cancer", load_breast_cancer), ("wine", load_wine)):
        X, y = load(return_X_y=True)
        yield name, X, [y]
        spread = X.std(axis=0)
        yield f"{name}-std", (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1), [y]


def shapes(data: Path | None) -> Iterator[Set]:
    for path in sorted((data / "shapes").glob("*.npz")) if data else ():
        with np.load(path) as held:
            X = held["X"].astype(np.float64)
            yield path.stem, X, [held[name] for name in sorted(held) if name.startswith("y")]


def text(data: Path | None) -> Iterator[Set]:
    if data and (data / "text-snippets.npz").exists():
        with np.load(data / "text-snippets.npz") as held:
            yield "text", held["X"].astype(np.float64), [held["y"]]


# ---------------------------------------------------------------- scoring


def clustered(X: Any, nodes: Any, counts: Any) -> tuple[Any, Communities]:
    model = Communities().update({0: (nodes, counts)}).fit()
    return model.predict(X), model


def scores(found: Any, truths: list[Any], noise: bool) -> tuple[float, float, bool]:
    """Best ARI, best AMI and whether the number of clusters is right, over the reference labellings."""
    ari, ami, right = -1.0, -1.0, False
    for y in truths:
        kept = y > 0 if noise else np.ones(len(y), bool)
        ari = max(ari, adjusted_rand_score(y[kept], found[kept]))
        ami = max(ami, adjusted_mutual_info_score(y[kept], found[kept]))
        right = right or len(np.unique(found)) == len(np.unique(y[kept]))
    return ari, ami, right


def has_noise(name: str) -> bool:
    """Whether label 0 is noise: in the shapes, which are named after their collection."""
    return name.startswith(("fcps-", "graves-", "other-", "sipu-", "uci-", "wut-"))


def condensed(X: Any, nodes: int, salt: int = 0, min_rows: float = 0) -> tuple[Any, Any]:
    state = Reservoir(X.shape[1], nodes, salt).learn(X)
    return state.condensed(min_rows)[:2]


# ---------------------------------------------------------------- programs


def quality(options: Any) -> None:
    groups: dict[str, list[Set]] = {
        "shapes": list(shapes(options.data)),
        "gaussians": list(synthetic()),
        "toys": list(toys()),
        "text": list(text(options.data)),
    }
    for group, sets in groups.items():
        if options.only and group not in options.only:
            continue
        table: dict[Any, list[Any]] = {}
        for name, X, truths in sets:
            line = [f"{name:28s} n {len(X):7d} d {X.shape[1]:4d}"]
            for how in options.nodes:
                for order in ("shuffled", "sorted") if options.sorted else ("shuffled",):
                    rows = np.random.default_rng(0).permutation(len(X))
                    if order == "sorted":
                        rows = np.argsort(truths[0], kind="stable")
                    started = time.process_time()
                    nodes, counts = condensed(X[rows], how)
                    middle = time.process_time()
                    found, _ = clustered(X, nodes, counts)
                    ended = time.process_time()
                    result = (*scores(found, truths, group == "shapes"), len(nodes), middle - started, ended - middle)
                    table.setdefault((how, order), []).append(result)
                    line.append(f"{how}{order[1]}: {result[0]:.2f}/{result[1]:.2f} k{len(np.unique(found))}")
            print("  ".join(line), flush=True)
        for (how, order), results in table.items():
            mean = np.mean(np.array(results, dtype=float), axis=0)
            print(
                f"== {group} {how} {order}: ARI {mean[0]:.3f} AMI {mean[1]:.3f} right {mean[2]:.2f} "
                f"K {mean[3]:.0f} condense {mean[4]:.2f} s read-out and predict {mean[5]:.2f} s",
                flush=True,
            )


def orders(options: Any) -> None:
    sets = [*toys(), *text(options.data)]
    rng = np.random.default_rng(5)
    for n, d, k, apart in ((20_000, 2, 15, 4.0), (20_000, 10, 10, 4.0), (20_000, 50, 20, 6.0)):
        X, y = gaussians(rng, n, d, k, apart)
        sets.append((f"gauss-n{n}-d{d}-k{k}-apart{apart}", X, [y]))
    sets += [one for one in shapes(options.data) if len(one[1]) > 3000]
    for name, X, truths in sets:
        for how in options.nodes:
            found = []
            for trial in range(options.trials):
                rows = np.random.default_rng(trial).permutation(len(X))
                labels, _ = clustered(X, *condensed(X[rows], how))
                found.append(scores(labels, truths, has_noise(name))[1])
            print(
                f"{name:30s} nodes {how}: AMI mean {np.mean(found):.3f} least {min(found):.3f} "
                f"spread {max(found) - min(found):.3f}",
                flush=True,
            )


def unequal(options: Any) -> None:
    """Clusters whose sizes fall geometrically to .2 % of 50,000 rows: how many of at least 100 rows are found."""
    for d in (2, 5, 10, 20, 50):
        for how in options.nodes:
            lines = []
            for trial in range(options.trials):
                rng = np.random.default_rng(100 * d + trial)
                sizes = np.geomspace(100, 5_500, 30)
                sizes = np.maximum(np.rint(sizes * (50_000 / sizes.sum())).astype(int), 100)
                X, y = gaussians(rng, int(sizes.sum()), d, 30, 8.0, sizes)
                rows = np.argsort(y, kind="stable") if options.sorted else slice(None)
                nodes, counts = condensed(X[rows], how)
                found, _ = clustered(X, nodes, counts)
                lines.append((found_clusters(y, found), len(np.unique(found)), len(nodes)))
            share, k, n_nodes = np.mean(lines, axis=0)
            print(f"d {d:3d} nodes {how}: found {share:.1f} of 30, {k:.1f} clusters, {n_nodes:.0f} nodes", flush=True)


def found_clusters(y: Any, found: Any) -> int:
    """True clusters of which one found cluster holds at least 90 %, and little else (Jaccard above .8)."""
    count = 0
    for one in np.unique(y):
        inside = y == one
        label = np.bincount(found[inside]).argmax()
        both = (inside & (found == label)).sum()
        count += both / (inside | (found == label)).sum() > 0.8
    return int(count)


def least(options: Any) -> None:
    """What it costs that every node stands for at least m rows."""
    sets = [*toys(), *(one for one in synthetic() if len(one[1]) <= 20_000), *shapes(options.data), *text(options.data)]
    sets = [one for one in sets if len(one[1]) <= 20_000]
    table: dict[Any, list[float]] = {}
    for name, X, truths in sets:
        line = [f"{name:28s}"]
        for m in (0, 2, 3, 5, 10):
            nodes, counts = condensed(X, options.nodes[0], min_rows=m)
            labels, _ = clustered(X, nodes, counts)
            ami = scores(labels, truths, has_noise(name))[1]
            table.setdefault(m, []).append(ami)
            line.append(f"m {m}: {ami:.2f} ({len(nodes)})")
        print("  ".join(line), flush=True)
    print({m: round(float(np.mean(values)), 3) for m, values in table.items()})


def merge(options: Any) -> None:
    """One pass against ten partitions merged."""
    for name, X, truths in [*synthetic(), *toys(), *text(options.data)]:
        for how in options.nodes:
            parts = [Reservoir(X.shape[1], how).learn(X[start::10]) for start in range(10)]
            one = Reservoir(X.shape[1], how).learn(X)
            both = Reservoir.merge(parts)
            results = [scores(clustered(X, s.nodes, s.counts)[0], truths, False)[1] for s in (one, both)]
            print(f"{name:28s} nodes {how}: one pass AMI {results[0]:.3f}, ten merged {results[1]:.3f}", flush=True)


def speed(options: Any) -> None:
    """CPU seconds against k-means told the number of clusters, on one million rows."""
    rng = np.random.default_rng(0)
    X, y = gaussians(rng, options.rows, options.features, 20)
    Reservoir(options.features, 100).learn(X[:5000])
    clustered(X[:5000], *condensed(X[:5000], 500))
    started = time.process_time()
    model = KMeans(20, n_init=1, random_state=0).fit(X)
    told = model.predict(X)
    k_means = time.process_time() - started
    print(f"k-means told k: {k_means:.2f} s CPU, AMI {adjusted_mutual_info_score(y, told):.3f}", flush=True)
    for how in options.nodes:
        started = time.process_time()
        state = Reservoir(options.features, how).learn(X)
        nodes, counts = state.nodes, state.counts
        condense = time.process_time() - started
        model = Communities().update({0: (nodes, counts)}).fit()
        read = time.process_time() - started - condense
        found = model.predict(X)
        whole = time.process_time() - started
        print(
            f"nodes {how}: condense {condense:.2f}, read-out {read:.2f}, predict {whole - condense - read:.2f}, "
            f"all {whole:.2f} s CPU = {whole / k_means:.2f} x k-means; AMI {adjusted_mutual_info_score(y, found):.3f}, "
            f"{len(np.unique(found))} clusters",
            flush=True,
        )


def main() -> None:
    programs = {f.__name__: f for f in (quality, orders, unequal, least, merge, speed)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=programs)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2000, 4000])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--only", nargs="+", default=None, help="groups of sets")
    parser.add_argument("--sorted", action="store_true", help="also with rows sorted by cluster")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=10)
    options = parser.parse_args()
    programs[options.program](options)


if __name__ == "__main__":
    sys.exit(main())
