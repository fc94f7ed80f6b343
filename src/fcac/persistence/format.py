"""The binary format, safetensors arrays with a JSON header and a checksum, and files that change completely or not at
all.

Models, contributions and released states all use it, in files and in messages. A file contains arrays and one JSON
text; nothing in it is ever executed. The header includes a SHA-256 digest of itself and all arrays, so that a truncated
or altered file is refused instead of being partly read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Version number of the format. A reader accepts every protocol up to its own.
PROTOCOL = 1

_HEADER_KEY = "fcac"
_MAX_HEADER_CHARS = 50_000_000
_DTYPES = ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool")


def pack(kind: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Serialise metadata and named arrays to bytes; equal input gives equal bytes.

    Parameters
    ----------
    kind : str
        What the data are, for example ``"model"`` or ``"contribution"``. A reader states the kind it expects.
    meta : mapping
        JSON-serialisable metadata.
    arrays : mapping of str to ndarray
        Numeric arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from fcac.persistence import pack, unpack
    >>> meta, arrays = unpack(pack("note", {"a": 1}, {"x": np.arange(3.0)}), kind="note")
    >>> meta["a"], arrays["x"].tolist()
    (1, [0.0, 1.0, 2.0])
    """
    from safetensors.numpy import save

    ready: dict[str, Array] = {}
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"array {name!r} has type {array.dtype}, which the file format does not support")
        ready[name] = np.require(array, requirements="C")
    # converted to JSON and back, so that keys and numbers are already what a reader will find
    header: dict[str, Any] = {"protocol": PROTOCOL, "kind": kind, "meta": json.loads(_canonical(dict(meta)))}
    header["sha256"] = _digest(header, ready)
    text = _canonical(header)
    result: bytes = save(ready, metadata={_HEADER_KEY: text})
    return result


def unpack(data: bytes, kind: str | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read bytes written by :func:`pack`; for anything else raise a ``ValueError`` that says what is wrong.

    Parameters
    ----------
    data : bytes
    kind : str, optional
        The kind expected; another kind is an error. ``None`` accepts every kind.

    Returns
    -------
    meta : dict
    arrays : dict of str to ndarray
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header = _read_header(data)
    try:
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError, MemoryError, OverflowError) as error:
        raise ValueError(f"damaged FCAC file: its arrays cannot be read ({type(error).__name__})") from None
    claimed = header.pop("sha256", None)
    protocol, found_kind, meta = header.get("protocol"), header.get("kind"), header.get("meta")
    if not isinstance(protocol, int) or not isinstance(found_kind, str) or not isinstance(meta, dict):
        raise ValueError("damaged FCAC file: its header lacks protocol, kind or meta")
    if protocol > PROTOCOL:
        raise ValueError(
            f"this file has protocol {protocol}, this version of fcac reads up to {PROTOCOL}: upgrade fcac"
        )
    if claimed != _digest(header, arrays):
        raise ValueError("damaged FCAC file: the checksum does not match its content")
    if kind is not None and found_kind != kind:
        raise ValueError(f"this FCAC file holds a {found_kind}, not a {kind}")
    return meta, arrays


def require_arrays(arrays: Mapping[str, Array], forms: Mapping[str, tuple[int, type[Any]]], what: str) -> None:
    """Refuse, with a ``ValueError``, arrays that are missing or have another number of dimensions or another type."""
    for name, (ndim, dtype) in forms.items():
        found = arrays.get(name)
        if not isinstance(found, np.ndarray) or found.ndim != ndim or found.dtype != dtype:
            raise ValueError(f"not a valid {what}: array {name!r} is missing or has the wrong shape or type")


def read(path: str | os.PathLike[str], kind: str | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read and check a file written with :func:`pack`; errors name the file."""
    try:
        return unpack(Path(path).read_bytes(), kind)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def kind_of(data: bytes) -> str:
    """Return the kind named in the header, without reading the arrays."""
    return str(_read_header(data).get("kind"))


def _read_header(data: bytes) -> dict[str, Any]:
    """Check the outer structure before anything is passed to the array reader."""
    if len(data) < 8:
        raise ValueError("not an FCAC file: it is too short")
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(_MAX_HEADER_CHARS, len(data) - 8):
        raise ValueError("not an FCAC file, or truncated: the header does not fit the file")
    try:
        frame = json.loads(data[8 : 8 + size].decode("utf-8"))
        text = frame["__metadata__"][_HEADER_KEY]
        header = json.loads(text)
        # the same values written differently also mean that bits have changed
        unchanged = text == _canonical(header)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("not an FCAC file, or damaged: the header cannot be read") from None
    if not isinstance(header, dict) or not unchanged:
        raise ValueError("not an FCAC file, or damaged: the header is not as it was written")
    return header


def _canonical(header: Any) -> str:
    return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 digest of the header (without the digest) and of every array with name, type and shape."""
    digest = hashlib.sha256(_canonical(header).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


Parts = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def pack_many(parts: Sequence[Parts]) -> Parts:
    """Concatenate states that have the same arrays: 100,000 sites do not become a million arrays in one file."""
    names = sorted({name for _, arrays in parts for name in arrays})
    lengths = np.array([[len(arrays[n]) if n in arrays else -1 for n in names] for _, arrays in parts], np.int64)
    joined: dict[str, NDArray[Any]] = {
        name: np.concatenate([arrays[name] for _, arrays in parts if name in arrays]) for name in names
    }
    joined["lengths"] = lengths.reshape(len(parts), len(names))
    return {"names": names, "metas": [meta for meta, _ in parts]}, joined


def unpack_many(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> list[Parts]:
    """Separate the states joined by :func:`pack_many`."""
    names, metas, lengths = meta["names"], meta["metas"], arrays["lengths"]
    if lengths.shape != (len(metas), len(names)) or lengths.dtype != np.int64:
        raise ValueError("the states in this file do not match their index")
    starts = dict.fromkeys(names, 0)
    result: list[Parts] = []
    for row, entry in zip(lengths, metas, strict=True):
        own = {}
        for name, length in zip(names, row, strict=True):
            if length < 0:
                continue
            own[name] = arrays[name][starts[name] : starts[name] + int(length)]
            starts[name] += int(length)
            if len(own[name]) != length:
                raise ValueError("the states in this file are truncated")
        result.append((entry, own))
    return result


# SQLite has no unlimited timeout; nothing that holds a lock here takes a day.
_A_DAY = 86_400.0


def write_atomic(path: str | os.PathLike[str], data: bytes, *, private: bool = False) -> None:
    """Write a file so that readers see either the old content or the new, never a mixture, even after a crash.

    A private file can be read by its owner only, from the first byte on.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists() and not private:
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if os.name == "posix":
        # The new directory entry must survive a power cut as well, so the directory is flushed too.
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], timeout: float | None = None) -> Iterator[None]:
    """Hold the lock of a path; others that request it wait.

    The lock is an exclusive transaction on an empty SQLite file: it works on every system, across threads and
    processes, and ends with the process that holds it. The file is made if there is none. After
    `timeout` seconds there is a ``TimeoutError``; None waits as long as necessary.

    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder, locked(os.path.join(folder, "lock")):
    ...     print("nobody else is here")
    nobody else is here
    """
    held = sqlite3.connect(Path(path), timeout=_A_DAY if timeout is None else timeout, isolation_level=None)
    try:
        try:
            held.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise OSError(f"{os.fspath(path)} cannot be locked: {error}") from None
            raise TimeoutError(f"{os.fspath(path)} is locked by another process") from None
        yield
    finally:
        held.close()
