"""The federation core: sites turn rows into contributions, a server turns contributions into clusters.

Nothing here knows how messages travel: the in-process engine and the hub call the same code with the same bytes.
"""

from typing import TYPE_CHECKING

from fcac import _lazy
from fcac._sites import SiteName, site_order
from fcac.federation.contribution import Contribution

if TYPE_CHECKING:
    from fcac.federation.rounds import play_round
    from fcac.federation.server import Server
    from fcac.federation.site import Site

__all__ = ["Contribution", "Server", "Site", "SiteName", "play_round", "site_order"]

# Modules are loaded when a name is first used: commands that only look at contributions need no kernels.
__getattr__, __dir__ = _lazy.attach(
    __name__,
    __all__,
    {
        "Server": "fcac.federation.server",
        "Site": "fcac.federation.site",
        "play_round": "fcac.federation.rounds",
    },
)
