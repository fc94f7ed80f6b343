"""Families of thin shapes: moons, rings, spirals, strands, trajectories and letters."""

from __future__ import annotations

import numpy as np

from .glyphs import LETTERS
from .parts import (
    Generator,
    Rows,
    Table,
    along,
    arc,
    assemble,
    centres,
    count,
    directions,
    disc,
    family,
    length,
    log_uniform,
    round_axes,
    rows,
    sizes,
    smooth_path,
    spacing,
)


def uneven(rng: Generator) -> float:
    """How much the density varies along a curve: mostly not at all."""
    return float(rng.choice([0, 0, 0, 0.5, 1.0]))


def room(rng: Generator, width: float, h: float) -> float:
    """Distance of two curves' middles: their widths and at least a neighbour's distance, up to eight."""
    return 3.4 * width + h * rng.uniform(1.5, log_uniform(rng, 2.5, 9))


@family("moons_rings")
def two_moons(rng: Generator) -> Table:
    """Half circles that reach into one another, at times with a third or a blob."""
    of, w = sizes(rng, 2, 100, 40), log_uniform(rng, 0.02, 0.2)
    shift = np.array([rng.uniform(0.6, 1.2), rng.uniform(0.3, 0.65)])
    pieces = [
        along(rng, arc(0, np.pi), of[0], w, uneven(rng)),
        shift + along(rng, arc(np.pi, 2 * np.pi), of[1], w, uneven(rng)),
    ]
    u = rng.random()
    if u < 0.15:
        pieces.append(2 * shift * [1, 0] + along(rng, arc(0, np.pi), of[0], w))
    elif u < 0.3:
        pieces.append([-1.9, -0.3] + rng.uniform(0.15, 0.4) * disc(rng, of[1]))
    return assemble(pieces)


@family("moons_rings")
def rings(rng: Generator) -> Table:
    """Concentric rings, at times off centre, at times in a tilted plane."""
    k, n = int(rng.choice([2, 2, 3, 4])), rows(rng, 150)
    w = log_uniform(rng, 0.02, 0.12)
    h = spacing(2 * np.pi * k, n, w)
    radii = rng.uniform(0.5, 1.2) + np.arange(k) * (2.5 * w + room(rng, w, h))
    weight = radii ** rng.choice([0, 1, 1])
    of = np.maximum(n * weight / weight.sum(), 30).astype(int)
    off = 0.3 * (radii[1] - radii[0] - 3 * w) * rng.random() * directions(rng, k, 2)
    X, y = assemble([o + along(rng, arc(0, 2 * np.pi, r), m, w) for o, r, m in zip(off, radii, of, strict=True)])
    return (np.column_stack([X, w * rng.normal(size=len(X))]) if rng.random() < 0.15 else X), y


@family("moons_rings")
def ring_with_core(rng: Generator) -> Table:
    """A blob or several within a ring or an open ring; in three dimensions within a shell."""
    d, k, n = int(rng.choice([2, 2, 2, 3])), int(rng.choice([1, 1, 2, 3])), rows(rng, 150)
    m, w = int(n * rng.uniform(0.3, 0.7)), rng.uniform(0.02, 0.12)
    if d == 3:
        ring = directions(rng, m, 3) * (1 + w * rng.normal(size=(m, 1)))
    else:
        ring = along(rng, arc(0, 2 * np.pi - rng.choice([0, rng.uniform(0.3, 2.5)])), m, w)
    size = rng.uniform(0.25, 0.75 - 1.5 * w) / (1 if k == 1 else 2.2)
    C = centres(rng, round_axes(np.full(k, size), d), 2.2, slack=0.05) if k > 1 else np.zeros((1, d))
    C = C - C.mean(axis=0)
    C *= min(1, (0.8 - size) / max(np.linalg.norm(C, axis=1).max(), 0.1))
    each = max(20, (n - m) // k)
    blob = [disc(rng, each, d) if rng.random() < 0.5 else 0.4 * rng.normal(size=(each, d)) for _ in C]
    return assemble([ring] + [c + size * b for c, b in zip(C, blob, strict=True)])


@family("moons_rings")
def arcs(rng: Generator) -> Table:
    """Arcs of one to three quarters of a circle, about one centre or scattered, opening any way."""
    k = count(rng, 2, 6)
    of, w = sizes(rng, k, 150, 40), log_uniform(rng, 0.02, 0.1)
    h = spacing(3, of.mean(), w)
    start, span = rng.uniform(0, 2 * np.pi, k), rng.uniform(0.5, 1.5, k) * np.pi
    if rng.random() < 0.5:
        radii, C = 0.5 + np.arange(k) * room(rng, w, h), np.zeros((k, 2))
    else:
        radii, C = np.ones(k), centres(rng, round_axes(np.ones(k), 2), 2 + room(rng, w, h))
    return assemble(
        [
            c + along(rng, arc(s, s + e, r), m, w, uneven(rng))
            for c, s, e, r, m in zip(C, start, span, radii, of, strict=True)
        ]
    )


@family("moons_rings")
def half_rings(rng: Generator) -> Table:
    """A ring cut into two to four pieces by gaps."""
    k = int(rng.integers(2, 5))
    of, w = sizes(rng, k, 100, 30), log_uniform(rng, 0.02, 0.15)
    h = spacing(2 * np.pi / k, of.min(), w)
    cut = min(3 * w + h * rng.uniform(3, 10), 1.2 * np.pi / k)
    t = np.arange(k) * 2 * np.pi / k
    return assemble(
        [along(rng, arc(s + cut / 2, s + 2 * np.pi / k - cut / 2), m, w) for s, m in zip(t, of, strict=True)]
    )


@family("moons_rings")
def linked_rings(rng: Generator) -> Table:
    """A chain of rings in space, each through the next."""
    k, w = int(rng.choice([2, 2, 3, 4])), log_uniform(rng, 0.02, 0.14)
    pieces = []
    for i, m in enumerate(sizes(rng, k, 150, 60)):
        flat = along(rng, arc(0, 2 * np.pi), m, w)
        third = w * rng.normal(size=m)
        x, other = flat[:, 0] + i * rng.uniform(0.9, 1.2), flat[:, 1]
        pieces.append(np.column_stack([x, other, third] if i % 2 else [x, third, other]))
    return assemble(pieces)


@family("moons_rings")
def separate_rings(rng: Generator) -> Table:
    """Rings beside one another, touching or nearly, some filled."""
    k = count(rng, 2, 6)
    of, w = sizes(rng, k, 150, 40), log_uniform(rng, 0.02, 0.12)
    C = centres(rng, round_axes(np.ones(k), 2), 2 + room(rng, w, spacing(6, of.mean(), w)), slack=0.1)
    full = rng.random(k) < rng.choice([0, 0.3])
    return assemble(
        [c + (disc(rng, m) if f else along(rng, arc(0, 2 * np.pi), m, w)) for c, m, f in zip(C, of, full, strict=True)]
    )


# ---- spirals ----


def spiral(turns: float, start: float, inner: float = 0.1, m: int = 300) -> Rows:
    t = np.linspace(inner, 1, m)
    a = start + 2 * np.pi * turns * t
    return np.column_stack([t * np.cos(a), t * np.sin(a)])


def arms(rng: Generator, k: int, twist: float) -> Table:
    """k spirals wound into one another, as many turns as the rows can show."""
    of = sizes(rng, k, 150, 60, even=rng.random() < 0.7)
    # rows along an arm must lie nearer together than the arms
    turns = rng.uniform(0.5, np.clip(0.6 * np.sqrt(of.sum()) / (2 * k), 0.6, twist))
    lane = 1 / (turns * k)
    w = lane * rng.uniform(0.02, 0.16)
    inner = rng.uniform(0.5, 1.2) / (turns * k) * 0.5
    return assemble(
        [
            along(rng, spiral(turns, 2 * np.pi * i / k, min(inner, 0.3)), m, w, rng.choice([0, 0, 0.6]))
            for i, m in enumerate(of)
        ]
    )


@family("spirals")
def spiral_arms(rng: Generator) -> Table:
    return arms(rng, int(rng.choice([3, 3, 4, 5])), 1.5)


@family("spirals")
def spiral_pair(rng: Generator) -> Table:
    return arms(rng, 2, 2.8)


@family("spirals")
def spiral_with_blob(rng: Generator) -> Table:
    """One spiral with a blob at its heart, or one beside it, or two spirals side by side."""
    of, turns = sizes(rng, 2, 200, 60), rng.uniform(0.8, 1.6)
    w = rng.uniform(0.02, 0.12) / turns
    first, u = along(rng, spiral(turns, 0, 0.35), of[0], w), rng.random()
    if u < 0.4:
        return assemble([first, rng.uniform(0.08, 0.2) * disc(rng, of[1])])
    if u < 0.7:
        return assemble([first, [rng.uniform(1.4, 1.9), 0] + 0.4 * disc(rng, of[1])])
    return assemble([first, [rng.uniform(2.1, 2.6), 0] + along(rng, spiral(turns, np.pi, 0.2), of[1], w)])


# ---- strands ----


def base_curve(rng: Generator) -> Rows:
    x = np.linspace(0, rng.uniform(1.5, 4), 120)
    u, a = x / x[-1], rng.uniform(0.1, 0.6)
    kind = rng.integers(5)
    y = (
        0 * x,
        a * np.sin(2 * np.pi * rng.uniform(0.5, 2) * u),
        a * np.abs(4 * u % 2 - 1),
        4 * a * (u - 0.5) ** 2,
        a * np.exp(2 * u) / 4,
    )
    return np.column_stack([x, y[kind]])


@family("curves")
def strands(rng: Generator) -> Table:
    """One curve several times, one above the other."""
    k = count(rng, 2, 7)
    of, w, path = sizes(rng, k, 150, 40), log_uniform(rng, 0.005, 0.08), base_curve(rng)
    step = 1.3 * room(rng, w, spacing(length(path), of.mean(), w))
    return assemble([along(rng, path, m, w, uneven(rng)) + [0, i * step] for i, m in enumerate(of)])


@family("curves")
def sine_pair(rng: Generator) -> Table:
    """Two or three waves of unlike phase that come near one another but do not cross."""
    k = int(rng.choice([2, 2, 3]))
    of, w = sizes(rng, k, 150, 50), log_uniform(rng, 0.01, 0.07)
    x, a, f = np.linspace(0, rng.uniform(3, 8), 160), rng.uniform(0.2, 0.7), rng.uniform(0.8, 2)
    step = 2 * a + 1.2 * room(rng, w, spacing(1.3 * x[-1], of.mean(), w))
    return assemble(
        [along(rng, np.column_stack([x, i * step + a * np.sin(f * x + np.pi * i)]), m, w) for i, m in enumerate(of)]
    )


@family("curves")
def nearly_touching(rng: Generator) -> Table:
    """Two strokes, the end of one just short of the other: T, L, V."""
    of, w = sizes(rng, 2, 100, 40), log_uniform(rng, 0.01, 0.08)
    t, L = rng.uniform(0.5, np.pi - 0.5), rng.uniform(0.8, 2)
    g = 3.2 * w + spacing(L, of.mean(), w) * rng.uniform(2, 7)
    first = np.array([[-L / 2, 0], [L / 2, 0]])
    foot = np.array([rng.uniform(-0.5, 0.5) * L, g])
    bend = rng.uniform(-0.3, 0.3) * np.sin(np.linspace(0, np.pi, 40))
    s = np.linspace(0, L, 40)
    second = foot + np.column_stack([s * np.cos(t) - bend * np.sin(t), s * np.sin(t) + np.abs(bend * np.cos(t))])
    return assemble([along(rng, first, of[0], w), along(rng, second, of[1], w)])


@family("curves")
def crossing_lines(rng: Generator) -> Table:
    """Long thin lines at several angles; some tables have lines that cross, others only lines that come near."""
    k, L = int(rng.choice([2, 2, 3, 4])), 2.0
    of, w = sizes(rng, k, 150, 50), log_uniform(rng, 0.004, 0.04)
    cross = rng.random() < 0.3
    pieces = []
    for i, m in enumerate(of):
        t = np.pi * (i + rng.uniform(0.1, 0.9)) / k
        u = np.array([np.cos(t), np.sin(t)])
        near = 0.0 if cross else 0.1 + 4 * w + spacing(L, m, w) * 3
        s = np.array([-L / 2, L / 2]) if cross else np.array([near / np.sin(np.pi / (2 * k)), L])
        pieces.append(along(rng, s[:, None] * u, m, w) * (1 if cross or i % 2 else -1))
    return assemble(pieces)


@family("curves")
def bent_letters(rng: Generator) -> Table:
    """S, C and U shapes hooked into one another or side by side."""
    k = int(rng.choice([2, 2, 3, 4]))
    of, w = sizes(rng, k, 150, 50), log_uniform(rng, 0.02, 0.1)
    shapes = (
        arc(0.25 * np.pi, 1.75 * np.pi),
        np.vstack([[[-1, 1.2]], arc(np.pi, 2 * np.pi), [[1, 1.2]]]),
        np.vstack([arc(0.2 * np.pi, 1.5 * np.pi) * 0.6 + [0, 0.6], (arc(0.5 * np.pi, -0.8 * np.pi) * 0.6 - [0, 0.6])]),
    )
    if k == 2 and rng.random() < 0.5:
        path = shapes[rng.integers(2)]
        hook = np.array([rng.uniform(-0.2, 0.2), rng.uniform(0.9, 1.4)]) if len(path) > 80 else np.array([0.7, 1.0])
        turned = -path + hook
        return assemble([along(rng, path, of[0], w), along(rng, turned * 0.9 + [1.0, 0], of[1], w)])
    C = centres(rng, round_axes(np.ones(k), 2), 2.0 + room(rng, w, spacing(4, of.mean(), w)))
    return assemble([c + along(rng, shapes[rng.integers(3)], m, w, uneven(rng)) for c, m in zip(C, of, strict=True)])


@family("curves")
def trajectories(rng: Generator) -> Table:
    """Long smooth paths with jitter, each in a region of its own."""
    k = count(rng, 2, 6)
    n = rows(rng, 200) if rng.random() < 0.7 else log_uniform(rng, 3000, 12000)
    of, w = np.full(k, max(50, int(n / k))), log_uniform(rng, 0.004, 0.05)
    C = centres(rng, round_axes(np.ones(k), 2), rng.uniform(1.6, 2.7))
    pieces = []
    for c, m in zip(C, of, strict=True):
        path = smooth_path(rng, log_uniform(rng, 0.5, 5))
        pieces.append(c + along(rng, path / np.abs(path).max() * 0.95, m, w, uneven(rng)))
    return assemble(pieces)


@family("curves")
def lanes(rng: Generator) -> Table:
    """Two to five long paths that keep their distance: one wandering path, shifted along its normals."""
    k = int(rng.integers(2, 6))
    n = rows(rng, 200) if rng.random() < 0.7 else log_uniform(rng, 3000, 12000)
    of = np.full(k, max(100, int(n / k)))
    path = smooth_path(rng, rng.uniform(0.2, 1)) * 2
    normal = np.gradient(path, axis=0)[:, ::-1] * [-1, 1]
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    w = log_uniform(rng, 0.003, 0.03)
    step = min(room(rng, w, spacing(4, of[0], w)), 0.35)
    return assemble([along(rng, path + i * step * normal, m, min(w, step / 5), uneven(rng)) for i, m in enumerate(of)])


@family("curves")
def random_walks(rng: Generator) -> Table:
    """Positions of a few wanderers in two or three dimensions, recorded at even times."""
    k, d, n = count(rng, 2, 5), int(rng.choice([2, 2, 3])), rows(rng, 200)
    m = max(60, n // k)
    steps = rng.normal(size=(k, m, d)) + rng.uniform(0.1, 0.5) * directions(rng, k, d)[:, None]
    walks = np.cumsum(steps, axis=1)
    walks -= walks.mean(axis=1, keepdims=True)
    extent = float(np.abs(walks).max())
    C = centres(rng, round_axes(np.full(k, extent), d), rng.uniform(1.0, 1.8))
    return assemble([c + walk for c, walk in zip(C, walks, strict=True)])


# ---- letters ----


def written(rng: Generator, strokes: list[Rows], n: int, w: float) -> Rows:
    """Rows along the strokes of one letter, in proportion to their lengths."""
    L = np.array([length(s) for s in strokes])
    of = np.maximum(rng.multinomial(n, L / L.sum()), 2)
    return np.vstack([along(rng, s, int(m), w) for s, m in zip(strokes, of, strict=True)])


def word(rng: Generator, k: int, tight: bool) -> Table:
    """k letters in a row; tight ones leave no more than a neighbour's distance or two."""
    of = np.full(k, int(max(60, log_uniform(rng, 60, 600) if rng.random() < 0.9 else 2500)))
    w = log_uniform(rng, 0.012, 0.06)
    pieces, x = [], 0.0
    slant = rng.choice([0, 0, rng.uniform(-0.2, 0.3)])
    for m in of:
        strokes = [s * [rng.uniform(0.8, 1.1), 1] for s in LETTERS[rng.choice(list(LETTERS))]]
        low = min(s[:, 0].min() for s in strokes)
        high = max(s[:, 0].max() for s in strokes)
        h = spacing(3.2, m, w)
        letter = written(rng, strokes, m, w)
        pieces.append(letter + [x - low, 0.05 * rng.normal()])
        x += high - low + 3.4 * w + h * (rng.uniform(0, 2) if tight else rng.uniform(2, 9))
    return assemble([p + slant * p[:, 1:] * [1, 0] for p in pieces])


@family("letters")
def words(rng: Generator) -> Table:
    return word(rng, int(rng.integers(3, 7)), False)


@family("letters")
def tight_words(rng: Generator) -> Table:
    return word(rng, int(rng.integers(2, 6)), True)


@family("letters")
def scattered_glyphs(rng: Generator) -> Table:
    """Letters of several sizes, turned any way, scattered over the plane."""
    k = count(rng, 2, 8)
    of, radii = sizes(rng, k, 200, 60), np.exp(rng.uniform(0, 0.8, k))
    C = centres(rng, round_axes(radii, 2), rng.uniform(1.6, 2.2))
    pieces = []
    for c, r, m in zip(C, radii, of, strict=True):
        t = rng.uniform(0, 2 * np.pi)
        letter = written(rng, LETTERS[rng.choice(list(LETTERS))], m, rng.uniform(0.015, 0.06)) - [0.5, 0.7]
        pieces.append(c + r * letter @ np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]]))
    return assemble(pieces)


@family("letters")
def lines_of_text(rng: Generator) -> Table:
    """Two or three short words one below the other; every letter is a cluster."""
    tables = [word(rng, int(rng.integers(2, 5)), False) for _ in range(int(rng.integers(2, 4)))]
    X = np.vstack([t[0] - [0, i * rng.uniform(1.75, 2.1)] for i, t in enumerate(tables)])
    shift = np.cumsum([0] + [t[1].max() + 1 for t in tables])
    return X, np.concatenate([t[1] + s for t, s in zip(tables, shift, strict=False)])
