"""Value objects: compared and displayed by their settings, and safe to copy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np


class PlainObject:
    """Equality and repr from the attributes named in ``_fields``."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_short(getattr(self, name))}" for name in self._fields)
        return f"{type(self).__name__}({shown})"


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return bool(first == second)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{len(value)} features>" if value.ndim == 2 and len(value) > 3 else str(value.tolist())
    return repr(value)
