"""Tables that the benchmarks of speed learn from."""

from __future__ import annotations

import numpy as np


def images(n: int, seed: int = 0) -> np.ndarray:
    """Grey pictures of 28 x 28: one of thirty smooth shapes, its strength, smooth noise, a dark border."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    shapes = gaussian_filter(rng.normal(size=(30, 28, 28)), (0, 3, 3))
    shapes /= shapes.std(axis=(1, 2), keepdims=True)
    border = np.exp(-((np.indices((28, 28)) - 13.5) ** 2).sum(axis=0) / 120)
    noise = gaussian_filter(rng.normal(size=(n, 28, 28)), (0, 2, 2))
    pictures = shapes[rng.integers(30, size=n)] * rng.normal(1, 0.25, (n, 1, 1)) + 1.2 * noise
    return np.clip(100 * pictures * border, 0, 255).round().reshape(n, 784)


def blobs(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Round clusters in the unit cube."""
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(k, d))[rng.integers(k, size=n)] + rng.normal(0, 0.05, (n, d))
