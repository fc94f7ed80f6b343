"""The nodes to cluster: those of all sites or, where there are very many, what they are condensed to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fcac._typing import Floats, Integers
from fcac.clusters.noisy_nodes import deviations, noise_prevails
from fcac.nodes.condense import condense, noise_of

#: Most nodes that are clustered as they are. Twice as many take twice the time and find the same clusters.
MAX_READ = 16_000

Held = Mapping[Any, tuple[Floats, Floats]]

# The name under which the nodes of all sites are clustered once they were condensed.
_TOGETHER = "all sites"


class Given(NamedTuple):
    """Nodes to cluster, and what is known of their noise, by site in the order of their nodes.

    There is one site for all if they were condensed together; `counted_in` then says which of the nodes each node of
    the sites is counted in. `sources` are the arrays that all of it is made from.
    """

    sites: list[Any]
    held: Held
    noise: Held
    sources: list[Any]
    counted_in: Integers | None = None


def bounded(
    sites: list[Any], held: Held, noise: Held, max_nodes: int, scale: str = "auto", known: Given | None = None
) -> Given:
    """Return at most `max_nodes` nodes; those of an earlier call, `known`, if nothing has changed since."""
    sources = [part for site in sites for part in (held[site], noise.get(site))]
    if known is not None and list(map(id, known.sources)) == list(map(id, sources)):
        return known
    if sum(len(held[site][0]) for site in sites) <= max_nodes:
        return Given(sites, held, noise, sources)
    nodes, counts = (np.concatenate(arrays) for arrays in zip(*(held[site] for site in sites), strict=True))
    found = condense(nodes, counts, max_nodes, scale)
    together = {}
    if noise_prevails(held, noise):
        together[_TOGETHER] = noise_of(found, counts, *deviations(sites, held, noise))
    return Given([_TOGETHER], {_TOGETHER: (found.nodes, found.counts)}, together, sources, found.node_of)
