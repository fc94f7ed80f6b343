"""What a site has released so far: the only state that it keeps from one round to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import PrivacyError
from fcac.privacy.account import Account
from fcac.privacy.bounds import check_bounds, from_unit

# Nodes without any noise are known to this variance.
_LEAST = 1e-100
#: Nodes are one as long as their squared distance is within so many deviations of what noise alone makes of it. Of 1,
#: 2, 3 and 5, 5 was best for 25 rounds of 50 rows (mean and worst of 20 seeds, 2 and 8 features).
_FAR = 5.0
_MADE_BY = "fcac.privacy.NodeRelease/1"


@dataclass(frozen=True, eq=False)
class ReleasedState:
    """The accumulated nodes of all releases of a site. Everything in it was noised before it got here.

    Attributes
    ----------
    unit_nodes : ndarray of shape (K, d)
        Nodes, mapped to [0, 1] by the public bounds.
    counts : ndarray of shape (K,)
        Noised number of records per node.
    node_noise : ndarray of shape (K,)
        Variance per feature due to the noise in each node, in the units of ``unit_nodes``.
    bounds : ndarray of shape (d, 2)
    n_releases : int
    count_noise : ndarray of shape (K,)
        Variance of ``counts`` due to their noise.
    account : Account
        What the releases have cost.
    """

    unit_nodes: Floats
    counts: Floats
    node_noise: Floats
    bounds: Floats
    n_releases: int
    count_noise: Floats
    account: Account = field(default_factory=Account)

    @property
    def nodes(self) -> Floats:
        """Nodes in the units of the data."""
        return from_unit(self.unit_nodes, self.bounds)

    @property
    def deviation(self) -> Floats:
        """Standard deviation of every value of ``nodes``, from public scales."""
        deviation: Floats = np.sqrt(self.node_noise)[:, None] * np.diff(self.bounds, axis=1)[:, 0]
        return deviation

    @property
    def count_deviation(self) -> Floats:
        """Standard deviation of ``counts``."""
        deviation: Floats = np.sqrt(self.count_noise)
        return deviation

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return a JSON-serialisable description and arrays, for :func:`fcac.persistence.pack`."""
        meta = {"made_by": _MADE_BY, "n_releases": self.n_releases, "account": self.account.to_json()}
        arrays = {
            "unit_nodes": self.unit_nodes,
            "released_counts": self.counts,
            "node_noise": self.node_noise,
            "bounds": np.asarray(self.bounds),
            "count_noise": self.count_noise,
        }
        return meta, arrays

    @classmethod
    def from_parts(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> ReleasedState:
        """Rebuild a state from the result of :meth:`to_parts`, and check it."""
        if meta.get("made_by") != _MADE_BY:
            raise PrivacyError(
                f"state: not the result of a release (made by {meta.get('made_by')!r}); "
                "pass the state that release() returned"
            )
        try:
            unit_nodes, counts, noise, bounds, count_noise = (
                np.array(arrays[name], dtype=np.float64)
                for name in ("unit_nodes", "released_counts", "node_noise", "bounds", "count_noise")
            )
            n_releases, account = int(meta["n_releases"]), Account.from_json(meta["account"])
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"state: damaged, {error} is missing or not numeric") from None
        bounds = check_bounds(bounds)
        n_nodes = len(unit_nodes)
        right_shapes = unit_nodes.shape == (n_nodes, len(bounds))
        right_shapes &= counts.shape == noise.shape == count_noise.shape == (n_nodes,)
        numbers = (unit_nodes, counts, noise, count_noise)
        if not right_shapes or n_nodes == 0 or n_releases < 1 or not all(np.isfinite(a).all() for a in numbers):
            raise PrivacyError("state: damaged, its arrays do not match each other")
        if unit_nodes.min() < 0 or unit_nodes.max() > 1 or counts.min() < 1 or min(noise.min(), count_noise.min()) < 0:
            raise PrivacyError("state: damaged, it contains values that no release can produce")
        return cls(unit_nodes, counts, noise, bounds, n_releases, count_noise, account)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReleasedState):
            return NotImplemented
        mine, theirs = self.to_parts()[1], other.to_parts()[1]
        same_arrays = mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        return (self.n_releases, self.account) == (other.n_releases, other.account) and same_arrays

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ReleasedState({len(self.counts)} nodes from {self.n_releases} release(s))"


def accumulate(state: ReleasedState | None, fresh: ReleasedState, vigilance: float) -> ReleasedState:
    """Merge a new release into the earlier ones: a node is pooled with the old one that it most likely is, or added.

    The noise in nodes is known: it says which old node is the likeliest, how far the two may lie apart, and how much
    each counts in their mean, so that many small rounds are read as one. This uses released values only
    (post-processing), so it costs nothing and cannot weaken the guarantee. `vigilance` is the distance, in units of
    [0, 1] features, at which nodes without noise are still the same.
    """
    if state is None:
        return fresh
    # the account of the fresh release already includes the earlier ones
    nodes, counts, noise = list(state.unit_nodes), list(state.counts), list(state.node_noise)
    count_noise = list(state.count_noise)
    d = fresh.unit_nodes.shape[1]
    spread = vigilance**2 / d
    for place in np.argsort(fresh.node_noise, kind="stable"):
        node, count, variance = fresh.unit_nodes[place], fresh.counts[place], float(fresh.node_noise[place])
        apart = ((np.array(nodes) - node) ** 2).sum(axis=1)
        expected = np.maximum(np.array(noise) + variance + spread, _LEAST)
        # the twin is the most likely one; the more noise a node has, the less it is to be believed
        twin = int(np.argmin(apart / expected + d * np.log(expected)))
        if apart[twin] <= expected[twin] * (d + _FAR * np.sqrt(2.0 * d)):
            old = 1.0 / max(noise[twin] + spread / max(counts[twin], 1), _LEAST)
            new = 1.0 / max(variance + spread / max(count, 1), _LEAST)
            old, new = old / (old + new), new / (old + new)
            nodes[twin] = np.clip(old * nodes[twin] + new * node, 0.0, 1.0)
            noise[twin] = old**2 * noise[twin] + new**2 * variance
            counts[twin] += count
            count_noise[twin] += fresh.count_noise[place]
        else:
            nodes.append(node)
            counts.append(count)
            noise.append(variance)
            count_noise.append(float(fresh.count_noise[place]))
    return ReleasedState(
        np.array(nodes),
        np.array(counts),
        np.array(noise),
        fresh.bounds,
        state.n_releases + fresh.n_releases,
        np.array(count_noise),
        fresh.account,
    )
