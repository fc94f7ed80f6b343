"""What the families of tables are made of: numbers of rows, centres, filled shapes, thickened curves, last touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]
Generator = np.random.Generator
Table = tuple[Rows, Labels]

FAMILIES: dict[str, Callable[[Generator], Table]] = {}
GROUPS: dict[str, str] = {}
#: The families before rotation, units and outliers, for those that are built on others.
PLAIN: dict[str, Callable[[Generator], Table]] = {}
#: No table has more rows than this, nor more values than the second number.
MOST_ROWS, MOST_VALUES = 20_000, 600_000


def family(group: str, **touches: bool) -> Callable[[Callable[[Generator], Table]], Callable[[Generator], Table]]:
    """Enter a generator in the register, finished by `finish` with these touches."""

    def register(plain: Callable[[Generator], Table]) -> Callable[[Generator], Table]:
        @wraps(plain)
        def finished(rng: Generator) -> Table:
            return finish(rng, *plain(rng), **touches)

        name = plain.__name__
        FAMILIES[name], GROUPS[name], PLAIN[name] = finished, group, plain
        return plain

    return register


def finish(
    rng: Generator,
    X: Rows,
    y: Labels,
    turn: bool = True,
    units: bool = True,
    stretch: bool = True,
    grid: bool = True,
    outliers: bool = True,
) -> Table:
    """Rotate, stretch, scale, jitter or round, add a few outliers, shuffle; labels become 0 to k - 1."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    d = X.shape[1]
    spread = float(X.std()) or 1.0
    if outliers and rng.random() < 0.08:
        m = max(1, round(len(X) * rng.uniform(0.005, 0.03)))
        low, high = X.min(axis=0), X.max(axis=0)
        margin = 0.4 * (high - low)
        X = np.vstack([X, rng.uniform(low - margin, high + margin, (m, d))])
        y = np.r_[y, np.full(m, -1)]
    if len(X) > MOST_ROWS:
        kept = rng.choice(len(X), MOST_ROWS, replace=False)
        X, y = X[kept], y[kept]
    if stretch and 2 <= d <= 20 and rng.random() < 0.25:
        X = X * np.exp(rng.uniform(0, np.log(3), d))
    if turn and d >= 2 and rng.random() < 0.7:
        X = X @ rotation(rng, d)
    if grid and rng.random() < 0.08:
        X = X + 0.01 * rng.random() * spread * rng.normal(size=X.shape)
    if grid and rng.random() < 0.1:
        step = np.ptp(X, axis=0).max() / log_uniform(rng, 40, 400) or 1.0
        X = np.round(X / step) * step
    if units:
        X = (X + rng.normal(size=d) * 3 * spread) * np.exp(1.5 * rng.normal())
    order = rng.permutation(len(X))
    named = np.unique(y[y >= 0])
    return np.ascontiguousarray(X[order]), np.where(y < 0, -1, np.searchsorted(named, y))[order].astype(np.int64)


def log_uniform(rng: Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def rows(rng: Generator, low: float = 10) -> int:
    """A number of rows: most from 60 to 3,000, some from `low` on, few up to 20,000."""
    u = rng.random()
    if u < 0.12:
        return int(log_uniform(rng, low, max(60, 1.5 * low)))
    return int(log_uniform(rng, max(60, low), 3000) if u < 0.94 else log_uniform(rng, 3000, MOST_ROWS))


def count(rng: Generator, low: int = 2, high: int = 8) -> int:
    """A number of clusters, small ones more often."""
    return int(np.clip(np.floor(log_uniform(rng, low, high + 1)), low, high))


def dimensions(rng: Generator, high: int = 10) -> int:
    """Two in two of three cases, otherwise 1 to `high`."""
    return 2 if rng.random() < 0.66 else int(np.clip(rng.choice([1, 3, 3, 4, 5, 6, 8, 10]), 1, high))


def sizes(
    rng: Generator, k: int, low: float = 10, least: int = 5, even: bool = False, high: float = MOST_ROWS
) -> Labels:
    """Rows of each of k clusters: half of the time 50 to 300 each, otherwise as `rows` draws them in all."""
    n = k * log_uniform(rng, 50, 300) if rng.random() < 0.5 else rows(rng, low)
    n = min(max(n, k * least), high)
    w = np.exp(0.0 if even else rng.choice([0.0, 0.3, 0.7], p=[0.4, 0.4, 0.2]) * rng.normal(size=k)) * np.ones(k)
    return np.maximum(np.round(w / w.sum() * n), least).astype(np.int64)


def labels(of: Sequence[int] | Labels) -> Labels:
    """0 as often as the first number says, 1 as often as the second, and so on."""
    return np.repeat(np.arange(len(of)), of)


def rotation(rng: Generator, d: int) -> Rows:
    """A random orthogonal matrix."""
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def directions(rng: Generator, m: int, d: int) -> Rows:
    """Random unit vectors."""
    u = rng.normal(size=(m, d))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def centres(rng: Generator, axes: Rows, apart: float, slack: float = 0.35, scattered: bool = False) -> Rows:
    """Centres of clusters whose rows are normal @ axes[i]: `apart` standard deviations along the line that joins two.

    Each new one lies about as near to an earlier one as that allows, or, scattered, anywhere in a box.
    """
    k, d = axes.shape[:2]
    placed = np.zeros((1, d))
    size = float(np.linalg.norm(axes, axis=2).max())
    box, reach = apart * size * k ** (1 / min(d, 3)), 1.0
    for i in range(1, k):
        while True:
            if scattered:
                C = rng.uniform(-box / 2, box / 2, (48, d))
            else:
                u, near = directions(rng, 48, d), rng.integers(len(placed), size=48)
                width = np.linalg.norm(u @ axes[i].T, axis=1) + np.linalg.norm(
                    np.einsum("md,med->me", u, axes[near]), axis=1
                )
                C = placed[near] + u * (apart * reach * rng.uniform(1.001, 1 + slack, 48) * width / 2)[:, None]
            v = C[:, None] - placed[None]
            far = np.linalg.norm(v, axis=2)
            v /= np.maximum(far, 1e-300)[:, :, None]
            need = np.linalg.norm(np.einsum("mpd,ed->mpe", v, axes[i]), axis=2)
            need += np.linalg.norm(np.einsum("mpd,ped->mpe", v, axes[: len(placed)]), axis=2)
            good = np.flatnonzero((far >= apart * need / 2).all(axis=1))
            if len(good):
                placed = np.vstack([placed, C[good[0]]])
                break
            box, reach = 1.1 * box, 1.05 * reach
    return placed


def round_axes(radii: Rows, d: int) -> Rows:
    """Axes of round clusters with these standard deviations."""
    return np.asarray(radii, dtype=float)[:, None, None] * np.eye(d)


def gaussians(rng: Generator, C: Rows, axes: Rows, of: Labels) -> Table:
    """Normal rows about the centres."""
    X = np.vstack([c + rng.normal(size=(m, len(c))) @ a for c, a, m in zip(C, axes, of, strict=True)])
    return X, labels(of)


def assemble(pieces: Sequence[Rows]) -> Table:
    """One table of several pieces, one label each."""
    return np.vstack(pieces), labels([len(p) for p in pieces])


# ---- filled shapes of radius about one ----


def disc(rng: Generator, n: int, d: int = 2) -> Rows:
    return directions(rng, n, d) * rng.random((n, 1)) ** (1 / d)


def square(rng: Generator, n: int) -> Rows:
    return rng.uniform(-1, 1, (n, 2))


def diamond(rng: Generator, n: int) -> Rows:
    u = rng.uniform(-0.5, 0.5, (n, 2))
    return np.column_stack([u[:, 0] + u[:, 1], u[:, 0] - u[:, 1]])


def triangle(rng: Generator, n: int) -> Rows:
    corners = np.array([[np.cos(t), np.sin(t)] for t in np.pi / 2 + np.arange(3) * 2 * np.pi / 3])
    return rng.dirichlet(np.ones(3), n) @ corners


def hexagon(rng: Generator, n: int) -> Rows:
    """Flat sides to the left and right, at distance one."""
    t = np.arange(6) * np.pi / 3 + np.pi / 6
    corners = np.column_stack([np.cos(t), np.sin(t)]) * 2 / np.sqrt(3)
    which, u = rng.integers(6, size=n), rng.random((n, 2))
    u = np.where(u.sum(axis=1, keepdims=True) > 1, 1 - u, u)
    return u[:, :1] * corners[which] + u[:, 1:] * corners[(which + 1) % 6]


def lobed(rng: Generator, n: int, depth: float | None = None) -> Rows:
    """A filled outline whose radius is a short Fourier series."""
    h = int(rng.integers(2, 5))
    a = rng.normal(size=(2, h)) / np.arange(1, h + 1)
    s = rng.uniform(0.1, 0.35) if depth is None else depth
    t = rng.uniform(0, 2 * np.pi, 40 + 6 * n)
    waves = np.arange(1, h + 1) * t[:, None]
    R = np.maximum(1 + s * (np.cos(waves) @ a[0] + np.sin(waves) @ a[1]), 0.25)
    # as many rows at an angle as its part of the area
    kept = rng.random(len(t)) < (R / R.max()) ** 2
    t, r = np.resize(t[kept], n), np.resize(R[kept], n) / R.max()
    r = r * np.sqrt(rng.random(n))
    return np.column_stack([r * np.cos(t), r * np.sin(t)])


def polygon_mask(rng: Generator, n: int, inside: Callable[[Rows], NDArray[np.bool_]]) -> Rows:
    """Uniform rows of the square that satisfy a condition."""
    found = np.zeros((0, 2))
    while len(found) < n:
        u = square(rng, 3 * n + 60)
        found = np.vstack([found, u[inside(u)]])
    return found[:n]


# ---- curves ----


def along(rng: Generator, path: Rows, n: int, width: float, uneven: float = 0.0) -> Rows:
    """Rows along a polyline, spread to both sides by `width`; `uneven` varies how densely."""
    L = np.r_[0, np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))]
    u = np.sort(rng.random(n)) if rng.random() < 0.75 else (np.arange(n) + 0.5 + 0.3 * rng.normal(size=n)) / n
    if uneven:
        phase, waves = rng.uniform(0, 2 * np.pi), rng.uniform(1, 3)
        grid = np.linspace(0, 1, 200)
        weight = np.cumsum(np.exp(uneven * np.sin(2 * np.pi * waves * grid + phase)))
        u = np.interp(u, (weight - weight[0]) / (weight[-1] - weight[0]), grid)
    X = np.column_stack([np.interp(u * L[-1], L, column) for column in path.T])
    if rng.random() < 0.5:
        return X + width * rng.normal(size=X.shape)
    return X + width * 1.7 * disc(rng, n, X.shape[1])


def length(path: Rows) -> float:
    return float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())


def spacing(path_length: float, n: float, width: float) -> float:
    """How far apart neighbours lie among n rows along a strip."""
    return max(path_length / n, float(np.sqrt(4 * width * path_length / n)))


def arc(start: float, end: float, radius: float = 1.0, m: int = 80) -> Rows:
    t = np.linspace(start, end, m)
    return radius * np.column_stack([np.cos(t), np.sin(t)])


def smooth_path(rng: Generator, turn: float, m: int = 150) -> Rows:
    """A path of length about two whose heading wanders."""
    bend = np.convolve(rng.normal(size=m + 20), np.ones(21) / np.sqrt(21), mode="valid")
    a = rng.uniform(0, 2 * np.pi) + np.cumsum(bend) * turn / np.sqrt(m)
    path = np.cumsum(np.column_stack([np.cos(a), np.sin(a)]), axis=0) * 2 / m
    return path - path.mean(axis=0)
