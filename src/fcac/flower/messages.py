"""The contents of requests and replies. A reply has a code, the site's name and at most a contribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, RecordDict

#: Kinds of requests, as Flower's message types.
CONTRIBUTE = "train.contribute"
TAKE_MODEL = "query.take_model"
SUM = "train.sum"
AGREE = "train.agree"

#: Codes of replies.
CONTRIBUTION, NOTHING_NEW, UNAVAILABLE, DONE, SUMMAND, COUNTS = 1, 2, 3, 4, 5, 6
#: Codes of refusals, sent only by sites whose policy allows to tell reasons; others answer UNAVAILABLE.
NOT_NOW, BUDGET_USED_UP, DATA_PROBLEM = 21, 22, 23
REFUSALS = {"pace": NOT_NOW, "budget": BUDGET_USED_UP, "data": DATA_PROBLEM}
CODES = {
    CONTRIBUTION: "contribution",
    NOTHING_NEW: "nothing new",
    UNAVAILABLE: "unavailable",
    DONE: "done",
    NOT_NOW: "not now",
    BUDGET_USED_UP: "budget used up",
    DATA_PROBLEM: "data problem",
    SUMMAND: "summand",
    COUNTS: "counts",
}

#: Flower's codes for a message that was lost on the way (3), or whose site had lost the connection (5).
LOST = (3, 5)

_RECORD = "fcac"


class Reply(NamedTuple):
    """A site's answer: a code, the site's name, and bytes if there is something to send.

    `left` is the part of its privacy budget that is left, from 0 to 1, if the site's policy allows to tell it.
    """

    code: int
    site: str = ""
    data: bytes = b""
    left: float | None = None


def ask_contribution(round: int, have: Mapping[str, int]) -> RecordDict:
    """Request a round; `have` is the newest round that the server has of the site (of all sites if it is unknown)."""
    values: dict[str, Any] = {"round": round, "sites": list(have), "have": list(have.values())}
    return RecordDict({_RECORD: ConfigRecord(values)})


def offer_model(round: int, model: bytes) -> RecordDict:
    """Send the global model after a round."""
    return RecordDict({_RECORD: ConfigRecord({"round": round, "model": model})})


def ask_sum(round: int, closed: int, data: bytes) -> RecordDict:
    """Send a request of secure aggregation; `closed` is the last round that the hub has closed."""
    return RecordDict({_RECORD: ConfigRecord({"round": round, "closed": closed, "data": data})})


def ask_agreement(data: bytes) -> RecordDict:
    """Send a question of an agreement on bounds and levels, or its outcome."""
    return RecordDict({_RECORD: ConfigRecord({"data": data})})


def read_request(content: RecordDict) -> dict[str, Any]:
    """Return the plain values of a request."""
    return dict(content[_RECORD])


def write_reply(reply: Reply) -> RecordDict:
    """Convert a reply to the content of a message."""
    values: dict[str, Any] = {"code": reply.code, "site": reply.site}
    if reply.data:
        values["data"] = reply.data
    if reply.left is not None:
        values["left"] = float(reply.left)
    return RecordDict({_RECORD: ConfigRecord(values)})


def read_reply(content: RecordDict) -> Reply:
    """Read a reply; raise ``ValueError`` for anything else."""
    record = content.get(_RECORD) if isinstance(content, RecordDict) else None
    if not isinstance(record, ConfigRecord):
        raise ValueError("the reply contains no fcac record")
    code, site, data = record.get("code"), record.get("site"), record.get("data", b"")
    if isinstance(code, bool) or code not in CODES or not isinstance(site, str) or not isinstance(data, bytes):
        raise ValueError("the reply has an unknown form")
    left = record.get("left")
    if left is not None and not (isinstance(left, float) and 0.0 <= left <= 1.0):
        raise ValueError("the part of a budget that is left must be from 0 to 1")
    return Reply(int(code), site[:100], data, left)
