"""The kernel of the layout: places attracted along ties and repelled from others, in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac._kernels import kernel


@kernel(error_model="numpy")
def move(places: Any, heads: Any, tails: Any, every: Any, n_epochs: int, width: float, repelled: float) -> None:
    """Move places in turn: along each tie towards each other, and away from a few others."""
    n = places.shape[0]
    due = every.copy()
    due_away = every / repelled
    state = np.uint64(88172645463325252)
    for epoch in range(n_epochs):
        step = 1.0 - epoch / n_epochs
        for tie in range(heads.shape[0]):
            if due[tie] > epoch:
                continue
            i, j = heads[tie], tails[tie]
            dx, dy = places[i, 0] - places[j, 0], places[i, 1] - places[j, 1]
            squared = dx * dx + dy * dy
            pull = -2.0 * width / (width * squared + 1.0)
            gx = step * min(4.0, max(-4.0, pull * dx))
            gy = step * min(4.0, max(-4.0, pull * dy))
            places[i, 0] += gx
            places[i, 1] += gy
            places[j, 0] -= gx
            places[j, 1] -= gy
            due[tie] += every[tie]
            often = int((epoch - due_away[tie]) / every[tie] * repelled)
            for _ in range(often):
                # xorshift (Marsaglia, 2003)
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                other = np.int64(state % np.uint64(n))
                if other == i:
                    continue
                dx, dy = places[i, 0] - places[other, 0], places[i, 1] - places[other, 1]
                squared = dx * dx + dy * dy
                push = 2.0 / ((0.001 + squared) * (width * squared + 1.0))
                places[i, 0] += step * min(4.0, max(-4.0, push * dx))
                places[i, 1] += step * min(4.0, max(-4.0, push * dy))
            due_away[tie] += often * every[tie] / repelled
