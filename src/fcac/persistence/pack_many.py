"""Stores many small states in a few arrays, so that 100,000 sites do not become a million tensors in one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Parts = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def pack_many(parts: Sequence[Parts]) -> Parts:
    """Concatenate states that have the same arrays, along their first axis."""
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
