"""Rows, nodes and files that tests learn from: every maker gives the same bits for the same arguments.

Expected numbers in tests depend on these bits. To change what a maker draws, or in which order, is to change the data
of many tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq

Seed = int | Sequence[int]

#: Centres of three clusters in the plane, well apart.
TRIANGLE = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])


# ------------------------------------------------------------ rows


def draw(rng: np.random.Generator, centres: Any, n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw n points around centres chosen at random; return them and the number of each one's centre."""
    centres = np.asarray(centres)
    which = rng.integers(len(centres), size=n)
    return centres[which] + rng.normal(0, spread, size=(n, centres.shape[1])), which


def blobs(n: int, seed: Seed, centres: Any = TRIANGLE, spread: float = 0.4) -> np.ndarray:
    """Return points around centres, by default three in the plane."""
    return draw(np.random.default_rng(seed), centres, n, spread)[0]


def labelled_blobs(n: int, seed: Seed, centres: Any = TRIANGLE, spread: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Return points around centres, and the number of each one's centre."""
    return draw(np.random.default_rng(seed), centres, n, spread)


def scattered_blobs(n: int, d: int, n_blobs: int, apart: float, seed: Seed = 0) -> np.ndarray:
    """Return points with standard deviation 1 around normal centres `apart` times as wide; the seed moves both."""
    rng = np.random.default_rng(seed)
    return draw(rng, rng.normal(size=(n_blobs, d)) * apart, n, 1.0)[0]


def mixture(n: int, d: int, seed: Seed, centres_seed: Seed = 0, n_blobs: int = 8) -> np.ndarray:
    """Return points around uniform centres that do not depend on `seed`, so that two draws have the same clusters."""
    centres = np.random.default_rng(centres_seed).uniform(-8, 8, size=(n_blobs, d))
    return blobs(n, seed, centres, 1.0)


def diagonal_blobs(n: int, seed: Seed, d: int = 2, step: float = 4.0, spread: float = 1.0) -> np.ndarray:
    """Return points around three centres on the diagonal: (0, 0, ...), (step, step, ...) and twice that."""
    return draw_diagonal(np.random.default_rng(seed), n, d, step, spread)


def draw_diagonal(rng: np.random.Generator, n: int, d: int, step: float, spread: float) -> np.ndarray:
    """Draw what `diagonal_blobs` returns."""
    return rng.normal(rng.integers(3, size=(n, 1)) * step, spread, size=(n, d))


def blocks(rng: np.random.Generator, n_each: int, at: Iterable[float] = (0, 4, 8), d: int = 2) -> np.ndarray:
    """Draw equally many points around (c, c, ...) for each c, one cluster after the other."""
    return np.concatenate([rng.normal(c, 0.3, size=(n_each, d)) for c in at])


def site_rows(names: Iterable[str], seed: int, n: int = 120) -> dict[str, np.ndarray]:
    """Return rows for every site, from the same clusters."""
    return {name: blobs(n, seed * 100 + i) for i, name in enumerate(names)}


# ------------------------------------------------------------ what sites send


def nodes_and_counts(n: int, seed: Seed, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes around the triangle's corners, with counts below `most`, as a site could send them."""
    rng = np.random.default_rng(seed)
    return draw(rng, TRIANGLE, n, 0.4)[0], rng.integers(1, most, size=n)


def sites_with_nodes(
    seed: Seed, n_sites: int = 8, n_blobs: int = 4, n_nodes: int = 60, d: int = 3
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return nodes and counts of sites that share their clusters."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_blobs, d)) * 6
    return {site: (draw(rng, centres, n_nodes, 1.0)[0], rng.integers(1, 20, size=n_nodes)) for site in range(n_sites)}


# ------------------------------------------------------------ files


def write_csv(path: Path, rows: Any, names: Iterable[str] = "xy", header: bool = True) -> Path:
    """Append rows to a CSV file so that they read back bit for bit."""
    with path.open("a") as stream:
        if header:
            stream.write(",".join(names) + "\n")
        stream.writelines(",".join(repr(float(value)) for value in row) + "\n" for row in rows)
    return path


def write_table(path: Path, rows: np.ndarray, names: Sequence[str], **more: Any) -> Path:
    """Write a table in the format of the file's name: CSV, Parquet, Feather or NPZ; `more` columns by their names."""
    if path.suffix == ".npz":
        np.savez(path, X=rows, columns=list(names), **{name: np.asarray(values) for name, values in more.items()})
        return path
    table = pa.table({**dict(zip(names, rows.T, strict=True)), **more})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        pa_feather.write_feather(table, path)
    else:
        pa_csv.write_csv(table, path)
    return path
