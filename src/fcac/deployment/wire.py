"""What travels between hub and sites: a few values as JSON, and bytes after them. Nothing of it is ever executed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

#: Kinds of requests.
CONTRIBUTE, TAKE_MODEL, SUM, AGREE = "contribute", "model", "sum", "agree"

#: Codes of replies.
CONTRIBUTION, SUMMAND, COUNTS = "contribution", "summand", "counts"
NOTHING_NEW, UNAVAILABLE, DONE = "nothing new", "unavailable", "done"
#: Codes of refusals, sent only by sites whose policy allows to tell reasons; others answer UNAVAILABLE.
REFUSALS = {"pace": "not now", "budget": "budget used up", "data": "data problem"}
CODES = (CONTRIBUTION, SUMMAND, COUNTS, NOTHING_NEW, UNAVAILABLE, DONE, *REFUSALS.values())

_SIZE = struct.Struct(">I")
_MOST_HEADER = 4096


class Request(NamedTuple):
    """What the hub asks of a site.

    Parameters
    ----------
    kind : str
    round : int
    have : int
        Newest round of this site that the hub has; where sites are summed, the newest in which this one was.
    schema : str
        Digest of the study's schema: a site whose own differs refuses before it charges anything.
    data : bytes
        The model, or the request of secure aggregation or of an agreement.
    """

    kind: str
    round: int = 0
    have: int = 0
    schema: str = ""
    data: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the request as it travels."""
        return _pack({"kind": self.kind, "round": self.round, "have": self.have, "schema": self.schema}, self.data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        """Read a request; raise ``ValueError`` for anything else."""
        header, body = _unpack(data)
        kind, schema = header.get("kind"), header.get("schema", "")
        numbers = [header.get(name, 0) for name in ("round", "have")]
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**53 for n in numbers)
        if not isinstance(kind, str) or not isinstance(schema, str) or not whole:
            raise ValueError("the request has an unknown form")
        return cls(kind, numbers[0], numbers[1], schema, body)


class Reply(NamedTuple):
    """A site's answer.

    Parameters
    ----------
    code : str
    site : str
    data : bytes
    left : float, optional
        Part of its privacy budget that is left, from 0 to 1, if the site's policy allows to tell it.
    """

    code: str
    site: str = ""
    data: bytes = b""
    left: float | None = None

    def to_bytes(self) -> bytes:
        """Return the reply as it travels."""
        left = {} if self.left is None else {"left": self.left}
        return _pack({"code": self.code, "site": self.site, **left}, self.data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Reply:
        """Read a reply; raise ``ValueError`` for anything else."""
        header, body = _unpack(data)
        code, site, left = header.get("code"), header.get("site"), header.get("left")
        if not isinstance(code, str) or code not in CODES or not isinstance(site, str):
            raise ValueError("the reply has an unknown form")
        if left is not None and not (isinstance(left, float) and math.isfinite(left) and 0.0 <= left <= 1.0):
            raise ValueError("the part of a budget that is left must be from 0 to 1")
        return cls(code, site[:100], body, left)


class Wire(Protocol):
    """How requests reach sites, and how replies come back."""

    def connected(self) -> set[str]:
        """Return the sites that can be asked now."""

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | None]]:
        """Send requests, and yield replies as they arrive, until all are here or time runs out; None: it was lost.

        What was yielded has been dealt with when the next is asked for; it is not yielded again, even after a crash.
        """

    def late(self) -> Iterator[tuple[str, bytes]]:
        """Yield replies to requests of earlier exchanges that arrived after their end."""


def _pack(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return _SIZE.pack(len(text)) + text + data


def _unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        (size,) = _SIZE.unpack_from(data)
        if size > _MOST_HEADER or size + _SIZE.size > len(data):
            raise ValueError
        header = json.loads(data[_SIZE.size : _SIZE.size + size])
    except (struct.error, ValueError, RecursionError):
        raise ValueError("the message has an unknown form") from None
    if not isinstance(header, dict):
        raise ValueError("the message has an unknown form")
    return header, data[_SIZE.size + size :]
