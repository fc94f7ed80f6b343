"""Real processes on loopback: a hub and its sites, over TLS. Stopped by their process ids."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fcac import persistence
from fcac.cli.consent import OPEN
from fcac.codebook import Codebook
from fcac.deployment import certificates, invitations, processes, study
from fcac.deployment.hub import Hub
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port, last_words, wait_until
from fcac.deployment.rehearsal import join_here
from fcac.deployment.running import run_rounds
from fcac.deployment.settings import FederationSettings, SiteSettings
from fcac.deployment.site_agent import load_model
from fcac.deployment.site_setup import site_settings
from fcac.exceptions import FederationError
from fcac.federation import Contribution
from testing.commands import fcac
from testing.compare import assert_same_server
from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA, Reference, assert_no_secret, hostile, make_study, memory_of
from testing.waiting import PATIENCE

pytestmark = pytest.mark.slow


class Deployment:
    """A federation with its processes, all of which are stopped at the end, whatever happens."""

    def __init__(self, folder: Path, names: str, timeout: float = PATIENCE) -> None:
        (folder / "schema.toml").write_text(SCHEMA)
        self.folder = folder
        self.root = make_study(
            folder,
            names,
            folder / "schema.toml",
            address=f"127.0.0.1:{free_port()}",
            server="cae-fc",
            timeout=timeout,
            wait=PATIENCE,
        )
        # what is compared is what sites have sent: no cap may thin it out
        settings = self.root / "federation.toml"
        settings.write_text(re.sub("# (max_(node|count)_share) = 0.25", r"\1 = 1.0", settings.read_text()))
        self.sites: dict[str, SiteProcess] = {}
        self.server: ServerProcess | None = None

    def start_server(self) -> None:
        self.server = ServerProcess(self.root)
        self.server.start()

    def start_site(self, name: str, bundle: Path | None = None, label: str | None = None) -> SiteProcess:
        label = label or name
        (self.folder / f"data-{label}").mkdir(exist_ok=True)
        bundle = bundle or self.root.parent / "bundles" / name
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
        result = run_rounds(self.root, 1, print, hand_out=hand_out)
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
def deployment(folder: Path, names: str, timeout: float = PATIENCE) -> Iterator[Deployment]:
    made = Deployment(folder, names, timeout)
    try:
        yield made
    finally:
        made.stop()


def rows_of_rounds(names: str, n_rounds: int) -> list[dict[str, np.ndarray]]:
    return [{name: blobs(150, 10 * number + i) for i, name in enumerate(names)} for number in range(1, n_rounds + 1)]


def reference_of(rounds: list[dict[str, np.ndarray]], kind: str = "cae-fc", min_rows: int = 3) -> Reference:
    reference = Reference(kind, min_rows)
    for number, rows in enumerate(rounds, 1):
        reference.play(rows, number)
    return reference


def test_sites_and_rounds_with_tls_and_keys(tmp_path: Path) -> None:
    rounds = rows_of_rounds("ab", 2)
    expected = reference_of(rounds).server  # first, so that the processes find compiled kernels
    with deployment(tmp_path, "ab") as made:
        made.start_server()
        # two who must stay out: one with a key nobody registered, one who trusts another authority
        stranger, misled = tmp_path / "stranger", tmp_path / "misled"
        for bundle in (stranger, misled):
            shutil.copytree(made.root.parent / "bundles" / "a", bundle)
        (tmp_path / "other-ca").mkdir()
        certificates.make_authority(tmp_path / "other-ca", "study")
        (stranger / "node.key").unlink()
        request = certificates.make_key(stranger / "node.key", "a")
        (stranger / "node.crt").write_text(certificates.sign_site(made.root / "ca", "a", request))
        shutil.copyfile(tmp_path / "other-ca" / "ca.crt", misled / "ca.crt")
        for name in "ab":
            made.start_site(name)
        refused = {label: made.start_site("a", bundle, label) for label, bundle in
                   (("stranger", stranger), ("misled", misled))}  # fmt: skip

        for number, rows in enumerate(rounds, 1):
            made.give(rows)
            assert made.run(hand_out=number == len(rounds)) == 1
        assert_same_server(made.hub.snapshot().server, expected)

        for label, words in (("stranger", "refuses this site's key"), ("misled", "not of the authority")):
            process = refused[label].process
            assert process is not None
            assert process.wait(PATIENCE) != 0
            assert words in last_words(refused[label].log_path)
        assert not made.happened("rejected")

        model = load_model(tmp_path / "state-a")
        assert isinstance(model, Codebook)
        rows = blobs(500, 99)
        assert (model.predict(rows) == made.hub.snapshot().server.predict(rows)).mean() > 0.9
        strangers_cannot_hurt(made)
        two_hubs_do_not_get_in_each_others_way(made)
        a_new_certificate_is_used_without_a_restart(made)
        assert_no_secret(made.folder)

        study.revoke(made.root, "b")
        process = made.sites["b"].process
        assert process is not None
        process.wait(PATIENCE)  # the hub notices, throws the site out, and its process ends
        again = made.start_site("b").process
        assert again is not None
        assert again.wait(PATIENCE) != 0
        assert "refuses this site's key" in last_words(made.sites["b"].log_path, made.sites["b"].log_start)


def strangers_cannot_hurt(made: Deployment) -> None:
    """Without a certificate of a site, no request is read, and no body of a stranger is."""
    assert made.server is not None
    assert made.server.process is not None
    host, port = certificates.split_address(FederationSettings.load(made.root).address)
    trust = ssl.create_default_context(cafile=str(made.root / "ca" / "ca.crt"))
    before = memory_of(made.server.process.pid)
    for target, path in ((port, "/reply"), (port + 1, "/join")):
        plain = socket.create_connection((host, target))
        with contextlib.suppress(OSError), trust.wrap_socket(plain, server_hostname=host) as stranger:
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {10**9}\r\n\r\n"
            stranger.sendall(head.encode())
            for _ in range(300):  # the hub hangs up
                stranger.sendall(bytes(10**6))
            raise AssertionError("300 MB were taken")
    assert memory_of(made.server.process.pid) < before + 50


def two_hubs_do_not_get_in_each_others_way(made: Deployment) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "fcac.deployment.hub_service", str(made.root)],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert second.returncode != 0
    assert "another hub already serves" in second.stderr


def a_new_certificate_is_used_without_a_restart(made: Deployment) -> None:
    host, port = certificates.split_address(FederationSettings.load(made.root).address)
    before = ssl.get_server_certificate((host, port))
    study.renew(made.root)
    wanted = (made.root / "server" / "server.crt").read_text()
    assert wanted.strip() != before.strip()
    assert wait_until(lambda: ssl.get_server_certificate((host, port)).strip() == wanted.strip(), PATIENCE)


def test_sites_join_and_play_rounds_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands people type at the hub and at sites that make their own keys, ended by Ctrl-C.

    What stays (server and sites), what a site types to join, and one run of rounds are processes.
    """
    rounds = rows_of_rounds("ab", 2)
    # first, so that the processes find compiled kernels; five rows behind a node: the policy that a site begins with
    expected = reference_of(rounds, "communities", min_rows=5).server
    (tmp_path / "schema.toml").write_text(SCHEMA)
    started: list[subprocess.Popen[bytes]] = []
    logs = {name: (tmp_path / f"{name}.out").open("wb") for name in ("server", "a", "b")}
    program = [sys.executable, "-m", "fcac", "federation"]
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> str:
        return fcac(capfd, "federation", *arguments)

    def process(*arguments: str) -> str:
        done = subprocess.run(
            [*program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def background(log: str, *arguments: str) -> None:
        started.append(
            subprocess.Popen(
                [*program, *arguments], cwd=tmp_path, stdin=subprocess.PIPE, stdout=logs[log],
                stderr=subprocess.STDOUT, start_new_session=True,
            )
        )  # fmt: skip
        typed = started[-1].stdin
        assert typed is not None
        typed.write(f"{OPEN}\n".encode())
        typed.close()

    address = f"127.0.0.1:{free_port()}"
    command("init", "study", "--schema", "schema.toml", "--address", address)
    try:
        background("server", "server", "study")
        assert wait_until(lambda: b"Server ready" in (tmp_path / "server.out").read_bytes(), PATIENCE, started[0])
        for name in "ab":
            (tmp_path / name).mkdir()
            if name == "a":
                (tmp_path / "invitation.txt").write_text(command("invite", "study", "a"))
                joined = process("join", "invitation.txt", "--out", "bundle-a").splitlines()
                # what both operators read out is the same; before it is accepted, the key opens nothing
                assert joined[1].strip() in command("accept", "study", "a", "--yes")
            else:  # the same without the commands
                invitations.join(invitations.invite(tmp_path / "study", name), tmp_path / f"bundle-{name}")
                invitations.accept(tmp_path / "study", name)
            assert (tmp_path / f"bundle-{name}" / "node.key").stat().st_mode & 0o077 == 0
            background(
                name, "site", f"bundle-{name}", "--data", name, "--state", f"state-{name}", "--no-privacy", "--yes"
            )
        # no private key was ever at the hub
        assert not list((tmp_path / "study").rglob("node.key"))
        for site, name in zip(started[1:], "ab", strict=True):
            assert wait_until(lambda n=name: b"Connected" in (tmp_path / f"{n}.out").read_bytes(), PATIENCE, site)
        for play, rows in zip((process, command), rounds, strict=True):
            for name, block in rows.items():
                path = tmp_path / name / "rows.csv"
                write_csv(path, block, header=not path.exists())
            assert "1 round closed" in play("run", "study", "--rounds", "1")
        hub = Hub(tmp_path / "study" / "state", FederationSettings.load(tmp_path / "study"))
        assert_same_server(hub.snapshot().server, expected)
        assert "rounds closed: 2" in command("status", "study")
        assert "none changed" in command("log", "state-a", "--verify")
        command("label", "bundle-b", "--data", "b/rows.csv", "--out", "labels.csv")
        assert len((tmp_path / "labels.csv").read_text().splitlines()) == 301
        for running in reversed(started):
            os.kill(running.pid, signal.SIGINT)
        assert [running.wait(PATIENCE) for running in started] == [0, 0, 0]
        assert not processes.is_running(tmp_path / "study")
    finally:
        for running in started:
            if running.poll() is None:
                os.kill(running.pid, signal.SIGTERM)
                running.wait(PATIENCE)
        for log in logs.values():
            log.close()


def test_a_server_with_an_expired_certificate_does_not_start(tmp_path: Path) -> None:
    with deployment(tmp_path, "a") as made:
        certificates.make_server_certificate(made.root / "ca", made.root / "server", ["127.0.0.1"], days=1, start=-2)
        with pytest.raises(FederationError, match="expired"):
            made.start_server()


# ------------------------------------------------------------ make soak


@pytest.mark.soak
def test_an_expired_certificate_is_refused_by_sites(tmp_path: Path) -> None:
    with deployment(tmp_path, "a") as made:
        certificates.make_server_certificate(made.root / "ca", made.root / "server", ["127.0.0.1"], days=1, start=-2)
        careless = (
            "import fcac.deployment.hub_service as hub; hub.check_certificate = lambda *ignored: None; hub.main()"
        )
        with (tmp_path / "hub.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", careless, str(made.root)], stdout=log, stderr=log, start_new_session=True
            )
        try:
            assert wait_until(lambda: b"Server ready" in (tmp_path / "hub.log").read_bytes(), PATIENCE, process)
            site = made.start_site("a")
            assert site.process is not None
            assert site.process.wait(PATIENCE) != 0
            assert "certificate is expired" in last_words(site.log_path)
        finally:
            processes.stop(process)


@contextlib.contextmanager
def busy(state: Path) -> Iterator[None]:
    """Make a site hang: somebody else holds its lock."""
    with persistence.locked(state / "lock"):
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


@pytest.mark.soak
def test_faults_on_real_processes(tmp_path: Path) -> None:
    """A site that hangs, a site killed mid-round, a late joiner, the hub killed mid-run: nothing is lost."""
    rows = rows_of_rounds("abcd", 3)
    reference = Reference()
    reference.play({name: rows[0][name] for name in "ab"}, 1)
    reference.play({name: rows[1][name] for name in "ab"}, 2)
    reference.play({**rows[2], "c": np.concatenate([batch["c"] for batch in rows])}, 3)
    with deployment(tmp_path, "abc", timeout=120.0) as made:
        made.start_server()
        for name in "abc":
            made.start_site(name)

        # round 1: c hangs past the timeout
        made.give({name: rows[0][name] for name in "abc"})
        with busy(tmp_path / "state-c"):
            assert made.run() == 1
            time.sleep(1)
        assert made.happened("no reply", "c", 1)
        assert made.hub.snapshot().server.sites == ["a", "b"]

        # round 2: c's process is killed while it works
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

        # round 3: c is back, d joins late, and the hub is killed before c has answered
        join_here(made.root, "d", made.folder / "bundles" / "d")
        assert made.server is not None
        keeper = made.start_site("c")
        assert wait_until(keeper.is_connected, PATIENCE)
        assert wait_until(lambda: b"d may connect" in made.server.log_path.read_bytes(), PATIENCE)
        late = made.start_site("d")
        assert wait_until(late.is_connected, PATIENCE)
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
        assert isinstance(errors[0], FederationError)
        assert made.hub.snapshot().closed == 2
        assert sorted(made.hub.inbox()) == ["a", "b", "d"]
        made.start_server()
        assert made.run(hand_out=True) == 1
        asked = [entry["sites"] for entry in made.hub.journal() if entry["event"] == "asking"]
        assert asked[-1] == ["c"]

        assert_same_server(made.hub.snapshot().server, reference.server)


def start_hostile(made: Deployment, name: str, file: Path) -> None:
    """Start a site that answers with what is in a file."""
    state = made.folder / f"state-{name}"
    state.mkdir()
    settings = SiteSettings(name, str(made.folder), str(state), str(made.folder / "schema.toml"))
    site = SiteProcess(made.root.parent / "bundles" / name, settings)
    script = Path(__file__).parents[1] / "testing" / "hostile_client.py"
    with site.log_path.open("wb") as log:
        site.process = subprocess.Popen(
            [sys.executable, "-u", str(script), str(site.bundle), str(file), name],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    made.sites[name] = site


@pytest.mark.soak
def test_a_hostile_site_on_real_processes(tmp_path: Path) -> None:
    """What b sends is rejected with a reason, once good and then repeated; the model is what the others give."""
    # a million nodes do not even get through the gate: see test_guard
    kinds = ["nan", "wrong d", "negative counts", "another's name", "no contribution"]
    reference = Reference()
    send = tmp_path / "send"
    with deployment(tmp_path, "abc") as made:
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
        assert made.happened("accepted", "b", len(kinds) + 1)
        assert made.happened("duplicate", "b", len(kinds) + 2)
        assert_same_server(made.hub.snapshot().server, reference.server)
