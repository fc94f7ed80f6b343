"""Read clusters from the nodes of all sites, as communities of one neighbour graph.

:class:`Communities` holds the sites' nodes and clusters them.
"""

from fcac.clusters.model import Communities
from fcac.clusters.tracking import Change

__all__ = ["Change", "Communities"]
