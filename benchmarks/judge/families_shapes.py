"""Families of filled shapes that touch, necks, grids and clusters in a background of noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .parts import (
    PLAIN,
    Generator,
    Rows,
    Table,
    along,
    assemble,
    centres,
    count,
    diamond,
    directions,
    disc,
    family,
    hexagon,
    labels,
    lobed,
    log_uniform,
    round_axes,
    rows,
    sizes,
    square,
    triangle,
)

Fill = Callable[[Generator, int], Rows]


def gap(rng: Generator, low: float = 0.0) -> float:
    """Free space between two shapes, in mean distances of neighbouring rows: at times none, rarely more than a few."""
    return low if rng.random() < 0.35 else float(rng.uniform(low, low + log_uniform(rng, 1, 8)))


def chain(rng: Generator, k: int, step: float, angles: Rows | None = None) -> Rows:
    """Places one step from one another, in the given directions or in any."""
    placed = np.zeros((1, 2))
    while len(placed) < k:
        t = rng.uniform(0, 2 * np.pi) if angles is None else rng.choice(angles)
        c = placed[rng.integers(len(placed))] + step * np.array([np.cos(t), np.sin(t)])
        if np.linalg.norm(placed - c, axis=1).min() > 0.999 * step:
            placed = np.vstack([placed, c])
    return placed


def touching(rng: Generator, fill: Fill, area: float, angles: Rows | None, low: float, reach: float = 2.0) -> Table:
    """Shapes of one kind that meet, or nearly, in the given directions."""
    k = count(rng, 2, 9)
    of = sizes(rng, k, 100, 30, even=rng.random() < 0.6)
    h = float(np.sqrt(area / of.mean()))
    C = chain(rng, k, reach + gap(rng, low) * h, angles)
    X, y = assemble([c + fill(rng, m) for c, m in zip(C, of, strict=True)])
    return (X + rng.uniform(0, 0.4) * h * rng.normal(size=X.shape) if rng.random() < 0.3 else X), y


@family("touching")
def touching_discs(rng: Generator) -> Table:
    return touching(rng, disc, np.pi, None, 0.0)


@family("touching")
def touching_diamonds(rng: Generator) -> Table:
    """Corner to corner."""
    return touching(rng, diamond, 2.0, np.arange(4) * np.pi / 2, 0.0)


@family("touching")
def touching_squares(rng: Generator) -> Table:
    """Side by side across a narrow lane."""
    return touching(rng, square, 4.0, np.arange(4) * np.pi / 2, 1.3)


@family("touching")
def touching_corners(rng: Generator) -> Table:
    """Squares that meet at their corners, as the fields of one colour of a chessboard."""
    return touching(rng, square, 4.0, np.pi / 4 + np.arange(4) * np.pi / 2, 0.0, 2 * np.sqrt(2))


@family("touching")
def touching_hexagons(rng: Generator) -> Table:
    return touching(rng, hexagon, 2 * np.sqrt(3), np.arange(6) * np.pi / 3, 1.2)


@family("touching")
def touching_triangles(rng: Generator) -> Table:
    """Corner to side or corner to corner."""
    return touching(rng, triangle, 1.3, np.array([0, np.pi / 3, 2 * np.pi / 3, np.pi]), 0.2, np.sqrt(3))


@family("touching")
def touching_boxes(rng: Generator) -> Table:
    """A rectangle cut by lanes into two to eight boxes of unequal size, at one density or several."""
    n, boxes = rows(rng, 150), [np.array([0.0, 0.0, rng.uniform(1, 2), 1.0])]
    k = count(rng, 2, 8)
    while len(boxes) < k:
        x, y, w, h = boxes.pop(int(np.argmax([b[2] * b[3] for b in boxes])))
        s = rng.uniform(0.3, 0.7)
        if w > h:
            boxes += [np.array([x, y, s * w, h]), np.array([x + s * w, y, (1 - s) * w, h])]
        else:
            boxes += [np.array([x, y, w, s * h]), np.array([x, y + s * h, w, (1 - s) * h])]
    B = np.array(boxes)
    area = B[:, 2] * B[:, 3]
    weight = area * np.exp(rng.choice([0, 0, 0.8]) * rng.normal(size=k))
    of = np.maximum(n * weight / weight.sum(), 25).astype(int)
    lane = (1.3 + gap(rng)) * float(np.sqrt(area.sum() / of.sum()))
    side = np.maximum(B[:, 2:] - lane, 0.4 * B[:, 2:])
    return assemble([b[:2] + s * rng.random((m, 2)) for b, s, m in zip(B, side, of, strict=True)])


@family("touching")
def touching_cells(rng: Generator) -> Table:
    """Cells about random points, with lanes between them."""
    k, n = count(rng, 2, 9), rows(rng, 150)
    C = centres(rng, round_axes(np.ones(k), 2), 1.5, scattered=True)
    low, high = C.min(axis=0) - 0.8, C.max(axis=0) + 0.8
    X = rng.uniform(low, high, (int(1.3 * n), 2))
    far = np.sort(np.linalg.norm(X[:, None] - C, axis=2), axis=1)
    y = np.linalg.norm(X[:, None] - C, axis=2).argmin(axis=1)
    lane = (1.5 + gap(rng)) * float(np.sqrt(np.prod(high - low) / len(X)))
    kept = far[:, 1] - far[:, 0] > min(lane, 0.6)
    return X[kept], y[kept]


@family("touching")
def touching_lobed(rng: Generator) -> Table:
    """Irregular filled outlines that touch or nearly."""
    k = count(rng, 2, 7)
    of = sizes(rng, k, 120, 30)
    C = chain(rng, k, rng.uniform(1.4, 2.0))
    return assemble([c + lobed(rng, m) for c, m in zip(C, of, strict=True)])


@family("touching")
def dense_in_sparse(rng: Generator) -> Table:
    """Dense discs within a sparse one, without a gap or with a narrow one: rows in a dense disc belong to it."""
    k, n = int(rng.choice([1, 1, 2, 3])), rows(rng, 150)
    contrast, outer = log_uniform(rng, 4, 40), rng.random() < 0.7
    r = rng.uniform(0.25, 0.5) / np.sqrt(k)
    C = centres(rng, round_axes(np.full(k, r), 2), rng.uniform(2.1, 2.6)) if k > 1 else np.zeros((1, 2))
    C = C - C.mean(axis=0) + (1 - r) * rng.uniform(0, 0.9 if k == 1 else 0.2) * directions(rng, 1, 2)
    sparse = disc(rng, max(60, int(n / (1 + k * r * r * contrast)))) * 1.05
    if not outer:
        sparse = square(rng, len(sparse))
    m = max(20, int(len(sparse) * r * r * contrast))
    lane = rng.choice([0, 0, 1.0, 2.0]) * 1 / np.sqrt(len(sparse))
    sparse = sparse[(np.linalg.norm(sparse[:, None] - C, axis=2) > r + lane).all(axis=1)]
    return assemble([sparse] + [c + r * disc(rng, m) for c in C])


@family("touching")
def dense_beside_sparse(rng: Generator) -> Table:
    """Two or three discs or squares of unlike density, edge to edge."""
    k, n = int(rng.choice([2, 2, 3])), rows(rng, 120)
    density = np.cumprod(np.r_[1, np.exp(rng.uniform(np.log(3), np.log(12), k - 1))])[rng.permutation(k)]
    radii = rng.uniform(0.6, 1.4, k) * density ** -rng.uniform(0, 0.5)
    weight = density * radii**2
    of = np.maximum(n * weight / weight.sum(), 25).astype(int)
    h = radii.max() * np.sqrt(np.pi / of[radii.argmax()])
    fill = disc if rng.random() < 0.6 else square
    C, x = [], 0.0
    for i, r in enumerate(radii):
        x += r + (radii[i - 1] + rng.choice([0, 0, rng.uniform(0, 2)]) * h if i else 0)
        C.append([x, 0.0])
    return assemble([np.array(c) + r * fill(rng, m) for c, r, m in zip(C, radii, of, strict=True)])


# ---- necks ----


@family("necks")
def dumbbell(rng: Generator) -> Table:
    """Two to four discs joined by narrow necks of their own density; a neck belongs to the nearer disc."""
    k, n = int(rng.choice([2, 2, 3, 4])), rows(rng, 120)
    radii = rng.uniform(0.6, 1.3, k)
    C = np.zeros((k, 2))
    dens = n / (np.pi * (radii**2).sum())
    reach = rng.uniform(0.05, 1.2)
    half = rng.uniform(0.05, 0.3) * radii.min()
    heading, pieces = 0.0, []
    for i in range(1, k):
        heading += rng.uniform(-0.7, 0.7)
        u = np.array([np.cos(heading), np.sin(heading)])
        C[i] = C[i - 1] + (radii[i - 1] + reach + radii[i]) * u
        m = int(dens * rng.uniform(0.5, 1) * (reach + 0.2) * 2 * half)
        t = rng.uniform(radii[i - 1] - 0.1, radii[i - 1] + reach + 0.1, m)
        pieces.append(C[i - 1] + t[:, None] * u + rng.uniform(-half, half, (m, 1)) * np.array([-u[1], u[0]]))
    discs, y = assemble([c + r * disc(rng, max(20, int(dens * np.pi * r * r))) for c, r in zip(C, radii, strict=True)])
    neck = np.vstack(pieces)
    return np.vstack([discs, neck]), np.r_[y, (np.linalg.norm(neck[:, None] - C, axis=2) - radii).argmin(axis=1)]


@family("necks")
def bridged_pair(rng: Generator) -> Table:
    """Two blobs and a thin line of rows from one to the other."""
    of = sizes(rng, 2, 80, 30)
    apart = rng.uniform(4.2, 10)
    C = np.array([[0.0, 0], [apart, 0]])
    gauss = rng.random() < 0.6
    X, y = assemble([c + (rng.normal(size=(m, 2)) if gauss else 2 * disc(rng, m)) for c, m in zip(C, of, strict=True)])
    m = max(2, int(of.min() * rng.uniform(0.02, 0.15)))
    line = np.column_stack([rng.uniform(1.5, apart - 1.5, m), rng.uniform(0.05, 0.3) * rng.normal(size=m)])
    return np.vstack([X, line]), np.r_[y, (line[:, 0] > apart / 2).astype(int)]


@family("necks")
def bridged_shapes(rng: Generator) -> Table:
    """Squares, lobes or diamonds in a ring, neighbours joined by sparse bridges that are noise."""
    k = int(rng.integers(3, 7))
    of = sizes(rng, k, 150, 30)
    t = np.arange(k) * 2 * np.pi / k
    C = np.column_stack([np.cos(t), np.sin(t)]) * rng.uniform(1.5, 2.2) / np.sin(np.pi / k)
    fill = (square, diamond, lobed, disc)[rng.integers(4)]
    X, y = assemble([c + fill(rng, m) for c, m in zip(C, of, strict=True)])
    pieces = []
    for i in range(k if rng.random() < 0.5 else k - 1):
        m = max(2, int(of.mean() * rng.uniform(0.01, 0.06)))
        pieces.append(along(rng, C[[i, (i + 1) % k]], m, 0.08))
    bridge = np.vstack(pieces)
    bridge = bridge[np.abs(bridge[:, None] - C).max(axis=2).min(axis=1) > 1]
    return np.vstack([X, bridge]), np.r_[y, np.full(len(bridge), -1)]


@family("necks")
def touching_tails(rng: Generator) -> Table:
    """Drops whose tips meet."""
    k = int(rng.integers(2, 6))
    of, h = sizes(rng, k, 100, 30), rng.uniform(1.0, 2.5)
    pieces = []
    for i, m in enumerate(of):
        r = rng.random(m) ** 0.6
        a = rng.uniform(-1, 1, m) * rng.uniform(0.25, 0.8 * np.pi / k + 0.15)
        p = np.column_stack([r * h * np.cos(a), r * h * np.sin(a)]) + [rng.uniform(0.0, 0.15), 0]
        t = 2 * np.pi * i / k
        pieces.append(p @ np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]]))
    return assemble(pieces)


# ---- grids ----


@family("grids")
def grid_blobs(rng: Generator) -> Table:
    a, b = int(rng.integers(2, 6)), int(rng.integers(2, 7))
    of = sizes(rng, a * b, 200, 12)
    C = np.array([[i, j] for i in range(a) for j in range(b)]) * rng.uniform(3.2, 8)
    X = np.repeat(C + rng.uniform(0, 0.4) * rng.normal(size=C.shape), of, axis=0)
    return X + rng.normal(size=X.shape), labels(of)


@family("grids")
def grid_squares(rng: Generator) -> Table:
    a, b = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    of = sizes(rng, a * b, 200, 25, even=True)
    step = 2 + (1.2 + gap(rng)) * 2 / np.sqrt(of.mean())
    C = np.array([[i, j] for i in range(a) for j in range(b)]) * step
    fill = square if rng.random() < 0.7 else disc
    return assemble([c + fill(rng, m) for c, m in zip(C, of, strict=True)])


@family("grids")
def chessboard(rng: Generator) -> Table:
    """Dense and sparse fields side by side; each dense field is a cluster, all sparse ones are noise or absent."""
    a, b = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    fields = np.array([[i, j] for i in range(a) for j in range(b)])
    dense = fields.sum(axis=1) % 2 == 0
    m = int(log_uniform(rng, 40, 400))
    sparse = int(m / log_uniform(rng, 4, 30)) if rng.random() < 0.7 else 0
    of = np.where(dense, m, sparse)
    y = np.repeat(np.where(dense, np.cumsum(dense) - 1, -1), of)
    return np.repeat(2.0 * fields, of, axis=0) + rng.uniform(0.88, 1) * square(rng, int(of.sum())), y


# ---- background noise ----

IN_NOISE = (
    "round_apart",
    "round_near",
    "elliptic_apart",
    "unequal_widths",
    "many_tight",
    "density_steps",
    "touching_lobed",
    "grid_blobs",
)
CURVES_IN_NOISE = ("two_moons", "rings", "strands", "spiral_arms", "trajectories", "arcs", "words")


def in_noise(rng: Generator, X: Rows, y: Rows, share: float) -> Table:
    low, high = X.min(axis=0), X.max(axis=0)
    margin = rng.uniform(0, 0.15) * (high - low)
    m = max(3, int(share * len(X)))
    return np.vstack([X, rng.uniform(low - margin, high + margin, (m, X.shape[1]))]), np.r_[y, np.full(m, -1)]


@family("noise", outliers=False)
def noise_blobs(rng: Generator) -> Table:
    while True:
        X, y = PLAIN[str(rng.choice(IN_NOISE))](rng)
        if X.shape[1] <= 3 and len(X) >= 80:
            return in_noise(rng, X, y, rng.uniform(0.03, 0.5))


@family("noise", outliers=False)
def noise_curves(rng: Generator) -> Table:
    while True:
        X, y = PLAIN[str(rng.choice(CURVES_IN_NOISE))](rng)
        if X.shape[1] <= 3 and len(X) >= 150:
            return in_noise(rng, X, y, rng.uniform(0.02, 0.25))


@family("noise", outliers=False)
def hub_and_spokes(rng: Generator) -> Table:
    """Blobs about a centre, which is one of them or empty; sparse spokes of noise lead from it to each."""
    k = int(rng.integers(3, 9))
    of = sizes(rng, k, 150, 25)
    t = np.sort(rng.uniform(0, 0.5, k) + np.arange(k)) * 2 * np.pi / k
    C = np.column_stack([np.cos(t), np.sin(t)]) * (rng.uniform(4, 8) / np.sin(np.pi / k))
    hub = rng.random() < 0.6
    if hub:
        C[0] = 0
    X = np.repeat(C, of, axis=0) + rng.normal(size=(of.sum(), 2))
    m = max(2, int(of.mean() * rng.uniform(0.03, 0.25)))
    spokes = np.vstack([along(rng, np.vstack([np.zeros(2), c]), m, rng.uniform(0.1, 0.5)) for c in C[int(hub) :]])
    return np.vstack([X, spokes]), np.r_[labels(of), np.full(len(spokes), -1)]


@family("noise", outliers=False)
def noise_gaussian(rng: Generator) -> Table:
    """Tight clusters in a broad Gaussian of noise."""
    k, d = count(rng, 2, 8), int(rng.choice([2, 2, 2, 3, 5]))
    of = sizes(rng, k, 100, 20)
    C = centres(rng, round_axes(np.ones(k), d), rng.uniform(6, 14))
    X = np.repeat(C, of, axis=0) + rng.normal(size=(of.sum(), d))
    m = int(rng.uniform(0.05, 0.4) * len(X))
    return np.vstack([X, X.mean(axis=0) + 1.3 * X.std(axis=0) * rng.normal(size=(m, d))]), np.r_[
        labels(of), np.full(m, -1)
    ]
