"""Only the installed apps run, and only sites are let in from outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResultStatus

from fcac.deployment.study import write_app
from fcac.flower import pinned_runtime
from fcac.flower.guard import LocalOnly
from testing.flower_study import Study

TICKET = "pinned.Ticket('127.0.0.1:1', 'token', True, None, None)"


def script(text: str, **variables: str) -> str:
    """Run Python in a process of its own, because it changes Flower's modules; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", "import os\nfrom fcac.flower import pinned_runtime as pinned\n" + text],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_programs_refuse_everything_but_the_own_superexec(tmp_path: Path) -> None:
    folder = pinned_runtime.write_programs(tmp_path / "a folder", "server", tmp_path / "it's here")
    assert sorted(path.name for path in folder.iterdir()) == [
        "flower-superexec", "flwr-agentapp", "flwr-clientapp", "flwr-connector", "flwr-model", "flwr-serverapp",
        "flwr-simulation",
    ]  # fmt: skip
    for path in folder.glob("flwr-*"):
        assert subprocess.run([path], check=False).returncode == 1
    text = (folder / "flower-superexec").read_text().replace("exec ", "echo $FCAC_FEDERATION; exit; ")
    shown = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(tmp_path / "it's here")


def test_a_site_answers_with_its_own_app_whatever_was_sent() -> None:
    said = script(
        "import flwr.supernode.runtime.run_clientapp as runtime\n"
        "runtime.run_clientapp = lambda **connection: print(connection['token'])\n"
        f"pinned.run_site_task({TICKET})\n"
        "from fcac.flower.client_app import app\n"
        "load = runtime.get_load_client_app_fn(default_app_ref='evil:app', app_path=None, multi_app=True)\n"
        "assert load('a/b', '1', 'hash') is app\n"
        "assert runtime.install_from_fab(b'bytes', skip_prompt=True) is None\n"
        "try: runtime.install_app_dependencies('x')\n"
        "except RuntimeError: print('nothing installed')\n"
    )
    assert said.split("\n") == ["token", "nothing installed"]


def test_the_server_plays_rounds_in_its_own_federation_whatever_was_sent() -> None:
    said = script(
        "import importlib\n"
        "runtime = importlib.import_module('flwr.superlink.runtime.run_serverapp')\n"
        "runtime.run_serverapp = lambda **connection: None\n"
        f"pinned.run_server_task({TICKET})\n"
        "config = runtime.get_fused_config_from_dir('x', {'fcac-federation': '/etc', 'fcac-rounds': 2})\n"
        "import fcac.flower.server_app as own\n"
        "played = []\n"
        "own.app.__class__.__call__ = lambda self, grid, context: played.append(context)\n"
        "assert runtime.run_(grid=1, context='c', server_app_dir='evil', server_app_attr='evil:app') == 'c'\n"
        "assert played == ['c']\n"
        "print(config['fcac-federation'], config['fcac-rounds'])\n",
        FCAC_FEDERATION="/srv/study",
    )
    assert said == "/srv/study 2"


def test_another_version_of_flower_is_refused() -> None:
    with pytest.raises(RuntimeError, match="has no no_such_function"):
        pinned_runtime.replace("flwr.supernode.runtime.run_clientapp", {"no_such_function": print})


def test_only_one_kind_of_task_is_taken() -> None:
    executor = pinned_runtime.ForkingExecutor("site")
    assert executor.get_eligible_capacity(set(TaskType)) == ({TaskType.CLIENT_APP}, set())
    spec = ExecutionSpec(TaskType.SERVER_APP, "127.0.0.1:1", "token", True, None, False, None, False, 1)
    assert executor.launch(spec).status == LaunchResultStatus.FAILED


@pytest.mark.parametrize(
    ("path", "client", "status"),
    [
        ("/v1/control/start-run", "203.0.113.5", 403),
        ("/v1/runtime/acquire-task", "203.0.113.5", 403),
        ("/docs", "203.0.113.5", 403),
        ("/", None, 403),
        ("/v1/fleet/../control/start-run", "203.0.113.5", 200),  # the application knows no such path
        ("/v1/fleet/pull-messages", "203.0.113.5", 200),
        ("/health", "203.0.113.5", 200),
        ("/v1/control/start-run", "127.0.0.1", 200),
        ("/v1/control/start-run", "::1", 200),
        ("/v1/control/start-run", "::ffff:203.0.113.5", 403),
    ],
)
def test_from_outside_only_the_paths_of_sites_are_reached(path: str, client: str | None, status: int) -> None:
    seen: list[int] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: MutableMapping[str, Any]) -> None:
        seen.extend([message["status"]] if "status" in message else [])

    async def receive() -> MutableMapping[str, Any]:
        return {}

    scope = {"type": "http", "path": path, "client": None if client is None else (client, 4711)}
    asyncio.run(LocalOnly(application)(scope, receive, send))
    assert seen == [status]


def test_an_app_directory_of_an_older_version_is_written_anew(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a")
    path = study.root / "app" / "pyproject.toml"
    new = path.read_text()
    path.write_text(new.replace("fcac-hand-out = true\n", ""))
    assert write_app(study.root) == path.parent
    assert path.read_text() == new


def test_noise_does_not_come_from_the_process_that_is_forked() -> None:
    """A library that draws noise is loaded after the fork, so no two messages can share the state of a generator."""
    said = script(
        "import sys, fcac.flower.client_app, flwr.supernode.runtime.run_clientapp\n"
        "print('opendp' in sys.modules, 'fcac.deployment.site_agent' in sys.modules)\n"
    )
    assert said == "False True"


def test_forked_sites_draw_different_noise() -> None:
    said = script(
        "import multiprocessing, numpy as np\n"
        "import fcac.flower.client_app\n"
        "from fcac.privacy import NodeRelease\n"
        "rows = np.random.default_rng(0).random((300, 2))\n"
        "def draw(queue): queue.put(NodeRelease(4.0, [[0, 1], [0, 1]]).release(rows)[0].tobytes())\n"
        "context = multiprocessing.get_context('fork')\n"
        "queue = context.Queue()\n"
        "workers = [context.Process(target=draw, args=(queue,)) for _ in range(3)]\n"
        "[worker.start() for worker in workers]\n"
        "print(len({queue.get() for _ in workers}))\n"
        "[worker.join() for worker in workers]\n"
    )
    assert said == "3"
