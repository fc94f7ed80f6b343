"""Leaves an optional package out of a process, as if it were not installed."""

from __future__ import annotations

import sys


def leave_out(package: str) -> None:
    """Make every later import of a package fail with ModuleNotFoundError, unless it is loaded already.

    A None in ``sys.modules`` would not do: compiled modules take it for the package itself, as pyarrow does with pandas
    when it builds an array of texts.
    """

    class Without:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == package:
                raise ModuleNotFoundError(f"this process does without {package}", name=package)

    if package not in sys.modules:
        sys.meta_path.insert(0, Without)
