"""How far released values can be from the truth: standard deviations of noise that is known because it was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.estimators.fcac import FCAC
from fcac.federation import Contribution, Server


@dataclass(frozen=True)
class NodeNoise:
    """Known noise of the nodes that sites released, in the order of ``server.latest()``.

    Attributes
    ----------
    counts : array of shape (n,)
        Standard deviation of the noise in each count.
    values : array of shape (n, d) or None
        Standard deviation of the noise in each value, where the releasing sites are at hand.
    """

    counts: Floats
    values: Floats | None


def node_noise(server: Server, estimator: FCAC | None) -> NodeNoise | None:
    """Return the noise in the latest contributions; None if they are not all private releases."""
    latest = server.latest()
    if not latest or not server.released:
        return None
    counts = [np.full(len(item.counts), _count_noise(item)) for item in latest.values()]
    values = [None if estimator is None else _value_noise(estimator.sites_.get(site), latest[site]) for site in latest]
    known = [v for v in values if v is not None]
    return NodeNoise(np.concatenate(counts), np.concatenate(known) if len(known) == len(values) else None)


def _count_noise(item: Contribution) -> float:
    """Standard deviation of one count, from the statement that came with it: noise of all releases adds up."""
    from fcac.privacy import cell_release
    from fcac.privacy.zcdp import gaussian_scale, rho_from_epsilon

    epsilon, delta = item.privacy.get("epsilon"), item.privacy.get("delta")
    if not isinstance(epsilon, int | float) or not isinstance(delta, int | float):
        return 0.0
    rho = rho_from_epsilon(float(epsilon), float(delta))
    share = cell_release.COUNT_SHARE
    first = gaussian_scale(1, rho * cell_release.STEP_SHARES[-1] * share)
    later = gaussian_scale(1, rho * cell_release.LATER_STEP_SHARES[-1] * share)
    n_releases = max(int(item.privacy.get("rounds", 1)), 1)
    return float(np.sqrt(first**2 + (n_releases - 1) * later**2))


def _value_noise(site: Any, item: Contribution) -> Floats | None:
    """Standard deviation of the values of a site's nodes, if the site in this process made the release."""
    released = getattr(site, "_released", None)
    noise = getattr(released, "node_noise", None)
    if released is None or noise is None or len(noise) != len(item.counts):
        return None
    bounds = np.asarray(released.bounds)
    values: Floats = np.sqrt(noise)[:, None] * (bounds[:, 1] - bounds[:, 0])
    return values
