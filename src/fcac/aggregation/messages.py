"""Messages of the protocol as bytes, and the values that hub and sites must derive from them in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac.aggregation.keys import digest
from fcac.aggregation.shares import SHARE_BYTES
from fcac.persistence import pack, unpack

#: The stages of a round. The first two happen once, the other three in every step.
JOIN, SHARE, MASK, CONFIRM, REVEAL = "join", "share", "mask", "confirm", "reveal"

#: Kinds of the byte form, see :mod:`fcac.persistence`.
REQUEST, REPLY = "aggregation-request", "aggregation-reply"

#: Length of a public key, and of a signature.
KEY, SIGNATURE = 32, 64

Bytes2D = NDArray[np.uint8]


class MessageError(ValueError):
    """A message does not have the form that the protocol asks for."""


class Message(NamedTuple):
    """A request of the hub or a reply of a site: a stage, a step (0 before the first), plain values and arrays."""

    stage: str
    step: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def to_bytes(self, kind: str) -> bytes:
        """Return the byte form."""
        return pack(kind, {**self.meta, "stage": self.stage, "step": self.step}, self.arrays)

    @classmethod
    def from_bytes(cls, data: bytes, kind: str) -> Message:
        """Read a message; anything else is a :class:`MessageError`."""
        try:
            meta, arrays = unpack(data, kind=kind)
        except ValueError as error:
            raise MessageError(str(error)) from None
        stage, step = meta.pop("stage", None), meta.pop("step", None)
        if stage not in (JOIN, SHARE, MASK, CONFIRM, REVEAL) or not isinstance(step, int) or isinstance(step, bool):
            raise MessageError("a message of the aggregation needs a stage and a step")
        return cls(stage, step, meta, arrays)

    def text(self, name: str) -> str:
        """Return a value that must be a text."""
        value = self.meta.get(name)
        if not isinstance(value, str):
            raise MessageError(f"the message lacks {name!r}")
        return value

    def blob(self, name: str) -> bytes:
        """Return a value that must be bytes, written as hexadecimal digits."""
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            raise MessageError(f"{name!r} is damaged") from None

    def number(self, name: str) -> int:
        """Return a value that must be a whole number, not negative."""
        value = self.meta.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MessageError(f"the message lacks {name!r}")
        return value

    def places(self, name: str, n_members: int) -> list[int]:
        """Return a list of members, by their places in the roster: ascending, none twice."""
        array = self.arrays.get(name)
        if array is None or array.dtype != np.uint8 or array.ndim != 1:
            raise MessageError(f"the message lacks the sites {name!r}")
        found: list[int] = np.flatnonzero(np.unpackbits(array)).tolist()
        if len(array) != (n_members + 7) // 8 or (found and found[-1] >= n_members):
            raise MessageError(f"the sites {name!r} are not members of the roster")
        return found

    def rows(self, name: str, n_rows: int, width: int | None = None) -> list[bytes]:
        """Return byte strings of equal length."""
        array = self.arrays.get(name)
        if array is None or array.dtype != np.uint8 or array.ndim != 2 or len(array) != n_rows:
            raise MessageError(f"the message lacks {name!r}")
        if width is not None and array.shape[1] != width:
            raise MessageError(f"{name!r} has the wrong length")
        return [row.tobytes() for row in array]


def as_rows(items: Sequence[bytes]) -> Bytes2D:
    """Return byte strings of equal length as one array."""
    width = len(items[0]) if items else 0
    return np.frombuffer(b"".join(items), dtype=np.uint8).reshape(len(items), width)


def as_bits(members: Sequence[int], n_members: int) -> NDArray[np.uint8]:
    """Return a list of members as a message carries it: one bit for every member of the roster."""
    present = np.zeros(n_members, dtype=np.uint8)
    present[list(members)] = 1
    return np.packbits(present)


def as_places(members: Sequence[int]) -> NDArray[np.int32]:
    """Return members as an array, ascending: the form that is hashed."""
    return np.array(sorted(members), dtype=np.int32)


class Advert(NamedTuple):
    """The public keys of a site for one round, signed with its key in the roster.

    `sealing` is for messages between two sites; `masking` has one key for every step.
    """

    sealing: bytes
    masking: list[bytes]
    signature: bytes

    def to_bytes(self) -> bytes:
        """Return all keys and the signature."""
        return b"".join([self.sealing, *self.masking, self.signature])

    @classmethod
    def from_bytes(cls, data: bytes) -> Advert:
        """Read an advert."""
        keys = [data[start : start + KEY] for start in range(0, len(data) - SIGNATURE, KEY)]
        return cls(keys[0], keys[1:], data[-SIGNATURE:])

    @staticmethod
    def length(n_steps: int) -> int:
        """Return the number of bytes."""
        return KEY * (1 + n_steps) + SIGNATURE

    @staticmethod
    def signed_text(session: bytes, name: str, sealing: bytes, masking: Sequence[bytes]) -> bytes:
        """Return what the signature covers."""
        return digest(b"fcac advert", session, name.encode(), sealing, *masking)


def session_id(roster_digest: bytes, round: int, attempt: int, n_steps: int, terms: bytes) -> bytes:
    """Return what identifies one attempt at a round; every key and signature is bound to it."""
    numbers = [str(number).encode() for number in (round, attempt, n_steps)]
    return digest(b"fcac session", roster_digest, *numbers, terms)


def context_id(session: bytes, joined: Sequence[int], adverts: Sequence[bytes]) -> bytes:
    """Return what identifies the set of sites in a session, and their keys."""
    return digest(b"fcac context", session, as_places(joined).tobytes(), *adverts)


def step_id(context: bytes, step: int, active: Sequence[int], task: bytes) -> bytes:
    """Return what identifies a step: the sites in it, and what they are to compute."""
    return digest(b"fcac step", context, str(step).encode(), as_places(active).tobytes(), digest(task))


def survivors_text(step: bytes, survivors: Sequence[int]) -> bytes:
    """Return what a site signs before it helps to remove masks."""
    return digest(b"fcac survivors", step, as_places(survivors).tobytes())


def share_of(bundle: bytes, step: int, of_own_mask: bool) -> bytes:
    """Return one of the shares that a site sent for all steps: of the seed of its own mask, or of its masking key."""
    start = (2 * (step - 1) + (0 if of_own_mask else 1)) * SHARE_BYTES
    return bundle[start : start + SHARE_BYTES]


def sorted_by_place(values: Mapping[int, Any]) -> list[Any]:
    """Return values in the order of members."""
    return [values[place] for place in sorted(values)]
