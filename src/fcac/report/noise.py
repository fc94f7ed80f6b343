"""How far released values can be from the truth: the deviations that private releases state of their own noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats
from fcac.federation import Server


@dataclass(frozen=True)
class NodeNoise:
    """Known noise of the nodes that sites released, in the order of ``server.latest()``.

    Attributes
    ----------
    counts : array of shape (n,)
        Standard deviation of the noise in each count.
    values : array of shape (n, d)
        Standard deviation of the noise in each value.
    """

    counts: Floats
    values: Floats


def node_noise(server: Server) -> NodeNoise | None:
    """Return the noise in the latest contributions; None unless all of them state it.

    Parameters
    ----------
    server : Server
    """
    counts, values = [], []
    for item in server.latest().values():
        if item.deviation is None or item.count_deviation is None:
            return None
        counts.append(item.count_deviation.astype(np.float64))
        values.append(item.deviation.astype(np.float64))
    return NodeNoise(np.concatenate(counts), np.concatenate(values)) if counts else None
