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
from typing import Any, NamedTuple

from fcac.exceptions import DataError

# Marks the message of an executor that is meant for the user, in the middle of Spark's own.
_MARK = "fcac says: "
_MARKED = re.compile(re.escape(_MARK) + r"(.*)")

# What goes wrong on clusters, as Spark tells it, and what to do about it.
_ADVICE = (
    (
        re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)"),
        "an executor cannot import {0}: install fcac in the Python of every executor, or ship an environment with "
        "--archives and name its Python in PYSPARK_PYTHON (see the guide, On Spark)",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH"),
        "executors run another version of Python than the driver: name the same one in PYSPARK_PYTHON for both",
    ),
    (
        re.compile(r"ExecutorLostFailure|OutOfMemoryError|[Cc]annot run program"),
        "executors were lost, or could not be started, too often: give them more memory "
        "(spark.executor.memoryOverhead is what Python gets), or check that PYSPARK_PYTHON is there on every worker",
    ),
)
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")

_POLL_SECONDS = 0.5


def check_ready() -> None:
    """Raise an ImportError that says what to install, unless pyspark and a Java runtime are there."""
    if find_spec("pyspark") is None:
        raise ImportError("fcac.spark needs pyspark: pip install 'fcac[spark]'")
    if shutil.which("java") is None and not environ.get("JAVA_HOME"):
        raise ImportError("fcac.spark needs a Java runtime (17 or later): install one, for instance openjdk-17-jre")


def session(master: str | None = None, name: str = "fcac") -> Any:
    """Return the running Spark session, or start one; `master` is as Spark has it (``local[4]``, ``yarn``).

    By default Spark's own configuration decides, and all cores of this machine if it says nothing.
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
        told = str(error)
        found = _MARKED.search(told)
        if found is not None:
            raise DataError(found.group(1).strip()) from None
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        for known, advice in _ADVICE:
            found = known.search(told)
            if found is not None:
                raise DataError(advice.format(*found.groups())) from error
        first = told.strip().partition("\n")[0]
        raise DataError(f"Spark: {_SQL_STATE.sub('', first)}") from error


class Seen(NamedTuple):
    """How far a job is, from the stages begun so far.

    Rows are those condensed by tasks that have finished; a task that runs twice counts twice here, and only here.
    """

    stages: int
    done: int
    tasks: int
    rows: int
    nodes: int


#: Called with what is seen of a job.
Progress = Callable[[Seen], None]


class Counters(NamedTuple):
    """Accumulators of Spark for rows and nodes."""

    rows: Any
    nodes: Any


@contextmanager
def watched(spark: Any, progress: Progress | None) -> Iterator[Counters | None]:
    """Show how far jobs are, by a callable or, in a terminal, by a bar; yield what executors count with, if anything.

    With Spark Connect there is nothing to see.
    """
    context = getattr(spark, "_sc", None)
    if context is None or (progress is None and not sys.stderr.isatty()):
        yield None
        return
    tracker, ended = context.statusTracker(), threading.Event()
    counters = Counters(context.accumulator(0), context.accumulator(0))
    stages: dict[int, tuple[int, int]] = {}

    def look() -> Seen:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
        done, tasks = (sum(numbers) for numbers in zip(*stages.values(), strict=True)) if stages else (0, 0)
        return Seen(len(stages), done, tasks, counters.rows.value, counters.nodes.value)

    def keep_looking(show: Progress) -> None:
        while not ended.wait(_POLL_SECONDS):
            show(look())

    with _shower(progress) as show:
        watcher = threading.Thread(target=keep_looking, args=(show,), daemon=True)
        watcher.start()
        try:
            yield counters
        finally:
            ended.set()
            watcher.join()
        show(look())


@contextmanager
def _shower(progress: Progress | None) -> Iterator[Progress]:
    if progress is not None:
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("stage {task.fields[stages]}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[nodes]:,} nodes"), TimeElapsedColumn(),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, stages=0, rows=0, nodes=0)

        def show(seen: Seen) -> None:
            total = seen.tasks or None
            bar.update(task, completed=seen.done, total=total, stages=seen.stages, rows=seen.rows, nodes=seen.nodes)

        yield show
