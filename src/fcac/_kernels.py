"""The two decorators that compile every kernel of the package, and the cache for the compiled code.

`kernel`
    For functions that Python calls. They are compiled at their first call, and the machine code is kept for later
    processes: in ``NUMBA_CACHE_DIR`` if it is set, otherwise beside the module, otherwise in the user's cache
    directory. If none of these is writable, every process compiles in memory, and a warning in the log says so once.
`inner_kernel`
    For functions that only kernels call. Their machine code becomes part of their callers' and is not cached
    separately.

Numba considers compiled code stale when the kernel's own file has changed. That is not enough, because a kernel
contains the code of the kernels it calls. Here, a change in any file with kernels makes all compiled code of the
package stale.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, overload

from numba import njit
from numba.core.caching import FunctionCache

# Numba's own defaults except for `nogil`, but stated explicitly: a kernel without options of its own would take on the
# arithmetic of whichever caller is compiled first.
_OPTIONS = {"nogil": True, "error_model": "python", "fastmath": False}

# What a file imports if it contains kernels or generates the LLVM code for them.
_TOOLS = (b"_kernels", b"numba", b"llvmlite")
_IMPORTS_A_TOOL = re.compile(rb"^[ \t]*(?:from|import)[ \t].*\b(?:" + b"|".join(_TOOLS) + rb")\b", re.MULTILINE)

_COMPILING = "fcac: compiling its kernels; this takes a few seconds and happens only once"
_NOT_KEPT = (
    "fcac: compiled kernels cannot be cached because no cache directory is writable, so every process compiles "
    "them again, which takes a few seconds; to avoid this, set NUMBA_CACHE_DIR to a writable directory"
)

_announced: set[str] = set()


@overload
def kernel(function: Callable[..., Any]) -> Any: ...
@overload
def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]: ...
def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that Python calls, and cache the machine code; options are those of `numba.njit`.

    >>> @kernel
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> total((1.0, 2.0, 3.5))
    6.5
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    compiled = njit(**{**_OPTIONS, "no_cfunc_wrapper": True, **options})(function)
    # with NUMBA_DISABLE_JIT the decorator returns the plain function
    if hasattr(compiled, "enable_caching"):
        compiled._cache = _KernelCache(function)
    return compiled


@overload
def inner_kernel(function: Callable[..., Any]) -> Any: ...
@overload
def inner_kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]: ...
def inner_kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function that only kernels call; it cannot be called from Python. Options as for `kernel`."""
    if function is None:
        return lambda decorated: inner_kernel(decorated, **options)
    return njit(**{**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options})(function)


class _KernelCache:
    """Numba's cache for one kernel; a full disk or a damaged file costs time but never makes a call fail."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _kept(self) -> Any:
        """Numba's cache, or None if there is nowhere to keep it; looked up at the first call to keep imports fast."""
        if _STAMP is None:
            return None
        # "no locator available" is the RuntimeError that Numba raises when no directory is writable
        with contextlib.suppress(RuntimeError, OSError):
            kept = FunctionCache(self._function)
            kept._cache_file._source_stamp = (kept._cache_file._source_stamp, _STAMP)
            return kept
        return None

    @property
    def cache_path(self) -> str | None:
        return None if self._kept is None else str(self._kept.cache_path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._kept is None:
            _announce(_NOT_KEPT, logging.WARNING)
            return None
        try:
            compiled = self._kept.load_overload(sig, target_context)
        except Exception:
            compiled = None
            # otherwise the damaged file would make `save_overload` fail too
            with contextlib.suppress(OSError):
                self._kept.flush()
        if compiled is None:
            _announce(_COMPILING, logging.INFO)
        return compiled

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._kept is not None:
            try:
                self._kept.save_overload(sig, data)
            except OSError:
                _announce(_NOT_KEPT, logging.WARNING)

    def enable(self) -> None:
        if self._kept is not None:
            self._kept.enable()

    def disable(self) -> None:
        if self._kept is not None:
            self._kept.disable()

    def flush(self) -> None:
        if self._kept is not None:
            self._kept.flush()


def _kernel_sources(folder: str) -> dict[str, bytes]:
    """Return the source files below a folder that contain kernels or parts of them, sorted by relative path."""
    sources = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                with open(path, "rb", buffering=0) as file:
                    source = file.read()
                if any(tool in source for tool in _TOOLS) and _IMPORTS_A_TOOL.search(source):
                    sources[os.path.relpath(path, folder).replace(os.sep, "/")] = source
    return dict(sorted(sources.items()))


def _stamp(folder: str) -> bytes | None:
    """Return a digest of all sources with kernels below a folder, or None if they are not readable files."""
    try:
        sources = _kernel_sources(folder)
    except OSError:
        return None
    digest = hashlib.sha256()
    for path, source in sources.items():
        digest.update(f"{path}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.digest() if sources else None


def _announce(text: str, level: int) -> None:
    """Say once why a call takes seconds: in the log if someone reads it, otherwise at the terminal."""
    if text in _announced:
        return
    _announced.add(text)
    logger = logging.getLogger("fcac")
    # a warning reaches standard error even if logging is not configured
    if level >= logging.WARNING or (logger.isEnabledFor(level) and logger.hasHandlers()):
        logger.log(level, text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)


# Computed when the package is imported, not when a kernel is first called: the sources may have changed by then.
_STAMP = _stamp(os.path.dirname(os.path.abspath(__file__)))
