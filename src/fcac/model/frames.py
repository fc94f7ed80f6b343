"""Tables of mixed columns for estimators: a schema turns frames and Arrow tables into features."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fcac._rows import arrow_if_polars, column_names
from fcac._typing import Floats
from fcac.exceptions import DataError, ReadWarning
from fcac.model.site_rows import SiteRows, is_dict_of_sites, take_site_column, warn_of_names
from fcac.tables.draft import guess_tables
from fcac.tables.schema import Schema, as_batch, describe_problems

if TYPE_CHECKING:
    from fcac.model.fcac import FCAC


def as_schema(given: Any) -> Schema:
    """Return a schema, or read the schema file that is named."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str | os.PathLike):
        return Schema.load(given)
    raise TypeError(f"schema must be a fcac.tables.Schema or the path of a schema file, got {type(given).__name__}")


def encoded(X: Any, groups: Any, schema: Schema) -> tuple[Any, Any]:
    """Return rows as features, and the site of each; `groups` are the sites, or the name of their column."""
    if is_dict_of_sites(X):
        return {site: features(table, schema, f"site {site}: ") for site, table in X.items()}, groups
    X = arrow_if_polars(X)
    if isinstance(groups, str):
        X, groups = take_site_column(X, groups)
    return features(X, schema), groups


def features(X: Any, schema: Schema, where: str = "", *, note: bool = False) -> Floats:
    """Return the rows of one table as features, gaps NaN; `note` warns of levels unknown to the schema."""
    if column_names(X) is None:
        raise TypeError(f"{where}with a schema, X must be a frame of pandas or polars, or an Arrow table")
    found = schema.convert(as_batch(X))
    if found.missing or found.unknown:
        raise DataError(where + describe_problems(found.missing, found.unknown))
    if len(found.block) != len(X):
        raise DataError(
            f"{where}the schema drops {len(X) - len(found.block):,} of {len(X):,} rows for missing values, which a "
            'frame cannot show: drop them from the frame first, or write missing = "native"'
        )
    if note and found.other:
        listed = ", ".join(f"{name} ({count:,})" for name, count in found.other.items())
        warnings.warn(f"values for which the model has no level count as other: {listed}", ReadWarning, stacklevel=4)
    return found.block


def are_tables(X: Any) -> bool:
    """Tell whether rows, or those of every site, come with names of columns: then a schema applies to them."""
    parts = list(X.values()) if is_dict_of_sites(X) else [X]
    return bool(parts) and all(column_names(arrow_if_polars(part)) is not None for part in parts)


def guessed(X: Any, groups: Any, told: Mapping[str, Any] | None) -> tuple[Schema | None, dict[str, str]]:
    """Return a guess of what the columns of X mean, and the reason for each; None for numbers as they are.

    `told` says what is known of some: a kind, settings, or a Column. A column that `groups` names is no feature.
    """
    parts = [arrow_if_polars(part) for part in (X.values() if is_dict_of_sites(X) else [X])]
    if are_tables(X) and not any(len(part) for part in parts):
        raise ValueError("X has no rows: found 0 sample(s), and a minimum of 1 is required")
    if not are_tables(X):
        if told:
            raise TypeError("columns: X has no columns with names; pass a frame of pandas or polars, or an Arrow table")
        return None, {}
    found = guess_tables(parts, told, [groups] if isinstance(groups, str) else [])
    schema = found.schema
    return schema, {} if schema is None else found.reasons


def first_rows(
    model: FCAC, X: Any, groups: Any, schema: Any, columns: Mapping[str, Any] | None
) -> tuple[SiteRows, Schema | None, dict[str, str]]:
    """Return the rows with which a model begins, what their columns mean, and why where that is a guess."""
    known, reasons = None if schema is None else as_schema(schema), dict[str, str]()
    if columns is not None and (schema is not None or model.privacy is not None):
        why = "nothing is guessed beside a schema" if model.privacy is None else "under privacy nothing is guessed"
        raise ValueError(f"columns: {why}: describe all columns in the schema")
    if known is None and model.privacy is None:
        known, reasons = guessed(X, groups, columns)
    if known is not None:
        X, groups = encoded(X, groups, known)
    return SiteRows(X, groups, model, None, known), known, reasons


def next_rows(model: FCAC, X: Any, groups: Any) -> SiteRows:
    """Return more rows for a fitted model: tables are read by its columns and schema."""
    schema, names = model.schema_, getattr(model, "feature_names_in_", None)
    if schema is not None and are_tables(X):
        X, groups = encoded(X, groups, schema)
    elif schema is not None and not schema.allows_gaps:
        schema = None
    data = SiteRows(X, groups, model, None if names is None else list(names), schema)
    if model.schema_ is None:
        warn_of_names(model, data.feature_names)
    if data.n_features != model.n_features_in_:
        raise ValueError(
            f"X has {data.n_features} features, but FCAC is expecting {model.n_features_in_} features as input."
        )
    return data
