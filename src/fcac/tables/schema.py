"""The schema: one small file that gives a column the same meaning at all sites.

It says which columns are used, in which order, what their public bounds are, how they are scaled and how missing
values are handled. It is TOML, meant to be read and edited by people::

    fcac_schema = 1
    bounds_are_public = true
    scaling = "range"

    [columns]
    age = { min = 0, max = 120 }
    bmi = { min = 10, max = 60, missing = "drop" }
    ward = { categories = ["surgery", "medicine"] }

Every constant in it must be public knowledge: bounds taken from private records reveal information about them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._text import listed
from fcac._typing import Floats
from fcac.exceptions import DataError, RequestError, SchemaError

FORMAT = 1
SCALINGS = ("none", "range", "standard")
MISSING = ("error", "drop", "fill")
ID_FORMS = ("folded", "exact")

_NUMBERS = ("min", "max", "center", "spread", "fill")
_SETTINGS = (*_NUMBERS, "scaling", "missing", "categories")
_TOP = ("fcac_schema", "bounds_are_public", "id_form", "columns", *(name for name in _SETTINGS if name != "categories"))


@dataclass(frozen=True)
class Column:
    """What is publicly known about one column.

    Parameters
    ----------
    name : str
    min, max : float, optional
        Public bounds, in the units of the table.
    scaling : {"none", "range", "standard"}
        ``range`` maps min..max to 0..1, ``standard`` is (x - center) / spread.
    center, spread : float, optional
        Public constants of standard scaling.
    missing : {"error", "drop", "fill"}
    fill : float, optional
        Public constant that replaces missing values, in the units of the table.
    categories : tuple of str, optional
        Public values of a text column; each becomes a feature that is 0 or 1.
    """

    name: str
    min: float | None = None
    max: float | None = None
    scaling: str = "none"
    center: float | None = None
    spread: float | None = None
    missing: str = "error"
    fill: float | None = None
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        where = f"column {self.name!r}"
        if not isinstance(self.name, str):
            raise SchemaError(f"the name of a column must be text, got {self.name!r}")
        for key in _NUMBERS:
            value = getattr(self, key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
                raise SchemaError(f"{where}: {key} must be a finite number")
            object.__setattr__(self, key, float(value))
        if self.scaling not in SCALINGS:
            raise SchemaError(f"{where}: scaling must be one of {', '.join(SCALINGS)}, not {self.scaling!r}")
        if self.missing not in MISSING:
            raise SchemaError(f"{where}: missing must be one of {', '.join(MISSING)}, not {self.missing!r}")
        if self.categories is not None:
            self._check_categories(where)
            return
        if self.min is not None and self.max is not None and not self.min < self.max:
            raise SchemaError(f"{where}: min must be below max")
        if self.scaling == "range" and (self.min is None or self.max is None):
            raise SchemaError(f'{where}: scaling = "range" needs min and max')
        if self.scaling == "standard" and (self.center is None or self.spread is None or self.spread <= 0):
            raise SchemaError(f'{where}: scaling = "standard" needs the public constants center and spread (above 0)')
        if self.missing == "fill" and self.fill is None:
            raise SchemaError(f'{where}: missing = "fill" needs fill, the public constant to use instead')

    def _check_categories(self, where: str) -> None:
        names = self.categories
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise SchemaError(f'{where}: categories must be a list of texts, as in categories = ["a", "b"]')
        if len(set(names)) != len(names):
            raise SchemaError(f"{where}: a category is listed twice")
        if self.missing == "fill":
            raise SchemaError(f'{where}: missing = "fill" is for numbers; use "error" or "drop" with categories')
        object.__setattr__(self, "categories", tuple(names))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features this column becomes."""
        return [self.name] if self.categories is None else [f"{self.name}={value}" for value in self.categories]

    @property
    def bounds(self) -> list[tuple[float, float]] | None:
        """Bounds of the features this column becomes, after scaling; None if unknown."""
        if self.categories is not None:
            return [(0.0, 1.0)] * len(self.categories)
        if self.min is None or self.max is None:
            return None
        low, high = self.scaled(np.array([self.min, self.max]))
        return [(float(low), float(high))]

    def scaled(self, values: Floats) -> Floats:
        """Return values in the units used for clustering."""
        if self.scaling == "range":
            assert self.min is not None
            assert self.max is not None
            return (values - self.min) / (self.max - self.min)
        if self.scaling == "standard":
            assert self.center is not None
            assert self.spread is not None
            return (values - self.center) / self.spread
        return values

    def unscaled(self, values: Floats) -> Floats:
        """Return values in the units of the table: the inverse of :meth:`scaled`."""
        if self.scaling == "range":
            assert self.min is not None
            assert self.max is not None
            return self.min + values * (self.max - self.min)
        if self.scaling == "standard":
            assert self.center is not None
            assert self.spread is not None
            return self.center + values * self.spread
        return values

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as plain values."""
        plain = Column(self.name) if self.categories is None else None
        found: dict[str, Any] = {}
        for key in _SETTINGS:
            value = getattr(self, key)
            if value != (getattr(plain, key) if plain else {"scaling": "none", "missing": "error"}.get(key)):
                found[key] = list(value) if isinstance(value, tuple) else value
        return found


class Converted(NamedTuple):
    """A batch converted to numbers.

    Attributes
    ----------
    block : ndarray of shape (kept rows, features)
    kept : ndarray of bool, or None
        Which rows of the batch are in the block; None means all.
    missing : dict of str to int
        Number of missing or infinite values per column that the schema does not allow.
    unknown : dict of str to int
        Number of values per column that are not among its categories.
    """

    block: Floats
    kept: NDArray[np.bool_] | None
    missing: dict[str, int]
    unknown: dict[str, int]


class Schema:
    """An ordered list of columns, with public constants.

    Parameters
    ----------
    columns : sequence of Column or str
        A name alone means that the column is used as it is and missing values are an error.
    bounds_are_public : bool
        Whether somebody has confirmed that the bounds are public knowledge. Only then can a private release use them.
    id_form : {"folded", "exact"}
        How record ids (people) are compared: "folded" ignores case, spaces and Unicode variants and takes 7, 7.0 and
        007 for one person; "exact" compares them as they are written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from fcac.tables.schema import Column, Schema
    >>> schema = Schema([Column("age", min=0, max=100, scaling="range"), "bmi"])
    >>> schema.apply(pa.table({"bmi": [20.0, 30.0], "age": [50, 25], "name": ["x", "y"]})).tolist()
    [[0.5, 20.0], [0.25, 30.0]]
    """

    def __init__(
        self, columns: Sequence[Column | str], *, bounds_are_public: bool = False, id_form: str = "folded"
    ) -> None:
        self.fields = tuple(Column(item) if isinstance(item, str) else item for item in columns)
        self.bounds_are_public = bounds_are_public
        self.id_form = id_form
        if id_form not in ID_FORMS:
            raise SchemaError(f"id_form must be one of {', '.join(ID_FORMS)}, not {id_form!r}")
        if not self.fields:
            raise SchemaError("a schema needs at least one column under [columns]")
        if not isinstance(bounds_are_public, bool):
            raise SchemaError("bounds_are_public must be true or false")
        names = self.feature_names
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise SchemaError(f"{', '.join(map(repr, twice))} appears twice in the schema")

    # ------------------------------------------------------------ what it says

    @property
    def columns(self) -> list[str]:
        """Names of the columns used, in order."""
        return [field.name for field in self.fields]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order; one per column, or one per category of a text column."""
        return [name for field in self.fields for name in field.feature_names]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.feature_names)

    def unscaled(self, rows: Floats) -> Floats:
        """Return features in the units of the table's columns; categories stay shares between 0 and 1."""
        fields = [field for field in self.fields for _ in field.feature_names]
        parts = [
            rows[:, j] if field.categories is not None else field.unscaled(rows[:, j]) for j, field in enumerate(fields)
        ]
        return np.column_stack(parts)

    @property
    def bounds(self) -> Floats | None:
        """Public (low, high) of every feature after scaling, or None if not all are known and confirmed as public."""
        return None if self._why_no_bounds() else self._all_bounds()

    def require_bounds(self) -> Floats:
        """Return the public bounds, or raise an error that says which are missing and what to do."""
        why = self._why_no_bounds()
        if why:
            raise SchemaError(why)
        return self._all_bounds()

    def _all_bounds(self) -> Floats:
        return np.array([pair for field in self.fields for pair in field.bounds or []])

    def _why_no_bounds(self) -> str:
        lacking = [field.name for field in self.fields if field.bounds is None]
        if lacking:
            return f"the schema has no bounds for {listed(lacking)}: give min and max, from public knowledge"
        if not self.bounds_are_public:
            return (
                "the schema says bounds_are_public = false: check that every min and max is public knowledge "
                "(not taken from the records), then write bounds_are_public = true"
            )
        return ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        mine, theirs = ((schema.fields, schema.bounds_are_public, schema.id_form) for schema in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __repr__(self) -> str:
        return f"Schema({len(self.fields)} columns, {self.n_features} features)"

    # ------------------------------------------------------------ rows

    def apply(self, table: Any) -> Floats:
        """Convert a table to a block of numbers: columns in order, scaled, with missing values handled.

        Parameters
        ----------
        table : pyarrow Table or RecordBatch, or pandas DataFrame

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        DataError
            If a column does not exist, is not numeric, or has missing values that the schema does not allow.
        """
        result = self.convert(_as_batch(table))
        if result.missing or result.unknown:
            raise DataError(describe_problems(result.missing, result.unknown))
        return result.block

    def convert(self, batch: Any) -> Converted:
        """Convert a batch to numbers, counting what is wrong instead of raising an error."""
        places = {name: place for place, name in enumerate(batch.schema.names)}
        lacking = [name for name in self.columns if name not in places]
        if lacking:
            raise RequestError(f"no column {listed(lacking)}, which the schema needs")
        n = batch.num_rows
        # filled feature by feature and transposed at the end: a wide table is transposed once, not cell by cell
        features = np.empty((self.n_features, n))
        dropped = np.zeros(n, bool)
        missing: dict[str, int] = {}
        unknown: dict[str, int] = {}
        at = 0
        for field in self.fields:
            column = batch.column(places[field.name])
            if field.categories is None:
                values = features[at] = _numbers(column, field.name)
                gone = ~np.isfinite(values)
                at += 1
            else:
                codes = _codes(column, field)
                gone = codes == -1
                odd = int((codes == -2).sum())
                if odd:
                    unknown[field.name] = odd
                for code in range(len(field.categories)):
                    features[at] = codes == code
                    at += 1
            n_gone = int(gone.sum())
            if n_gone and field.missing == "drop":
                dropped |= gone
            elif n_gone and field.missing == "fill":
                features[at - 1, gone] = field.fill
            elif n_gone:
                missing[field.name] = n_gone
            if field.scaling != "none" and field.categories is None:
                features[at - 1] = field.scaled(features[at - 1])
        if not dropped.any():
            return Converted(np.ascontiguousarray(features.T), None, missing, unknown)
        return Converted(np.ascontiguousarray(features[:, ~dropped].T), ~dropped, missing, unknown)

    # ------------------------------------------------------------ file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema file.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            With the file, the field and the fix.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RequestError(f"there is no schema at {os.fspath(path)}: `fcac schema DATA` writes one") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(path)} cannot be read as text ({type(error).__name__})") from None
        try:
            return cls.from_toml(text)
        except SchemaError as error:
            raise SchemaError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read a schema from TOML text."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"not valid TOML: {error}") from None
        return cls.from_dict(found)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Schema:
        """Read a schema from plain values, as returned by TOML and JSON parsers."""
        if found.get("fcac_schema") != FORMAT:
            raise SchemaError(f"a schema file starts with fcac_schema = {FORMAT}; `fcac schema DATA` writes one")
        strange = [name for name in found if name not in _TOP]
        if strange:
            raise SchemaError(f"unknown field {listed(strange)}; known are {', '.join(_TOP)}")
        columns = found.get("columns")
        if not isinstance(columns, dict) or not columns:
            raise SchemaError("a schema needs at least one column under [columns]")
        shared = {name: found[name] for name in _SETTINGS if name in found}
        fields = []
        for name, own in columns.items():
            if not isinstance(own, dict):
                raise SchemaError(f"column {name!r}: write {_key(name)} = {{ }} with its settings between the braces")
            strange = [key for key in own if key not in _SETTINGS]
            if strange:
                raise SchemaError(f"column {name!r}: unknown field {listed(strange)}; known are {', '.join(_SETTINGS)}")
            # defaults that are numbers have no meaning for a column of categories
            base = shared if "categories" not in own else {k: v for k, v in shared.items() if v == "drop"}
            fields.append(Column(name, **{**base, **own}))
        public, id_form = found.get("bounds_are_public", False), found.get("id_form", "folded")
        return cls(fields, bounds_are_public=public, id_form=id_form)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values; :meth:`from_dict` reads them."""
        return {
            "fcac_schema": FORMAT,
            "bounds_are_public": self.bounds_are_public,
            **({} if self.id_form == "folded" else {"id_form": self.id_form}),
            "columns": {field.name: field.settings() for field in self.fields},
        }

    def to_toml(self) -> str:
        """Return the text of the schema file."""
        ids = [] if self.id_form == "folded" else [f"id_form = {_value(self.id_form)}"]
        public = f"bounds_are_public = {_value(self.bounds_are_public)}"
        lines = [f"fcac_schema = {FORMAT}", public, *ids, "", "[columns]"]
        return "\n".join([*lines, *(column_line(field) for field in self.fields)]) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema file atomically."""
        from fcac.persistence import write_atomic

        write_atomic(path, self.to_toml().encode())


def schema_in(meta: dict[str, Any]) -> Schema | None:
    """Return the schema in the metadata of a stored model, if there is one.

    It is stored as the text of a schema file, since the order of columns matters and a JSON object has no order. Older
    files contain an object; the model's own feature names restore the order of their columns.
    """
    found = meta.get("schema")
    if found is None:
        return None
    if isinstance(found, str):
        return Schema.from_toml(found)
    schema = Schema.from_dict(found)
    place = {name: number for number, name in enumerate(meta.get("feature_names") or schema.feature_names)}
    if set(schema.feature_names) != set(place):
        raise SchemaError("the schema in this file does not match the names of its features")
    fields = sorted(schema.fields, key=lambda field: place[field.feature_names[0]])
    return Schema(fields, bounds_are_public=schema.bounds_are_public, id_form=schema.id_form)


def column_line(field: Column) -> str:
    """Return the line of a schema file that describes a column."""
    settings = ", ".join(f"{key} = {_value(value)}" for key, value in field.settings().items())
    return f"{_key(field.name)} = {{ {settings} }}" if settings else f"{_key(field.name)} = {{}}"


def describe_problems(missing: dict[str, int], unknown: dict[str, int], n_rows: int | None = None) -> str:
    """Describe problems with values in one line, by column and count, and say what to do."""
    of = "" if n_rows is None else f" of {n_rows:,} rows"
    parts = []
    if missing:
        counts = listed([f"{name} ({count:,})" for name, count in missing.items()])
        parts.append(
            f"missing or infinite values in column {counts}{of}: "
            'complete the data, or say in a schema what to do (missing = "drop" or "fill"; see `fcac schema --help`)'
        )
    if unknown:
        counts = listed([f"{name} ({count:,})" for name, count in unknown.items()])
        parts.append(f"values that are not among the categories of column {counts}{of}: add them to the schema")
    return "; ".join(parts)


def _as_batch(table: Any) -> Any:
    import pyarrow as pa

    if hasattr(table, "iloc") and hasattr(table, "columns"):
        table = pa.Table.from_pandas(table, preserve_index=False)
    if isinstance(table, pa.RecordBatch):
        return table
    if isinstance(table, pa.Table):
        return table.combine_chunks()
    raise TypeError(f"a table must be a pyarrow Table, a RecordBatch or a DataFrame, got {type(table).__name__}")


def is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type can be read as numbers."""
    import pyarrow as pa

    is_type = pa.types
    return bool(
        is_type.is_integer(kind)
        or is_type.is_floating(kind)
        or is_type.is_boolean(kind)
        or is_type.is_decimal(kind)
        or is_type.is_null(kind)
    )


def _numbers(column: Any, name: str) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_numeric(column.type):
        raise DataError(f"column {name!r} has {kind_in_words(column.type)}, but numbers are needed")
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    if not pa.types.is_float64(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    # a missing value becomes NaN
    return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy())


def _codes(column: Any, field: Column) -> NDArray[np.int64]:
    """Return the position of every value among the categories; -1 if missing, -2 if not among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        raise DataError(f"column {field.name!r} has {kind_in_words(column.type)}, but its categories are text")
    text = pc.cast(column, pa.string())
    assert field.categories is not None
    found = pc.index_in(text, value_set=pa.array(field.categories))
    codes = np.asarray(pc.fill_null(found, -2).to_numpy(zero_copy_only=False)).astype(np.int64)
    codes[np.asarray(text.is_null().to_numpy(zero_copy_only=False))] = -1
    return codes


def kind_in_words(kind: Any) -> str:
    """Return a readable name for an Arrow type."""
    import pyarrow as pa

    is_type = pa.types
    if is_type.is_string(kind) or is_type.is_large_string(kind) or is_type.is_string_view(kind):
        return "text"
    if is_type.is_dictionary(kind):
        return "categories"
    if is_type.is_temporal(kind):
        return "dates or times"
    return f"values of type {kind}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """Write a plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
