"""What a hub accepts of a contribution: every field that a hostile site controls, held against what the hub knows.

A site states how much noise its nodes carry, and the read-out weighs nodes by it. The statement cannot be checked
against rows, but :class:`~fcac.privacy.NodeRelease` leaves little freedom: it noises all features alike in units of the
public bounds, the noise of counts follows from epsilon alone, and that of a node from the count's and the bounds. What
no release can produce is refused; what is nothing but noise is left out. Shares of nodes and counts are capped later,
when the contributions of all sites are known (:mod:`fcac.deployment.limits`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fcac._text import counted
from fcac._typing import Floats
from fcac.federation.contribution import Contribution
from fcac.privacy.cell_release import ALIVE, COUNT_SHARE, LATER_STEP_SHARES, STEP_SHARES
from fcac.privacy.cell_statistics import UNIT, WEIGHT, widest_radius
from fcac.privacy.zcdp import gaussian_scale, rho_from_epsilon

#: The mechanism whose noise is known to the hub.
KNOWN = "NodeRelease"

# Deviations travel in single precision, and agreements on bounds may have taken up to half of delta.
_ROUNDING = 1e-3


class Admitted(NamedTuple):
    """A contribution as the server may learn it, and what was changed in it ("" if nothing)."""

    item: Contribution
    told: str


def admit(item: Contribution, bounds: Floats | None) -> Admitted:
    """Return what may be learned of a contribution that was sent from outside; refuse what nobody honest sends.

    Parameters
    ----------
    item : Contribution
    bounds : ndarray of shape (d, 2), or None
        The public bounds of the schema.

    Raises
    ------
    ValueError
        Names the field and the limit.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.federation import Contribution
    >>> from fcac.federation.admission import admit
    >>> said = {"mechanism": "NodeRelease", "epsilon": 1.0, "delta": 1e-6}
    >>> bad = Contribution("x", 1, [[0.5, 0.5]], [90], said, np.full((1, 2), 1e30), np.full(1, 20.0))
    >>> admit(bad, np.array([[0, 1], [0, 1]]))
    Traceback (most recent call last):
    ...
    ValueError: deviation: 1e+30 widths of the bounds for a node of 90 rows; no release at eps = 1 has more than 0.058
    """
    if item.deviation is None or item.count_deviation is None or not len(item.nodes):
        return Admitted(item, "")
    epsilon, delta = _statement(item.privacy)
    if bounds is None:
        raise ValueError("deviation: a private release needs public bounds, and this server (its schema) has none")
    counts, of_counts = item.counts.astype(np.float64), item.count_deviation.astype(np.float64)
    _check_count_deviation(of_counts, counts, epsilon, delta, item.round)
    low, high = np.asarray(bounds, dtype=np.float64).T
    if ((item.nodes < low) | (item.nodes > high)).any():
        raise ValueError("nodes: a private release lies within the bounds")
    relative = item.deviation.astype(np.float64) / (high - low)
    if (np.ptp(relative, axis=1) > _ROUNDING * relative.max(axis=1)).any():
        raise ValueError("deviation: a private release has the same noise in every feature, in widths of the bounds")
    # the noise of a sum against that of a count, for the farthest that a row can be from the middle of its cell
    farthest = math.sqrt(COUNT_SHARE / (1.0 - COUNT_SHARE)) * widest_radius(len(low)) / UNIT
    most = farthest * of_counts / counts
    over = relative.max(axis=1) - most * (1.0 + _ROUNDING)
    worst = int(np.argmax(over))
    if over[worst] > 0:
        raise ValueError(
            f"deviation: {relative[worst].max():.3g} widths of the bounds for a node of {counts[worst]:g} rows; "
            f"no release at eps = {epsilon:g} has more than {most[worst]:.3g}"
        )
    kept = counts >= of_counts
    if kept.all():
        return Admitted(item, "")
    left_out = f"{counted(int((~kept).sum()), 'node')} of fewer rows than their noise left out"
    return Admitted(item.only(kept), left_out)


def _statement(said: dict[str, Any]) -> tuple[float, float]:
    """Return epsilon and delta as stated."""
    if said.get("mechanism") != KNOWN:
        raise ValueError(f"deviation: only {KNOWN} states its noise, and the statement does not name it")
    epsilon, delta = said.get("epsilon"), said.get("delta")
    for name, value, most in (("epsilon", epsilon, 1e6), ("delta", delta, 1e-5)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise ValueError(f"privacy statement: {name} must be a number above 0 and at most {most:g}, got {value!r}")
    assert epsilon is not None
    assert delta is not None
    return float(epsilon), float(delta)


def _check_count_deviation(given: Floats, counts: Floats, epsilon: float, delta: float, rounds: int) -> None:
    """Refuse noise of counts that does not follow from epsilon.

    A cell that is released has at least `ALIVE` times as many rows as its count has noise, but for one in each release
    in which none had; over the rounds cells of one place are merged, and their variances add up.
    """
    least = _count_noise(rho_from_epsilon(epsilon, delta), LATER_STEP_SHARES[-1])
    first = _count_noise(rho_from_epsilon(epsilon, delta / 2), STEP_SHARES[-1])
    most = np.sqrt(rounds * first**2 + counts * first / ALIVE)
    wrong = (given < least * (1.0 - _ROUNDING)) | (given > most * (1.0 + _ROUNDING))
    if wrong.any():
        node = int(np.argmax(wrong))
        raise ValueError(
            f"count_deviation: {given[node]:.3g} for a node of {counts[node]:g} rows, but after {rounds} rounds at "
            f"eps = {epsilon:g} it lies between {least:.3g} and {most[node]:.3g}"
        )


def _count_noise(rho: float, share: float) -> float:
    """Return the standard deviation of the noise in the counts that a release sends, in rows."""
    return gaussian_scale(WEIGHT**2, rho * share * COUNT_SHARE) / WEIGHT
