"""The splits behind the paper's tables, quirks included: every site meets its rows class by class.

The splits for everyday use are in :mod:`fcac.paper.simulated_sites`; like them, these return one array of row numbers
per site.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fcac.paper.simulated_sites import (
    MAX_DRAWS,
    Rows,
    check_dirichlet,
    check_labels,
    cuts,
    rows_by_label,
    too_demanding,
)

__all__ = ["paper_dirichlet", "paper_iid"]


def paper_iid(y: ArrayLike, n_sites: int) -> list[Rows]:
    """Split as in the paper's IID scenario: row numbers of each site, grouped by label.

    For each label, every site but the last gets ``n_label // n_sites`` rows in the order of the table, and the last
    site gets all that remain. Every site's rows are therefore sorted by label, and the last site is larger. The paper
    first permuted the table by ``RandomState(trial).permutation(n)``; that is left to the caller.

    Examples
    --------
    >>> [rows.tolist() for rows in paper_iid([1, 0, 1, 0, 1, 0, 1], 2)]
    [[1, 0, 2], [3, 5, 4, 6]]
    """
    codes, _ = check_labels(y, n_sites)
    by_class = rows_by_label(codes)
    largest = max(map(len, by_class))
    if largest < n_sites:
        raise ValueError(
            f"no label has as many rows as there are sites ({largest} < {n_sites}): all sites but the "
            "last would be empty; use fewer sites"
        )
    pieces = [np.split(rows, np.arange(1, n_sites) * (len(rows) // n_sites)) for rows in by_class]
    return [np.concatenate(of_site) for of_site in zip(*pieces, strict=True)]


def paper_dirichlet(
    y: ArrayLike, n_sites: int, alpha: float = 0.5, min_rows: int = 40, seed: int | np.random.RandomState = 0
) -> list[Rows]:
    """Split as in the paper's non-IID scenario: row numbers of each site, grouped by label.

    Label by label, the rows are shuffled and cut by shares drawn from a Dirichlet distribution; sites that already have
    ``n / n_sites`` rows get no more. The whole draw is repeated until every site has at least ``min_rows`` rows. The
    paper used one seed for all trials, so the shares never changed; only the order of the table did (by
    ``RandomState(trial).permutation(n)``, which is left to the caller). NumPy's legacy generator is used, as in the
    paper, but not its global instance; a generator that is given is left where the split ends.

    Examples
    --------
    >>> [len(rows) for rows in paper_dirichlet(np.repeat([0, 1, 2], 100), 4)]
    [72, 105, 69, 54]
    """
    codes, _ = check_labels(y, n_sites)
    n = len(codes)
    check_dirichlet(n, n_sites, alpha, min_rows)
    generator = np.random.RandomState(seed) if isinstance(seed, int) else seed
    by_class = rows_by_label(codes)
    for _ in range(MAX_DRAWS):
        sizes = np.zeros(n_sites, dtype=np.intp)
        pieces = []
        for rows in by_class:
            shuffled = rows.copy()
            generator.shuffle(shuffled)
            shares = generator.dirichlet(np.repeat(alpha, n_sites))
            shares = np.where(sizes < n / n_sites, shares, 0.0)
            total = shares.sum()
            if total == 0:  # tiny alpha: all the mass fell to full sites
                break
            pieces.append(np.split(shuffled, cuts(shares / total, len(rows))))
            sizes += [len(piece) for piece in pieces[-1]]
        if len(pieces) == len(by_class) and sizes.min() >= min_rows:
            return [np.concatenate(of_site) for of_site in zip(*pieces, strict=True)]
    raise too_demanding(min_rows, n_sites, alpha)
