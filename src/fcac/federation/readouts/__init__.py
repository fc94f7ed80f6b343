"""The servers there are: one file each, named like the server, with ``-`` written as ``_``.

A file of this folder that holds a subclass of :class:`~fcac.federation.readout.ReadOut` is a server: `FCAC`, the
commands, federations and the report find it by its file's name, and nothing else has to be told of it. Servers are
loaded when they are first asked for.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fcac.federation.readout import ReadOut

_registered: dict[str, type[ReadOut]] = {}


def names() -> list[str]:
    """Return the names of all servers, sorted."""
    return sorted({*(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)), *_registered})


def find(name: str) -> type[ReadOut]:
    """Return the read-out of a server's name; an unknown name is a ``ValueError`` that lists the known ones."""
    if name in _registered:
        return _registered[name]
    if name not in names():
        raise ValueError(f"server must be one of {', '.join(names())}; it is {name!r}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, ReadOut) and found.__module__ == module.__name__:
            return register(name, found)
    raise ValueError(f"{module.__name__} holds no ReadOut")


def register(name: str, readout: type[ReadOut]) -> type[ReadOut]:
    """Make a read-out of another package known by a name."""
    readout.name = name
    _registered[name] = readout
    return readout
