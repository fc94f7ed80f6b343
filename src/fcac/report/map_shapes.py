"""What surrounds the dots of a map: density contours, hulls around clusters, and labels that never overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from fcac._typing import Floats

# Side of a cell of the grid on which densities are computed, in units of the picture.
_CELL = 5.0


def contours(points: Floats, weights: Floats, radius: float, levels: tuple[float, ...]) -> list[list[Floats]]:
    """Return closed lines of equal density, for each level a list of polygons.

    `radius` is the standard deviation of the kernel; levels are shares of the largest density.
    """
    field, origin = _density(points, weights, radius)
    top = float(field.max(initial=0.0))
    return [_polygons(field, share * top, origin) if top > 0 else [] for share in levels]


def hull(points: Floats, radius: float) -> list[Floats]:
    """Return outlines that keep a distance of about `radius` around points; several where points are far apart.

    >>> around = hull(np.array([[50.0, 50.0], [60.0, 50.0]]), 12.0)
    >>> len(around), bool(around[0][:, 0].min() < 45), bool(around[0][:, 0].max() > 65)
    (1, True, True)
    """
    low = np.floor((points.min(axis=0) - radius) / _CELL - 1) * _CELL
    n = np.ceil((points.max(axis=0) + radius - low) / _CELL).astype(int) + 2
    grid = np.stack(np.meshgrid(*(low[j] + _CELL * np.arange(n[j]) for j in range(2)), indexing="ij"), axis=-1)
    distance = cKDTree(points).query(grid.reshape(-1, 2), distance_upper_bound=2 * radius)[0]
    # nearness instead of distance, so that the inside is high
    found = _polygons(-np.minimum(distance, 2 * radius).reshape(n), -radius, low)
    areas = [_signed_area(polygon) for polygon in found]
    outer = np.sign(max(areas, key=abs, default=1.0))
    # small holes between dots mean nothing; they go round the other way
    return [p for p, area in zip(found, areas, strict=True) if area * outer > 0 or abs(area) > (4 * radius) ** 2]


def _signed_area(polygon: Floats) -> float:
    x, y = polygon.T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


def _density(points: Floats, weights: Floats, radius: float) -> tuple[Floats, Floats]:
    """Sum of Gaussian kernels of height one on a grid, and where the grid begins."""
    reach = 3 * radius + _CELL
    low = np.floor((points.min(axis=0) - reach) / _CELL) * _CELL
    n = np.ceil((points.max(axis=0) + reach - low) / _CELL).astype(int) + 1
    along = [
        np.exp(-0.5 * ((low[j] + _CELL * np.arange(n[j])[:, None] - points[:, j]) / radius) ** 2) for j in range(2)
    ]
    field: Floats = (along[0] * weights) @ along[1].T
    return field, low


def _polygons(field: Floats, level: float, origin: Floats) -> list[Floats]:
    """Lines of one level through a grid (marching squares), joined to closed polygons."""
    after: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    above = field > level
    # edges of a cell are named by the grid point they start from and their direction (0: along x, 1: along y);
    # every segment has the higher side on its left, so that one begins where another ends
    i, j = np.nonzero(
        (above[:-1, :-1] | above[1:, :-1] | above[:-1, 1:] | above[1:, 1:])
        & ~(above[:-1, :-1] & above[1:, :-1] & above[:-1, 1:] & above[1:, 1:])
    )
    for x, y in zip(i.tolist(), j.tolist(), strict=True):
        corners = (above[x, y], above[x + 1, y], above[x + 1, y + 1], above[x, y + 1])
        sides = ((x, y, 0), (x + 1, y, 1), (x, y + 1, 0), (x, y, 1))
        # going round the corners, a line enters where low becomes high and leaves where high becomes low
        entering = [sides[c] for c in range(4) if not corners[c] and corners[(c + 1) % 4]]
        leaving = [sides[c] for c in range(4) if corners[c] and not corners[(c + 1) % 4]]
        if len(entering) == 2 and sides.index(entering[0]) > sides.index(leaving[0]):
            leaving = leaving[::-1]
        for start, end in zip(leaving, entering, strict=True):
            after[start] = end
    found = []
    while after:
        first = next(iter(after))
        line = [first]
        at = after.pop(first)
        while at != first and at in after:
            line.append(at)
            at = after.pop(at)
        if len(line) > 2:
            found.append(origin + _CELL * np.array([_crossing(field, level, *edge) for edge in line]))
    return found


def _crossing(field: Floats, level: float, x: int, y: int, direction: int) -> tuple[float, float]:
    a = field[x, y]
    b = field[x + 1, y] if direction == 0 else field[x, y + 1]
    share = float((level - a) / (b - a)) if b != a else 0.5
    return (x + share, float(y)) if direction == 0 else (float(x), y + share)


def as_path(polygons: list[Floats], tolerance: float = 1.0) -> str:
    """Return polygons as one SVG path in whole units, without points that change it by less than `tolerance`.

    >>> as_path([np.array([[0.0, 0.0], [5.0, 0.1], [10.0, 0.0], [10.0, 9.6]])])
    'M0 0L10 0L10 10Z'
    """
    parts = []
    for polygon in polygons:
        kept = np.rint(_simplified(polygon, tolerance)).astype(int)
        if len(kept) > 2:
            parts.append("M" + "L".join(f"{x} {y}" for x, y in kept) + "Z")
    return "".join(parts)


def _simplified(polygon: Floats, tolerance: float) -> Floats:
    """Douglas and Peucker's rule on a closed line, cut at its first point and the one farthest from it."""
    far = int(np.argmax(((polygon - polygon[0]) ** 2).sum(axis=1)))
    if far == 0:
        return polygon[:1]
    closed = np.vstack([polygon, polygon[:1]])
    keep = np.zeros(len(closed), dtype=bool)
    keep[[0, far]] = True
    waiting = [(0, far), (far, len(closed) - 1)]
    while waiting:
        a, b = waiting.pop()
        if b - a < 2:
            continue
        line = closed[b] - closed[a]
        gap = closed[a + 1 : b] - closed[a]
        length = float(np.hypot(*line))
        off = np.abs(gap[:, 0] * line[1] - gap[:, 1] * line[0]) / length if length else np.hypot(gap[:, 0], gap[:, 1])
        middle = a + 1 + int(np.argmax(off))
        if off[middle - a - 1] > tolerance:
            keep[middle] = True
            waiting += [(a, middle), (middle, b)]
    return closed[:-1][keep[:-1]]


# ------------------------------------------------------------ labels


@dataclass(frozen=True)
class LabelPlace:
    """A label with its middle, its size, and the point it belongs to; `far` if a line should join the two."""

    label: int
    text: str
    x: float
    y: float
    width: float
    height: float
    anchor: tuple[float, float]
    far: bool


def place_labels(
    texts: Sequence[tuple[int, str]],
    anchors: Floats,
    width: int,
    height: int,
    *,
    letter: float = 7.8,
    line: float = 17.0,
) -> list[LabelPlace]:
    """Place labels one after the other, the most important first, each at the free place nearest to its anchor.

    They stay inside a picture of this width and height; those for which there is no room at all are left out.

    >>> a, b = place_labels([(0, "0"), (1, "1")], np.array([[50.0, 50.0], [51.0, 50.0]]), 100, 100)
    >>> abs(a.x - b.x) >= a.width or abs(a.y - b.y) >= a.height
    True
    """
    placed: list[LabelPlace] = []
    middles, sizes = np.empty((0, 2)), np.empty((0, 2))
    for (label, text), anchor in zip(texts, anchors, strict=True):
        own = np.array([letter * len(text) + 8, line])
        if (own > (width, height)).any():
            continue
        found = _first_free(anchor, own, middles, sizes, np.array([width, height]))
        if found is None:
            continue
        x, y = float(found[0]), float(found[1])
        middles, sizes = np.vstack([middles, found]), np.vstack([sizes, own])
        far = float(np.hypot(*(found - anchor))) > 1.5 * line
        placed.append(
            LabelPlace(label, text, x, y, float(own[0]), float(own[1]), (float(anchor[0]), float(anchor[1])), far)
        )
    return placed


def _first_free(anchor: Floats, own: Floats, middles: Floats, sizes: Floats, room: Floats) -> Floats | None:
    """The free place nearest to the anchor, looked for on growing circles."""
    for start in range(0, len(_OFFSETS), _AT_ONCE):
        tried = np.clip(anchor + _OFFSETS[start : start + _AT_ONCE], own / 2, room - own / 2)
        overlaps = np.abs(tried[:, None] - middles[None]) < (sizes + own)[None] / 2
        taken = np.any(np.all(overlaps, axis=2), axis=1)
        if not taken.all():
            found: Floats = tried[np.argmin(taken)]
            return found
    return None


def _spiral() -> Floats:
    """Offsets to try: in the middle, then on growing circles."""
    steps = [np.zeros((1, 2))]
    for ring in range(1, 46):
        angle = 2 * np.pi * (np.arange(6 + 2 * ring) + 0.25) / (6 + 2 * ring)
        steps.append(9.0 * ring * np.column_stack([np.cos(angle), np.sin(angle)]))
    return np.concatenate(steps)


_OFFSETS = _spiral()
_AT_ONCE = 64
