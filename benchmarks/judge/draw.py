"""Contact sheets of the families, to look at: `python -m benchmarks.judge.draw --out DIRECTORY`, from the repository.

Each row of a sheet shows tables of one family, in two dimensions or along their two main axes; noise is grey. With
`--count` it prints shares of tables by rows, dimensions, clusters and how well neighbours agree on the label.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from .families import FAMILIES, GROUPS, make
from .parts import Labels, Rows


def plane(X: Rows) -> Rows:
    """Two columns to draw: the rows themselves, or their two main axes."""
    X = X - X.mean(axis=0)
    if X.shape[1] == 1:
        return np.column_stack([X, 0.05 * np.ptp(X) * np.random.default_rng(0).normal(size=len(X))])
    return X if X.shape[1] == 2 else X @ np.linalg.svd(X[:2000], full_matrices=False)[2][:2].T


def agreement(X: Rows, y: Labels) -> float:
    """Share of rows whose ten nearest neighbours mostly carry their label: low where nobody could tell."""
    X, y = X[y >= 0], y[y >= 0]
    if len(X) > 2000:
        some = np.random.default_rng(0).permutation(len(X))[:2000]
        X, y = X[some], y[some]
    m = min(10, len(X) - 1, max(2, int(np.bincount(y).min()) - 1))
    near = y[cKDTree(X).query(X, m + 1)[1][:, 1:]]
    votes = (near[:, :, None] == np.arange(y.max() + 1)).sum(axis=1)
    return float((votes.argmax(axis=1) == y).mean())


def sheet(names: list[str], columns: int, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.9 * columns, 1.95 * len(names)))
    axes = figure.subplots(len(names), columns, squeeze=False)
    for name, across in zip(names, axes, strict=True):
        for seed, axis in enumerate(across):
            X, y = make(name, seed)
            P = plane(X)
            colours = np.where(y < 0, "0.7", np.array([f"C{i}" for i in range(10)])[y % 10])
            axis.scatter(P[:, 0], P[:, 1], s=max(0.3, min(5, 600 / len(P))), c=colours, linewidths=0)
            axis.set_aspect("equal", "datalim")
            axis.set_xticks([])
            axis.set_yticks([])
            title = f"{len(X)}x{X.shape[1]} k{y.max() + 1} {agreement(X, y):.2f}"
            axis.set_title((f"{name}\n" if not seed else "") + title, fontsize=6)
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=70)


def shares(name: str, values: list[float], edges: list[float]) -> None:
    held = np.histogram(values, [*edges, np.inf])[0] / len(values)
    print(f"{name}: " + ", ".join(f"from {e:g}: {h:.1%}" for e, h in zip(edges, held, strict=True)))


def counted(per_family: int) -> None:
    """Print what a run of tables consists of."""
    n, d, k, told, each, slow, poor = [], [], [], [], [], Counter(), Counter()
    for name in FAMILIES:
        for seed in range(per_family):
            start = time.perf_counter()
            X, y = make(name, seed)
            slow[name] += (time.perf_counter() - start) / per_family
            n.append(len(X))
            d.append(X.shape[1])
            k.append(y.max() + 1)
            each.append((y >= 0).sum() / k[-1])
            told.append(agreement(X, y) if k[-1] > 1 else 1.0)
            poor[name] += (told[-1] < 0.8) / per_family
    print(f"{len(FAMILIES)} families, {len(set(GROUPS.values()))} groups, {len(n)} tables")
    print("groups:", dict(Counter(GROUPS.values())))
    shares("rows", n, [0, 30, 60, 100, 300, 1000, 3000, 10000, 20001])
    shares("columns", d, [1, 2, 3, 4, 11, 51])
    shares("clusters", k, [1, 2, 3, 4, 6, 9, 16, 31])
    shares(
        "rows a cluster, several clusters", [e for e, c in zip(each, k, strict=True) if c > 1], [0, 20, 50, 300, 1000]
    )
    several = [t for t, c in zip(told, k, strict=True) if c > 1]
    shares("neighbours agree, several clusters", several, [0, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
    print("slowest, ms:", {f: round(1000 * s) for f, s in slow.most_common(8)})
    print("most often below 0.8:", {f: round(s, 2) for f, s in poor.most_common(25) if s > 0.1})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/families"))
    parser.add_argument("--columns", type=int, default=10, help="tables of each family")
    parser.add_argument("--rows", type=int, default=9, help="families on a sheet")
    parser.add_argument("--count", type=int, default=0, help="print shares over so many tables of each family instead")
    chosen = parser.parse_args()
    if chosen.count:
        counted(chosen.count)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    names = sorted(FAMILIES, key=lambda name: (GROUPS[name], name))
    for i in range(0, len(names), chosen.rows):
        sheet(names[i : i + chosen.rows], chosen.columns, chosen.out / f"families-{i // chosen.rows:02d}.png")


if __name__ == "__main__":
    main()
