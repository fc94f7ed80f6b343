"""Every name of the package that the golden tests use: when a module moves, this file is the one to change."""

from __future__ import annotations

from fcac.estimators import CAPlusCommunities

from fcac import CAE, CAEFC, FCAC, CAPlus, load, save
from fcac.codebook import Codebook
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, SiteSettings
from fcac.deployment.site_agent import SiteAgent
from fcac.federation import Contribution, Server, Site
from fcac.persistence import pack, unpack
from fcac.privacy import (
    BudgetExceeded,
    Ledger,
    LocalNoise,
    NodeRelease,
    PaperLaplace,
    PrivacyWarning,
    ReleasedState,
    RepeatedBatch,
)
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.schema import Schema

__all__ = [
    "CAE",
    "CAEFC",
    "FCAC",
    "BudgetExceeded",
    "CAPlus",
    "CAPlusCommunities",
    "Codebook",
    "Contribution",
    "FederationSettings",
    "Hub",
    "InsecureTestSampler",
    "Ledger",
    "LocalNoise",
    "NodeRelease",
    "PaperLaplace",
    "PrivacyWarning",
    "ReleasedState",
    "RepeatedBatch",
    "Schema",
    "Server",
    "Site",
    "SiteAgent",
    "SiteSettings",
    "load",
    "pack",
    "run_over_grid",
    "save",
    "unpack",
]


def run_over_grid(sites: dict[int, str], keys: dict[int, str], root: str) -> None:
    """Play one round of a federation over the Grid inside this process; needs flwr.

    Parameters
    ----------
    sites : dict
        Settings file of every node.
    keys : dict
        Public key of every node, as `federation.toml` has it; empty for a federation without keys.
    root : str
        Directory of the federation.
    """
    from flwr.app import Context, RecordDict

    from fcac.deployment.certificates import public_pem
    from fcac.flower import server_app
    from fcac.flower.in_process import InProcessGrid

    grid = InProcessGrid(sites, keys={node: public_pem(key) for node, key in keys.items()})
    config = {"fcac-federation": root, "fcac-rounds": 1, "fcac-poll": 0.01}
    server_app.app(grid, Context(1, 1, {}, RecordDict(), config))
