"""Studies whose sites are summed before anyone sees: keys, the signed roster, and what bundles hold of them.

Below the directory of a federation::

    ca/study.key               signs rosters; like ca.key it belongs off the hub's machine
    server/roster.fcac         who may take part, signed
    bundles/NAME/summing.key   the site's own signing key

A site's bundle also names the public key of the study, by which it recognises rosters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fcac import persistence
from fcac.aggregation import Roster, SigningKey
from fcac.aggregation.roster import fewest_sites, usual_tolerance
from fcac.deployment.certificates import write_private
from fcac.deployment.settings import Summing

SITE_KEY_FILE = "summing.key"
_STUDY_KEY = Path("ca") / "study.key"
_ROSTER = Path("server") / "roster.fcac"

_FEDERATION = """
[summing]   # all sites' totals are added up under secure aggregation; the same at every site
epsilon = {epsilon!r}   # cost of a round, for a record at any site
delta = {delta!r}
tolerance = {tolerance}   # sites that may vanish in a round, or collude with the hub, without harm
least = {least}   # fewest sites in a round
"""

_BUNDLE = """
[summing]   # set by the study
epsilon = {epsilon!r}
delta = {delta!r}
study_key = "{study_key}"   # recognises lists of sites that the study has signed
"""


def summing_for(n_sites: int, epsilon: float | None, delta: float, tolerance: int | None, least: int | None) -> Summing:
    """Return the settings of a new study, or an error that says what is missing."""
    if epsilon is None:
        raise ValueError("--aggregation secure needs --epsilon: all sites of the study add their noise for it together")
    if not n_sites:
        raise ValueError(
            "--aggregation secure needs --sites: the list of sites is signed when the study is made; 'add' extends it"
        )
    tolerated = usual_tolerance(n_sites) if tolerance is None else tolerance
    wanted = max(fewest_sites(tolerated), (n_sites + 1) // 2) if least is None else least
    # refuses what cannot work, before anything is written
    Roster("draft", 1, {str(i): bytes(32) for i in range(n_sites)}, tolerated, wanted)
    return Summing(float(epsilon), float(delta), tolerated, wanted)


def federation_text(summing: Summing) -> str:
    """Return the section of ``federation.toml``."""
    return _FEDERATION.format(**vars(summing))


def bundle_text(root: Path, summing: Summing) -> str:
    """Return the section of a bundle."""
    key = _study_key(root).public.hex()
    return _BUNDLE.format(epsilon=summing.epsilon, delta=summing.delta, study_key=key)


def make_keys(root: Path) -> None:
    """Write the study's key."""
    write_private(root / _STUDY_KEY, SigningKey.new().secret.hex().encode())


def make_site_key(bundle: Path) -> bytes:
    """Write a site's key into its bundle and return the public half."""
    key = SigningKey.new()
    write_private(bundle / SITE_KEY_FILE, key.secret.hex().encode())
    return key.public


def read_key(path: str | Path) -> SigningKey:
    """Read a private key that was written here."""
    try:
        return SigningKey(bytes.fromhex(Path(path).read_text("ascii")))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: the site's bundle must hold it") from None
    except ValueError:
        raise ValueError(f"{path} is not a key of this study") from None


def write_roster(root: Path, name: str, keys: Mapping[str, bytes], summing: Summing) -> None:
    """Sign and store the next version of the roster."""
    path = root / _ROSTER
    version = 1 if not path.exists() else 1 + read_roster(root)[0].version
    roster = Roster(name, version, keys, summing.tolerance, summing.least)
    persistence.write_atomic(path, roster.signed_by(_study_key(root)))


def read_roster(root: Path) -> tuple[Roster, bytes]:
    """Return the roster, and its signed bytes."""
    data = (root / _ROSTER).read_bytes()
    return Roster.read(data, _study_key(root).public if (root / _STUDY_KEY).exists() else study_public(data)), data


def study_public(data: bytes) -> bytes:
    """Return the key under which a roster says that it was signed; the hub only carries it, sites check it."""
    meta, _ = persistence.unpack(data, kind="roster")
    return bytes.fromhex(meta["signed_by"])


def _study_key(root: Path) -> SigningKey:
    return read_key(root / _STUDY_KEY)
