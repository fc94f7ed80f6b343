"""Masks: a key expanded to a vector of uniform integers, added modulo 2**64.

Totals do not wrap around: a row adds at most 2**26 to a component, so that 2**29 rows leave room for more than forty
standard deviations of the noise.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Integers
from fcac.aggregation.keys import AgreementKey, derive

Residues = NDArray[np.uint64]


def expand(key: bytes, size: int) -> Residues:
    """Return integers below 2**64 that are indistinguishable from uniform ones without the 32-byte key.

    The keystream of ChaCha20 (RFC 8439) with a constant nonce: every key is used for one mask only.

    >>> mask = expand(bytes(32), 3)
    >>> mask.dtype, len(set(mask.tolist())), bool((expand(bytes(32), 2) == mask[:2]).all())
    (dtype('uint64'), 3, True)
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(_zeros(8 * size))
    return np.frombuffer(stream, dtype="<u8")


def own_mask(seed: bytes, context: bytes, size: int) -> Residues:
    """Return the mask that a site adds on its own account; it is removed once the site's vector counts."""
    return expand(derive(seed, b"fcac own mask" + context), size)


def pair_mask(key: AgreementKey, public: bytes, step_context: bytes, size: int) -> Residues:
    """Return the mask that two sites have in common in one step."""
    return expand(key.agree(public, b"fcac pair mask" + step_context), size)


def to_residues(values: Integers) -> Residues:
    """Return signed integers modulo 2**64."""
    return np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)


@lru_cache(maxsize=8)
def _zeros(size: int) -> bytes:
    return bytes(size)
