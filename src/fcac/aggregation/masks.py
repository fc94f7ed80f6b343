"""Masks: a key expanded to a vector of uniform integers, and arithmetic modulo a power of two."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Integers
from fcac.aggregation.keys import derive

#: Totals are computed modulo 2**BITS. With 64 bits they cannot wrap around; see :func:`most_rows`.
BITS = 64

Residues = NDArray[np.uint64]


def expand(key: bytes, size: int, bits: int = BITS) -> Residues:
    """Return ``size`` integers below 2**bits, indistinguishable from uniform ones without the 32-byte key.

    The keystream of ChaCha20 (RFC 8439) with a constant nonce: every key is used for one mask only.

    >>> mask = expand(bytes(32), 3)
    >>> mask.dtype, len(set(mask.tolist())), bool((expand(bytes(32), 2) == mask[:2]).all())
    (dtype('uint64'), 3, True)
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(_zeros(8 * size))
    mask = np.frombuffer(stream, dtype="<u8")
    return mask if bits == BITS else mask & np.uint64(2**bits - 1)


def own_mask(seed: bytes, context: bytes, size: int, bits: int = BITS) -> Residues:
    """Return the mask that a site adds on its own account; it is removed once the site's vector counts."""
    return expand(derive(seed, b"fcac own mask" + context), size, bits)


def to_residues(values: Integers, bits: int = BITS) -> Residues:
    """Return signed integers modulo 2**bits."""
    residues = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    return residues if bits == BITS else residues & np.uint64(2**bits - 1)


def from_residues(residues: Residues, bits: int = BITS) -> Integers:
    """Return the signed integers nearest to zero that have these residues.

    >>> import numpy as np
    >>> from_residues(to_residues(np.array([-5, 7]), 16), 16).tolist()
    [-5, 7]
    """
    shift = np.uint64(BITS - bits)
    # shifting left and back as signed integers extends the sign bit
    signed: Integers = (residues << shift).view(np.int64) >> np.int64(BITS - bits)
    return signed


def most_rows(largest_per_row: int, noise_scale: float, bits: int = BITS) -> int:
    """Return how many rows all sites may have together before a total could wrap around.

    One row adds at most `largest_per_row` to a component. Forty standard deviations of the noise are kept free, which
    sub-Gaussian noise exceeds with a probability below 2 exp(-800).
    """
    half: int = 2 ** (bits - 1)
    return max(0, (half - 1 - int(40.0 * noise_scale)) // largest_per_row)


@lru_cache(maxsize=8)
def _zeros(size: int) -> bytes:
    return bytes(size)
