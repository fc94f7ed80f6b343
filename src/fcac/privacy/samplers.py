"""Sources of noise: OpenDP's exact discrete Gaussian or, for tests only, a repeatable generator."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fcac._typing import Integers


class Sampler(Protocol):
    """Adds discrete Gaussian noise to integers."""

    secure: bool

    def check_ready(self) -> None:
        """Raise an error before anything is charged if noise could not be drawn later."""

    def add_noise(self, values: Integers, scale: float) -> Integers:
        """Return the values plus discrete Gaussian noise of this scale, in the same shape."""


class OpenDPSampler:
    """Exact discrete Gaussian noise from OpenDP, based on the operating system's random generator.

    The sampler handles a whole array in one call. Inside OpenDP, sums are arbitrary-precision integers and saturate at
    the 64-bit limits, which is post-processing.
    """

    secure = True

    def check_ready(self) -> None:
        """Raise ImportError with the fix if OpenDP is not installed."""
        _opendp()

    def add_noise(self, values: Integers, scale: float) -> Integers:
        """Return ``values`` plus noise from one vectorised OpenDP measurement."""
        measurement = opendp_measurement(scale)
        flat = np.asarray(values, dtype=np.int64).ravel()
        noised = np.array(measurement(flat.tolist()), dtype=np.int64)
        return noised.reshape(np.shape(values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenDPSampler)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return "OpenDPSampler()"


class InsecureTestSampler:
    """Repeatable noise for tests. **It protects nobody**: anyone who knows the seed can remove the noise.

    A factor of 0 shows the mechanism without noise; 0.5 is a fault that the audit must detect.
    """

    secure = False

    def __init__(self, seed: int = 0, factor: float = 1.0) -> None:
        self.seed = seed
        self.factor = factor
        self._generator = np.random.default_rng(seed)

    def check_ready(self) -> None:
        """Do nothing: NumPy is always available."""

    def add_noise(self, values: Integers, scale: float) -> Integers:
        """Return the values plus rounded normal noise."""
        noise = self._generator.normal(0.0, scale * self.factor, size=np.shape(values))
        result: Integers = np.asarray(values, dtype=np.int64) + np.rint(noise).astype(np.int64)
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InsecureTestSampler):
            return NotImplemented
        return (self.seed, self.factor) == (other.seed, other.factor)

    def __hash__(self) -> int:
        return hash((self.seed, self.factor))

    def __repr__(self) -> str:
        return f"InsecureTestSampler(seed={self.seed}, factor={self.factor})"


@lru_cache(maxsize=256)
def opendp_measurement(scale: float) -> Any:
    """Return the OpenDP measurement of this scale; its privacy map also serves to check our costs."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise ImportError("NodeRelease draws its noise with OpenDP: pip install 'fcac[privacy]'") from None
    dp.enable_features("contrib")
    return dp
