"""Projection of nodes in d dimensions to two: the columns themselves, or principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats

# If the standard deviations of features differ by more than this, the widest feature would dominate the picture.
_MAX_RATIO_OF_SPREADS = 10.0


@dataclass(frozen=True)
class Projection:
    """Maps nodes to two coordinates.

    Attributes
    ----------
    directions : array of shape (d, 2)
    centre, scale : arrays of shape (d,)
    x_label, y_label : str
    is_reduced : bool
        Whether more than two features were reduced to two dimensions.
    standardised : bool
        Whether features were divided by their standard deviation first.
    shares : tuple of float
        Fraction of the nodes' variance that each direction shows.
    """

    directions: Floats
    centre: Floats
    scale: Floats
    x_label: str
    y_label: str
    is_reduced: bool = False
    standardised: bool = False
    shares: tuple[float, float] = (1.0, 0.0)

    def project(self, nodes: Floats) -> Floats:
        """Return coordinates of shape (n, 2)."""
        return ((nodes - self.centre) / self.scale) @ self.directions


def fit_projection(nodes: Floats, counts: Floats, names: list[str]) -> Projection:
    """Choose the projection of a picture: up to two features are shown directly, more by principal components.

    Parameters
    ----------
    nodes : array of shape (n, d)
    counts : array of shape (n,)
        Weights.
    names : list of str
        One per feature.
    """
    d = nodes.shape[1]
    if d <= 2:
        directions = np.eye(d, 2)
        return Projection(directions, np.zeros(d), np.ones(d), names[0], names[1] if d == 2 else "")
    weights = counts / counts.sum()
    centre = weights @ nodes
    spread = np.sqrt(weights @ (nodes - centre) ** 2)
    varying = spread > 0
    standardised = bool(varying.any() and spread.max() > _MAX_RATIO_OF_SPREADS * np.median(spread[varying]))
    scale = np.where(varying, spread, 1.0) if standardised else np.ones(d)
    centred = (nodes - centre) / scale * np.sqrt(weights)[:, None]
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = np.vstack([directions, np.zeros((2, d))])[:2]
    # the sign of a principal direction is arbitrary; fix it so that the same data give the same picture
    largest = np.abs(directions).argmax(axis=1)
    signs = np.where(directions[np.arange(2), largest] < 0, -1.0, 1.0)
    total = float((sizes**2).sum()) or 1.0
    shares = tuple(float(s) for s in (np.append(sizes, [0.0, 0.0])[:2] ** 2 / total))
    return Projection(
        (directions * signs[:, None]).T,
        centre,
        scale,
        f"First principal component ({shares[0]:.0%} of the variance)",
        f"Second principal component ({shares[1]:.0%})",
        is_reduced=True,
        standardised=standardised,
        shares=(shares[0], shares[1]),
    )
