"""The rows of several sites, as one table with a column of names or as a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._rows import Rows
from fcac._sites import SiteName, plain_site, site_order
from fcac._typing import Floats


class SiteRows(Mapping[SiteName, Any]):
    """The rows of each site, cut out of a table only when that site's turn has come."""

    def __init__(self, X: Any, groups: Any, estimator: Any) -> None:
        self._X = X
        self._index: dict[SiteName, Any] = {}
        if is_dict_of_sites(X):
            if groups is not None:
                raise ValueError("groups is not used when X is a dict of sites: pass one of the two")
            if not X:
                raise ValueError("X is an empty dict: give at least one site")
            # a site under a private release answers every round, rows or not
            silent = hasattr(estimator.privacy, "release")
            tables = {plain_site(n): Rows(rows, estimator, allow_empty=silent) for n, rows in X.items()}
            widths = {table.n_features for table in tables.values()}
            if len(widths) > 1:
                raise ValueError(f"the sites' rows differ in their number of features: {sorted(widths)}")
            self.n_features = widths.pop()
            self._index = dict(tables)
            return
        table = Rows(X, estimator)
        self.n_features, self._n_rows = table.n_features, table.n_rows
        if groups is None:
            self._index = {0: table}
            return
        self._X = X if hasattr(X, "iloc") or type(X).__module__.startswith("pyarrow") else np.asarray(X)
        names = np.asarray(groups)
        if names.shape != (table.n_rows,):
            raise ValueError(f"groups must name the site of each of the {table.n_rows} rows, got shape {names.shape}")
        if names.dtype.kind == "f" and not np.isfinite(names).all():
            raise ValueError("groups holds NaN: every row must belong to a site")
        if names.dtype.kind == "O":
            names = np.array([_no_missing(name) for name in names], dtype=object)
            order: dict[Any, list[int]] = {}
            for i, name in enumerate(names):
                order.setdefault(plain_site(name), []).append(i)
            self._index = {name: np.array(rows) for name, rows in order.items()}
            return
        unique, inverse = np.unique(names, return_inverse=True)
        by_site = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse))
        for name, end, start in zip(unique, ends, np.append(0, ends[:-1]), strict=True):
            self._index[plain_site(name)] = by_site[start:end]

    def by_site(self, values: Any, what: str) -> dict[SiteName, list[Any]]:
        """Return a value for each of every site's rows, such as an id or a weight, in the order of its rows."""
        if is_dict_of_sites(self._X):
            if not is_dict_of_sites(values):
                raise ValueError(f"{what} must be a dict like X: one value for each of a site's rows")
            given = {plain_site(name): list(own) for name, own in values.items()}
            if set(given) != set(self._index):
                raise ValueError(f"{what} must name the same sites as X")
        else:
            listed = list(values)
            if len(listed) != self._n_rows:
                raise ValueError(f"{what} has {len(listed)} entries for {self._n_rows} rows: one per row")
            given = {
                name: listed if isinstance(rows, Rows) else [listed[i] for i in rows]
                for name, rows in self._index.items()
            }
        for name, own in given.items():
            rows = self._index[name]
            if isinstance(rows, Rows) and len(own) != rows.n_rows:
                raise ValueError(f"{what} of site {name} has {len(own)} entries for {rows.n_rows} rows: one per row")
        return given

    def __getitem__(self, name: SiteName) -> Any:
        rows = self._index[name]
        if isinstance(rows, Rows):
            return rows
        return _CheckedBlock(_take(self._X, rows))

    def __iter__(self) -> Iterator[SiteName]:
        return iter(site_order(self._index))

    def __len__(self) -> int:
        return len(self._index)


class _CheckedBlock:
    """Rows of one site, already checked as part of a table."""

    def __init__(self, block: Floats) -> None:
        self.n_rows, self.n_features = block.shape
        self._block = block

    def blocks(self) -> Iterator[Floats]:
        yield self._block


def _take(X: Any, rows: NDArray[np.int64]) -> Floats:
    if hasattr(X, "iloc"):
        return np.ascontiguousarray(X.iloc[rows].to_numpy(dtype=np.float64))
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X[rows], dtype=np.float64)
    return next(Rows(X.take(rows)).blocks()) if len(rows) else np.empty((0, X.num_columns))


def is_dict_of_sites(X: Any) -> bool:
    """Tell whether rows come as ``{site: rows}``."""
    # one of SciPy's sparse formats is a dict too
    return isinstance(X, Mapping) and not hasattr(X, "tocsr")


def _no_missing(name: Any) -> Any:
    if name is None or (isinstance(name, float) and np.isnan(name)):
        raise ValueError("groups holds missing values: every row must belong to a site")
    return name
