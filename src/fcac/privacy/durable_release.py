"""At most one draw per round: charge, draw, store durably, and only then let anything leave the site."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcac.exceptions import PrivacyError
from fcac.persistence import locked, pack, unpack, write_atomic
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.released_state import ReleasedState

#: Kind of the stored file, see :mod:`fcac.persistence`.
STORED_KIND = "release"

_WAIT_SECONDS = 600.0


class StoredRelease(NamedTuple):
    """The stored release of one round.

    Attributes
    ----------
    data : bytes
        The stored bytes; repeated calls return the same bytes.
    state : ReleasedState
        The state they contain: what the site sends, and where it starts in the next round.
    drawn : bool
        True if this call drew the noise, False if the release had been stored before.
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
) -> StoredRelease:
    """Release a round at most once, even if the process crashes.

    The order is: charge (on disk), draw, store (on disk, atomically), return. If a round is requested again, the stored
    bytes are returned, without a new draw or a new charge. If the process died between charge and store, nothing had
    left the site; the retry draws new noise **and is charged again**. A crash may thus waste the charge of one round,
    but noise is never drawn without being charged.

    If two processes request the same round at once, one waits for the other and finds the stored bytes.

    Parameters
    ----------
    mechanism : NodeRelease
    X : array-like of shape (n, d)
        Ignored if the round has been stored before.
    state : ReleasedState or None
    site, round : str, int
    store_path : path-like
        File for this site and round. Its directory must exist.
    record_ids
        See :meth:`NodeRelease.release`.

    Returns
    -------
    StoredRelease
    """
    path = Path(store_path)
    with locked(f"{path}.lock", _WAIT_SECONDS):
        if path.exists():
            return _stored(mechanism, path, site, round)
        prepared = mechanism.prepare(X, state, site, round, record_ids=record_ids)
        charged = mechanism.charge(prepared)
        released = mechanism.draw(charged)
        meta, arrays = released.to_parts()
        head = {"site": site, "round": int(round), "charge": charged.number, "state": meta}
        data = pack(STORED_KIND, head, arrays)
        write_atomic(path, data)
        if mechanism.ledger is not None and charged.number is not None:
            mechanism.ledger.complete(charged.number)
        return StoredRelease(data, released, drawn=True)


def _stored(mechanism: NodeRelease, path: Path, site: str, round: int) -> StoredRelease:
    data = path.read_bytes()
    meta, arrays = unpack(data, kind=STORED_KIND)
    if (meta.get("site"), meta.get("round")) != (site, int(round)):
        raise PrivacyError(
            f"{path} is of site {meta.get('site')}, round {meta.get('round')}, not of site {site}, round {round}: "
            "use one file per site and round"
        )
    state = ReleasedState.from_parts(meta["state"], arrays)
    if mechanism.ledger is not None and meta.get("charge") is not None:
        # a ledger that has forgotten this charge is an older copy: nothing more may leave on its word
        mechanism.ledger.verify(state.account.receipts)
        # This only matters if the process died between storing the release and completing the charge.
        mechanism.ledger.complete(int(meta["charge"]))
    return StoredRelease(data, state, drawn=False)
