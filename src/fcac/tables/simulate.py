"""Assigns the rows of a table to simulated sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.exceptions import RequestError

#: How rows can be divided; see :mod:`fcac.tables.partition`.
PARTITIONS = ("iid", "dirichlet", "classes")


@dataclass(frozen=True)
class Split:
    """How to simulate sites.

    Parameters
    ----------
    n_sites : int
        Sites are called 1, 2, ...
    partition : {"iid", "dirichlet", "classes"}
        All sites alike; different mixes of labels; few labels per site. The last two need a label column.
    alpha : float
        For "dirichlet": the smaller, the more the sites differ.
    n_classes : int
        For "classes": how many labels a site gets.
    seed : int
    """

    n_sites: int
    partition: str = "iid"
    alpha: float = 0.5
    n_classes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_sites < 1:
            raise RequestError(f"the number of sites must be at least 1, not {self.n_sites}")
        if self.partition not in PARTITIONS:
            raise RequestError(f"partition must be one of {', '.join(PARTITIONS)}, not {self.partition!r}")

    def by_labels(self, labels: Any) -> NDArray[np.int32]:
        """Return the site of every row, given every row's label."""
        from fcac.tables import partition

        try:
            if self.partition == "iid":
                parts: Sequence[Any] = partition.iid(labels, self.n_sites, self.seed)
            elif self.partition == "dirichlet":
                parts = partition.dirichlet(labels, self.n_sites, self.alpha, self.seed)
            else:
                parts = partition.classes_per_site(labels, self.n_sites, self.n_classes, self.seed)
        except ValueError as error:
            raise RequestError(str(error)) from None
        site_of_row = np.empty(len(labels), np.int32)
        for number, rows in enumerate(parts, start=1):
            site_of_row[rows] = number
        return site_of_row

    def dealer(self) -> Dealer:
        """Return a dealer, for tables without labels."""
        return Dealer(self.n_sites, self.seed)


class Dealer:
    """Deals rows like cards: of every `n_sites` rows each site gets one, chosen at random.

    It need not know the number of rows, keeps at most one round of cards in memory, and its result does not depend on
    the size of the batches.

    Examples
    --------
    >>> from fcac.tables.simulate import Dealer
    >>> dealer = Dealer(3, seed=0)
    >>> sorted(dealer.deal(2).tolist() + dealer.deal(1).tolist())
    [1, 2, 3]
    """

    def __init__(self, n_sites: int, seed: int) -> None:
        self._n_sites = n_sites
        self._generator = np.random.default_rng(seed)
        self._hand = np.empty(0, np.int32)

    def deal(self, n: int) -> NDArray[np.int32]:
        """Return the sites of the next n rows."""
        n_rounds = max(0, -(-(n - len(self._hand)) // self._n_sites))
        cards = np.tile(np.arange(1, self._n_sites + 1, dtype=np.int32), (n_rounds, 1))
        fresh = self._generator.permuted(cards, axis=1).ravel()
        every = np.concatenate([self._hand, fresh])
        self._hand = every[n:]
        return every[:n]
