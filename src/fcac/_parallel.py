"""How many cores there are, and how work is divided among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController  # comes with scikit-learn

_ROWS_PER_THREAD = 4096

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_cores() -> int:
    """Return the number of cores this process may use; a container may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_workers(n_jobs: int | None) -> int:
    """Return the number of workers that `n_jobs` requests; None and negative numbers request one per core."""
    return n_cores() if n_jobs is None or n_jobs < 0 else max(1, n_jobs)


def threads_for(n_rows: int) -> int:
    """Return how many threads reading so many rows is worth; starting a thread for a few costs more than it saves."""
    return max(1, min(n_cores(), n_rows // _ROWS_PER_THREAD))


def in_ranges(work: Callable[[int, int], None], n: int) -> None:
    """Call ``work(low, high)`` for ranges that together cover ``range(n)``, as many at a time as there are cores.

    The calls must not write to the same places. A small `n` is handled in a single call: starting threads would cost
    more than it saves.
    """
    if n <= 64:
        work(0, n)
        return
    cores = n_cores()
    bounds = [n * i // (4 * cores) for i in range(4 * cores + 1)]
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], n_threads: int) -> list[Result]:
    """Return ``work(item)`` for every item, in order, with up to `n_threads` at a time."""
    items = list(items)
    if n_threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(n_threads, len(items))) as pool:
        return list(pool.map(work, items))


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which the linear algebra of NumPy and SciPy keeps to a single thread.

    For matrices of a few hundred rows: threads that wait for each other cost more than they save, and on a busy machine
    many times more.
    """
    limited: AbstractContextManager[object] = _blas().limit(limits=1)
    return limited


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    # NumPy and SciPy each load a library of their own; what is not loaded yet cannot be limited
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")
