"""Names that are loaded on first use, and modules of 0.1.0 that can still be imported under their old names."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Public modules of 0.1.0 and where their names are now; a name is taken from the first of these modules that has it.
_OLD_MODULES = {
    "fcac.baselines": ("fcac.paper.rivals",),
    "fcac.clusterers": ("fcac.art.clusterers", "fcac.exceptions"),
    "fcac.data": ("fcac.tables",),
    "fcac.demo": ("fcac.model.demo",),
    "fcac.estimator": ("fcac.model",),
    "fcac.experiments": ("fcac.paper",),
    "fcac.models": ("fcac.model.models",),
    "fcac.network": ("fcac.art.network", "fcac._typing"),
    "fcac.partition": ("fcac.tables.partition", "fcac.paper.splits"),
    "fcac.readout": ("fcac.clusters", "fcac.model", "fcac.codebook"),
    "fcac.schema": ("fcac.tables.schema", "fcac.exceptions"),
    "fcac.storage": ("fcac.persistence",),
}


def attach(
    package: str, names: Sequence[str], homes: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package whose names are loaded on first use.

    Parameters
    ----------
    package : str
    names : sequence of str
        Public names; those that are not in `homes` are submodules.
    homes : mapping of name to module
        The module that defines each name that is not a submodule.
    moved : mapping of name to module, optional
        Names that used to be public here and where they are now; they still work, with a warning, but are not listed.
    """
    listed = sorted(names)
    gone = moved or {}

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name in gone:
            warnings.warn(f"{package}.{name} has moved to {gone[name]}", DeprecationWarning, stacklevel=2)
            return getattr(importlib.import_module(gone[name]), name)
        if name in listed or f"{package}.{name}" in _OLD_MODULES:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_shown() -> list[str]:
        return listed

    return load, names_shown


def keep_old_modules_working() -> None:
    """Make the modules of 0.1.0 importable: their names are taken from the new modules, with one warning each."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldModules())  # before a folder that an older installation has left behind


class _OldModules(MetaPathFinder, Loader):
    """Finds modules that have moved; consulted only after the usual finders have found nothing."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name in _OLD_MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        homes = _OLD_MODULES[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved: import from {' or '.join(homes)} instead",
            DeprecationWarning,
            stacklevel=2,  # importlib's own frames do not count
        )

        def find(name: str) -> Any:
            for home in homes:
                loaded = importlib.import_module(home)
                if hasattr(loaded, name):
                    return getattr(loaded, name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = find  # type: ignore[method-assign]
