"""Migrates the state directory of fcac 0.1.0, which kept the model and all contributions in ``server.fcac``.

The store is filled in one transaction and compared with its source; only then is the old file replaced. A crash in
between leaves the old file or the complete store, and the next start continues from there. The contributions to the
open round, the journal and the model for sites stay where they are. ``server.fcac`` is replaced by a marker that 0.1.0
refuses to read, so that it cannot start the federation from scratch by mistake.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fcac import persistence
from fcac.deployment.store import Held, HubStore, StoreError

if TYPE_CHECKING:
    from fcac.federation import Server

SERVER_FILE = "server.fcac"
_TAKEN_OVER = "taken over"


def is_pending(state: Path) -> bool:
    """Return whether a state directory contains a server of 0.1.0 that has not been migrated yet."""
    path = state / SERVER_FILE
    return path.exists() and not _is_marker(path)


def take_over(state: Path, store: HubStore) -> int:
    """Move the server of 0.1.0 into the store; return the number of its contributions.

    The caller must hold the federation's lock.
    """
    path = state / SERVER_FILE
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    try:
        meta, arrays = persistence.unpack(data, kind="federation")
        from fcac.federation import Server

        server = Server.from_parts(meta["server"], arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    taken = store.fact(_TAKEN_OVER)
    if taken is None and not store.closed:
        newest = {str(site): Held(int(number), str(sent)) for site, (number, sent) in meta["newest"].items()}
        store.take_over(int(meta["closed"]), server, newest, {_TAKEN_OVER: digest})
    elif taken != digest:
        raise StoreError(
            f"{path} and {store.path} contain two different federations: move the wrong one out of {state}"
        )
    _compare(server, store)
    persistence.write_atomic(path, marker())
    return sum(map(len, server.log))


def _compare(server: Server, store: HubStore) -> None:
    stored = store.server() or type(server)(server.kind, server.random_state, server.n_clusters_wanted)
    (meta, arrays), (other_meta, other_arrays) = server.to_parts(), stored.to_parts()
    same = arrays.keys() == other_arrays.keys() and json.dumps(meta, sort_keys=True) == json.dumps(
        other_meta, sort_keys=True
    )
    if not same or any(array.tobytes() != other_arrays[name].tobytes() for name, array in arrays.items()):
        store.path.unlink()
        raise StoreError(f"{store.path} differed from the {SERVER_FILE} it was made from; the old file was not changed")


def marker() -> bytes:
    """Return a file that 0.1.0 refuses with the message "upgrade fcac"."""
    from safetensors.numpy import save

    header = {"protocol": persistence.PROTOCOL + 1, "kind": "federation", "meta": {}, "sha256": ""}
    data: bytes = save({}, metadata={"fcac": json.dumps(header, sort_keys=True, separators=(",", ":"))})
    return data


def _is_marker(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(marker()) + 1) == marker()
