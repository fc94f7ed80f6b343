"""Limits on the influence of one site on a round: on its share of nodes and counts, and on the density of its nodes.

The paper's server learns nodes one by one, so the influence of a site grows with the number of nodes it sends, and
above all with the number it concentrates in one place: those determine the scale at which the server separates nodes.
The community read-out weights nodes by their counts. All three are capped, unless a federation says otherwise. A cap
keeps the heaviest nodes of a site and never adds any.

What a site's share is taken of: the newest contributions of all sites, whether or not they came in this round. A site
that contributes alone is therefore held to the same share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fcac._typing import Floats
from fcac.deployment.settings import Limits
from fcac.federation import Contribution

# With many sites, a share of twice the average would be less than an honest large site has.
_LEAST_SHARE = 0.1
# By default no site has more than this many times as much as the largest of the others.
_TIMES_OTHERS = 1.1
# A site whose rows grow this many times from one contribution to the next is shown to the operator.
_JUMP = 10.0


class Amount(NamedTuple):
    """How much a site contributes: its number of nodes and the sum of their counts."""

    n_nodes: int
    n_rows: int


def cap_round(batch: Sequence[Contribution], limits: Limits, others: Sequence[Amount] = ()) -> list[Contribution]:
    """Return the contributions of a round, one per site, after applying the caps of `limits`.

    `others` is what the server has from sites that are not in this batch.

    >>> from fcac.federation import Contribution
    >>> from fcac.deployment.settings import Limits
    >>> honest = [Contribution(name, 1, [[0.0]] * 10, [5] * 10) for name in "abc"]
    >>> flood = Contribution("x", 1, [[9.0]] * 1000, [1] * 1000)
    >>> [len(item.nodes) for item in cap_round([*honest, flood], Limits(max_node_share=0.4))]
    [10, 10, 10, 20]
    """
    capped = list(batch)
    caps = _caps([len(item.nodes) for item in capped], [other.n_nodes for other in others], limits.max_node_share)
    capped = [_keep_heaviest(item, int(cap)) for item, cap in zip(capped, caps, strict=True)]
    if limits.min_spacing is not None:
        capped = _thin_crowds(capped, limits.min_spacing)
    caps = _caps(
        [int(item.counts.sum()) for item in capped], [other.n_rows for other in others], limits.max_count_share
    )
    return [_scale_counts(item, cap) for item, cap in zip(capped, caps, strict=True)]


def _caps(batch: Sequence[int], others: Sequence[int], share: float | None) -> list[float]:
    """Return the most that each site of a batch may have."""
    # a site that has nothing yet says nothing about what is usual
    amounts = sorted(amount for amount in (*batch, *others) if amount)
    cap = largest_allowed(amounts, share_of(share, len(amounts)))
    if share is not None or len(amounts) < 3:
        return [cap] * len(batch)
    # of three sites, twice an equal share would be most of everything
    return [min(cap, _TIMES_OTHERS * amounts[-2 if amount == amounts[-1] else -1]) for amount in batch]


def share_of(given: float | None, n_sites: int) -> float:
    """Return the largest share that one of `n_sites` can have: as given, or twice what it would have among equals.

    >>> share_of(None, 10), share_of(None, 40), share_of(None, 2), share_of(0.5, 10)
    (0.2, 0.1, 1.0, 0.5)
    """
    if given is not None:
        return given
    return min(1.0, max(_LEAST_SHARE, 2 / max(1, n_sites)))


def unusual(now: Amount, before: Amount | None, others: Sequence[Amount]) -> str:
    """Return why a contribution deserves a look, beside what its site and the others sent last; "" if it does not.

    It may be honest: a site may have got a large table. It is accepted, capped, and shown to the operator.

    >>> unusual(Amount(50, 30_000), Amount(40, 1_000), [])
    'it stands for 30,000 rows, 30 times as many as its last contribution'
    """
    if before is not None and before.n_rows and now.n_rows > _JUMP * before.n_rows:
        times = round(now.n_rows / before.n_rows)
        return f"it stands for {now.n_rows:,} rows, {times:,} times as many as its last contribution"
    if len(others) >= 3:
        usual = float(np.median([other.n_rows for other in others]))
        if usual and now.n_rows > _JUMP * _JUMP * usual:
            return f"it stands for {now.n_rows:,} rows, {round(now.n_rows / usual):,} times as many as is usual here"
    return ""


def largest_allowed(amounts: Sequence[int], share: float) -> float:
    """Return the largest c for which min(amount, c) is at most `share` of the sum of all min(amount, c).

    With n sites, no share below 1/n can hold for all; in that case all are limited to the smallest amount.
    """
    ordered = sorted((float(amount) for amount in amounts), reverse=True)
    if not ordered:
        return 0.0
    for n_capped in range(len(ordered)):
        rest = sum(ordered[n_capped:])
        if share * n_capped >= 1:
            break
        cap = share * rest / (1 - share * n_capped)
        if ordered[n_capped] <= cap:
            return max(cap, ordered[n_capped])
    return ordered[-1]


def _keep_heaviest(item: Contribution, n_nodes: int) -> Contribution:
    if len(item.nodes) <= n_nodes:
        return item
    # stable, so that nodes of equal count keep the site's own order; the nodes kept stay in that order too
    return item.only(np.sort(np.argsort(-item.counts, kind="stable")[:n_nodes]))


def _thin_crowds(batch: list[Contribution], share: float) -> list[Contribution]:
    """Keep only the heaviest of nodes of one site that are close together, relative to the median spacing of sites."""
    spacings = [_spacing(item.nodes) for item in batch if len(item.nodes) > 1]
    if not spacings:
        return batch
    nearest = share * float(np.median(spacings))
    thinned = []
    for item in batch:
        kept = np.empty(len(item.nodes), np.int64)
        n_kept = 0
        for position in np.argsort(-item.counts, kind="stable"):
            others = item.nodes[kept[:n_kept]]
            if not n_kept or np.linalg.norm(others - item.nodes[position], axis=1).min() >= nearest:
                kept[n_kept] = position
                n_kept += 1
        thinned.append(item if n_kept == len(item.nodes) else item.only(np.sort(kept[:n_kept])))
    return thinned


def _spacing(nodes: Floats) -> float:
    """Return the median distance between a site's nodes and their nearest neighbours."""
    from sklearn.neighbors import NearestNeighbors

    return float(np.median(NearestNeighbors(n_neighbors=1).fit(nodes).kneighbors()[0]))


def _scale_counts(item: Contribution, most: float) -> Contribution:
    total = int(item.counts.sum())
    if total <= most:
        return item
    scaled = np.maximum(1, np.floor(item.counts * (most / total))).astype(np.int64)
    count_deviation = None if item.count_deviation is None else item.count_deviation * (most / total)
    return Contribution(item.site, item.round, item.nodes, scaled, item.privacy, item.deviation, count_deviation)
