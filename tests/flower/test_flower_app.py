"""fcac as a Flower app: Flower's own SuperLink and SuperNodes on loopback carry the messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord

from fcac.deployment import processes
from fcac.deployment.processes import free_port
from fcac.deployment.site_agent import load_model
from fcac.flower.app_folder import write_app
from fcac.flower.client_app import RECORD
from fcac.flower.server_app import GridWire
from testing.compare import assert_same_server
from testing.data import site_rows
from testing.federation_study import Reference, Study
from testing.waiting import PATIENCE, wait_until

PROGRAMS = Path(sysconfig.get_path("scripts"))


class Flower:
    """A SuperLink and a SuperNode for each site, all of which are stopped at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.log = (folder / "flower.log").open("wb")
        self.running: list[subprocess.Popen[bytes]] = []
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )

    def environment(self, home: str) -> dict[str, str]:
        settings = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        paths = {"FLWR_HOME": str(self.folder / home), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        return {**os.environ, **settings, **paths}

    def start(self, program: str, home: str, *arguments: str) -> None:
        self.running.append(
            subprocess.Popen(
                [str(PROGRAMS / program), *arguments], env=self.environment(home), stdin=subprocess.DEVNULL,
                stdout=self.log, stderr=self.log, start_new_session=True,
            )
        )  # fmt: skip

    def command(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(PROGRAMS / "flwr"), *arguments, "--format", "json"], env=self.environment("home"),
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["success"], done.stdout + done.stderr
        return found

    def stop(self) -> None:
        for process in reversed(self.running):
            processes.stop(process)
        self.log.close()


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[Flower]:
    made = Flower(tmp_path)
    yield made
    made.stop()


def test_the_app_names_modules_that_are_installed(tmp_path: Path) -> None:
    study = Study(tmp_path)
    folder = write_app(study.root, tmp_path / "app", rounds=3)
    found = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert found["components"] == {
        "serverapp": "fcac.flower.server_app:app",
        "clientapp": "fcac.flower.client_app:app",
    }
    assert found["config"] == {"fcac-federation": str(study.root.resolve()), "fcac-rounds": 3}
    with pytest.raises(ValueError, match="is not empty"):
        write_app(study.root, folder)


def test_only_flowers_public_interface_is_used() -> None:
    allowed = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    for path in (Path(__file__).parents[2] / "src" / "fcac" / "flower").glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith(("from flwr", "import flwr")):
                assert line.split()[1] in allowed, line
                assert "_" not in line.partition("import")[2], line


class Nodes:
    """Nodes of a Grid, each of which says which site it is."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def get_node_ids(self) -> list[int]:
        return list(self.names)

    def push_messages(self, letters: list[Any]) -> list[str]:
        return [str(letter.metadata.dst_node_id) for letter in letters]

    def pull_messages(self, names: list[str]) -> list[Any]:
        said = {name: ConfigRecord({"site": self.names[int(name)]}) for name in names}
        about = {name: SimpleNamespace(reply_to_message_id=name) for name in names}
        return [SimpleNamespace(content={RECORD: said[n]}, metadata=about[n], has_error=lambda: False) for n in names]


def test_a_name_stays_with_the_first_node_that_claims_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while that node is away: otherwise one site could wait until another sleeps, and speak for it."""

    def letter(content: Any, node: int, kind: str, ttl: float) -> Any:
        # Flower's own can only be made inside a run
        return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node))

    monkeypatch.setattr("fcac.flower.server_app.Message", letter)
    study = Study(tmp_path, names="ab")
    nodes = Nodes({11: "a"})
    assert GridWire(nodes, study.hub).connected() == {"a"}
    nodes.names = {12: "a", 13: "b", 14: "nobody"}
    assert GridWire(nodes, study.hub).connected() == {"b"}
    assert "another node is" in study.hub.journal()[-1]["reason"]
    nodes.names = {11: "a", 13: "b"}
    wire = GridWire(nodes, study.hub)
    assert wire.connected() == {"a", "b"}
    assert wire._nodes == {"a": 11, "b": 13}


@pytest.mark.slow
def test_rounds_on_flowers_own_programs(tmp_path: Path, flower: Flower) -> None:
    """The same contributions, byte for byte, and the same model as without any wire."""
    study, reference = Study(tmp_path, names="ab"), Reference()
    federation = study.root / "federation.toml"
    federation.write_text(
        federation.read_text().replace("timeout = 0.2", "timeout = 300").replace("wait = 0.0", "wait = 120")
    )
    rows = site_rows("ab", 1)
    study.give(rows)
    direct = reference.contribute(rows, 1)
    reference.server.absorb(direct)
    app = write_app(study.root, tmp_path / "app")
    address = ["--host", "127.0.0.1", "--port"]
    flower.start(
        "flower-superlink", "link", *address, str(flower.port), "--insecure",
        "--disable-runtime-dependency-installation",
    )  # fmt: skip
    for name in "ab":
        flower.start(
            "flower-supernode", f"node-{name}", "--superlink", f"127.0.0.1:{flower.port}", *address, str(free_port()),
            "--insecure", "--node-config", f'fcac-site="{study.sites[name]}"',
        )  # fmt: skip
    run: list[str] = []

    def is_submitted() -> bool:
        try:
            run.append(str(flower.command("run", str(app))["run-id"]))
        except (AssertionError, ValueError, KeyError):
            return False  # the SuperLink is not ready yet
        return True

    wait_until(is_submitted, flower.running[0], every=1.0)
    status: dict[str, Any] = {}

    def is_finished() -> bool:
        (found,) = flower.command("list", "--run-id", run[-1])["runs"]
        status.update(found)
        return str(found["status"]).startswith("finished")

    wait_until(is_finished, flower.running[0], every=1.0)
    assert status["status"] == "finished:completed", (tmp_path / "flower.log").read_text()[-3000:]
    assert [study.sent(item.site, 1).to_bytes() for item in direct] == [item.to_bytes() for item in direct]
    assert_same_server(study.server, reference.server)
    assert len(load_model(study.state("a")).nodes) > 0
    assert sys.modules.keys() >= {"fcac.deployment.answers"}
