"""``NodeRelease`` over all sites together: every site adds its totals and its share of the noise, the hub sees sums.

The steps are those of one site's release (:func:`fcac.privacy.cell_release.grow_cells`), with one codebook for all.
A site's part in a step is :func:`site_vector`; :class:`PooledGrowth` turns sums into the next step and, in the end,
into nodes. What the sums cost is proved in docs/privacy/secure-aggregation.md.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import numpy as np

from fcac._typing import Integers
from fcac.aggregation.member import Assignment
from fcac.aggregation.noise import share_scale
from fcac.exceptions import AggregationRefused
from fcac.persistence import pack, unpack
from fcac.privacy.account import Account
from fcac.privacy.cell_release import (
    ALL_SITES,
    COUNT_SHARE,
    LATER_STEP_SHARES,
    RING_SHARE,
    Request,
    Step,
    grow_cells,
    noise_scales,
)
from fcac.privacy.cell_statistics import N_RINGS, UNIT, GridBlocks, cell_totals, widest_radius
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.released_state import ReleasedState, accumulate
from fcac.privacy.samplers import Sampler

#: Name under which the sum of all sites contributes to the server.
POOLED = "all-sites"

_KIND = "aggregation-task"
_MOST_CELLS = 1000
# As in the release of one site: leaves room for rounding, so that the steps together stay below the rho charged.
_SLACK = 1.0 - 1e-9


def terms(mechanism: NodeRelease) -> bytes:
    """Return everything that all sites must agree on, in one spelling."""
    said = {
        "mechanism": "NodeRelease",
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "bounds": mechanism.bounds.tolist(),
        "n_cells": mechanism.n_cells,
        "step_shares": [list(ALL_SITES.step_shares), list(LATER_STEP_SHARES)],
        "shares": [COUNT_SHARE, RING_SHARE],
    }
    return json.dumps(said, sort_keys=True).encode()


def step_cost(mechanism: NodeRelease, step: int, n_steps: int) -> float:
    """Return the cost of one step of a round, in zCDP; the costs of all steps add up to less than that of the round."""
    for shares in (ALL_SITES.step_shares, LATER_STEP_SHARES):
        if len(shares) == n_steps and 1 <= step <= n_steps:
            return mechanism.rho * shares[step - 1] * _SLACK
    raise AggregationRefused(f"no round has {n_steps} steps")


class Scales(NamedTuple):
    """The noise of one site in one step; rings are None in the last step, which has none."""

    counts: float
    sums: float
    rings: float | None


def share_scales(request: Request, n_shares: int) -> Scales:
    """Return the noise that a site adds, so that ``n_shares`` such shares together cost at most what the step may."""
    n_cells, n_features = request.codebook.shape
    counts, sums, rings = noise_scales(request.radius, request.rho, request.last)
    return Scales(
        share_scale(counts, n_shares, n_cells),
        share_scale(sums, n_shares, n_cells * n_features),
        None if rings is None else share_scale(rings, n_shares, N_RINGS),
    )


def to_task(request: Request) -> bytes:
    """Return what the hub sends to all sites in a step."""
    # Most cells are their own base, and the halves of a split cell have one in common: other bases are sent once.
    words = list(request.codebook)
    place = {word.tobytes(): i for i, word in reversed(list(enumerate(words)))}
    for base in request.bases:
        if place.setdefault(base.tobytes(), len(words)) == len(words):
            words.append(base)
    base_of = np.array([place[base.tobytes()] for base in request.bases], dtype=np.int32)
    # grid points need 17 bits
    return pack(_KIND, {"radius": request.radius}, {"words": np.array(words, dtype=np.int32), "base_of": base_of})


def read_task(assigned: Assignment, mechanism: NodeRelease) -> Request:
    """Read and check a task. The site computes the cost itself, whatever the hub says."""
    n_features = len(mechanism.bounds)
    try:
        meta, arrays = unpack(assigned.task, kind=_KIND)
        words, base_of, radius = arrays["words"], arrays["base_of"], int(meta["radius"])
        fits = words.dtype == base_of.dtype == np.int32 and words.ndim == 2 and words.shape[1] == n_features
        fits = fits and base_of.ndim == 1 and 1 <= len(base_of) <= min(len(words), _MOST_CELLS)
    except (ValueError, KeyError, TypeError) as error:
        raise AggregationRefused(f"the task cannot be read: {error}") from None
    if not fits or len(words) > 2 * _MOST_CELLS or not (base_of.min() >= 0 and base_of.max() < len(words)):
        raise AggregationRefused("the task's codebook does not fit this site's features")
    words = words.astype(np.int64)
    if np.abs(words).max() > UNIT // 2 or not 1 <= radius <= widest_radius(n_features):
        raise AggregationRefused("the task's codebook or radius lies outside the bounds")
    rho = step_cost(mechanism, assigned.step, assigned.n_steps)
    return Request(words[: len(base_of)], words[base_of], radius, rho, assigned.step == assigned.n_steps)


def site_vector(
    rows: Integers | GridBlocks, request: Request, n_shares: int, sampler: Sampler, weights: Integers | None = None
) -> Integers:
    """Return what a site adds to the totals of a step: its counts, clipped sums and rings, and its share of the noise.

    Rows are on the integer grid and may be none; `n_shares` sites' noise is certainly in the total and unknown to the
    hub. Without weights the unit is one row.
    """
    totals = cell_totals(rows, request.codebook, request.bases, request.radius, weights)
    scales = share_scales(request, n_shares)
    parts = [
        sampler.add_noise(totals.counts, scales.counts),
        sampler.add_noise(totals.sums, scales.sums).ravel(),
    ]
    if scales.rings is not None:
        parts.append(sampler.add_noise(totals.rings, scales.rings))
    return np.concatenate(parts)


class PooledGrowth:
    """The hub's part: turns the sums of one step into the task of the next, and in the end into nodes.

    Of the mechanism only settings are used, not its ledger and sampler; `state` is the sum of the earlier rounds.
    """

    def __init__(self, mechanism: NodeRelease, state: ReleasedState | None, round: int) -> None:
        self.mechanism, self.state = mechanism, state
        start = None if state is None else state.unit_nodes[np.argsort(-state.counts, kind="stable")]
        generator = np.random.default_rng(mechanism._public_seed(POOLED, round))
        d = len(mechanism.bounds)
        self._growth = grow_cells(d, mechanism.rho, generator, mechanism.n_cells, start, ALL_SITES)
        self.n_steps = len(ALL_SITES.step_shares if start is None else LATER_STEP_SHARES)
        self.request: Request | None = next(self._growth)
        self.released: ReleasedState | None = None
        self.steps: list[Step] = []

    def task(self) -> bytes:
        """Return the task of the next step."""
        if self.request is None:
            raise ValueError("the last step is over")
        return to_task(self.request)

    def take(self, total: Integers, n_sites: int, n_shares: int) -> None:
        """Take the sum of a step over `n_sites` sites, whose noise was sized for `n_shares`."""
        request = self.request
        if request is None:
            raise ValueError("the last step is over")
        n_cells, d = request.codebook.shape
        scales = share_scales(request, n_shares)
        size = n_cells * (d + 1) + (0 if request.last else N_RINGS)
        if total.shape != (size,):
            raise ValueError(f"the total has {len(total)} numbers; {size} were expected")
        counts, sums, rings = np.split(total, [n_cells, n_cells * (d + 1)])
        grown = math.sqrt(n_sites)
        step = Step(
            codebook=request.codebook,
            bases=request.bases,
            radius=request.radius,
            counts=counts,
            sums=sums.reshape(n_cells, d),
            rings=None if scales.rings is None else rings,
            count_scale=grown * scales.counts,
            sum_scale=grown * scales.sums,
            ring_scale=None if scales.rings is None else grown * scales.rings,
        )
        self.steps.append(step)
        try:
            self.request = self._growth.send(step)
        except StopIteration as finished:
            outcome = finished.value
            self.request = None
            bounds = self.mechanism.bounds
            noise = outcome.node_noise, outcome.count_noise
            before = Account() if self.state is None else self.state.account
            account = before.after(self.mechanism.rho, "row", None, None, None)
            fresh = ReleasedState(outcome.unit_nodes, outcome.counts, noise[0], bounds, 1, noise[1], account)
            self.released = accumulate(self.state, fresh, outcome.vigilance)
