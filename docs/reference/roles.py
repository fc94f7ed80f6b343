"""Docstrings use Sphinx roles (``:class:`Server```); the site shows their text as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")


class PlainRoles(griffe.Extension):
    """Replace roles by plain code before the docstrings are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
