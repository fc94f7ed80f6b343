"""The roster of a study: who may take part, with which key, and how many must; signed by the study's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fcac.aggregation.keys import SigningKey, digest, is_signed
from fcac.exceptions import AggregationRefused
from fcac.persistence import pack, unpack

_KIND = "roster"
_KEY_BYTES = 32


def usual_tolerance(n_sites: int) -> int:
    """Return how many sites may vanish or collude by default: a tenth, and at least one.

    >>> usual_tolerance(4), usual_tolerance(10), usual_tolerance(180)
    (1, 1, 18)
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
    version : int
        Grows whenever the roster changes; a site never goes back to an earlier one.
    keys : mapping of str to bytes
        Public signing key (Ed25519) of every member.
    tolerance : int
        How many of the sites in a round may vanish, or collude with the hub, without harm.
    least : int
        Fewest sites in a round.

    Examples
    --------
    >>> from fcac.aggregation.keys import SigningKey
    >>> from fcac.aggregation.roster import Roster
    >>> study = SigningKey.new()
    >>> roster = Roster("trial", 1, {name: SigningKey.new().public for name in "abcd"}, tolerance=1, least=4)
    >>> Roster.read(roster.signed_by(study), study.public) == roster
    True
    """

    study: str
    version: int
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
        if any(len(key) != _KEY_BYTES for key in self.keys.values()):
            raise ValueError("every member of a roster needs a public key of 32 bytes")
        object.__setattr__(self, "keys", {name: self.keys[name] for name in sorted(self.keys)})

    @property
    def names(self) -> list[str]:
        """Members in the order by which messages refer to them."""
        return list(self.keys)

    @property
    def digest(self) -> bytes:
        """A fingerprint of everything in the roster."""
        return digest(b"fcac roster", *_plain(self))

    def signed_by(self, study_key: SigningKey) -> bytes:
        """Return the roster as bytes, with the study's signature."""
        meta = {
            "study": self.study,
            "version": self.version,
            "names": self.names,
            "tolerance": self.tolerance,
            "least": self.least,
            "signed_by": study_key.public.hex(),
            "signature": study_key.sign(self.digest).hex(),
        }
        keys = np.frombuffer(b"".join(self.keys.values()), dtype=np.uint8).reshape(-1, _KEY_BYTES)
        return pack(_KIND, meta, {"keys": keys})

    @staticmethod
    def read(data: bytes, study_public: bytes) -> Roster:
        """Return a roster if the study has signed it; refuse it otherwise."""
        return _read(bytes(data), study_public)


@lru_cache(maxsize=16)
def _read(data: bytes, study_public: bytes) -> Roster:
    try:
        meta, arrays = unpack(data, kind=_KIND)
        names, keys = [str(name) for name in meta["names"]], arrays["keys"]
        if keys.dtype != np.uint8 or keys.shape != (len(names), _KEY_BYTES) or len(set(names)) != len(names):
            raise ValueError("names and keys do not match")
        roster = Roster(
            str(meta["study"]),
            int(meta["version"]),
            {name: key.tobytes() for name, key in zip(names, keys, strict=True)},
            int(meta["tolerance"]),
            int(meta["least"]),
        )
        signature = bytes.fromhex(meta["signature"])
    except (ValueError, KeyError, TypeError) as error:
        raise AggregationRefused(f"the roster cannot be read: {error}") from None
    if not is_signed(study_public, signature, roster.digest):
        raise AggregationRefused("the roster is not signed by the key of this study: it may name false sites")
    return roster


def _plain(roster: Roster) -> list[bytes]:
    numbers = [roster.version, roster.tolerance, roster.least]
    members = [part for name, key in roster.keys.items() for part in (name.encode(), key)]
    return [roster.study.encode(), *(str(number).encode() for number in numbers), *members]
