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
    letter: float = 7.0,
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
        tried = np.clip(anchor + _OFFSETS, own / 2, np.array([width, height]) - own / 2)
        if len(middles):
            near = np.abs(tried[:, None] - middles[None]) < (sizes + own)[None] / 2
            free = ~near.all(axis=2).any(axis=1)
        else:
            free = np.ones(len(tried), dtype=bool)
        if not free.any():
            continue
        gap = np.hypot(*(tried - anchor).T)
        at = int(np.argmin(np.where(free, gap, np.inf)))
        x, y = float(tried[at, 0]), float(tried[at, 1])
        middles, sizes = np.vstack([middles, tried[at]]), np.vstack([sizes, own])
        far = bool(gap[at] > 1.5 * line)
        placed.append(
            LabelPlace(label, text, x, y, float(own[0]), float(own[1]), (float(anchor[0]), float(anchor[1])), far)
        )
    return placed


def _spiral() -> Floats:
    """Offsets to try: in the middle, then on growing circles."""
    steps = [np.zeros((1, 2))]
    for ring in range(1, 46):
        angle = 2 * np.pi * (np.arange(6 + 2 * ring) + 0.25) / (6 + 2 * ring)
        steps.append(9.0 * ring * np.column_stack([np.cos(angle), np.sin(angle)]))
    return np.concatenate(steps)


_OFFSETS = _spiral()
