"""The federation core: sites turn rows into contributions, a server turns contributions into clusters.

Nothing here knows how messages travel: the in-process engine and Flower call the same code with the same bytes.
"""

from fcac._sites import SiteName, site_order
from fcac.federation.contribution import Contribution
from fcac.federation.rounds import play_round
from fcac.federation.server import Server
from fcac.federation.site import Site

__all__ = ["Contribution", "Server", "Site", "SiteName", "play_round", "site_order"]
