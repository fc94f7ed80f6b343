"""Where the noise comes from: OpenDP's exact discrete Gaussian, or, in tests only, something repeatable."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fcac._typing import Integers


class Sampler(Protocol):
    """Adds noise to integers and knows what that costs."""

    secure: bool

    def check_ready(self) -> None:
        """Raise now, before anything is charged, if no noise can be drawn later."""

    def add_noise(self, values: Integers, scale: float) -> Integers:
        """Return the values plus discrete Gaussian noise of this scale, same shape."""


class OpenDPSampler:
    """Exact discrete Gaussian noise from OpenDP, fed by the operating system's generator.

    The sampler works on whole arrays in one call. Sums are formed in big integers inside OpenDP and saturate at the
    64-bit limits, which is post-processing.
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
    """Repeatable noise for tests. **It protects nobody**: who knows the seed can take the noise away.

    Parameters
    ----------
    seed : int
        Starting point of NumPy's generator.
    factor : float
        Multiplies the noise. 0 shows the mechanism without noise; 0.5 is a fault the audit must find.
    """

    secure = False

    def __init__(self, seed: int = 0, factor: float = 1.0) -> None:
        self.seed = seed
        self.factor = factor
        self._generator = np.random.default_rng(seed)

    def check_ready(self) -> None:
        """NumPy is always there."""

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
    """The OpenDP measurement of this scale; its privacy map is also the check on our costs."""
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
