"""Starts, watches and stops the processes of a federation.

Each runs in a session of its own, so that it can be stopped together with everything it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment.listening import FrontLimits
from fcac.deployment.settings import FederationSettings, SiteSettings
from fcac.deployment.site_setup import store_settings
from fcac.exceptions import FederationError

#: Settings with which a process that waits most of the time gives memory back to the system when it is done.
LEAN = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}

_STOP_SECONDS = 15.0
_START_SECONDS = 120.0


def free_port() -> int:
    """Return a port of this machine that is currently unused, and so is the next one."""
    while True:
        with socket.socket() as probe, socket.socket() as second:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


def start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a module of this package as a program in its own session; its output goes to the log."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *command],
        env={**LEAN, **os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a program and everything it started, first by SIGTERM, then by SIGKILL."""
    # The process group has the program's own id, so this reaches only the program and its children.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into KeyboardInterrupt, even if a shell has made the process ignore Ctrl-C."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_running(root: Path) -> bool:
    """Return whether a hub serves this directory: it holds a lock that goes with its process."""
    lock = root / "server" / "lock"
    try:
        with persistence.locked(lock, 0.0):
            return False
    except (TimeoutError, OSError):
        return lock.exists()


def wait_until(condition: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait for a condition; return False if time runs out or the process ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        if process is not None and process.poll() is not None:
            return False
        time.sleep(0.2)
    return False


class ServerProcess:
    """The hub as a background process (:mod:`fcac.deployment.hub_service`)."""

    def __init__(self, root: Path, host: str | None = None, limits: FrontLimits | None = None) -> None:
        self.root, self.limits = root, limits
        self.settings, self.host = FederationSettings.load(root), host or ""
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = root / "server" / "hub.log"

    def start(self) -> None:
        """Start the hub and wait until it answers."""
        if is_running(self.root):
            raise FederationError(f"another hub already serves {self.root}")
        limits = [] if self.limits is None else [json.dumps(asdict(self.limits))]
        command = ["fcac.deployment.hub_service", str(self.root.resolve()), self.host, *limits]
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = start(command, log)
        ready = wait_until(lambda: b"Server ready" in self.log_path.read_bytes()[begin:], _START_SECONDS, self.process)
        if not ready:
            self.stop()
            raise FederationError(f"the hub did not start: {last_words(self.log_path, begin)}; see {self.log_path}")

    def stop(self) -> None:
        """Stop the hub."""
        if self.process is not None:
            stop(self.process)


class SiteProcess:
    """A site as a background process (:mod:`fcac.deployment.site_link`)."""

    def __init__(self, bundle: Path, settings: SiteSettings) -> None:
        self.bundle, self.settings = bundle, settings
        self.state = Path(settings.state)
        self.log_path = self.state / "node.log"
        self.log_start = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Write the site's settings and start it."""
        path = store_settings(self.settings)
        self.log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = start(["fcac.deployment.site_link", str(self.bundle.resolve()), str(path)], log)

    def is_connected(self) -> bool:
        """Return whether the hub has accepted this site since it was last started."""
        return self.log_path.exists() and b"Connected" in self.log_path.read_bytes()[self.log_start :]

    def stop(self) -> None:
        """Stop the site."""
        if self.process is not None:
            stop(self.process)


def last_words(log: Path, start: int = 0) -> str:
    """Return the last line of a process's log (from this byte on): it says why the process ended."""
    lines = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines() if log.exists() else []
    return plain(lines[-1]) if lines else "it said nothing"
