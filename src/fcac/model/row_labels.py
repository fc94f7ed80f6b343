"""Clusters of the rows just learned, without searching all of them a second time.

While a site condenses rows, a trail notes the node that counts each row. That node is not always the nearest one: nodes
move, and later rows bring nearer ones. Far from a border between clusters this makes no difference to the cluster. So a
row takes the cluster of the node that counts it if all nodes around that node are of one cluster, and is searched as in
``predict`` if they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._sites import SiteName, site_order
from fcac._typing import Booleans, Integers
from fcac.federation import Server, Site
from fcac.nodes import Trail

#: The rows of a site: all of one table (None), or these positions of it.
Places = Sequence[tuple[SiteName, NDArray[np.int64] | None]]


def labels_by_trail(
    server: Server, sites: Mapping[SiteName, Site], trails: Mapping[SiteName, Trail], places: Places
) -> tuple[Integers, Booleans, Integers] | None:
    """Return the cluster of the node that counts each row, whether `predict` would certainly say so, and the node.

    Trails were noted while each site learned all of its rows; `places` says where these are among all rows, None: after
    those of the sites before it. There is no answer if the server's nodes are not the sites' own, or if it cannot tell
    which lie at a border.
    """
    inner = server.readout.inner_nodes()
    latest = server.latest()
    order = site_order(latest)
    condensed = server.readout.counted_in
    if inner is None:
        return None
    if condensed is None and not np.array_equal(np.concatenate([latest[n].nodes for n in order]), server.nodes):
        return None
    starts = dict(zip(order, np.cumsum([0, *(len(latest[name].nodes) for name in order)]), strict=False))
    counting = [starts[name] + sites[name].nodes_of(trails[name]) for name, _ in places]
    at = np.concatenate(counting)
    if any(where is not None for _, where in places):
        turned = np.empty_like(at)
        turned[np.concatenate([where for _, where in places if where is not None])] = at
        at = turned
    if condensed is not None:
        at = condensed[at]
    labels: Any = server.node_labels[at]
    return labels, inner[at], at
