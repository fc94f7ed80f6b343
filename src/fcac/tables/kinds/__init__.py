"""The kinds of columns there are, each a class named like the kind in schema files.

Every subclass of :class:`~fcac.tables.kind.Kind` in a file of this folder is a kind: schemas find it by its name in
lower case, and nothing else has to be told of it.
"""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from fcac.exceptions import SchemaError
from fcac.tables.kind import Kind


@lru_cache(maxsize=1)
def _kinds() -> dict[str, Kind]:
    """Return one of each kind, by name, sorted."""
    found: dict[str, Kind] = {}
    for file in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, Kind) and one.__module__ == module.__name__:
                one.name = one.__name__.lower()
                found[one.name] = one()
    return dict(sorted(found.items()))


def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(_kinds())


def find(name: str) -> Kind:
    """Return the kind of a name; an unknown name is a `SchemaError` that lists the known ones."""
    if name not in _kinds():
        raise SchemaError(f"kind must be one of {', '.join(names())}, not {name!r}")
    return _kinds()[name]
