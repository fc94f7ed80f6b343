"""Studies whose sites are summed before anyone sees: keys, the list of sites, and what bundles hold of them.

Below the directory of a federation::

    server/roster.fcac          who may take part, as the hub offers it
    bundles/NAME/summing.key    the site's own signing key
    bundles/NAME/roster.fcac    the list of sites that a site agrees to by using its bundle

Where sites join, they make their keys themselves, the hub offers the list once there are enough, and every operator
agrees to it after comparing its code (``fcac federation sites``).

Sites that are added later are refused by the others until their operators agree (:class:`fcac.aggregation.RosterFile`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fcac import persistence
from fcac.aggregation import Roster, SigningKey
from fcac.aggregation.roster import check_size, fewest_sites, usual_tolerance
from fcac.deployment.settings import Summing

SITE_KEY_FILE = "summing.key"
ROSTER_FILE = "roster.fcac"
_ROSTER = Path("server") / ROSTER_FILE

_FEDERATION = """
[summing]   # all sites' totals are added up under secure aggregation; the same at every site
epsilon = {epsilon!r}   # cost of a round, for a record at any site
delta = {delta!r}
tolerance = {tolerance}   # sites that may vanish in a round while as many others collude with the hub
least = {least}   # fewest sites in a round
"""

_BUNDLE = """
[summing]   # set by the study
epsilon = {epsilon!r}
delta = {delta!r}
"""


def summing_for(n_sites: int, epsilon: float | None, delta: float, tolerance: int | None, least: int | None) -> Summing:
    """Return the settings of a new study, or an error that says what is missing."""
    if epsilon is None:
        raise ValueError("--aggregation secure needs --epsilon: all sites of the study add their noise for it together")
    check_size(n_sites)
    # of sites that are yet to join, nobody knows how many there will be
    tolerated = (usual_tolerance(n_sites) if n_sites else 1) if tolerance is None else tolerance
    wanted = max(fewest_sites(tolerated), (n_sites + 1) // 2) if least is None else least
    # refuses what cannot work, before anything is written
    Roster("draft", {str(i): i.to_bytes(32, "big") for i in range(n_sites or wanted)}, tolerated, wanted)
    return Summing(float(epsilon), float(delta), tolerated, wanted)


def federation_text(summing: Summing) -> str:
    """Return the section of ``federation.toml``."""
    return _FEDERATION.format(**vars(summing))


def bundle_text(summing: Summing) -> str:
    """Return the section of a bundle."""
    return _BUNDLE.format(epsilon=summing.epsilon, delta=summing.delta)


def make_site_key(bundle: Path) -> bytes:
    """Write a site's key into its bundle and return the public half."""
    return SigningKey.at(bundle / SITE_KEY_FILE).public


def write_roster(root: Path, name: str, keys: Mapping[str, bytes], summing: Summing, new: list[str]) -> None:
    """Store the roster, for the hub and in the bundles of new sites."""
    data = Roster(name, keys, summing.tolerance, summing.least).to_bytes()
    for folder in (root / _ROSTER.parent, *(root / "bundles" / site for site in new)):
        persistence.write_atomic(folder / ROSTER_FILE, data)


def offered(root: Path) -> bytes | None:
    """Return the roster that the hub offers, as bytes; None as long as too few sites have joined."""
    path = root / _ROSTER
    return path.read_bytes() if path.exists() else None


def read_roster(root: Path) -> Roster:
    """Return the roster that the hub offers."""
    if not (root / _ROSTER).exists():
        raise ValueError(f"too few sites have joined {root} for a summed round: see `fcac federation status {root}`")
    return Roster.from_bytes((root / _ROSTER).read_bytes())
