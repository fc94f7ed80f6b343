"""Read clusters from the nodes of all sites, as communities of one neighbour graph.

``Communities`` holds the sites' nodes and clusters them; ``CAPlusCommunities`` does the same for one machine's rows.
"""

from __future__ import annotations

from fcac.readout.codebook import Codebook
from fcac.readout.estimator import CAPlusCommunities
from fcac.readout.lineage import Change
from fcac.readout.model import Communities

__all__ = ["CAPlusCommunities", "Change", "Codebook", "Communities"]
