"""Starts, watches and stops the processes of a federation.

Each runs in a session of its own, so that it can be stopped together with everything it has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

#: Settings with which a process that waits most of the time gives memory back to the system when it is done.
LEAN = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}

_STOP_SECONDS = 15.0


def free_port() -> int:
    """Return a port of this machine that is currently unused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a module of this package as a program in its own session; its output goes to the log."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *command],
        env={
            **LEAN,
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        },
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


def is_healthy(root: Path, port: int, insecure: bool) -> bool:
    """Ask the hub on this machine, once, whether it is ready; if there is none, the answer comes at once.

    Proxies of the environment are for the way out: this machine is always asked directly.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if not insecure:
        context = ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
        handlers.append(urllib.request.HTTPSHandler(context=context))
    url = f"{'http' if insecure else 'https'}://127.0.0.1:{port}/health"
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


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
