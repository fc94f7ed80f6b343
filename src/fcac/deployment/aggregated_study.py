"""Studies whose sites are summed before anyone sees: keys, the list of sites, and what bundles hold of them.

Every site makes its key itself, beside the other one, when it joins. The hub offers the list of sites once there are
enough (``server/roster.fcac`` in its directory), and every operator agrees to it after comparing its code
(``fcac federation sites``).

Sites that are added later are refused by the others until their operators agree (:class:`fcac.aggregation.RosterFile`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fcac import persistence
from fcac.aggregation import Roster
from fcac.aggregation.roster import fewest_sites
from fcac.deployment.settings import Summing

SITE_KEY_FILE = "summing.key"
_ROSTER = Path("server", "roster.fcac")

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


def summing_for(epsilon: float | None, delta: float, tolerance: int | None, least: int | None) -> Summing:
    """Return the settings of a new study, or an error that says what is missing."""
    if epsilon is None:
        raise ValueError("--aggregation secure needs --epsilon: all sites of the study add their noise for it together")
    tolerated = 1 if tolerance is None else tolerance
    wanted = fewest_sites(tolerated) if least is None else least
    # refuses what cannot work, before anything is written
    Roster("draft", {str(i): i.to_bytes(32, "big") for i in range(wanted)}, tolerated, wanted)
    return Summing(float(epsilon), float(delta), tolerated, wanted)


def federation_text(summing: Summing) -> str:
    """Return the section of ``federation.toml``."""
    return _FEDERATION.format(**vars(summing))


def bundle_text(summing: Summing) -> str:
    """Return the section of a bundle."""
    return _BUNDLE.format(epsilon=summing.epsilon, delta=summing.delta)


def write_roster(root: Path, name: str, keys: Mapping[str, bytes], summing: Summing) -> None:
    """Store the roster that the hub offers."""
    data = Roster(name, keys, summing.tolerance, summing.least).to_bytes()
    persistence.write_atomic(root / _ROSTER, data)


def offered(root: Path) -> bytes | None:
    """Return the roster that the hub offers, as bytes; None as long as too few sites have joined."""
    path = root / _ROSTER
    return path.read_bytes() if path.exists() else None


def read_roster(root: Path) -> Roster:
    """Return the roster that the hub offers."""
    if not (root / _ROSTER).exists():
        raise ValueError(f"too few sites have joined {root} for a summed round: see `fcac federation status {root}`")
    return Roster.from_bytes((root / _ROSTER).read_bytes())
