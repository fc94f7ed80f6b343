"""The long-running commands: a server that keeps its registered keys up to date, a site, and runs of rounds."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac.deployment import certificates
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FEDERATION_FILE, FederationSettings, SiteSettings
from fcac.deployment.study import BUNDLE_FILE, KEY_FILE, STATE, read_bundle, write_app
from fcac.exceptions import FlowerError
from fcac.flower import processes
from fcac.flower.pinned_runtime import write_programs
from fcac.tables.sources import is_address

Say = Callable[[str], None]

_NODES_FILE = "registered.json"
_START_SECONDS = 120.0
_LIST_EVERY = 45.0
_FOLLOW_EVERY = 0.5
_RETRY_SECONDS = 20.0
_STEADY_SECONDS = 120.0
_MOST_TRIES = 15


class ServerProcess:
    """The SuperLink of a federation, with the keys of its active sites registered."""

    def __init__(self, root: Path, host: str | None = None) -> None:
        self.root = root
        self.settings = FederationSettings.load(root)
        own_host, self.port = certificates.split_address(self.settings.address)
        if host is not None and not certificates.is_loopback(host) and host not in ("0.0.0.0", "::"):
            raise ValueError(f"--host {host}: the server itself uses loopback; listen on 127.0.0.1 or 0.0.0.0")
        if self.settings.insecure and not certificates.is_loopback(host or own_host):
            raise ValueError("without encryption, the server listens only on a loopback address")
        # A name or an external address may belong to a router; in that case the machine listens on all interfaces.
        self.host = host or (own_host if certificates.is_loopback(own_host) else "0.0.0.0")
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = root / "server" / "superlink.log"
        self._seen = 0

    def start(self) -> None:
        """Start the SuperLink, wait until it answers, and register keys."""
        if not self.settings.insecure:
            import datetime

            ends = certificates.server_certificate_ends(self.root / "server" / "server.crt")
            if ends <= datetime.datetime.now(datetime.UTC):
                raise FlowerError(f"the server's certificate expired on {ends:%Y-%m-%d}: run 'fcac federation renew'")
        if processes.is_healthy(self.root, self.port, self.settings.insecure):
            raise FlowerError(f"something already answers on port {self.port}: is this server running?")
        self.home = processes.write_connection(self.root, self.port, self.settings.insecure)
        command = processes.superlink_command(self.root.resolve(), self.port, self.host, self.settings.insecure)
        with self.log_path.open("ab") as log:
            programs = write_programs(self.root.resolve() / "server" / "bin", "server", self.root.resolve())
            self.process = processes.start(command, self.home, log, first=programs)
        ready = processes.wait_until(
            lambda: processes.is_healthy(self.root, self.port, self.settings.insecure), _START_SECONDS, self.process
        )
        if not ready:
            self.stop()
            raise FlowerError(f"the server did not start; see {self.log_path}")
        self.sync_keys()

    def sync_keys(self) -> list[str]:
        """Register the keys of active sites and unregister those of revoked ones; return what was done."""
        stamp = (self.root / FEDERATION_FILE).stat().st_mtime_ns
        if stamp == self._seen or self.settings.insecure:
            return []
        self.settings = FederationSettings.load(self.root)
        path = self.root / "server" / _NODES_FILE
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        wanted = {m.key: name for name, m in self.settings.members.items() if m.status != "revoked" and m.key}
        done = []
        for key in sorted(set(wanted) - set(known)):
            answer = self._register(key, wanted[key])
            known[key] = str(answer["node-id"])
            done.append(f"{wanted[key]} may connect")
            persistence.write_atomic(path, json.dumps(known, indent=1).encode())
        for key in sorted(set(known) - set(wanted)):
            answer = processes.flwr(self.home, "supernode", "unregister", known[key])
            if not answer.get("success"):
                raise FlowerError(f"a key could not be unregistered: {answer.get('error-message')}")
            del known[key]
            owners = [name for name, member in self.settings.members.items() if member.key == key]
            done.append(f"{'the key of ' + owners[0] if owners else 'an old key'} is no longer accepted")
            persistence.write_atomic(path, json.dumps(known, indent=1).encode())
        self._seen = stamp
        return done

    def _register(self, key: str, site: str) -> dict[str, Any]:
        path = self.root / "server" / f"{site}.pub"
        path.write_text(key + "\n", "utf-8")
        try:
            answer = processes.flwr(self.home, "supernode", "register", str(path), "--name", site)
        finally:
            path.unlink()
        if not answer.get("success"):
            raise FlowerError(f"the key of {site} could not be registered: {answer.get('error-message')}")
        return answer

    def watch(self, say: Say) -> None:
        """Wait until the SuperLink ends, applying changes of ``federation.toml`` meanwhile."""
        assert self.process is not None
        while self.process.poll() is None:
            for line in self.sync_keys():
                say(line)
            time.sleep(1.0)
        raise FlowerError(f"the server has stopped unexpectedly; see {self.log_path}")

    def stop(self) -> None:
        """Stop the SuperLink and what it started."""
        if self.process is not None:
            processes.stop(self.process)


class SiteProcess:
    """The SuperNode of a site."""

    def __init__(self, bundle: Path, settings: SiteSettings) -> None:
        facts = read_bundle(bundle)
        self.bundle, self.settings = bundle, settings
        self.state = Path(settings.state)
        self.address, self.insecure = str(facts["address"]), bool(facts["insecure"])
        self.log_path = self.state / "supernode.log"
        self._log_start = 0
        self._stopped = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Write the site's settings and start the SuperNode."""
        lacking = [name for name in ("ca.crt", KEY_FILE) if not self.insecure and not (self.bundle / name).is_file()]
        if lacking:
            raise FlowerError(f"the bundle {self.bundle} has no {lacking[0]}: has the site been revoked?")
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = (self.state / "settings.json").resolve()
        self.settings.save(path)
        command = processes.supernode_command(self.bundle.resolve(), self.address, self.insecure, path)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = processes.start(
                command, self.state / "flwr-home", log, first=write_programs(self.state.resolve() / "bin", "site")
            )

    def watch(self, say: Say) -> None:
        """Wait until stopped, passing on what the site logs and restarting the SuperNode when it ends.

        After a crash, the server considers the site alive, and refuses its key, for about a minute.
        """
        tries = 0
        news = _NewLines(self.state / "site.log")
        while True:
            assert self.process is not None
            started, connected = time.monotonic(), False
            while self.process.poll() is None:
                if not connected and self.is_connected():
                    say("Connected.")
                    connected = True
                for line in news.read():
                    say(line)
                self._stopped.wait(0.5)
            if self._stopped.is_set():
                return
            tries = tries + 1 if time.monotonic() - started < _STEADY_SECONDS else 1
            why = why_it_ended(self.log_path, self._log_start)
            if "certificate" in why or tries > _MOST_TRIES:
                raise FlowerError(f"{why}; see {self.log_path}")
            say(f"{why}; trying again in {_RETRY_SECONDS:g} seconds")
            if self._stopped.wait(_RETRY_SECONDS):
                return
            self.start()

    def is_connected(self) -> bool:
        """Return whether the server has accepted this site since it was last started."""
        return self.log_path.exists() and b"SuperNode ID" in self.log_path.read_bytes()[self._log_start :]

    def stop(self) -> None:
        """Stop the SuperNode and what it started, and do not restart it."""
        self._stopped.set()
        if self.process is not None:
            processes.stop(self.process)


class _NewLines:
    """Reads what is added to a site's log, entry by entry; the details of errors stay in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for line in whole.decode("utf-8", "replace").splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]


def why_it_ended(log: Path, start: int = 0) -> str:
    """Explain why a SuperNode ended, from its log (from this byte on)."""
    text = log.read_bytes()[start:].decode("utf-8", "replace")[-5000:] if log.exists() else ""
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "the server's certificate is expired, for another address, or not of the authority in the bundle"
    if "Failed to activate" in text:
        return "the server refused this site's key: it is unknown, revoked, or in use by another process"
    if "terminated gracefully" in text:
        return "the server has revoked this site's access or closed the connection"
    return "the site's connection has ended"


def site_settings(bundle: Path, data: Path | str, state: Path, **choices: Any) -> SiteSettings:
    """Return the settings of a site from its bundle and its operator's choices, after checking them."""
    facts = read_bundle(bundle)
    settings = SiteSettings(
        name=str(facts["site"]),
        data=data if isinstance(data, str) and is_address(data) else str(Path(data).resolve()),
        state=str(state.resolve()),
        schema=str((bundle / "schema.toml").resolve()),
        **facts.get("condensing", {}),
        **choices,
    )
    from fcac.federation import Site

    # its contents are as sensitive as the rows
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    mechanism = settings.mechanism()
    if mechanism is not None:
        mechanism.sampler.check_ready()
    # refuses a state that was made with other privacy settings
    Site(settings.name, mechanism, state, settings.make_condenser())
    return settings


def budget_of(state: Path, epsilon: float, wanted: float | None) -> tuple[float, str]:
    """Return the budget of a site and its origin: the one requested, the one in its ledger, or 5 x epsilon."""
    from fcac.privacy import Ledger

    path = state / "ledger.db"
    if path.exists() and path.stat().st_size:  # a crash can leave an empty file
        known = Ledger.open(path).budget
        if wanted is not None and wanted != known:
            raise ValueError(
                f"the site's ledger has a budget of {known:g}, not {wanted:g}: leave out --budget, or change it with "
                f"'fcac ledger {path} --set-budget {wanted:g}'"
            )
        return known, "from its ledger"
    return (5 * epsilon, "5 x epsilon, since --budget was not given") if wanted is None else (wanted, "as given")


def run_rounds(
    root: Path, rounds: int, say: Say, *, hand_out: bool = True, patience: float | None = None
) -> dict[str, Any]:
    """Submit a run, follow it in the journal, and return its result.

    Parameters
    ----------
    root : Path
    rounds : int
    say : callable
        Called with every line that describes what happens.
    hand_out : bool
        Send the model to the sites at the end.
    patience : float, optional
        Stop following after this many seconds; by default never.

    Raises
    ------
    FlowerError
        If the run failed. What had arrived is kept, and the next run continues from there.
    """
    settings = FederationSettings.load(root)
    port = certificates.split_address(settings.address)[1]
    if not processes.is_healthy(root, port, settings.insecure):
        raise FlowerError(f"no server answers on port {port}: start 'fcac federation server {root}' first")
    home = processes.write_connection(root, port, settings.insecure)
    hub = Hub(root / STATE, settings)
    ticket = secrets.token_hex(8)
    seen = hub.journal_size()
    config: dict[str, Any] = {"fcac-federation": str(root.resolve()), "fcac-rounds": rounds, "fcac-ticket": ticket}
    config["fcac-hand-out"] = hand_out
    pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    answer = processes.flwr(home, "run", str(write_app(root)), "--run-config", pairs)
    if not answer.get("success"):
        raise FlowerError(f"the run was not accepted: {answer.get('error-message')}")
    run_id = str(answer["run-id"])
    started = time.monotonic()
    next_look = started + _LIST_EVERY
    try:
        while True:
            seen = _tell(hub, seen, say)
            result = _result(hub.state / "run.json", ticket)
            if result is None and time.monotonic() >= next_look:
                _check_alive(root, home, port, settings.insecure, run_id)
                next_look = time.monotonic() + _LIST_EVERY
            if result is not None:
                _tell(hub, seen, say)
                if result["ended"] != "well":
                    last = str(result.get("error", "")).strip().rpartition("\n")[2]
                    raise FlowerError(
                        f"the run failed: {last or 'no reason given'}; for details see {hub.state / 'run.json'}"
                    )
                return result
            if patience is not None and time.monotonic() - started > patience:
                raise FlowerError(f"the run has not ended after {patience:g} seconds")
            time.sleep(_FOLLOW_EVERY)
    except KeyboardInterrupt:
        processes.flwr(home, "stop", run_id)
        raise


def _check_alive(root: Path, home: Path, port: int, insecure: bool, run_id: str) -> None:
    again = f"run 'fcac federation run {root}' again to continue where it stopped"
    if not processes.is_healthy(root, port, insecure):
        raise FlowerError(f"the server no longer answers; start it, then {again}")
    answer = processes.flwr(home, "list", "--run-id", run_id)
    status = str((answer.get("runs") or [{}])[0].get("status", ""))
    if status.startswith("finished") and status != "finished:completed":
        raise FlowerError(f"the run ended as {status}; {again}")


def _result(path: Path, ticket: str) -> dict[str, Any] | None:
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return result if result["ticket"] == ticket else None


def _tell(hub: Hub, seen: int, say: Say) -> int:
    entries, seen = hub.journal_since(seen)
    for entry in entries:
        say(in_words(entry))
    return seen


def in_words(entry: dict[str, Any]) -> str:
    """Return a journal entry as a line of text."""
    site, number = entry.get("site", ""), entry.get("round", "")
    match entry["event"]:
        case "asking":
            absent = f"; not connected: {', '.join(entry['absent'])}" if entry.get("absent") else ""
            unnamed = [f"{entry['unnamed']} not named yet"] if entry.get("unnamed") else []
            return f"round {number}: asking {', '.join([*entry['sites'], *unnamed]) or 'nobody'}{absent}"
        case "accepted":
            return f"round {number}: {site} sent {entry['nodes']} nodes ({entry['bytes']:,} bytes)"
        case "rejected":
            return f"round {number}: what {site} sent was rejected: {entry['reason']}"
        case "closed":
            return f"round {number}: closed with {', '.join(map(str, entry['sites']))}"
        case "failed":
            return f"round {number}: {site} failed (code {entry['code']})"
        case "model taken":
            return f"{site} has the model of round {number}"
        case "no model for sites" | "no report" as event:
            return f"round {number}: {event}: {entry['reason']}"
        case event:
            return f"round {number}: {site} {event}" if number else f"{site} {event}"


def state_of(bundle: Path, state: Path | None) -> Path:
    """Return the state directory of a site: the one given, the one last used with this bundle, or one inside it."""
    pointer = bundle / "state-directory"
    if state is not None:
        return state
    return Path(pointer.read_text("utf-8").strip()) if pointer.exists() else bundle / "state"


def remember_state(bundle: Path, state: Path) -> None:
    """Record in the bundle where the site's state is, so that other commands find it."""
    if (bundle / BUNDLE_FILE).exists() and state.resolve() != (bundle / "state").resolve():
        persistence.write_atomic(bundle / "state-directory", f"{state.resolve()}\n".encode())
