"""Where the labels of clusters stand in a picture: near their cluster, and never on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats


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
    """Place labels one after the other, each at the free place nearest to its anchor.

    Parameters
    ----------
    texts : sequence of (cluster, text)
        The most important first.
    anchors : array of shape (n, 2)
    width, height : int
        Of the picture, inside which labels stay.
    letter, line : float
        Width of a letter and height of a line.

    Returns
    -------
    list of LabelPlace
        Without those for which there is no room at all.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.report.label_places import place_labels
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
