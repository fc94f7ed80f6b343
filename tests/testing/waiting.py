"""Waiting for what will happen, on a machine that may be busy: long deadlines, short looks."""

from __future__ import annotations

import multiprocessing
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

#: Seconds before a test gives up. Nothing waits this long unless something is wrong.
PATIENCE = 600.0


def wait_until(condition: Callable[[], bool], process: subprocess.Popen | None = None, every: float = 0.005) -> None:
    """Wait until a condition holds; fail if it never does, or if the process that should bring it about has ended."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process is None or process.poll() is None, f"the process ended with code {process.returncode}"
        assert time.monotonic() < deadline, f"nothing happened in {PATIENCE:g} seconds"
        time.sleep(every)


def raced(task: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Let one process for each tuple run a task at the same moment, and return what each has put into its queue."""
    context = multiprocessing.get_context("spawn")
    gate, results = context.Event(), context.Queue()
    workers = [context.Process(target=task, args=(*own, gate, results)) for own in arguments]
    for worker in workers:
        worker.start()
    gate.set()
    found = [results.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join()
    return found
