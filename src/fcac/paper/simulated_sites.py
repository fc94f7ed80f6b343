"""Divide the rows of one table among sites, to simulate a federation on one machine.

Every function takes one label per row and returns a list with one array of row numbers per site; together the
arrays hold every row exactly once. The order within an array is the order in which the site meets its rows,
which matters to learners that see one row at a time. :func:`as_groups` turns such a list into what ``fit``
expects.

:func:`iid`, :func:`dirichlet` and :func:`classes_per_site` make sites that are alike, that differ, and that hold
a few labels each; all three shuffle the rows within a site. The splits behind the paper's tables, which present
every site with its rows class by class, are in :mod:`fcac.paper.splits`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcac._sites import site_order

__all__ = ["as_groups", "by_column", "classes_per_site", "dirichlet", "iid", "site_names"]

Rows = NDArray[np.intp]

#: How often a random split is drawn before giving up on its condition.
MAX_DRAWS = 10_000
_MISSING = frozenset({"None", "nan", "NaT", "<NA>"})


def iid(y: ArrayLike, n_sites: int, seed: int) -> list[Rows]:
    """Give every site the same mix of labels and the same number of rows, to within one row.

    Each label's rows are shuffled and dealt out like cards, one row per site in turn. Without labels, use any constant.
    The result is the row numbers of each site, in random order within the site.

    Examples
    --------
    >>> y = np.array(["cat"] * 6 + ["dog"] * 3)
    >>> [np.unique(y[rows], return_counts=True)[1].tolist() for rows in iid(y, 3, seed=0)]
    [[2, 1], [2, 1], [2, 1]]
    """
    codes, _ = check_labels(y, n_sites)
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(len(codes))
    dealt = shuffled[np.argsort(codes[shuffled], kind="stable")]
    return [generator.permutation(dealt[site::n_sites]) for site in range(n_sites)]


def dirichlet(y: ArrayLike, n_sites: int, alpha: float, seed: int, min_rows: int = 1) -> list[Rows]:
    """Give the sites different mixes of labels and different numbers of rows.

    For each label, the sites' shares of its rows are drawn from a symmetric Dirichlet distribution. With a small
    ``alpha`` (0.5) most rows of a label go to a few sites; a large one (100) comes close to :func:`iid`. The draw is
    repeated until every site has at least ``min_rows`` rows. The result is as for :func:`iid`.

    Examples
    --------
    >>> parts = dirichlet(np.repeat([0, 1, 2], 100), 4, alpha=0.5, seed=0, min_rows=20)
    >>> sum(map(len, parts)), min(map(len, parts)) >= 20
    (300, True)
    """
    codes, _ = check_labels(y, n_sites)
    check_dirichlet(len(codes), n_sites, alpha, min_rows)
    generator = np.random.default_rng(seed)
    by_class = rows_by_label(codes)
    for _ in range(MAX_DRAWS):
        sizes = [
            np.diff(cuts(generator.dirichlet(np.full(n_sites, alpha)), len(rows)), prepend=0, append=len(rows))
            for rows in by_class
        ]
        if np.sum(sizes, axis=0).min() >= min_rows:
            break
    else:
        raise too_demanding(min_rows, n_sites, alpha)
    pieces = [
        np.split(generator.permutation(rows), np.cumsum(size)[:-1]) for rows, size in zip(by_class, sizes, strict=True)
    ]
    return [generator.permutation(np.concatenate(of_site)) for of_site in zip(*pieces, strict=True)]


def classes_per_site(y: ArrayLike, n_sites: int, n_classes: int, seed: int) -> list[Rows]:
    """Give every site rows of only ``n_classes`` labels.

    Labels are assigned so that each goes to the same number of sites, to within one; the rows of a label are then
    divided evenly among its sites. ``n_sites * n_classes`` must cover all labels. The result is as for :func:`iid`.

    Examples
    --------
    >>> y = np.repeat(np.arange(10), 50)
    >>> [len(np.unique(y[rows])) for rows in classes_per_site(y, 5, n_classes=2, seed=0)]
    [2, 2, 2, 2, 2]
    """
    codes, labels = check_labels(y, n_sites)
    if not 1 <= n_classes <= len(labels):
        raise ValueError(f"n_classes must be between 1 and the number of labels, {len(labels)}; it is {n_classes}")
    if n_sites * n_classes < len(labels):
        raise ValueError(
            f"{n_sites} sites with {n_classes} labels each cannot cover all {len(labels)} labels: "
            f"raise n_sites or n_classes so that their product is at least {len(labels)}"
        )
    generator = np.random.default_rng(seed)
    holders: list[list[int]] = [[] for _ in labels]
    for site in range(n_sites):
        # Labels with the fewest sites so far come first, with ties broken at random: this keeps them balanced and
        # leaves none out.
        load = np.array([len(sites) for sites in holders])
        order = np.lexsort(np.stack([generator.random(len(labels)), load]))
        for label in order[:n_classes]:
            holders[label].append(site)
    parts: list[list[Rows]] = [[] for _ in range(n_sites)]
    for label, (rows, sites) in enumerate(zip(rows_by_label(codes), holders, strict=True)):
        if len(rows) < len(sites):
            raise ValueError(
                f"label {labels[label]} has {len(rows)} rows, too few for the {len(sites)} sites that "
                "should have it: use fewer sites or fewer labels per site"
            )
        for site, piece in zip(sites, np.array_split(generator.permutation(rows), len(sites)), strict=True):
            parts[site].append(piece)
    return [generator.permutation(np.concatenate(pieces)) for pieces in parts]


def by_column(values: ArrayLike) -> list[Rows]:
    """Divide rows by a column that names the site of each row.

    Parameters
    ----------
    values : array-like of shape (n,)
        Name or number of the site of each row.

    Returns
    -------
    list of ndarray
        Row numbers of each site, in the order of the table. Sites come in the order of :func:`site_names`.

    Examples
    --------
    >>> from fcac.paper.simulated_sites import by_column, site_names
    >>> column = [10, 9, 10, 9, 9]
    >>> site_names(column), [rows.tolist() for rows in by_column(column)]
    ([9, 10], [[1, 3, 4], [0, 2]])
    """
    column = _site_column(values)
    position = {name: i for i, name in enumerate(site_names(column))}
    codes = np.fromiter((position[name] for name in column), dtype=np.intp, count=len(column))
    return rows_by_label(codes)


def site_names(values: ArrayLike | Iterable[Hashable]) -> list[Any]:
    """List the distinct sites, sorted: first numbers, by value, then names.

    Examples
    --------
    >>> from fcac.paper.simulated_sites import site_names
    >>> site_names([10, 9, 10, 100]), site_names(["north", "east"])
    ([9, 10, 100], ['east', 'north'])
    """
    return site_order(set(_site_column(values)))


def as_groups(parts: Sequence[Rows], names: Sequence[Hashable] | None = None) -> tuple[Rows, NDArray[Any]]:
    """Convert a split into the rows to present, in order, and the site of each.

    Parameters
    ----------
    parts : sequence of ndarray
        One array of row numbers per site, as returned by the functions of this module.
    names : sequence, optional
        Names of the sites; default 0, 1, ...

    Returns
    -------
    rows : ndarray
        All row numbers, site after site.
    groups : ndarray
        Site of each, for ``model.fit(X[rows], groups=groups)``.

    Examples
    --------
    >>> from fcac.paper.simulated_sites import as_groups, by_column
    >>> rows, groups = as_groups(by_column(["b", "a", "b"]), names=["a", "b"])
    >>> rows.tolist(), groups.tolist()
    ([1, 0, 2], ['a', 'b', 'b'])
    """
    if not len(parts):
        raise ValueError("parts is empty: there is no site")
    labels = np.arange(len(parts)) if names is None else np.asarray(names)
    if len(labels) != len(parts):
        raise ValueError(f"names has {len(labels)} entries for {len(parts)} sites")
    return np.concatenate(parts), np.repeat(labels, [len(rows) for rows in parts])


def check_labels(y: ArrayLike, n_sites: int) -> tuple[Rows, NDArray[Any]]:
    """Return the labels as codes 0, 1, ... and the label of each code."""
    labels = np.asarray(y)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"y must have one label per row; it has shape {labels.shape}")
    if isinstance(n_sites, bool) or not isinstance(n_sites, (int, np.integer)) or n_sites < 1:
        raise ValueError(f"n_sites must be a whole number of at least 1; it is {n_sites!r}")
    if n_sites > len(labels):
        raise ValueError(f"{n_sites} sites need at least {n_sites} rows; there are {len(labels)}")
    names, codes = np.unique(labels, return_inverse=True)
    return codes, names


def check_dirichlet(n: int, n_sites: int, alpha: float, min_rows: int) -> None:
    """Refuse parameters of a Dirichlet split that no split of n rows can meet."""
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be a positive number; it is {alpha!r}")
    if min_rows < 0:
        raise ValueError(f"min_rows must not be negative; it is {min_rows}")
    if min_rows * n_sites > n:
        raise ValueError(
            f"min_rows={min_rows} for {n_sites} sites needs {min_rows * n_sites} rows; there are {n}: "
            "lower min_rows or n_sites"
        )


def too_demanding(min_rows: int, n_sites: int, alpha: float) -> ValueError:
    """Return the error for a split that no draw has met."""
    return ValueError(
        f"no split in {MAX_DRAWS} draws gave each of {n_sites} sites {min_rows} rows at alpha={alpha}: "
        "lower min_rows or n_sites, or raise alpha"
    )


def rows_by_label(codes: Rows) -> list[Rows]:
    """Return the row numbers of each label, in the order of the table."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def cuts(shares: NDArray[np.float64], n: int) -> Rows:
    """Return where to cut n rows so that the pieces have these shares; the last piece takes what rounding leaves."""
    return (np.cumsum(shares) * n).astype(np.intp)[:-1]


def _site_column(values: ArrayLike | Iterable[Hashable]) -> list[Any]:
    """Return the entries as plain Python values; a missing one is an error."""
    # Converting a mixed list to an array would turn its numbers into text, so only array-like objects are converted as
    # a whole.
    column: list[Any] = values.tolist() if hasattr(values, "tolist") else [_plain(name) for name in _listed(values)]
    if not isinstance(column, list) or not column or any(isinstance(name, (list, dict)) for name in column):
        raise ValueError("the site column must have one site per row: it is empty or not one-dimensional")
    missing = [i for i, name in enumerate(column) if not isinstance(name, str) and str(name) in _MISSING]
    if missing:
        raise ValueError(
            f"the site column has {len(missing)} missing entries, the first in row {missing[0]}: give every row a site"
        )
    return column


def _listed(values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise ValueError(f"the site column must hold one site per row; it is {values!r}") from None


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name
