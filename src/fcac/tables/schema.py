"""The schema: one small file that gives a column the same meaning at all sites.

It says which columns are used, in which order, what they mean, what their public bounds are, how they are scaled and
how missing values are handled. It is TOML, meant to be read and edited by people::

    fcac_schema = 1
    bounds_are_public = true
    missing = "native"

    [columns]
    age = { min = 0, max = 120 }
    bmi = { min = 10, max = 60, missing = "drop" }
    ward = { kind = "category", categories = ["surgery", "medicine"] }
    admitted = { kind = "date", since = "2000-01-01" }

Every constant in it must be public knowledge: bounds taken from private records reveal information about them. Kinds of
columns are in :mod:`fcac.tables.kinds`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcac._text import listed
from fcac._typing import Floats
from fcac.exceptions import DataError, RequestError, SchemaError
from fcac.tables import kinds
from fcac.tables.column import COMMON, MISSING, SCALINGS, SETTINGS, Column, toml_key, toml_value
from fcac.tables.kind import Block, is_numeric, kind_in_words

__all__ = [
    "FORMAT",
    "MISSING",
    "SCALINGS",
    "Column",
    "Converted",
    "DataError",
    "RequestError",
    "Schema",
    "SchemaError",
    "column_line",
    "describe_problems",
    "is_numeric",
    "kind_in_words",
    "schema_in",
]

FORMAT = 1
ID_FORMS = ("folded", "exact")

_DEFAULTS = ("min", "max", "center", "spread", "fill", "scaling", "missing")
_TOP = ("fcac_schema", "bounds_are_public", "id_form", "columns", *_DEFAULTS)


class Converted(NamedTuple):
    """A batch converted to numbers; `kept` says which rows are in the block, None that all are.

    The others are counts of values by column: `missing` and `unknown` ones the schema does not allow; `gaps`, which it
    allows, are missing or mean nothing; `other` ones are levels that are not listed.
    """

    block: Floats
    kept: NDArray[np.bool_] | None
    missing: dict[str, int]
    unknown: dict[str, int]
    gaps: dict[str, int]
    other: dict[str, int]


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
        """Names of the columns that become features, in order."""
        return [field.name for field in self.used]

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that become features; ids and columns to ignore do not."""
        return tuple(field for field in self.fields if field.how.reads != "nothing")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Which features belong to which column, for the read-out."""
        return tuple(block for field in self.used if (block := field.block) is not None)

    @property
    def allows_gaps(self) -> bool:
        """Whether rows may have gaps."""
        return any(field.missing == "native" for field in self.used)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order; one per number, and several per category."""
        return [name for field in self.fields for name in field.feature_names]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.feature_names)

    def unscaled(self, rows: Floats) -> Floats:
        """Return features in the units of the table's columns; levels are shares between 0 and 1."""
        parts, at = [], 0
        for field in self.used:
            width = len(field.feature_names)
            parts.append(field.unscaled(rows[:, at : at + width]))
            at += width
        return np.concatenate(parts, axis=1)

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

    @property
    def value_bounds(self) -> Floats | None:
        """Where features can lie; as `bounds`, but without the room that a release gives to levels and dates."""
        if self._why_no_bounds():
            return None
        return np.array([pair for field in self.fields for pair in field.value_bounds or []])

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
        result = self.convert(as_batch(table))
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
        counts: dict[str, dict[str, int]] = {"missing": {}, "unknown": {}, "gaps": {}, "other": {}}
        at = 0
        for field in self.used:
            encoded = field.encode(batch.column(places[field.name]))
            width = len(encoded.features)
            features[at : at + width] = encoded.features
            gone = np.isnan(encoded.features).any(axis=0)
            at += width
            # what means nothing is a gap where gaps are allowed
            odd = 0 if field.missing in ("native", "drop") else encoded.unknown
            if odd:
                counts["unknown"][field.name] = odd
            if encoded.other:
                counts["other"][field.name] = encoded.other
            n_gone = int(gone.sum())
            if not n_gone:
                continue
            if field.missing == "drop":
                dropped |= gone
                counts["gaps"][field.name] = n_gone
            elif field.missing == "native":
                counts["gaps"][field.name] = n_gone
            elif n_gone > odd or not odd:
                counts["missing"][field.name] = n_gone - odd if n_gone > odd else n_gone
        kept = None if not dropped.any() else ~dropped
        block = features if kept is None else features[:, kept]
        return Converted(np.ascontiguousarray(block.T), kept, **counts)

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
        shared = {name: found[name] for name in _DEFAULTS if name in found}
        fields = []
        for name, own in columns.items():
            if not isinstance(own, dict):
                raise SchemaError(f"column {name!r}: write {toml_key(name)} = {{ }} with settings between the braces")
            strange = [key for key in own if key not in SETTINGS]
            if strange:
                raise SchemaError(f"column {name!r}: unknown field {listed(strange)}; known are {', '.join(SETTINGS)}")
            fields.append(Column(name, **{**_defaults_for(name, own, shared), **own}))
        public, id_form = found.get("bounds_are_public", False), found.get("id_form", "folded")
        return cls(fields, bounds_are_public=public, id_form=id_form)

    @classmethod
    def guess(cls, table: Any) -> Schema:
        """Guess what the columns of a table in memory mean; look at the result before it is used.

        Parameters
        ----------
        table : pandas or polars DataFrame, or Arrow table

        Examples
        --------
        >>> import pyarrow as pa
        >>> from fcac.tables import Schema
        >>> print(Schema.guess(pa.table({"age": [71, 38], "ward": ["x", "y"]})).to_toml())
        fcac_schema = 1
        bounds_are_public = false
        <BLANKLINE>
        [columns]
        age = { missing = "native" }
        ward = { kind = "category", missing = "native" }
        <BLANKLINE>
        """
        from fcac.tables.draft import guess_tables

        return cls([guess.column for guess in guess_tables([table]).guesses])

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
        ids = [] if self.id_form == "folded" else [f"id_form = {toml_value(self.id_form)}"]
        public = f"bounds_are_public = {toml_value(self.bounds_are_public)}"
        lines = [f"fcac_schema = {FORMAT}", public, *ids, "", "[columns]"]
        return "\n".join([*lines, *(column_line(field) for field in self.fields)]) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema file atomically."""
        from fcac.persistence import write_atomic

        write_atomic(path, self.to_toml().encode())


def schema_in(meta: dict[str, Any]) -> Schema | None:
    """Return the schema in the metadata of a stored model, if there is one.

    It is stored as the text of a schema file, since the order of columns matters and a JSON object has no order.
    """
    found = meta.get("schema")
    return None if found is None else Schema.from_toml(found)


def _defaults_for(name: str, own: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Defaults of the file that have a meaning for a column."""
    kind = own.get("kind", "category" if "categories" in own or "groups" in own else "number")
    if not isinstance(kind, str) or kind not in kinds.names():
        raise SchemaError(f"column {name!r}: kind must be one of {', '.join(kinds.names())}, not {kind!r}")
    uses = (*COMMON, *kinds.find(kind).keys)
    base = {key: value for key, value in shared.items() if key in uses}
    if kind == "date":
        base = {key: value for key, value in base.items() if key in ("scaling", "missing")}
    if kind != "number" and base.get("missing") == "fill":
        del base["missing"]
    if kind in ("number", "date"):
        return base
    # only its unit matters to other kinds, and constants of numbers mean nothing to them
    return {key: value for key, value in base.items() if key in ("scaling", "missing")}


def column_line(field: Column) -> str:
    """Return the line of a schema file that describes a column."""
    settings = ", ".join(f"{key} = {toml_value(value)}" for key, value in field.settings().items())
    return f"{toml_key(field.name)} = {{ {settings} }}" if settings else f"{toml_key(field.name)} = {{}}"


def describe_problems(missing: dict[str, int], unknown: dict[str, int], n_rows: int | None = None) -> str:
    """Describe problems with values in one line, by column and count, and say what to do."""
    of = "" if n_rows is None else f" of {n_rows:,} rows"
    parts = []
    if missing:
        counts = listed([f"{name} ({count:,})" for name, count in missing.items()])
        parts.append(
            f"missing or infinite values in column {counts}{of}: "
            'complete the data, or say in a schema what to do (missing = "native", "drop" or "fill"; '
            "see `fcac schema --help`)"
        )
    if unknown:
        counts = listed([f"{name} ({count:,})" for name, count in unknown.items()])
        parts.append(
            f"values that mean nothing in column {counts}{of}: add them to the schema, or let them be gaps there "
            '(missing = "native")'
        )
    return "; ".join(parts)


def as_batch(table: Any) -> Any:
    """Return a frame of pandas or polars, or an Arrow table, as one Arrow table or record batch."""
    import pyarrow as pa

    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        return pa.Table.from_arrays([_as_arrow(table.iloc[:, place]) for place in range(len(names))], names=names)
    if type(table).__module__.partition(".")[0] == "polars" and hasattr(table, "to_arrow"):
        table = table.to_arrow()
    if isinstance(table, pa.RecordBatch):
        return table
    if isinstance(table, pa.Table):
        return table.combine_chunks()
    raise TypeError(f"a table must be a pyarrow Table, a RecordBatch or a DataFrame, got {type(table).__name__}")


def _as_arrow(column: Any) -> Any:
    """A column of a pandas frame as an Arrow array; values of several types are read as text."""
    import pyarrow as pa

    try:
        array = pa.Array.from_pandas(column)
    except (pa.ArrowException, TypeError, ValueError):
        from fcac._rows import is_missing

        array = pa.array([None if is_missing(value) else str(value) for value in column], pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
