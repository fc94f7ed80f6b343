"""Starts and stops Flower's programs, so that users need not know them.

Every program gets its own Flower home, without telemetry and update checks, and runs in a session of its own, so that
it can be stopped together with everything it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
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

from fcac.deployment import certificates
from fcac.exceptions import FlowerError

_STOP_SECONDS = 15.0


def program(name: str) -> str:
    """Return the path of a Flower program: the one beside the running Python, or else the one on the search path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise FlowerError(f"{name} is not installed: pip install 'fcac[flower]'")
    return found


def environment(home: Path, first: Path | None = None) -> dict[str, str]:
    """Return the environment of a Flower program: its own home, no telemetry, and its programs on the search path.

    Parameters
    ----------
    home : Path
    first : Path, optional
        Directory whose programs come before all others.
    """
    home.mkdir(parents=True, exist_ok=True)
    folders = [
        *([str(first)] if first is not None else []),
        str(Path(sys.executable).parent),
        os.environ.get("PATH", ""),
    ]
    path = os.pathsep.join(folders)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
    # how often Flower looks for local tasks; its default of a second is long compared with a short task
    quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}
    return {**os.environ, **quiet, **quick, "PATH": path, "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    """Return a port of this machine that is currently unused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command: list[str], home: Path, log: IO[bytes], first: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a program in its own session; its output goes to the log."""
    return subprocess.Popen(
        [command[0] if os.path.isabs(command[0]) else program(command[0]), *command[1:]],
        env=environment(home, first),
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


# ------------------------------------------------------------ the server's programs


def superlink_command(root: Path, port: int, host: str, insecure: bool) -> list[str]:
    """Return the command line of the SuperLink, guarded (see :mod:`fcac.flower.guard`)."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "fcac.flower.pinned_runtime",
        "superlink",
        "--host",
        host,
        "--port",
        str(port),
    ]
    command += ["--disable-runtime-dependency-installation", "--database", str(root / "server" / "superlink.db")]
    if insecure:
        return [*command, "--insecure"]
    server = root / "server"
    return [
        *command,
        *("--ssl-ca-certfile", str(root / "ca" / "ca.crt")),
        *("--ssl-certfile", str(server / "server.crt")),
        *("--ssl-keyfile", str(server / "server.key")),
        "--enable-supernode-auth",
    ]


def write_connection(root: Path, port: int, insecure: bool) -> Path:
    """Write the settings with which Flower's command line reaches the local SuperLink; return its home."""
    home = root / "server" / "flwr-home"
    home.mkdir(parents=True, exist_ok=True)
    trust = (
        "insecure = true" if insecure else f"root-certificates = {json.dumps(str((root / 'ca' / 'ca.crt').resolve()))}"
    )
    text = f'[superlink]\ndefault = "fcac"\n\n[superlink.fcac]\naddress = "127.0.0.1:{port}"\n{trust}\n'
    (home / "config.toml").write_text(text, "utf-8")
    return home


def is_healthy(root: Path, port: int, insecure: bool) -> bool:
    """Ask the SuperLink, once, whether it is ready; no SuperLink refuses at once, a busy one may take its time."""
    scheme, context = "http", None
    if not insecure:
        scheme, context = "https", ssl.create_default_context(cafile=str(root / "ca" / "ca.crt"))
    try:
        with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/health", timeout=30, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def flwr(home: Path, *arguments: str, timeout: float = 120.0) -> dict[str, Any]:
    """Run Flower's command line and return its JSON answer; its exit code alone does not tell success from failure."""
    done = subprocess.run(
        [program("flwr"), *arguments, "--format", "json"],
        env=environment(home),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace")
    try:
        answer: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        answer = {"success": False, "error-message": (text + done.stderr.decode("utf-8", "replace")).strip()[-500:]}
    return answer


# ------------------------------------------------------------ the site's program


def supernode_command(bundle: Path, address: str, insecure: bool, settings: Path) -> list[str]:
    """Return the command line of a SuperNode."""
    command = ["flower-supernode", "--superlink", address, "--host", "127.0.0.1", "--port", str(free_port())]
    command += ["--node-config", f"fcac-site={json.dumps(str(settings))}"]
    if insecure:
        host = certificates.split_address(address)[0]
        if not certificates.is_loopback(host):
            raise ValueError(f"without encryption, only this machine can be reached: {host} is not a loopback address")
        return [*command, "--insecure"]
    return [
        *command,
        *("--root-certificates", str(bundle / "ca.crt")),
        *("--auth-supernode-private-key", str(bundle / "node.key")),
    ]


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
