"""Shamir's secret sharing: any ``threshold`` of the shares give the secret, fewer give nothing at all.

Over the integers modulo a prime, with Python's own integers. Secrecy is information-theoretic and rests on nothing but
the uniform coefficients.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

from fcac.aggregation.keys import SEED_BYTES

#: The smallest prime above 2**128, so that every 16-byte secret is a residue.
PRIME = 2**128 + 51

#: Length of a share.
SHARE_BYTES = 17


def split(secret: bytes, threshold: int, n_shares: int) -> list[bytes]:
    """Return ``n_shares`` shares of 16 secret bytes, of which `threshold` recover them.

    Share i belongs to the point i + 1.

    >>> shares = split(b"sixteen secret b", 3, 5)
    >>> combine({4: shares[4], 0: shares[0], 2: shares[2]})
    b'sixteen secret b'
    """
    if len(secret) != SEED_BYTES or not 1 <= threshold <= n_shares:
        raise ValueError(f"cannot share {len(secret)} bytes so that {threshold} of {n_shares} recover them")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "big")
    shares = []
    for point in range(1, n_shares + 1):
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * point % PRIME
        shares.append(((value + constant) % PRIME).to_bytes(SHARE_BYTES, "big"))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes | None:
    """Return the secret from as many shares, by position, as are needed; None if they cannot be of one secret."""
    positions = tuple(sorted(shares))
    values = [int.from_bytes(shares[position], "big") for position in positions]
    weights = _weights_at_zero(positions)
    secret = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    return secret.to_bytes(SEED_BYTES, "big") if secret < 2 ** (8 * SEED_BYTES) else None


@lru_cache(maxsize=4096)
def _weights_at_zero(positions: tuple[int, ...]) -> list[int]:
    """Return Lagrange's weights for the value at zero; the same for all secrets shared among the same positions."""
    weights = []
    for mine in positions:
        above, below = 1, 1
        for other in positions:
            if other != mine:
                above = above * (other + 1) % PRIME
                below = below * (other - mine) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights
