"""``LocalNoise``: each record is noised on its own, for one record per device. Nobody has to be trusted."""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import PrivacyWarning
from fcac.privacy.bounds import check_bounds, check_rows, to_unit
from fcac.privacy.mechanism import Mechanism
from fcac.privacy.zcdp import check_epsilon

# The input of the channel is one of LEVELS + 1 levels; from one level to the next, the window moves by STRIDE outputs.
LEVELS, STRIDE = 1024, 64
_LOW_WEIGHT = 2**32
# Beyond this the window is a single output, and a larger epsilon changes nothing.
_MOST_PER_FEATURE = 40.0


class LocalNoise(Mechanism):
    """Local differential privacy per record: the piecewise mechanism, on integers.

    A record reports only k of its d features, chosen at random, each with epsilon / k; the others are sent as the
    midpoint of their bounds. A reported value is drawn from a grid of values, where those in a window around the true
    value are exp(epsilon / k) times as likely as the others. The draw uses integers from the operating system's random
    generator, so the ratio of probabilities is exact.

    Parameters
    ----------
    epsilon : float
        Total cost of one report of a whole record. The costs of several reports of the same record add up.
    bounds : array-like of shape (d, 2) or schema
        Public (low, high) of every feature.

    Notes
    -----
    Outputs are unbiased, so they can lie far outside the bounds. With more than two features and epsilon below 64,
    clustering will hardly work, and a :class:`PrivacyWarning` says so.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.privacy import LocalNoise
    >>> LocalNoise(epsilon=8, bounds=[[0, 1], [0, 1]]).perturb(np.full((5, 2), 0.3)).shape
    (5, 2)
    """

    kind = "row"
    guarantee = "local"
    title = "local noise on every record"
    _fields = ("epsilon", "bounds")

    def __init__(self, epsilon: float, bounds: Any) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.bounds = check_bounds(bounds)
        self._warned = False

    @property
    def n_reported(self) -> int:
        """Number of features that one record reports: k = max(1, min(d, floor(epsilon / 2.5)))."""
        return max(1, min(len(self.bounds), math.floor(self.epsilon / 2.5)))

    def perturb(self, X: Any, site: str | int | None = None, round: int = 1) -> Floats:
        """Return noised rows; ``site`` and ``round`` are accepted for symmetry and have no effect.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        rows = check_rows(X, len(self.bounds))
        if len(self.bounds) > 2 and self.epsilon < 64 and not self._warned:
            self._warned = True
            warnings.warn(
                f"LocalNoise with eps = {self.epsilon:g} on {len(self.bounds)} features: each record reports "
                f"{self.n_reported} feature(s), and clustering will hardly work. If a site may see its records in the "
                "clear, use NodeRelease",
                PrivacyWarning,
                stacklevel=2,
            )
        return self._perturb(rows, secrets.randbelow)

    def describe(self) -> dict[str, Any]:
        """Return statements about the mechanism for a report."""
        return {
            "mechanism": "LocalNoise: piecewise mechanism on an integer grid, "
            f"{self.n_reported} of {len(self.bounds)} features reported per record",
            "unit": "record, before it leaves its owner",
            "adjacency": "one record replaced by any other",
            "epsilon": self.epsilon,
            "delta": 0.0,
            "bounds": self.bounds.tolist(),
            "rounds": "every report of the same record costs the same again, and the costs add up",
            "noise": "operating system's random generator, exact integer sampling",
            "not_promised": [
                "the existence of a record is visible: the number of reports is not hidden",
                "a person with m records costs m times as much",
                "the bounds are public and must not come from the records",
            ],
        }

    def _perturb(self, rows: Floats, below: Callable[[int], int]) -> Floats:
        n_features, n_reported = len(self.bounds), self.n_reported
        channel = Channel(self.epsilon / n_reported)
        values = channel.values() * (n_features / n_reported)
        unit = to_unit(rows, self.bounds)
        centred = np.zeros_like(unit)
        for row, record in enumerate(unit):
            for feature in _some_of(n_features, n_reported, below):
                level = _rounded_level(float(record[feature]), below)
                centred[row, feature] = values[channel.draw(level, below)]
        low, high = self.bounds[:, 0], self.bounds[:, 1]
        result: Floats = (low + high) / 2 + centred * (high - low) / 2
        return result


class Channel:
    """The channel for one feature, at this cost: it maps a level to a random position on the output grid.

    Positions inside a window of ``width`` have weight ``high``, the others ``low``; both are integers, and ``high / low
    <= exp(epsilon)``. The window has the same width for every level, so the total weight is the same, and that ratio is
    all that an output can reveal about which of two levels was the input.
    """

    def __init__(self, epsilon: float) -> None:
        epsilon = min(epsilon, _MOST_PER_FEATURE)
        self.low = _LOW_WEIGHT
        # math.exp is accurate to about one unit in the last place; the factor keeps the ratio safely below.
        self.high = int(math.exp(epsilon) * (1.0 - 1e-12) * _LOW_WEIGHT)
        span = LEVELS * STRIDE
        self.width = max(1, round(span * math.exp(-epsilon / 2.0)))
        self.n_positions = span + self.width
        self.inside = self.width * self.high
        self.total = self.inside + (self.n_positions - self.width) * self.low

    def draw(self, level: int, below: Callable[[int], int]) -> int:
        """Draw a position for a level from 0 to LEVELS, with exact integer weights."""
        start = level * STRIDE
        ticket = below(self.total)
        if ticket < self.inside:
            return start + ticket // self.high
        outside = (ticket - self.inside) // self.low
        return outside if outside < start else outside + self.width

    def values(self) -> Floats:
        """Return the unbiased estimate, in units of [-1, 1], that each position stands for."""
        extra = (self.high - self.low) / self.total
        # The mean position is affine in the level: middle + slope * (level - LEVELS / 2).
        slope = extra * self.width * STRIDE
        positions = np.arange(self.n_positions, dtype=np.float64) - (self.n_positions - 1) / 2.0
        result: Floats = positions / slope / (LEVELS / 2.0)
        return result


def _rounded_level(unit_value: float, below: Callable[[int], int]) -> int:
    """Round to a level at random, so that the mean is preserved."""
    exact = unit_value * LEVELS
    lower = min(int(exact), LEVELS - 1)
    chance = int((exact - lower) * 2**53)
    return lower + (below(2**53) < chance)


def _some_of(n: int, k: int, below: Callable[[int], int]) -> list[int]:
    """Choose k of n positions, all subsets being equally likely (partial Fisher-Yates shuffle)."""
    pool = list(range(n))
    for i in range(k):
        j = i + below(n - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:k]
