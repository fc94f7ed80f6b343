"""``PaperLaplace``: the noise of the paper, for reproducing its results. It is not a privacy guarantee."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from fcac._typing import Floats
from fcac.exceptions import PrivacyWarning
from fcac.privacy.mechanism import Mechanism
from fcac.privacy.zcdp import check_epsilon

_READ = "docs/privacy/paper-noise.md"


class PaperLaplace(Mechanism):
    """Add Laplace noise to every value, with scale (max - min of the feature at this site) / epsilon.

    This is what the paper's experiments did, and it **does not give epsilon-differential privacy for any epsilon**: the
    scale is computed from the records, a constant column is sent exactly, and epsilon is spent once per feature. It
    warns once, with figures for the data at hand. For a guarantee, use :class:`NodeRelease`.

    Parameters
    ----------
    epsilon : float
        As in the paper: per feature.
    random_state : int, optional
        Seed; None uses a new one at every call.
    paper_streams : bool
        True gives every site the same random stream, ``default_rng(random_state)``, as the paper's program did: one
        site can then remove another site's noise. Use it for exact reproduction only. With False, every site and round
        has its own stream.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fcac.privacy import PaperLaplace
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     noised = PaperLaplace(epsilon=15, random_state=0).perturb(np.eye(3), site="A")
    >>> noised.shape
    (3, 3)
    """

    kind = "row"
    title = "the paper's noise"
    per = "feature"
    _fields = ("epsilon", "random_state", "paper_streams")

    def __init__(self, epsilon: float, random_state: int | None = None, paper_streams: bool = False) -> None:
        self.epsilon = check_epsilon(epsilon)
        if random_state is not None and (not isinstance(random_state, int | np.integer) or random_state < 0):
            raise ValueError(f"random_state must be a whole number >= 0 or None, got {random_state!r}")
        if paper_streams and random_state is None:
            raise ValueError("paper_streams=True needs random_state: the paper used the number of the trial")
        self.random_state = None if random_state is None else int(random_state)
        self.paper_streams = bool(paper_streams)
        self._warned = False

    def perturb(self, X: Any, site: str | int | None = None, round: int = 1) -> Floats:
        """Return the rows with the paper's noise.

        Parameters
        ----------
        X : array-like of shape (n, d)
        site : str or int, optional
            The site whose rows they are; together with ``round`` it selects the stream (not with ``paper_streams``).
        round : int
        """
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2:
            raise ValueError(f"X must have shape (n, d), got {rows.ndim} dimension(s)")
        if not np.isfinite(rows).all():
            raise ValueError("X has NaN or infinite values: fill or drop them first")
        if len(rows) == 0:
            return rows.copy()
        width = rows.max(axis=0) - rows.min(axis=0)
        if not self._warned:
            self._warned = True
            warnings.warn(self._words(rows.shape[1], int((width == 0).sum())), PrivacyWarning, stacklevel=2)
        noise = self._generator(site, round).laplace(scale=width / self.epsilon, size=rows.shape)
        result: Floats = rows + noise
        return result

    def describe(self, n_features: int | None = None, counts: Any = None) -> dict[str, Any]:
        """Return statements about the mechanism for a report.

        Parameters
        ----------
        n_features : int, optional
            If given, the total epsilon of a record is stated.
        counts : array-like, optional
            Winning counts of the nodes that were sent; if given, the number of single records is stated.
        """
        total = None if n_features is None else self.epsilon * n_features
        figures = "" if n_features is None else f" Over {n_features} features the nominal eps is {total:g} per record."
        if counts is not None and len(counts):
            single = int((np.asarray(counts) <= 1).sum())
            figures += f" {single} of the {len(counts)} nodes sent are single (noised) records."
        return {
            "mechanism": "PaperLaplace: Laplace noise scaled to the site's own range, per feature",
            "unit": "none: there is no guarantee per record",
            "adjacency": "none",
            "epsilon": self.epsilon,
            "total_epsilon": total,
            "delta": 0.0,
            "bounds": "computed from the records, which is itself a leak",
            "rounds": "not added up",
            "not_promised": [
                "differential privacy, for any epsilon: the scale depends on the records",
                "anything about constant columns: they are sent exactly",
                "that a noised record cannot be matched to the original: at eps = 15 nearly all can",
                "safety against the floating-point attack on Laplace noise",
                "that sites cannot remove each other's noise"
                if self.paper_streams
                else "that the noise of earlier rounds is counted",
            ],
            "warning": f"This is the paper's noise, kept for reproduction; it is not a privacy guarantee.{figures}"
            f" See {_READ}.",
        }

    def _words(self, n_features: int, n_constant: int) -> str:
        return (
            f"PaperLaplace is the paper's noise, for reproduction, not a privacy guarantee: eps = {self.epsilon:g} is "
            f"spent on each of {n_features} features, {self.epsilon * n_features:g} in total per record; "
            f"{n_constant} constant column(s) are sent exactly; CA+ nodes with count 1 are single records. "
            f"For a guarantee, use NodeRelease. See {_READ}"
        )

    def _generator(self, site: str | int | None, round: int) -> np.random.Generator:
        if self.random_state is None:
            return np.random.default_rng()
        if self.paper_streams:
            return np.random.default_rng(self.random_state)
        digest = hashlib.sha256(repr(site).encode()).digest()
        return np.random.default_rng([self.random_state, int(round), int.from_bytes(digest[:8], "big")])
