"""The kinds of columns there are: one file each, named like the kind in schema files.

A file of this folder that holds a subclass of :class:`~fcac.tables.kind.Kind` is a kind: schemas find it by its file's
name, and nothing else has to be told of it.
"""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

from fcac.exceptions import SchemaError
from fcac.tables.kind import Kind


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@lru_cache
def find(name: str) -> Kind:
    """Return the kind of a name; an unknown name is a `SchemaError` that lists the known ones."""
    if name not in names():
        raise SchemaError(f"kind must be one of {', '.join(names())}, not {name!r}")
    module = import_module(f"{__name__}.{name}")
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, Kind) and found.__module__ == module.__name__:
            found.name = name
            return found()
    raise SchemaError(f"{module.__name__} holds no Kind")
