"""Who shares masks and secrets with whom: everybody with everybody, or, among many sites, a random regular graph.

As in Bell, Bonawitz, Gascon, Lepoint and Raykova, *Secure Single-Server Aggregation with (Poly)Logarithmic Overhead*
(2020): with k neighbours per site instead of n - 1 the cost of a step grows like n log n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fcac.aggregation.keys import digest

#: Probability, in bits, that some site has more bad neighbours (vanished or colluding) than it can bear.
FAILURE_BITS = 40


class Circle(NamedTuple):
    """The size of a site's neighbourhood.

    Attributes
    ----------
    n_neighbours : int
        Sites with which a site shares masks and secrets.
    n_bad : int
        The most of them that vanish or collude, except with probability 2**-40.
    threshold : int
        Shares that recover a secret: more than colluders have, even if every honest neighbour were deceived once, and
        no more than those that remain.
    """

    n_neighbours: int
    n_bad: int
    threshold: int


@lru_cache(maxsize=1024)
def circle_for(n_sites: int, tolerance: int) -> Circle:
    """Return the smallest neighbourhood that is safe if up to ``tolerance`` of the sites vanish or collude.

    Each of the k neighbours holds a share. Up to b of them are bad, so k - b remain, and the threshold s must not be
    larger. Colluders bring b shares of any secret. If honest neighbours could be told different things, the hub could
    collect both secrets of a site from k - b + 2b shares; 2 s > k + b rules that out. Both hold if k > 3 b.

    Examples
    --------
    >>> from fcac.aggregation.neighbours import circle_for
    >>> circle_for(10, 1), circle_for(100, 10)
    (Circle(n_neighbours=4, n_bad=1, threshold=3), Circle(n_neighbours=32, n_bad=10, threshold=22))
    >>> circle_for(1000, 100).n_neighbours < 150
    True
    """
    if tolerance < 1 or n_sites <= 3 * tolerance:
        raise ValueError(
            f"{n_sites} sites cannot bear {tolerance} that vanish or collude: more than three times as many are needed"
        )
    for size in range(2, n_sites - 1, 2):
        bad = _most_bad(n_sites, tolerance, size)
        if size > 3 * bad and _stays_connected(n_sites, tolerance, size):
            return Circle(size, bad, (size + bad) // 2 + 1)
    size, bad = n_sites - 1, min(tolerance, n_sites - 1)
    # the site itself may be honest and present while all bad ones are among its neighbours
    if size <= 3 * bad:
        return Circle(size, bad, size - bad)
    return Circle(size, bad, (size + bad) // 2 + 1)


class Witnesses(NamedTuple):
    """Sites whose signatures show that everybody was told the same list.

    Attributes
    ----------
    places : list of int
    needed : int
        Signatures that must be shown. Two lists cannot both have so many, since an honest site signs one list per step.
    """

    places: list[int]
    needed: int


def witnesses_for(joined: Sequence[int], tolerance: int, public_seed: bytes) -> Witnesses:
    """Return the witnesses of a round: all its sites or, among many, as many as a site has neighbours.

    Drawn at random, k of n sites have no more bad ones among them than the k neighbours of a site, of whom
    :func:`circle_for` bounds the bad ones by b. Of k witnesses at least k - b answer, and (k + b) / 2 + 1 are needed.

    Examples
    --------
    >>> from fcac.aggregation.neighbours import witnesses_for
    >>> witnesses_for([0, 2, 3, 7], 1, b"seed")
    Witnesses(places=[0, 2, 3, 7], needed=3)
    >>> drawn = witnesses_for(range(1000), 100, b"seed")
    >>> len(drawn.places), drawn.needed
    (128, 86)
    """
    n_sites, circle = len(joined), circle_for(len(joined), tolerance)
    if circle.n_neighbours >= n_sites - 1:
        return Witnesses(sorted(joined), (n_sites + tolerance) // 2 + 1)
    order = sorted(joined, key=lambda site: digest(b"fcac witness", public_seed, site.to_bytes(8, "big")))
    return Witnesses(sorted(order[: circle.n_neighbours]), (circle.n_neighbours + circle.n_bad) // 2 + 1)


def _stays_connected(n_sites: int, tolerance: int, size: int) -> bool:
    """Whether the good sites stay connected: the ring falls apart only where k / 2 bad sites follow each other."""
    return size > tolerance or n_sites * (tolerance / n_sites) ** (size // 2) <= 2.0**-FAILURE_BITS


def _most_bad(n_sites: int, tolerance: int, size: int) -> int:
    """Return the smallest b such that, of all sites, none has more than b bad neighbours, but for a probability."""
    allowed = 2.0**-FAILURE_BITS / n_sites
    most = min(tolerance, size)
    tail = 0.0
    for bad in range(most, -1, -1):
        # hypergeometric: `tolerance` bad ones among the n - 1 others, `size` of them drawn
        rest = n_sites - 1 - tolerance
        if size - bad <= rest:
            log_p = _log_choose(tolerance, bad) + _log_choose(rest, size - bad) - _log_choose(n_sites - 1, size)
            tail += math.exp(log_p)
        if tail > allowed:
            return bad
    return 0


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def neighbourhoods(n_sites: int, n_neighbours: int, public_seed: bytes) -> list[list[int]]:
    """Return the neighbours of every site, sorted: a ring in random order, each site linked to the k nearest.

    Parameters
    ----------
    n_sites : int
    n_neighbours : int
        Even, or n - 1 for all others.
    public_seed : bytes
        Determines the order; the same at the hub and at all sites.

    Examples
    --------
    >>> from fcac.aggregation.neighbours import neighbourhoods
    >>> near = neighbourhoods(9, 4, b"seed")
    >>> {len(others) for others in near}, all(a in near[b] for a in range(9) for b in near[a])
    ({4}, True)
    """
    if n_neighbours >= n_sites - 1:
        return [[other for other in range(n_sites) if other != site] for site in range(n_sites)]
    order = sorted(range(n_sites), key=lambda site: digest(b"fcac ring", public_seed, site.to_bytes(8, "big")))
    result: list[list[int]] = [[] for _ in range(n_sites)]
    for place, site in enumerate(order):
        for step in range(1, n_neighbours // 2 + 1):
            other = order[(place + step) % n_sites]
            result[site].append(other)
            result[other].append(site)
    return [sorted(others) for others in result]
