"""The exact test of :mod:`fcac.privacy.noninterference` on contributions: the bytes that a hub receives."""

from __future__ import annotations

from typing import Any

from fcac.federation.site import Site
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.noninterference import Rounds, compare, example_rounds, small_release


def sent_differences(mechanism: NodeRelease, seed: int = 0) -> list[str]:
    """Return what in a site's contributions depends on rows other than through the noise; nothing, if it is sound.

    >>> sent_differences(NodeRelease(4, bounds=[[0, 1]]))
    []
    """
    found: dict[str, None] = {}
    for people in (False, True):
        for name in compare(small_release(mechanism, None), example_rounds(people), _contributions, seed):
            found.setdefault(name)
    return list(found)


def _contributions(mechanism: NodeRelease, rounds: Rounds) -> dict[str, Any]:
    site = Site("audit", mechanism)
    seen: dict[str, Any] = {}
    for number, (rows, ids) in enumerate(rounds, 1):
        sent = site.contribute(rows, number, record_ids=ids)
        seen[f"round {number}: nodes as received"] = sent.nodes
        seen[f"round {number}: counts as received"] = sent.counts
        seen[f"round {number}: statement as received"] = sent.privacy
        seen[f"round {number}: bytes as received"] = sent.to_bytes()
    return seen
