"""Real processes on loopback: a SuperLink, three SuperNodes, Flower's own transport. Stopped by their process ids."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fcac.codebook import Codebook
from fcac.deployment import certificates, study
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, SiteSettings
from fcac.deployment.site_agent import load_model
from fcac.exceptions import FlowerError
from fcac.federation import Contribution
from fcac.flower import processes
from fcac.flower.processes import free_port, wait_until
from fcac.flower.service import ServerProcess, SiteProcess, run_rounds, site_settings, why_it_ended
from testing.compare import assert_same_server
from testing.data import blobs, write_csv
from testing.flower_study import SCHEMA, Reference, hostile
from testing.waiting import PATIENCE

pytestmark = pytest.mark.slow


class Deployment:
    """A federation with its processes, all of which are stopped at the end, whatever happens."""

    def __init__(self, folder: Path, names: str, insecure: bool, timeout: float = PATIENCE) -> None:
        (folder / "schema.toml").write_text(SCHEMA)
        self.folder = folder
        self.root = study.init(
            folder / "study",
            list(names),
            folder / "schema.toml",
            address=f"127.0.0.1:{free_port()}",
            insecure=insecure,
            server="cae-fc",
            timeout=timeout,
            wait=PATIENCE,
        )
        self.sites: dict[str, SiteProcess] = {}
        self.server: ServerProcess | None = None

    def start_server(self) -> None:
        self.server = ServerProcess(self.root)
        self.server.start()

    def start_site(self, name: str, bundle: Path | None = None, label: str | None = None) -> SiteProcess:
        label = label or name
        (self.folder / f"data-{label}").mkdir(exist_ok=True)
        bundle = bundle or self.root / "bundles" / name
        settings = site_settings(bundle, self.folder / f"data-{label}", self.folder / f"state-{label}")
        site = SiteProcess(bundle, settings)
        site.start()
        self.sites[label] = site
        return site

    def give(self, rows: dict[str, np.ndarray]) -> None:
        for name, block in rows.items():
            path = self.folder / f"data-{name}" / "rows.csv"
            write_csv(path, block, header=not path.exists())

    def run(self, hand_out: bool = False) -> int:
        result = run_rounds(self.root, 1, print, hand_out=hand_out, patience=3 * PATIENCE)
        return int(result["closed"])

    @property
    def hub(self) -> Hub:
        return Hub(self.root / "state", FederationSettings.load(self.root))

    def happened(self, event: str, site: str | None = None, round: int | None = None) -> bool:
        return any(
            entry["event"] == event and site in (None, entry.get("site")) and round in (None, entry.get("round"))
            for entry in self.hub.journal()
        )

    def stop(self) -> None:
        for site in self.sites.values():
            site.stop()
        if self.server is not None:
            self.server.stop()


@contextlib.contextmanager
def deployment(folder: Path, names: str, insecure: bool, timeout: float = PATIENCE) -> Iterator[Deployment]:
    made = Deployment(folder, names, insecure, timeout)
    try:
        yield made
    finally:
        made.stop()


def three_rounds(names: str = "abc") -> list[dict[str, np.ndarray]]:
    return [{name: blobs(150, 10 * number + i) for i, name in enumerate(names)} for number in (1, 2, 3)]


def reference_of(rounds: list[dict[str, np.ndarray]], kind: str = "cae-fc") -> Reference:
    reference = Reference(kind)
    for number, rows in enumerate(rounds, 1):
        reference.play(rows, number)
    return reference


def test_three_sites_three_rounds_with_tls_and_keys(tmp_path: Path) -> None:
    rounds = three_rounds()
    expected = reference_of(rounds).server  # first, so that the processes find compiled kernels
    with deployment(tmp_path, "abc", insecure=False) as made:
        made.start_server()
        # two who must stay out: one with a key nobody registered, one who trusts another authority
        stranger, misled = tmp_path / "stranger", tmp_path / "misled"
        for bundle in (stranger, misled):
            shutil.copytree(made.root / "bundles" / "a", bundle)
        certificates.make_site_key(stranger / "node.key")
        (tmp_path / "other-ca").mkdir()
        certificates.make_authority(tmp_path / "other-ca", "study")
        shutil.copyfile(tmp_path / "other-ca" / "ca.crt", misled / "ca.crt")
        for name in "abc":
            made.start_site(name)
        refused = {label: made.start_site("a", bundle, label) for label, bundle in
                   (("stranger", stranger), ("misled", misled))}  # fmt: skip

        for number, rows in enumerate(rounds, 1):
            made.give(rows)
            assert made.run(hand_out=number == 3) == 1
        assert_same_server(made.hub.snapshot().server, expected)

        for label, words in (("stranger", "refused this site's key"), ("misled", "not of the authority")):
            process = refused[label].process
            assert process is not None
            assert process.wait(PATIENCE) != 0
            assert words in why_it_ended(refused[label].log_path)
        assert not made.happened("rejected")

        model = load_model(tmp_path / "state-a")
        assert isinstance(model, Codebook)
        rows = blobs(500, 99)
        assert (model.predict(rows) == made.hub.snapshot().server.predict(rows)).mean() > 0.9
        # nothing that came over the wire was unpacked or run at a site
        assert not (tmp_path / "state-a" / "flwr-home" / "apps").exists()

        shutil.copytree(made.root / "bundles" / "c", tmp_path / "kept")  # revoke deletes the hub's own copy
        study.revoke(made.root, "c")
        assert made.server is not None
        assert made.server.sync_keys() == ["the key of c is no longer accepted"]
        process = made.sites["c"].process
        assert process is not None
        process.wait(PATIENCE)  # its SuperNode is thrown out and ends
        again = made.start_site("c", tmp_path / "kept").process
        assert again is not None
        assert again.wait(PATIENCE) != 0
        assert "refused this site's key" in why_it_ended(made.sites["c"].log_path, made.sites["c"]._log_start)


def test_three_sites_three_rounds_from_the_command_line_without_encryption(tmp_path: Path) -> None:
    """The five commands a person types, as processes, ended by Ctrl-C."""
    rounds = three_rounds()
    expected = reference_of(rounds, "communities").server  # first, so that the processes find compiled kernels
    (tmp_path / "schema.toml").write_text(SCHEMA)
    started: list[subprocess.Popen[bytes]] = []
    logs = {name: (tmp_path / f"{name}.out").open("wb") for name in ("server", "a", "b", "c")}
    fcac = [sys.executable, "-m", "fcac", "federation"]

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [*fcac, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def background(log: str, *arguments: str) -> None:
        started.append(
            subprocess.Popen(
                [*fcac, *arguments], cwd=tmp_path, stdout=logs[log], stderr=subprocess.STDOUT, start_new_session=True
            )
        )

    address = f"127.0.0.1:{free_port()}"
    command("init", "study", "--sites", "a,b,c", "--schema", "schema.toml", "--insecure", "--address", address)
    try:
        background("server", "server", "study")
        for name in "abc":
            (tmp_path / name).mkdir()
            background(
                name, "site", f"study/bundles/{name}", "--data", name, "--state", f"state-{name}", "--no-privacy"
            )
        assert wait_until(lambda: b"Server ready" in (tmp_path / "server.out").read_bytes(), PATIENCE, started[0])
        for process, name in zip(started[1:], "abc", strict=True):
            assert wait_until(lambda n=name: b"Connected" in (tmp_path / f"{n}.out").read_bytes(), PATIENCE, process)
        for rows in rounds:
            for name, block in rows.items():
                path = tmp_path / name / "rows.csv"
                write_csv(path, block, header=not path.exists())
            assert "1 round closed" in command("run", "study", "--rounds", "1")
        hub = Hub(tmp_path / "study" / "state", FederationSettings.load(tmp_path / "study"))
        assert_same_server(hub.snapshot().server, expected)
        assert "rounds closed: 3" in command("status", "study")
        command("label", "study/bundles/b", "--data", "b/rows.csv", "--out", "labels.csv")
        assert len((tmp_path / "labels.csv").read_text().splitlines()) == 451
        for process in reversed(started):
            os.kill(process.pid, signal.SIGINT)
        assert [process.wait(PATIENCE) for process in started] == [0, 0, 0, 0]
        assert not processes.is_healthy(tmp_path / "study", int(address.rpartition(":")[2]), insecure=True)
    finally:
        for process in started:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
                process.wait(PATIENCE)
        for log in logs.values():
            log.close()


def test_a_server_with_an_expired_certificate_does_not_start(tmp_path: Path) -> None:
    with deployment(tmp_path, "a", insecure=False) as made:
        certificates.make_server_certificate(made.root / "ca", made.root / "server", ["127.0.0.1"], days=1, start=-2)
        with pytest.raises(FlowerError, match="expired"):
            made.start_server()
        assert made.server is not None
        assert made.server.process is None


# ------------------------------------------------------------ make soak


@pytest.mark.soak
def test_an_expired_certificate_is_refused_by_sites(tmp_path: Path) -> None:
    with deployment(tmp_path, "a", insecure=False) as made:
        certificates.make_server_certificate(made.root / "ca", made.root / "server", ["127.0.0.1"], days=1, start=-2)
        port = certificates.split_address(FederationSettings.load(made.root).address)[1]
        command = processes.superlink_command(made.root, port, "127.0.0.1", insecure=False)
        with (tmp_path / "superlink.log").open("wb") as log:
            process = processes.start(command, tmp_path / "home", log)
        try:
            assert wait_until(
                lambda: b"Uvicorn running" in (tmp_path / "superlink.log").read_bytes(), PATIENCE, process
            )
            site = made.start_site("a")
            assert site.process is not None
            assert site.process.wait(PATIENCE) != 0
            assert "certificate is expired" in why_it_ended(site.log_path)
        finally:
            processes.stop(process)


@contextlib.contextmanager
def busy(state: Path) -> Iterator[None]:
    """Make a site hang: somebody else holds its lock."""
    with (state / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def keep_alive(site: SiteProcess) -> None:
    """Do what the command does: start the SuperNode again when it ends (until the test stops it for good)."""
    with contextlib.suppress(FlowerError):
        site.watch(print)


@pytest.mark.soak
def test_faults_on_real_processes(tmp_path: Path) -> None:
    """A site that hangs, a SuperNode killed mid-round, a late joiner, the SuperLink killed mid-run: nothing is lost."""
    rows = three_rounds("abcd")
    reference = Reference()
    reference.play({name: rows[0][name] for name in "ab"}, 1)
    reference.play({name: rows[1][name] for name in "ab"}, 2)
    reference.play({**rows[2], "c": np.concatenate([batch["c"] for batch in rows])}, 3)
    with deployment(tmp_path, "abc", insecure=False, timeout=120.0) as made:
        made.start_server()
        for name in "abc":
            made.start_site(name)

        # round 1: c hangs past the timeout
        made.give({name: rows[0][name] for name in "abc"})
        with busy(tmp_path / "state-c"):
            assert made.run() == 1
            time.sleep(1)
        # no reply, or Flower's word that its time was up
        assert made.happened("no reply", "c", 1) or made.happened("failed", "c", 1)
        assert made.hub.snapshot().server.sites == ["a", "b"]

        # round 2: c's SuperNode is killed while it works
        made.give({name: rows[1][name] for name in "abc"})
        with busy(tmp_path / "state-c"):
            thread, errors = in_background(made.run)
            assert wait_until(lambda: made.happened("accepted", "a", 2) and made.happened("accepted", "b", 2), PATIENCE)
            process = made.sites["c"].process
            assert process is not None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            thread.join(3 * PATIENCE)
            assert not thread.is_alive()
        assert errors == []
        assert made.hub.snapshot().closed == 2
        assert made.hub.snapshot().server.sites == ["a", "b"]

        # round 3: c is back, d joins late, and the SuperLink is killed before c has answered
        study.add(made.root, "d")
        assert made.server is not None
        assert made.server.sync_keys() == ["d may connect"]
        # for a minute the server takes the killed c for alive and refuses its key; the site tries again by itself
        keeper = made.start_site("c")
        threading.Thread(target=keep_alive, args=(keeper,), daemon=True).start()
        assert wait_until(keeper.is_connected, PATIENCE)
        made.start_site("d")
        made.give(rows[2])
        with busy(tmp_path / "state-c"):
            thread, errors = in_background(made.run)
            assert wait_until(lambda: all(made.happened("accepted", s, 3) for s in "abd"), PATIENCE)
            assert made.server.process is not None
            os.killpg(made.server.process.pid, signal.SIGKILL)
            made.server.process.wait()
            thread.join(3 * PATIENCE)
            assert not thread.is_alive()
        assert len(errors) == 1
        assert isinstance(errors[0], FlowerError)
        assert made.hub.snapshot().closed == 2
        assert sorted(made.hub.inbox()) == ["a", "b", "d"]
        made.start_server()
        assert made.run(hand_out=True) == 1
        asked = [entry["sites"] for entry in made.hub.journal() if entry["event"] == "asking"]
        assert asked[-1] == ["c"]

        assert_same_server(made.hub.snapshot().server, reference.server)


def start_hostile(made: Deployment, name: str, file: Path) -> None:
    """Start a SuperNode that answers with what is in a file, in place of the site's own app."""
    folder, state = made.folder / f"hostile-{name}", made.folder / f"state-{name}"
    state.mkdir()
    folder.mkdir()
    script = shlex.join(
        [sys.executable, str(Path(__file__).parents[1] / "testing" / "hostile_client.py"), str(file), name]
    )
    (folder / "flwr-clientapp").write_text(f'#!/bin/sh\nexec {script} "$@"\n')
    (folder / "flwr-clientapp").chmod(0o700)
    settings = SiteSettings(name, str(made.folder), str(state), str(made.folder / "schema.toml"))
    site = SiteProcess(made.root / "bundles" / name, settings)
    command = processes.supernode_command(site.bundle, site.address, site.insecure, state / "settings.json")
    with site.log_path.open("wb") as log:
        site.process = processes.start(command, state / "flwr-home", log, first=folder)
    made.sites[name] = site


def write_foreign_app(folder: Path, marks: Path) -> Path:
    """Write an app that leaves a mark wherever its code is run."""
    package = folder / "foreign"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for kind in ("Server", "Client"):
        text = (
            f"from pathlib import Path\nfrom flwr.{kind.lower()}app import {kind}App\n"
            f"Path({str(marks)!r}, {kind!r}).touch()\napp = {kind}App()\n"
        )
        if kind == "Server":
            text += "@app.main()\ndef main(grid, context):\n    pass\n"
        (package / f"{kind.lower()}.py").write_text(text)
    apps = 'serverapp = "foreign.server:app"\nclientapp = "foreign.client:app"\n'
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "foreign"\nversion = "1.0.0"\ndescription = ""\nlicense = "MIT"\ndependencies = []\n'
        f'[tool.hatch.build.targets.wheel]\npackages = ["."]\n[tool.flwr.app]\npublisher = "stranger"\n'
        f"[tool.flwr.app.components]\n{apps}[tool.flwr.app.config]\n"
    )
    return folder


@pytest.mark.soak
def test_a_hostile_site_and_a_foreign_run_on_real_processes(tmp_path: Path) -> None:
    """What b sends is rejected with a reason, once good and then repeated; the model is what the others give."""
    kinds = ["nan", "wrong d", "million nodes", "negative counts", "another's name", "no contribution"]
    reference = Reference()
    send = tmp_path / "send"
    with deployment(tmp_path, "abc", insecure=False) as made:
        made.start_server()
        for name in "ac":
            made.start_site(name)
        start_hostile(made, "b", send)
        for number, kind in enumerate([*kinds, "good", "repeat"], 1):
            rows = {name: blobs(60, 10 * number + i) for i, name in enumerate("ac")}
            made.give(rows)
            honest = reference.contribute(rows, number)
            if kind == "good":
                honest.append(Contribution("b", number, blobs(20, 5), np.ones(20, np.int64)))
                send.write_bytes(honest[-1].to_bytes())
            elif kind != "repeat":
                send.write_bytes(hostile(kind, number)[0])
            reference.server.absorb(honest)
            assert made.run() == 1
            rejected = [e["reason"] for e in made.hub.journal() if e["event"] == "rejected" and e["round"] == number]
            expected = [] if kind in ("good", "repeat") else [hostile(kind, number)[1]]
            assert len(rejected) == len(expected)
            assert all(words in reason for words, reason in zip(expected, rejected, strict=True))
        assert made.happened("accepted", "b", 7)
        assert made.happened("duplicate", "b", 8)
        assert_same_server(made.hub.snapshot().server, reference.server)

        # a stranger's run: its code is executed nowhere; at most it makes the sites answer a round
        (tmp_path / "marks").mkdir()
        app = write_foreign_app(tmp_path / "foreign-app", tmp_path / "marks")
        assert made.server is not None
        answer = processes.flwr(made.server.home, "run", str(app))
        assert answer["success"]
        run_id = str(answer["run-id"])

        def ended() -> bool:
            runs = processes.flwr(made.server.home, "list", "--run-id", run_id)["runs"]
            return str(runs[0]["status"]).startswith("finished")

        assert wait_until(ended, PATIENCE)
        assert list((tmp_path / "marks").iterdir()) == []
        assert_same_server(made.hub.snapshot().server, reference.server)


@pytest.mark.soak
def test_the_control_interface_is_closed_to_strangers(tmp_path: Path) -> None:
    """Requests that come from elsewhere (as a proxy on the same machine reports them) reach the sites' paths only."""
    with deployment(tmp_path, "a", insecure=False) as made:
        made.start_server()
        address = FederationSettings.load(made.root).address
        trust = ssl.create_default_context(cafile=str(made.root / "ca" / "ca.crt"))

        def answer(path: str, sender: str | None = None) -> tuple[int, bytes]:
            headers = {} if sender is None else {"X-Forwarded-For": sender}
            request = urllib.request.Request(f"https://{address}{path}", b"", headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE, context=trust) as reply:
                    return int(reply.status), reply.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        closed = (403, b"only from the server's own machine")
        assert answer("/v1/control/start-run", "203.0.113.5") == closed
        assert answer("/v1/runtime/acquire-task", "203.0.113.5") == closed
        assert answer("/docs", "203.0.113.5") == closed
        assert answer("/v1/fleet/../control/start-run", "203.0.113.5")[0] == 404
        assert answer("/v1/control/list-runs") != closed
        # a site's path: let through to Flower, which does not take an empty message
        assert answer("/v1/fleet/pull-messages", "203.0.113.5")[0] == 415
