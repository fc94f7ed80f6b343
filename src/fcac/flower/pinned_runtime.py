"""Flower's programs, pinned: whatever app a run was submitted with, only the apps of this installation are run.

Flower sends an app with every run, so whoever may submit a run could execute code at every site and at the server.
``fcac federation site`` and ``server`` therefore put programs of their own before Flower's on the search path. These
fetch tasks as Flower does, but never unpack or load anything that was sent; the only code that can answer is
:mod:`fcac.flower.client_app` at a site and :mod:`fcac.flower.server_app` at the server.

Flower starts a new Python process for every message, which spends seconds on imports. Here, one process per machine
imports everything once and forks itself for every message.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any, NamedTuple

# All programs that Flower could be made to start for a task; none of them is needed.
_REFUSED = ("flwr-agentapp", "flwr-clientapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
_FEDERATION_VARIABLE = "FCAC_FEDERATION"
_CLIENT_RUNTIME = "flwr.supernode.runtime.run_clientapp"
_SERVER_RUNTIME = "flwr.superlink.runtime.run_serverapp"


class Ticket(NamedTuple):
    """What a process needs to fetch its task: the address, the token, and the parent with which it ends."""

    address: str
    token: str
    insecure: bool
    root_certificates: str | None
    parent: int | None


def write_programs(folder: Path, role: str, federation: Path | None = None) -> Path:
    """Write programs for the front of the search path: our own ``flower-superexec``, and refusals of all others.

    Parameters
    ----------
    folder : Path
    role : {"site", "server"}
    federation : Path, optional
        The server's federation: rounds use this directory, whatever a run says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variable = f"{_FEDERATION_VARIABLE}={shlex.quote(str(federation))}"
    place = "" if federation is None else f"{variable}\nexport {_FEDERATION_VARIABLE}\n"
    own = f'#!/bin/sh\n{place}exec {shlex.quote(sys.executable)} -P -m fcac.flower.pinned_runtime {role} "$@"\n'
    for name, text in {"flower-superexec": own, **dict.fromkeys(_REFUSED, "#!/bin/sh\nexit 1\n")}.items():
        path = folder / name
        path.write_text(text, "utf-8")
        path.chmod(0o700)
    return folder


def main() -> None:
    """Run one of Flower's programs: ``site`` or ``server`` (its SuperExec), or ``superlink``."""
    role = sys.argv.pop(1)
    if role == "superlink":
        from fcac.flower.guard import run_guarded_superlink

        run_guarded_superlink()
        return
    from flwr.supercore.cli.flower_superexec import flower_superexec

    executor = ForkingExecutor(role)
    replace("flwr.supercore.superexec.run_superexec", {"get_executor": lambda *ignored, **also: executor})
    flower_superexec()


class ForkingExecutor:
    """Starts a process per task by forking one that has imported everything; accepts only one kind of task.

    Parameters
    ----------
    role : {"site", "server"}
    """

    def __init__(self, role: str) -> None:
        import multiprocessing
        from multiprocessing import forkserver

        from flwr.supercore.constant import TaskType

        self.task_type = {"site": TaskType.CLIENT_APP, "server": TaskType.SERVER_APP}[role]
        self._work: Callable[[Ticket], None] = {"site": run_site_task, "server": run_server_task}[role]
        self._context = multiprocessing.get_context("forkserver")
        modules = {
            "site": ["fcac.flower.client_app", _CLIENT_RUNTIME],
            "server": ["fcac.flower.server_app", "fcac.report", _SERVER_RUNTIME],
        }
        self._context.set_forkserver_preload(modules[role])
        forkserver.ensure_running()  # so that its imports are done when the first task arrives

    def get_eligible_capacity(self, supported_task_types: set[Any], **ignored: Any) -> tuple[set[Any], set[str]]:
        """Return what may be fetched: only one kind of task."""
        return supported_task_types & {self.task_type}, set()

    def wait_for_capacity(self, *ignored: Any, **also_ignored: Any) -> None:
        """Return immediately: there is always capacity."""

    def launch(self, spec: Any) -> Any:
        """Start a process for a task."""
        from flwr.supercore.superexec.executor import LaunchResult

        if spec.task_type != self.task_type:
            return LaunchResult.failed("only the apps of fcac run here")
        ticket = Ticket(
            spec.runtime_api_address, spec.token, spec.insecure, spec.root_certificates_path, spec.parent_pid
        )
        # a daemon process: it ends with this process
        self._context.Process(target=self._work, args=(ticket,), daemon=True).start()
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Reap processes that have ended."""
        import multiprocessing

        multiprocessing.active_children()

    def close(self) -> None:
        """Do nothing: the processes started here end with this process."""


def run_site_task(ticket: Ticket) -> None:
    """Answer one message with the site's own app."""
    from fcac.flower.client_app import app

    runtime = replace(
        _CLIENT_RUNTIME,
        {
            "get_load_client_app_fn": lambda **ignored: lambda fab_id, fab_version, fab_hash: app,
            "install_from_fab": _install_nothing,
            "get_project_dir": _no_project,
            "install_app_dependencies": _refuse_dependencies,
        },
    )
    runtime.run_clientapp(**_connection(ticket))


def run_server_task(ticket: Ticket) -> None:
    """Run rounds with the server's own app, in its own federation."""
    from flwr.supercore.logger import mirror_output_to_queue

    from fcac.flower.server_app import app

    federation = os.environ[_FEDERATION_VARIABLE]
    runtime = replace(
        _SERVER_RUNTIME,
        {
            "get_fab_metadata": lambda content: ("fcac/federation", "1.0.0"),
            "get_project_config": lambda folder: {"tool": {"flwr": {"app": {"components": {"serverapp": ""}}}}},
            "get_fused_config_from_dir": lambda folder, given: {**given, "fcac-federation": federation},
            "run_": lambda grid, context, **ignored: app(grid=grid, context=context) or context,
            "install_from_fab": _install_nothing,
            "get_project_dir": _no_project,
            "install_app_dependencies": _refuse_dependencies,
        },
    )
    log_queue: Queue[str | None] = Queue()
    mirror_output_to_queue(log_queue)
    runtime.run_serverapp(log_queue=log_queue, **_connection(ticket))


def replace(name: str, functions: Mapping[str, Any]) -> ModuleType:
    """Replace functions of one of Flower's modules; raise an error if one of them does not exist."""
    module = import_module(name)
    for key, function in functions.items():
        if not callable(getattr(module, key, None)):
            # It is better not to answer than to run code that came over the network.
            raise RuntimeError(f"this version of flwr has no {key}: install the one that fcac[flower] requires")
        setattr(module, key, function)
    return module


def _connection(ticket: Ticket) -> dict[str, Any]:
    from flwr.supercore.tls import validate_and_resolve_root_certificates

    return {
        "runtime_api_address": ticket.address,
        "token": ticket.token,
        "insecure": ticket.insecure,
        "certificates": validate_and_resolve_root_certificates(ticket.root_certificates, ticket.insecure),
        "parent_pid": ticket.parent,
        "runtime_dependency_install": False,
    }


def _install_nothing(*ignored: Any, **also_ignored: Any) -> None:
    return None


def _no_project(*ignored: Any) -> Path:
    return Path(os.devnull)


def _refuse_dependencies(*ignored: Any, **also_ignored: Any) -> Path:
    raise RuntimeError("nothing is installed for a run")


if __name__ == "__main__":
    main()
