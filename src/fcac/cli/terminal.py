"""Output for people: progress after two seconds, one-line errors, plain notes."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from fcac._text import duration

_PATIENCE_SECONDS = 2.0
_LINE_EVERY_SECONDS = 10.0

# Which extra provides which module, for the message that says what to install.
_EXTRAS = {
    "opendp": "privacy",
    "flwr": "flower",
    "aiohttp": "federation",
    "cryptography": "federation",
    "matplotlib": "experiments",
    "scikit_posthocs": "experiments",
    "pandas": "experiments",
    "adbc_driver_postgresql": "sql",
    "adbc_driver_sqlite": "sql",
    "duckdb": "sql",
    "python_calamine": "excel",
    "wordllama": "text",
    "tokenizers": "text",
}


class BadUse(click.UsageError):
    """The command was used wrongly: exit code 2."""


def say(text: str = "") -> None:
    """Print a line of the result."""
    click.echo(text)


def note(text: str) -> None:
    """Print a line that is not part of the result, to standard error."""
    click.echo(text, err=True)


def help_text(command: Callable[..., Any]) -> str:
    """Return a command's docstring to be wrapped at the width of the terminal; examples are lines of their own."""
    text = (inspect.getdoc(command) or "").replace("\nfcac ", "\n\nfcac ")
    return "\n\n".join(one_line(paragraph) for paragraph in text.split("\n\n"))


class Progress:
    """Progress and time left, shown once something has taken two seconds.

    This is a progress bar at a terminal, and a line every ten seconds elsewhere.
    """

    def __init__(self, what: str, unit: str = "rows") -> None:
        self._what, self._unit = what, unit
        self._started = self._last_line = time.monotonic()
        self._done, self._share = 0, 0.0
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._over = False
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: int, share: float) -> None:
        """Report how many are done, and the fraction of the total (0 to 1)."""
        self._done, self._share = done, share
        if self._bar is not None:
            self._bar.update(self._task, completed=share, count=f"{done:,} {self._unit}")
        elif not sys.stderr.isatty() and time.monotonic() - self._last_line >= _LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            # how many rows a database will send is not known
            note(f"{self._what}: {done:,} {self._unit}" + (f", {share:.0%}{self._left()}" if share else ""))

    def now(self, what: str) -> None:
        """Report that something else is being done from now on."""
        self._what = what
        if self._bar is not None:
            self._bar.update(self._task, description=what)

    def _left(self) -> str:
        if not 0 < self._share < 1:
            return ""
        passed = time.monotonic() - self._started
        return f", about {duration(passed / self._share * (1 - self._share))} left"

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        with self._lock:
            if self._over:
                return
            bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[count]}"),
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = bar.add_task(self._what, total=1.0, count=f"{self._done:,} {self._unit}")
            # the time before the bar appeared counts towards the estimate of the time left
            bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - self._started)
            bar.start()
            self._bar = bar


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each warning as one line, without its place in the code."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | ResourceWarning):
            note("note: " + one_line(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("once")
        warnings.showwarning = show
        yield


def one_line(text: str) -> str:
    """Return a text with all whitespace, including line breaks, replaced by single spaces."""
    return " ".join(text.split())


def explain(error: BaseException, command: str) -> int:
    """Print an error in one line and return the exit code.

    2: the command was used wrongly; 1: it failed; 130: it was interrupted. With ``FCAC_DEBUG=1`` the traceback is
    printed too.
    """
    from fcac.exceptions import RequestError

    if os.environ.get("FCAC_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt | click.Abort | EOFError):
        note(f"{command}: interrupted; no output was written")
        return 130
    if isinstance(error, click.UsageError):
        name = error.ctx.command_path if error.ctx is not None else command
        note(f"{name}: {one_line(error.format_message())} (see `{name} --help`)")
        return 2
    if isinstance(error, click.ClickException):
        note(f"{command}: {one_line(error.format_message())}")
        return error.exit_code
    note(f"{command}: {_in_words(error)}")
    return 2 if isinstance(error, RequestError) else 1


def _in_words(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module in _EXTRAS:
            return f"this needs {module}: pip install 'fcac[{_EXTRAS[module]}]'"
        if module == "fcac":
            return f"this part ({error.name}) is not in this installation of fcac"
        return f"the package {error.name} is not installed: install fcac again, with its dependencies"
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError):
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    if isinstance(error, ValueError | ImportError):
        return one_line(str(error))
    # An unexpected error: its message could quote a row, so only its place in the code is shown.
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}; run again with FCAC_DEBUG=1 for details, and please report it"


def check_out(path: Path, force: bool) -> None:
    """Refuse an output that cannot or should not be written, before any work is done."""
    if path.is_dir():
        raise BadUse(f"--out {path} is a directory: name a file")
    if not path.parent.is_dir():
        raise BadUse(f"the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise BadUse(f"the directory {path.parent} is not writable")
    if path.exists() and not force:
        raise BadUse(f"{path} exists: give another --out, or --force to replace it")
