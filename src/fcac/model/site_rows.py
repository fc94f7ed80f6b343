"""The rows of several sites, as one table with a column of names or as a dict; columns matched by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._rows import Rows, arrow_if_polars, column_names, is_arrow, is_missing, is_sparse
from fcac._sites import SiteName, plain_site, site_order
from fcac._typing import Floats
from fcac.exceptions import OpenNodes, PrivacyError
from fcac.privacy.mechanism import NodeMechanism
from fcac.tables.schema import Schema


class SiteRows(Mapping[SiteName, Any]):
    """The rows of each site, cut out of a table only when that site's turn has come.

    `names` are the columns that the model has learned, in their order; by default those of the first table. NaN is a
    gap where X came through a schema.
    """

    def __init__(
        self, X: Any, groups: Any, estimator: Any, names: Sequence[str] | None = None, schema: Schema | None = None
    ) -> None:
        gaps = schema is not None
        self._X = X = _tables_of(X)
        self.feature_names: list[str] | None = None
        self._index: dict[SiteName, Any] = {}
        if is_dict_of_sites(X):
            if groups is not None:
                raise ValueError("groups is not used when X is a dict of sites: pass one of the two")
            if not X:
                raise ValueError("X is an empty dict: give at least one site")
            self.feature_names = next((own for own in map(column_names, X.values()) if own is not None), None)
            wanted = self.feature_names if names is None else names
            self.table = X = {n: in_order(rows, wanted, f"site {n}") for n, rows in X.items()}
            # a site under a private release answers every round, rows or not
            silent = isinstance(estimator.privacy, NodeMechanism)
            tables = {
                plain_site(n): Rows(rows, estimator, allow_empty=silent, allow_gaps=gaps, allow_sparse=True)
                for n, rows in X.items()
            }
            widths = {table.n_features for table in tables.values()}
            if len(widths) > 1:
                raise ValueError(f"the sites' rows differ in their number of features: {sorted(widths)}")
            self.n_features = widths.pop()
            self._index = dict(tables)
            if schema is not None:
                self.feature_names = schema.feature_names
            return
        if isinstance(groups, str):
            X, groups = take_site_column(X, groups)
        self.table = X = in_order(X, names)
        self.feature_names = column_names(X) if schema is None else schema.feature_names
        table = Rows(X, estimator, allow_gaps=gaps, allow_sparse=True)
        self.n_features, self._n_rows = table.n_features, table.n_rows
        if groups is None:
            self._index = {0: table}
            return
        if is_sparse(X):
            X = X.tocsr()
        self._X = X if hasattr(X, "iloc") or is_arrow(X) or is_sparse(X) else np.asarray(X)
        own = np.asarray(groups)
        if own.shape != (table.n_rows,):
            raise ValueError(f"groups must name the site of each of the {table.n_rows} rows, got shape {own.shape}")
        if own.dtype.kind == "f" and not np.isfinite(own).all():
            raise ValueError("groups holds NaN: every row must belong to a site")
        if own.dtype.kind == "O":
            if any(is_missing(name) for name in own):
                raise ValueError("groups holds missing values: every row must belong to a site")
            order: dict[Any, list[int]] = {}
            for i, name in enumerate(own):
                order.setdefault(plain_site(name), []).append(i)
            self._index = {name: np.array(rows) for name, rows in order.items()}
            return
        unique, inverse = np.unique(own, return_inverse=True)
        by_site = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse))
        for name, end, start in zip(unique, ends, np.append(0, ends[:-1]), strict=True):
            self._index[plain_site(name)] = by_site[start:end]

    def places(self) -> list[tuple[SiteName, NDArray[np.int64] | None]]:
        """Where the rows of each site are among all rows; None: after those of the sites before it."""
        return [(name, None if isinstance(rows, Rows) else rows) for name, rows in self._index.items()]

    def by_site(self, values: Any, what: str) -> dict[SiteName, list[Any]]:
        """Return a value for each of every site's rows, such as an id, in the order of its rows."""
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

    def weights(self, values: Any) -> dict[SiteName, Floats]:
        """Return the checked weights of every site's rows."""
        if is_dict_of_sites(self._X):
            if not is_dict_of_sites(values) or {plain_site(name) for name in values} != set(self._index):
                raise ValueError("sample_weight must be a dict like X, with weights for the rows of each of its sites")
            given = {
                plain_site(name): _weights(own, self._index[plain_site(name)].n_rows) for name, own in values.items()
            }
        else:
            of_all = _weights(values, self._n_rows)
            given = {name: of_all if isinstance(rows, Rows) else of_all[rows] for name, rows in self._index.items()}
        if not any(some.any() for some in given.values()):
            raise ValueError("sample_weight: all weights are zero, so there is nothing to learn")
        return given

    def __getitem__(self, name: SiteName) -> Any:
        rows = self._index[name]
        if isinstance(rows, Rows):
            return rows
        if is_sparse(self._X):
            return Rows(self._X[rows], allow_sparse=True)
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


def _weights(values: Any, n_rows: int) -> Floats:
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must hold numbers, one for each row") from None
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must hold one number for each of the {n_rows} rows; got shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight: weights must be finite and not below zero")
    return weights


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


def _tables_of(X: Any) -> Any:
    """Return tables in a form whose rows can be taken: polars becomes Arrow, and a record batch a table."""
    if is_dict_of_sites(X):
        return {name: _tables_of(rows) for name, rows in X.items()}
    X = arrow_if_polars(X)
    if type(X).__name__ == "RecordBatch" and is_arrow(X):
        import pyarrow as pa

        return pa.Table.from_batches([X])
    return X


def rows_by_site(
    pieces: Iterator[tuple[Any, ...]],
) -> tuple[dict[SiteName, NDArray[np.float64]], dict[SiteName, list[Any]] | None]:
    """Join pieces (site, rows) or (site, rows, record ids) to the rows, and the ids if there are any, of each site."""
    rows: dict[SiteName, list[NDArray[np.float64]]] = {}
    ids: dict[SiteName, list[Any]] = {}
    for given, block, *own in pieces:
        name = plain_site(given)
        rows.setdefault(name, []).append(np.array(block, dtype=np.float64))
        if own and own[0] is not None:
            ids.setdefault(name, []).extend(own[0])
    return {name: np.concatenate(blocks) for name, blocks in rows.items()}, ids or None


def check_public_names(privacy: Any, groups: Any, public: bool) -> None:
    """Refuse names of sites that would leave without noise, though they come from the rows, unless they are public."""
    if groups is not None and not public and getattr(privacy, "guarantee", "none") != "none":
        raise PrivacyError(
            "groups: the names of sites come from the rows, and leave without noise; nothing was charged. If it is "
            "public which sites there are, and which have rows in a round, say so: public_groups=True. If it is not, "
            "leave groups out"
        )


def warn_of_open_nodes(n_sites: int) -> None:
    """Say, to who calls `fit`, what leaves several sites without a mechanism."""
    warnings.warn(
        f"{n_sites} sites send their nodes without noise, and a node can be a row. That suits sites of one owner, and "
        "simulations; where rows must not leave, give privacy=NodeRelease(epsilon, bounds)",
        OpenNodes,
        stacklevel=4,
    )


def in_order(X: Any, names: Sequence[str] | None, what: str = "") -> Any:
    """Return a table with its columns in the order of `names`; arrays have no names and stay as they are.

    A name that is missing, unknown or there twice is a ValueError, which says in what ("site b").
    """
    own = column_names(X)
    if own is None or names is None or own == list(names):
        return X
    missing, unseen = sorted(set(names) - set(own)), sorted(set(own) - set(names))
    twice = sorted({name for name in own if own.count(name) > 1})
    if missing or unseen or twice or len(own) != len(names):
        # the words of scikit-learn, which other programs look for
        message = "The feature names should match those that were passed during fit.\n"
        for heading, some in (
            ("Feature names unseen at fit time", unseen),
            ("Feature names seen at fit time, yet now missing", missing),
            ("Feature names that are there twice", twice),
        ):
            if some:
                message += f"{heading}:\n" + "".join(f"- {name}\n" for name in some[:5])
                message += "- ...\n" if len(some) > 5 else ""
        raise ValueError(f"{what}: {message}" if what else message)
    return X.select(list(names)) if is_arrow(X) else X[list(names)]


def take_site_column(X: Any, column: str) -> tuple[Any, NDArray[Any]]:
    """Return a table without the column that names the site of each row, and that column."""
    names = column_names(X)
    if names is None:
        raise ValueError(
            f"groups={column!r} names a column, but X has no column names: pass the site of each row instead"
        )
    if column not in names:
        listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"groups: X has no column {column!r}; its columns are {listed}")
    if names.count(column) > 1:
        raise ValueError(f"groups: X has several columns named {column!r}: give each a name of its own")
    values = _arrow_values(X.column(column)) if is_arrow(X) else np.asarray(X[column])
    gap = values.dtype.kind == "f" and np.isnan(values).any()
    if gap or (values.dtype.kind == "O" and any(is_missing(value) for value in values)):
        raise ValueError(
            f"groups: column {column!r} has missing values: every row must belong to a site; "
            "drop those rows or name their site"
        )
    return without_column(X, column), values


def without_column(X: Any, column: str | None) -> Any:
    """Return a table without a column, if it is there."""
    names = None if column is None else column_names(X)
    if names is None or column not in names:
        return X
    return X.select([name for name in names if name != column]) if is_arrow(X) else X.drop(columns=column)


def _arrow_values(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    return np.array(column.to_pylist(), dtype=object)


def warn_of_names(estimator: Any, own: Sequence[str] | None) -> None:
    """Warn, as scikit-learn does, if only one of the model and a table has column names: nothing can be matched."""
    known, name = getattr(estimator, "feature_names_in_", None), type(estimator).__name__
    if own is not None and known is None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", UserWarning, stacklevel=3)
    if own is None and known is not None:
        warnings.warn(
            f"X does not have valid feature names, but {name} was fitted with feature names", UserWarning, stacklevel=3
        )
