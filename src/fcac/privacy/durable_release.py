"""One round, one draw: charge, draw, store durably, and only then let anything leave."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcac.exceptions import PrivacyError
from fcac.persistence import pack, unpack, write_atomic
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.released_state import ReleasedState

#: Kind of the stored file, see :mod:`fcac.persistence`.
STORED_KIND = "release"

_WAIT_SECONDS = 600.0


class StoredRelease(NamedTuple):
    """What a round released, as stored.

    Attributes
    ----------
    data : bytes
        The stored bytes; a repeated call gives the same.
    state : ReleasedState
        The state in them: what the site sends, and what it starts from in the next round.
    drawn : bool
        True if this call drew it, False if it was found stored.
    """

    data: bytes
    state: ReleasedState
    drawn: bool


def release_once(
    mechanism: NodeRelease,
    X: Any,
    state: ReleasedState | None,
    site: str,
    round: int,
    store_path: str | os.PathLike[str],
    *,
    record_ids: Sequence[Any] | None = None,
    partition: str | None = None,
) -> StoredRelease:
    """Release a round at most once, whatever crashes.

    The order is: charge (on disk), draw, store (on disk, atomically), return. A round that is asked again gets the
    stored bytes: no new draw, no new charge. If the process died between charge and store, nothing had left; the retry
    draws anew **and pays anew**. So a crash may waste the charge of one round, but no noise is ever drawn that was not
    charged, and the exact-repeat check lets such a retry pass, because the first charge was never completed.

    Two processes that are asked for the same round at once wait for each other; the second finds the stored bytes.

    Parameters
    ----------
    mechanism : NodeRelease
    X : array-like of shape (n, d)
        Ignored if the round was stored before.
    state : ReleasedState or None
    site, round : str, int
    store_path : path-like
        File of this site and round. Its folder must exist.
    record_ids, partition
        See :meth:`NodeRelease.release`.

    Returns
    -------
    StoredRelease
    """
    path = Path(store_path)
    with _alone(path):
        if path.exists():
            return _stored(mechanism, path, site, round)
        prepared = mechanism.prepare(X, state, site, round, record_ids=record_ids, partition=partition)
        charge = mechanism.charge(prepared)
        released = mechanism.draw(prepared)
        meta, arrays = released.to_parts()
        data = pack(STORED_KIND, {"site": site, "round": int(round), "charge": charge, "state": meta}, arrays)
        write_atomic(path, data)
        if mechanism.ledger is not None and charge is not None:
            mechanism.ledger.complete(charge)
        return StoredRelease(data, released, drawn=True)


def _stored(mechanism: NodeRelease, path: Path, site: str, round: int) -> StoredRelease:
    data = path.read_bytes()
    meta, arrays = unpack(data, kind=STORED_KIND)
    if (meta.get("site"), meta.get("round")) != (site, int(round)):
        raise PrivacyError(
            f"{path} holds site {meta.get('site')}, round {meta.get('round')}, not site {site}, round {round}: "
            "use one file per site and round"
        )
    if mechanism.ledger is not None and meta.get("charge") is not None:
        # Only matters if the process died between storing and this note.
        mechanism.ledger.complete(int(meta["charge"]))
    return StoredRelease(data, ReleasedState.from_parts(meta["state"], arrays), drawn=False)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that a killed process loses by itself: an exclusive transaction on a small file beside the store."""
    lock = sqlite3.connect(f"{path}.lock", timeout=_WAIT_SECONDS, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        lock.close()
