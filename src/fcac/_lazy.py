"""Public names that are loaded on first use, so that importing a package is cheap."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(
    package: str, names: Sequence[str], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; `homes` says which module a name is from.

    Names that have no home are submodules.
    """
    listed = sorted(names)

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name in listed:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_shown() -> list[str]:
        return listed

    return load, names_shown
