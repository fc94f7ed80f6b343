"""One column of a schema: its settings, and their checks."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fcac._text import listed
from fcac._typing import Floats
from fcac.exceptions import SchemaError
from fcac.tables import kinds
from fcac.tables.kind import Block, Encoded, Kind

SCALINGS = ("none", "range", "standard", "log")
MISSING = ("native", "error", "drop", "fill")

_NUMBERS = ("min", "max", "center", "spread", "fill")
_LISTS = ("categories", "order", "parts", "yes", "no")
_TEXTS = ("since", "format", "encoder", "unit")
_WHOLE = ("prefix", "features")
#: Settings in the order in which they are written to a file.
SETTINGS = (
    *("kind", *_NUMBERS, "scaling", "missing", "categories", "clip", "order", "prefix", "groups"),
    *("features", "since", "parts", "format", "yes", "no", "encoder", "weight", "unit"),
)
#: Settings that every kind has.
COMMON = ("kind", "missing", "weight")


@dataclass(frozen=True)
class Column:
    """What is publicly known about one column.

    Which settings a column takes depends on its kind; see docs/guide/schema.md.

    Parameters
    ----------
    name : str
    min, max : float, optional
        Public bounds, in the units of the table; days for dates.
    scaling : {"none", "range", "standard", "log"}
        ``range`` maps min..max to 0..1, ``standard`` is (x - center) / spread, ``log`` the logarithm.
    center, spread : float, optional
        Public constants of standard scaling.
    missing : {"error", "native", "drop", "fill"}
        ``native`` leaves gaps: the row is compared over what it has.
    fill : float, optional
        Public constant that replaces missing values, in the units of the table.
    categories : sequence of str, optional
        Public levels of a category; each becomes a feature.
    kind : str, optional
        A name of :mod:`fcac.tables.kinds`. By default a column with categories is a category, and others are numbers.
    weight : float, default=1
        How much the column counts beside others, in squared distances.
    clip : bool, default=False
        Move numbers beyond min and max to them.
    order : sequence of str, optional
        Levels of an ordinal column, lowest first.
    prefix : int, optional
        Characters of a level that count.
    groups : dict of str to sequence of str, optional
        Levels of a category as groups of prefixes.
    features : int, optional
        Features of a category without a list of levels.
    since : str, optional
        The public day from which the days of a date are counted.
    parts : sequence of str, optional
        Parts of a date: month, weekday, hour.
    format : str, optional
        How dates are written, as in ``%d.%m.%Y``; ISO 8601 by default.
    yes, no : sequence of str, optional
        Words of a boolean column.
    encoder : str, optional
        Encoder of a text column.
    unit : str, optional
        Unit of a number, such as mmol/l; written behind values in reports, and used for nothing else.
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
    kind: str | None = None
    weight: float = 1.0
    clip: bool = False
    order: tuple[str, ...] | None = None
    prefix: int | None = None
    groups: dict[str, tuple[str, ...]] | None = None
    features: int | None = None
    since: str | None = None
    parts: tuple[str, ...] | None = None
    format: str | None = None
    yes: tuple[str, ...] | None = None
    no: tuple[str, ...] | None = None
    encoder: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SchemaError(f"the name of a column must be text, got {self.name!r}")
        where = f"column {self.name!r}"
        if self.kind is None:
            listed_levels = self.categories is not None or self.groups is not None
            object.__setattr__(self, "kind", "category" if listed_levels else "number")  # frozen for users
        if not isinstance(self.kind, str) or self.kind not in kinds.names():
            raise SchemaError(f"{where}: kind must be one of {', '.join(kinds.names())}, not {self.kind!r}")
        how = self.how
        if self.scaling not in SCALINGS:
            raise SchemaError(f"{where}: scaling must be one of {', '.join(SCALINGS)}, not {self.scaling!r}")
        if self.missing not in MISSING:
            raise SchemaError(f"{where}: missing must be one of {', '.join(MISSING)}, not {self.missing!r}")
        self._check_types(where)
        given = [key for key in self.settings() if key not in (*COMMON, *how.keys)]
        if given:
            uses = f"; it uses {', '.join(how.keys)}" if how.keys else ""
            raise SchemaError(f'{where}: a column of kind = "{self.kind}" does not take {listed(given)}{uses}')
        how.check(self)

    def _check_types(self, where: str) -> None:
        set_field = object.__setattr__  # frozen for users, normalised once here
        for key in _NUMBERS:
            value = getattr(self, key)
            if value is None:
                continue
            if self.how.name == "date" and key != "spread" and not isinstance(value, int | float):
                from fcac.tables.kinds.date import days

                first = 0.0 if self.since is None else days(self, "since", self.since)
                value = days(self, key, value) - first
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                raise SchemaError(f"{where}: {key} must be a finite number")
            set_field(self, key, float(value))
        weight = self.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not _is_finite(weight) or weight <= 0:
            raise SchemaError(f"{where}: weight must be a number above 0")
        set_field(self, "weight", float(weight))
        if not isinstance(self.clip, bool):
            raise SchemaError(f"{where}: clip must be true or false")
        for key in _LISTS:
            value = getattr(self, key)
            if value is not None:
                set_field(self, key, _texts(where, key, value))
        for key in _TEXTS:
            value = getattr(self, key)
            if value is not None and key == "since" and hasattr(value, "isoformat"):
                value = value.isoformat()[:10]
                set_field(self, key, value)
            if value is not None and not isinstance(value, str):
                raise SchemaError(f"{where}: {key} must be text")
        for key in _WHOLE:
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise SchemaError(f"{where}: {key} must be a whole number of at least 1")
        if self.groups is not None:
            if not isinstance(self.groups, dict) or not self.groups or not all(isinstance(k, str) for k in self.groups):
                raise SchemaError(f'{where}: groups must name prefixes, as in groups = {{ heart = ["I0", "I1"] }}')
            set_field(self, "groups", {name: _texts(where, name, some) for name, some in self.groups.items()})

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def how(self) -> Kind:
        """What the column does, by its kind."""
        assert self.kind is not None
        return kinds.find(self.kind)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features this column becomes."""
        return self.how.feature_names(self)

    @property
    def bounds(self) -> list[tuple[float, float]] | None:
        """Bounds of the features for a private release, after scaling; None if unknown.

        See :data:`fcac.tables.kind.ROOM`.
        """
        found = self.value_bounds
        more = (self.how.room - 1.0) / 2.0
        if found is None or more == 0.0:
            return found
        return [(low - more * (high - low), high + more * (high - low)) for low, high in found]

    @property
    def value_bounds(self) -> list[tuple[float, float]] | None:
        """Where the features can lie, after scaling; a private release takes some of them to be wider (`bounds`)."""
        found, root = self.how.bounds(self), math.sqrt(self.weight)
        return found if found is None or root == 1.0 else [(low * root, high * root) for low, high in found]

    @property
    def block(self) -> Block | None:
        """How the read-out compares the features; None if there are none."""
        width = len(self.feature_names)
        kind = self.how.block_of(self)
        kind = "numbers" if kind == "number" and width > 1 else kind
        return Block(width, kind, self.weight) if width else None

    def encode(self, values: Any) -> Encoded:
        """Turn the values of an Arrow array into features; missing ones are NaN."""
        found = self.how.encode(self, values)
        root = math.sqrt(self.weight)
        return found if root == 1.0 else found._replace(features=found.features * root)

    def scaled(self, values: Floats) -> Floats:
        """Return numbers in the units used for clustering."""
        from fcac.tables.kinds.number import scaled

        return scaled(self, values) * math.sqrt(self.weight) if self.weight != 1.0 else scaled(self, values)

    def unscaled(self, values: Floats) -> Floats:
        """Return features in the units of the table: the inverse of :meth:`scaled`."""
        return self.how.decode(self, values / math.sqrt(self.weight) if self.weight != 1.0 else values)

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as plain values."""
        found: dict[str, Any] = {}
        for key in SETTINGS:
            value = getattr(self, key)
            if value != _DEFAULTS[key]:
                found[key] = _plain(value)
        return found


_DEFAULTS = {field.name: field.default for field in fields(Column) if field.name != "name"} | {"kind": "number"}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: list(some) for name, some in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _is_finite(value: float) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:
        return False


def _texts(where: str, key: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise SchemaError(f'{where}: {key} must be a list of texts, as in {key} = ["a", "b"]')
    if len(set(given)) != len(given):
        what = "a category is" if key == "categories" else f"a text of {key} is"
        raise SchemaError(f"{where}: {what} listed twice")
    return tuple(given)


def toml_key(name: str) -> str:
    """Return a key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a plain value: text, number, true or false, a list, or a table in one line.

    >>> toml_value({"heart": ["I0", "I1"], "n": 2.0})
    '{ heart = ["I0", "I1"], n = 2 }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(item)}' for key, item in value.items())} }}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
