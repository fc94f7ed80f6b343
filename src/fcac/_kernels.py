"""How kernels are compiled and where the compiled code is kept.

Compiling takes a few seconds, once: the machine code is kept beside the module, or in the user's cache directory (or
in ``NUMBA_CACHE_DIR``). Where neither can be written, every process compiles for itself; nothing else changes.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator"

from __future__ import annotations

import contextlib
import hashlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

_OPTIONS = {"nogil": True, "error_model": "numpy"}

# One change in any of these files makes all compiled code stale: a kernel contains those it calls.
_SOURCES = ("_compile.py", "_llvm.py", "_vector.py", "_search.py", "_learning.py")

_announced = False


def inner(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a kernel that only kernels call: it needs no way in from Python and no place in the cache."""
    options = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    return njit(**options)(function) if function else njit(**options)


def entry(function: Callable[..., Any]) -> Any:
    """Compile a kernel that Python calls, at its first call, and keep the result for later processes."""
    kernel = njit(no_cfunc_wrapper=True, **_OPTIONS)(function)
    kept = None
    # "no locator available" is what Numba raises when no directory can be written
    with contextlib.suppress(RuntimeError, OSError):
        kernel.enable_caching()
        kept = kernel._cache
        kept._cache_file._source_stamp = _stamp()
    kernel._cache = _KernelCache(kept)
    return kernel


class _KernelCache:
    """Numba's cache of one kernel, where a full disk or a damaged file costs time but never breaks a call."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    @property
    def cache_path(self) -> str | None:
        return None if self._kept is None else str(self._kept.cache_path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._kept is not None:
            # a file cut off or written by something else can raise anything at all
            with contextlib.suppress(Exception):
                compiled = self._kept.load_overload(sig, target_context)
                if compiled is not None:
                    return compiled
        _announce()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept.save_overload(sig, data)

    def enable(self) -> None:
        if self._kept is not None:
            self._kept.enable()

    def disable(self) -> None:
        if self._kept is not None:
            self._kept.disable()

    def flush(self) -> None:
        if self._kept is not None:
            self._kept.flush()


def _stamp() -> bytes:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.digest()


def _announce() -> None:
    """Say once why the first call takes seconds: to whoever listens to the log, or else to a person at a terminal."""
    global _announced  # noqa: PLW0603 - once per process
    if _announced:
        return
    _announced = True
    text = "fcac: compiling its kernels, which takes a few seconds and happens only once"
    logger = logging.getLogger("fcac")
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr)
