"""One table, side by side: fcac, today's clusterers that find the number of clusters, and those that are told it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.paper.grid import scores
from fcac.paper.peers import labels_of
from fcac.paper.unseen import FAMILIES

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def trial(name: str, method: str, number: int, data_dir: Path | None) -> dict[str, float]:
    """Cluster one set once, in a row order of the trial's own, and measure.

    Rows that a method calls noise count as one cluster, as in the literature on benchmarks; "right number" does not
    count them. Where a set has several reference labellings, the best score over them counts; rows that a reference
    calls noise are left out (Gagolewski, 2022).

    References
    ----------
    M. Gagolewski. A framework for benchmarking clustering algorithms. SoftwareX 20, 101270, 2022.
    """
    X, references = load_with_references(name, number, data_dir)
    order = np.random.default_rng(number).permutation(len(X))
    X, references = X[order], [y[order] for y in references]
    k = n_classes(references[0])
    _compile(method)
    _reset_peak()
    before = _memory("VmRSS")
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = labels_of(method, X, k, number)
    seconds = time.process_time() - start
    figures = _best_scores(references, labels)
    found = len(np.unique(labels[labels >= 0]))
    figures["right number"] = float(any(found == n_classes(y) for y in references))
    figures["CPU s"] = round(seconds, 3)
    if before is not None:
        peak = _memory("VmHWM")
        figures["MB"] = round(max(0.0, (peak or before) - before) / 1024, 1)
    return figures


def load(name: str, number: int, data_dir: Path | None) -> Table:
    """Return rows and classes of a set; sets that are made take the trial's number as their seed."""
    X, references = load_with_references(name, number, data_dir)
    return X, references[0]


def load_with_references(
    name: str, number: int, data_dir: Path | None
) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """Return rows and every reference labelling of a set; rows without a class have -1.

    A file NAME.npz holds X and y, or X and y0, y1 ... as in the benchmark suite for clustering algorithms, where
    class 0 is noise.
    """
    if name in MADE:
        X, y = MADE[name](np.random.default_rng(1000 + number))
        return X, [y]
    if data_dir is None:
        raise ValueError(f"set {name}: give the directory of its file {name}.npz (X, y) with --data-dir")
    path = next((p for p in (data_dir / f"{name}.npz", data_dir / "shapes" / f"{name}.npz") if p.exists()), None)
    if path is None:
        raise ValueError(f"set {name}: there is no {name}.npz in {data_dir}")
    with np.load(path, allow_pickle=False) as stored:
        X = stored["X"].astype(np.float64)
        if "y" in stored:
            return X, [np.unique(stored["y"], return_inverse=True)[1].astype(np.int64)]
        named = sorted(key for key in stored if key != "X")
        if not named:
            raise ValueError(f"set {name}: {path} has no classes, neither y nor y0")
        return X, [stored[key].astype(np.int64) - 1 for key in named]


def n_classes(y: NDArray[np.int64]) -> int:
    """Return the number of classes, without rows that have none."""
    return len(np.unique(y[y >= 0]))


def _best_scores(references: list[NDArray[np.int64]], labels: NDArray[np.int64]) -> dict[str, float]:
    found = [scores(y[y >= 0], labels[y >= 0]) for y in references]
    return {measure: max(one[measure] for one in found) for measure in found[0]}


# ---------------------------------------------------------------- sets that are made


def _gaussians(n: int, d: int, k: int, apart: float) -> Callable[[np.random.Generator], Table]:
    def make(rng: np.random.Generator) -> Table:
        centres: list[NDArray[np.float64]] = []
        side = 2.0 * apart * k ** (1.0 / d)
        while len(centres) < k:
            centre = rng.uniform(0, side, d)
            if all(np.linalg.norm(centre - other) > apart for other in centres):
                centres.append(centre)
            side *= 1.001  # a box that is too small grows until there is room
        y = rng.integers(k, size=n)
        return np.array(centres)[y] + rng.normal(size=(n, d)), y

    return make


def _toy(maker: str, n: int, **settings: Any) -> Callable[[np.random.Generator], Table]:
    def make(rng: np.random.Generator) -> Table:
        from sklearn import datasets

        X, y = getattr(datasets, maker)(n, random_state=int(rng.integers(2**31)), **settings)
        return X, y.astype(np.int64)

    return make


def _spirals(rng: np.random.Generator) -> Table:
    t, y = np.sqrt(rng.uniform(0.05, 1, 2000)) * 3 * np.pi, rng.integers(2, size=2000)
    side = np.where(y == 1, 1.0, -1.0)
    return np.c_[side * t * np.cos(t), side * t * np.sin(t)] + rng.normal(0, 0.15, (2000, 2)), y


def _unequal(rng: np.random.Generator) -> Table:
    sizes, spreads = (3000, 1000, 200, 100), (1.0, 0.5, 0.3, 0.3)
    places = np.array([[0, 0], [6, 0], [0, 5], [6, 5]])
    y = np.repeat(np.arange(4), sizes)
    return places[y] + rng.normal(size=(len(y), 2)) * np.array(spreads)[y][:, None], y


def _stretched(rng: np.random.Generator) -> Table:
    X, y = _toy("make_blobs", 2000, centers=3, cluster_std=0.6)(rng)
    return X @ rng.normal(size=(2, 2)), y


def _from_sklearn(loader: str, standardised: bool) -> Callable[[np.random.Generator], Table]:
    def make(rng: np.random.Generator) -> Table:
        from sklearn import datasets
        from sklearn.preprocessing import StandardScaler

        X, y = getattr(datasets, loader)(return_X_y=True)
        return (StandardScaler().fit_transform(X) if standardised else X), y.astype(np.int64)

    return make


#: Sets that need no file.
MADE: dict[str, Callable[[np.random.Generator], Table]] = {
    "10 Gaussians, 2 features": _gaussians(3000, 2, 10, 7.0),
    "30 Gaussians, 10 features": _gaussians(5000, 10, 30, 9.0),
    "20 Gaussians, 50 features": _gaussians(4000, 50, 20, 14.0),
    "overlapping Gaussians": _gaussians(3000, 2, 5, 4.0),
    "two moons": _toy("make_moons", 2000, noise=0.07),
    "two circles": _toy("make_circles", 2000, noise=0.05, factor=0.5),
    "two spirals": _spirals,
    "unequal sizes": _unequal,
    "stretched": _stretched,
    "iris": _from_sklearn("load_iris", False),
    "wine": _from_sklearn("load_wine", True),
    "breast cancer": _from_sklearn("load_breast_cancer", True),
    "digits": _from_sklearn("load_digits", False),
    **FAMILIES,
}


@cache
def _compile(method: str) -> None:
    """Run a method once on next to nothing, so that imports and compiling are not timed."""
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels_of(method, np.concatenate([rng.normal(size=(60, 2)), 9 + rng.normal(size=(60, 2))]), 2, 0)


def _memory(field: str) -> float | None:
    """Return a line of Linux's own account of this process, in kB; None elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(field + ":")), None)


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
