"""Tables of mixed columns for estimators: a schema turns frames and Arrow tables into features."""

from __future__ import annotations

import os
from typing import Any

from fcac._rows import arrow_if_polars, column_names
from fcac._typing import Floats
from fcac.exceptions import DataError
from fcac.model.columns import take_site_column
from fcac.model.site_rows import is_dict_of_sites
from fcac.tables.schema import Schema


def as_schema(given: Any) -> Schema:
    """Return a schema, or read the schema file that is named."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str | os.PathLike):
        return Schema.load(given)
    raise TypeError(f"schema must be a fcac.tables.Schema or the path of a schema file, got {type(given).__name__}")


def encoded(X: Any, groups: Any, schema: Schema) -> tuple[Any, Any]:
    """Return rows as features, and the site of each row.

    Parameters
    ----------
    X : frame of pandas or polars, Arrow table, or dict of site to such tables
    groups : array-like, str or None
        Site of each row, or the name of the column that holds it.
    schema : Schema
    """
    if is_dict_of_sites(X):
        return {site: features(table, schema, f"site {site}: ") for site, table in X.items()}, groups
    X = arrow_if_polars(X)
    if isinstance(groups, str):
        X, groups = take_site_column(X, groups)
    return features(X, schema), groups


def features(X: Any, schema: Schema, where: str = "") -> Floats:
    """Return the rows of one table as features; gaps are NaN."""
    if column_names(X) is None:
        raise TypeError(f"{where}with a schema, X must be a frame of pandas or polars, or an Arrow table")
    block = schema.apply(X)
    if len(block) != len(X):
        raise DataError(
            f"{where}the schema drops {len(X) - len(block):,} of {len(X):,} rows for missing values, which a frame "
            'cannot show: drop them from the frame first, or write missing = "native"'
        )
    return block


def is_table_of(X: Any, schema: Schema | None, feature_names: list[str] | None, by_schema: bool) -> bool:
    """Tell whether X is a table of the schema's columns, and not of features already."""
    names = None if schema is None else column_names(X)
    if schema is None or names is None or not set(schema.columns) <= set(names):
        return False
    return by_schema or not set(feature_names or ()) <= set(names)
