"""What surrounds a Spark job: is Spark there, how far is it, and errors a user can act on."""

from __future__ import annotations

import re
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import environ
from typing import Any

from fcac.exceptions import DataError

# Marks the message of an executor that is meant for the user, in the middle of Spark's own.
_MARK = "fcac says: "
_MARKED = re.compile(re.escape(_MARK) + r"(.*)")

_POLL_SECONDS = 0.5


def check_ready() -> None:
    """Check that pyspark and a Java runtime are there.

    Raises
    ------
    ImportError
        It says what to install.
    """
    if find_spec("pyspark") is None:
        raise ImportError("fcac.spark needs pyspark: pip install 'fcac[spark]'")
    if shutil.which("java") is None and not environ.get("JAVA_HOME"):
        raise ImportError("fcac.spark needs a Java runtime (17 or later): install one, for instance openjdk-17-jre")


def session(master: str | None = None, name: str = "fcac") -> Any:
    """Return the running Spark session, or start one.

    Parameters
    ----------
    master : str, optional
        As Spark has it: ``local[4]``, ``spark://host:7077``, ``yarn``. By default Spark's own configuration decides,
        and all cores of this machine if it says nothing.
    name : str
    """
    check_ready()
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, about files it leaves to the garbage collector
        builder = SparkSession.builder.appName(name)
        if master is not None:
            builder = builder.master(master)
        return builder.getOrCreate()


@contextmanager
def tell() -> Iterator[None]:
    """On an executor: mark errors that a user can act on, so that the driver finds them."""
    try:
        yield
    except (DataError, ValueError) as error:
        raise ValueError(_MARK + " ".join(str(error).split())) from None


@contextmanager
def one_line() -> Iterator[None]:
    """On the driver: turn Spark's account of a failed job into the one line that helps."""
    try:
        yield
    except Exception as error:
        found = _MARKED.search(str(error))
        if found is None:
            raise
        raise DataError(found.group(1).strip()) from None


@contextmanager
def watched(spark: Any, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """Show how many tasks are done: by a callable, or by a bar if this is a terminal."""
    tracker = _tracker(spark)
    if tracker is None or (progress is None and not sys.stderr.isatty()):
        yield
        return
    ended = threading.Event()
    seen: dict[int, tuple[int, int]] = {}

    def look(show: Callable[[int, int], None]) -> None:
        while not ended.wait(_POLL_SECONDS):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            if seen:
                show(sum(done for done, _ in seen.values()), sum(total for _, total in seen.values()))

    with _shower(progress) as show:
        watcher = threading.Thread(target=look, args=(show,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


@contextmanager
def _shower(progress: Callable[[int, int], None] | None) -> Iterator[Callable[[int, int], None]]:
    if progress is not None:
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tasks", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _tracker(spark: Any) -> Any:
    """Return what knows of stages and tasks; None with Spark Connect."""
    context = getattr(spark, "_sc", None)
    return None if context is None else context.statusTracker()
