"""Read clusters from the nodes of all sites, as communities of one neighbour graph.

:class:`Communities` holds the sites' nodes and clusters them; :class:`fcac.estimators.CAPlusCommunities` does the same
for one machine's rows.
"""

from fcac.communities.model import Communities
from fcac.communities.tracking import Change

__all__ = ["Change", "Communities"]
