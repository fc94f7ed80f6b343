"""Read clusters from the nodes of all sites, as communities of one neighbour graph.

``Communities`` holds the sites' nodes and clusters them; ``CAPlusCommunities`` does the same for one machine's rows.
"""

from __future__ import annotations

from fcac.codebook.coarse import Codebook
from fcac.estimators.ca_plus_communities import CAPlusCommunities
from fcac.communities.tracking import Change
from fcac.communities.model import Communities

__all__ = ["CAPlusCommunities", "Change", "Codebook", "Communities"]
