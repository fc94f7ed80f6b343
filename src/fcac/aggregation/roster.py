"""The roster of a study: who may take part, with which key, and how many must.

Nobody signs it. The hub offers it, and every site pins the one that its operator has agreed to; sites whose rosters
have the same code have the same roster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcac import persistence
from fcac.aggregation.keys import digest, fingerprint, in_groups
from fcac.exceptions import AggregationRefused

_KIND = "roster"
_KEY_BYTES = 32

#: Every site shares masks and secrets with every other, so that the work of a round grows with the square of the sites.
MOST_SITES = 100


def usual_tolerance(n_sites: int) -> int:
    """Return how many sites may vanish, and as many collude, by default: a tenth, and at least one.

    >>> usual_tolerance(4), usual_tolerance(10), usual_tolerance(100)
    (1, 1, 10)
    """
    return max(1, n_sites // 10)


def fewest_sites(tolerance: int) -> int:
    """Return how many sites a round needs at least: more than three times as many as may vanish or collude."""
    return 3 * tolerance + 1


@dataclass(frozen=True)
class Roster:
    """The members of a study.

    Parameters
    ----------
    study : str
        Name of the study.
    keys : mapping of str to bytes
        Public signing key (Ed25519) of every member, at most 100.
    tolerance : int
        How many of the sites in a round may vanish and how many others may collude with the hub, without harm.
    least : int
        Fewest sites in a round.

    Examples
    --------
    >>> from fcac.aggregation import Roster, SigningKey
    >>> roster = Roster("trial", {name: SigningKey.new().public for name in "abcd"}, tolerance=1, least=4)
    >>> Roster.from_bytes(roster.to_bytes()) == roster
    True
    """

    study: str
    keys: Mapping[str, bytes]
    tolerance: int
    least: int

    def __post_init__(self) -> None:
        if self.tolerance < 1:
            raise ValueError(f"tolerance must be at least 1, got {self.tolerance}")
        if self.least < fewest_sites(self.tolerance):
            raise ValueError(
                f"least is {self.least}: with {self.tolerance} sites that may vanish or collude, "
                f"a round needs at least {fewest_sites(self.tolerance)}"
            )
        if len(self.keys) < self.least:
            raise ValueError(
                f"{len(self.keys)} sites cannot take part in a round of at least {self.least}: "
                "add sites, or allow fewer to vanish or collude"
            )
        check_size(len(self.keys))
        if any(len(key) != _KEY_BYTES for key in self.keys.values()):
            raise ValueError("every member of a roster needs a public key of 32 bytes")
        if len(set(self.keys.values())) < len(self.keys):
            raise ValueError("two members of the roster have the same key: each site makes its own")
        object.__setattr__(self, "keys", {name: self.keys[name] for name in sorted(self.keys)})

    @property
    def names(self) -> list[str]:
        """Members in the order by which messages refer to them."""
        return list(self.keys)

    @property
    def digest(self) -> bytes:
        """A hash of everything in the roster."""
        numbers = [str(number).encode() for number in (self.tolerance, self.least)]
        members = [part for name, key in self.keys.items() for part in (name.encode(), key)]
        return digest(b"fcac roster", self.study.encode(), *numbers, *members)

    @property
    def code(self) -> str:
        """What operators compare with each other: to make two rosters with one code takes 2**80 tries."""
        return in_groups(self.digest[:20])

    def to_bytes(self) -> bytes:
        """Return the byte form."""
        meta = {"study": self.study, "names": self.names, "tolerance": self.tolerance, "least": self.least}
        keys = np.frombuffer(b"".join(self.keys.values()), dtype=np.uint8).reshape(-1, _KEY_BYTES)
        return persistence.pack(_KIND, meta, {"keys": keys})

    @staticmethod
    def from_bytes(data: bytes) -> Roster:
        """Read a roster; anything else is refused."""
        try:
            meta, arrays = persistence.unpack(bytes(data), kind=_KIND)
            names, keys = meta["names"], arrays["keys"]
            if not all(isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100 for name in names):
                raise ValueError("a name in it cannot be shown")
            if keys.dtype != np.uint8 or keys.shape != (len(names), _KEY_BYTES) or len(set(names)) != len(names):
                raise ValueError("names and keys do not match")
            members = {name: key.tobytes() for name, key in zip(names, keys, strict=True)}
            return Roster(str(meta["study"]), members, int(meta["tolerance"]), int(meta["least"]))
        except (ValueError, KeyError, TypeError) as error:
            raise AggregationRefused(f"the list of sites cannot be read: {error}") from None

    def unknown_in(self, offered: Roster) -> list[str]:
        """Return, in words, what another roster has that whoever agreed to this one has not agreed to.

        Sites that are missing from it need no consent: a round has at least `least` known ones or is refused.
        """
        found = []
        for what in ("study", "tolerance", "least"):
            before, now = getattr(self, what), getattr(offered, what)
            if before != now:
                found.append(f"{what} is {now}, {before} was agreed to")
        for name, key in offered.keys.items():
            if name not in self.keys:
                found.append(f"site {name} is new ({fingerprint(key)})")
            elif key != self.keys[name]:
                found.append(f"site {name} has another key ({fingerprint(key)}, before {fingerprint(self.keys[name])})")
        return found

    def check(self, offered: Roster) -> None:
        """Refuse a roster with anything that was not agreed to."""
        unknown = self.unknown_in(offered)
        if unknown:
            raise AggregationRefused(
                f"the hub's list of sites is not the one this site has agreed to: {'; '.join(unknown)}. "
                "Compare the code of the new list with other sites and agree to it, or leave the study"
            )


def check_size(n_sites: int) -> None:
    """Refuse more sites than can be summed."""
    if n_sites > MOST_SITES:
        raise ValueError(
            f"secure aggregation is for up to {MOST_SITES} sites, got {n_sites}: let sites that trust each other send "
            "their rows together, or use the plain federation, in which every site adds its own noise"
        )


class RosterFile:
    """The roster that a site has agreed to, and the one that the hub offers, in the site's state directory.

    Parameters
    ----------
    folder : path-like

    Examples
    --------
    >>> import tempfile
    >>> from fcac.aggregation import Roster, RosterFile, SigningKey
    >>> folder = tempfile.TemporaryDirectory()
    >>> keys = {name: SigningKey.new().public for name in "abcd"}
    >>> roster, file = Roster("trial", keys, 1, 4), RosterFile(folder.name)
    >>> file.offer(roster.to_bytes(), "a", keys["a"])[0]
    'no list of sites has been agreed to yet'
    >>> file.agree(roster.code) == file.agreed == roster
    True
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path) -> None:
        self._agreed, self._offered = (Path(folder) / name for name in ("roster.fcac", "roster-offered.fcac"))

    @property
    def agreed(self) -> Roster | None:
        """The roster that the site's operator has agreed to."""
        return Roster.from_bytes(self._agreed.read_bytes()) if self._agreed.exists() else None

    @property
    def offered(self) -> Roster | None:
        """The latest roster of the hub that has something that was not agreed to."""
        return Roster.from_bytes(self._offered.read_bytes()) if self._offered.exists() else None

    def offer(self, data: bytes, name: str, public: bytes) -> list[str]:
        """Take note of the hub's roster; return what of it the operator has not agreed to, in words.

        Parameters
        ----------
        data : bytes
        name, public : str, bytes
            The site itself and its key; a roster that has them wrong is refused.
        """
        roster, agreed = Roster.from_bytes(data), self.agreed
        check_own(roster, name, public)
        unknown = ["no list of sites has been agreed to yet"] if agreed is None else agreed.unknown_in(roster)
        if unknown:
            persistence.write_atomic(self._offered, roster.to_bytes(), private=True)
        else:
            self._offered.unlink(missing_ok=True)
        return unknown

    def lines(self) -> list[str]:
        """Return what an operator must see before agreeing: every site with its fingerprint, and the code."""
        roster, agreed = self.offered or self.agreed, self.agreed
        if roster is None:
            return ["The hub has not offered a list of sites yet."]
        known = {} if agreed is None else agreed.keys
        width = max(map(len, roster.names))
        lines = [
            f"{roster.study}: {len(roster.names)} sites; a round needs {roster.least} of them; "
            f"{roster.tolerance} may vanish while {roster.tolerance} others collude with the hub"
        ]
        for name, key in roster.keys.items():
            said = "" if known.get(name) == key or not known else "  NEW KEY" if name in known else "  NEW"
            lines.append(f"  {name:{width}}  {fingerprint(key)}{said}")
        missing = sorted(set(known) - set(roster.names))
        return [*lines, *(f"  {name} has left" for name in missing), f"Code of this list: {roster.code}"]

    def agree(self, code: str) -> Roster:
        """Pin the roster that the hub offers, if this is its code; the code should come from another site."""
        offered = self.offered
        if offered is None:
            raise ValueError("the hub offers no list of sites that is still to be agreed to")
        if code.replace(" ", "").replace("-", "").upper() != offered.code.replace("-", ""):
            raise ValueError(
                f"the list that the hub offers here has the code {offered.code}, not {code}: if another site was "
                "offered a list with that code, the hub shows different lists to different sites. Nothing was changed"
            )
        persistence.write_atomic(self._agreed, offered.to_bytes(), private=True)
        self._offered.unlink()
        return offered


def check_own(roster: Roster, name: str, public: bytes) -> None:
    """Refuse a roster that does not have a site's own key under its name."""
    if roster.keys.get(name) != public:
        raise AggregationRefused(f"the list of sites does not have this site's key under the name {name!r}")
