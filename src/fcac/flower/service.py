"""The long-running parts of a federation as background processes, settings of a site, and runs of rounds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fcac import persistence
from fcac._text import plain
from fcac.deployment.aggregated_study import SITE_KEY_FILE
from fcac.deployment.settings import STATE, FederationSettings, SiteSettings
from fcac.deployment.study import BUNDLE_FILE, read_bundle
from fcac.exceptions import FlowerError
from fcac.flower import processes
from fcac.flower.guard import FrontLimits
from fcac.flower.hub_server import DATABASE, check_certificate, listening_address
from fcac.tables.sources import is_address

Say = Callable[[str], None]

_START_SECONDS = 120.0
_ATTEMPTS = 3
_ALIVE_EVERY = 5.0
# Flower's error codes
_FAILURES = {
    2: "its version of fcac does not know this request",
    3: "its reply was lost, or cannot be read",
    4: "it did not answer in time: it is off, cut off or busy",
    5: "it is no longer connected",
}


class ServerProcess:
    """The hub as a background process (:mod:`fcac.flower.hub_server`).

    Parameters
    ----------
    root : Path
    host : str, optional
    limits : FrontLimits, optional
    """

    def __init__(self, root: Path, host: str | None = None, limits: FrontLimits | None = None) -> None:
        self.root, self.limits = root, limits
        self.settings = FederationSettings.load(root)
        self.host, self.port = listening_address(self.settings, host)
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = root / "server" / "hub.log"

    def start(self) -> None:
        """Start the hub and wait until it answers."""
        check_certificate(self.root, self.settings)
        if processes.is_healthy(self.root, self.port, self.settings.insecure):
            raise FlowerError(f"something already answers on port {self.port}: is this server running?")
        limits = [] if self.limits is None else [json.dumps(asdict(self.limits))]
        command = ["fcac.flower.hub_server", str(self.root.resolve()), self.host, *limits]
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = processes.start(command, log)
        ready = processes.wait_until(
            lambda: processes.is_healthy(self.root, self.port, self.settings.insecure), _START_SECONDS, self.process
        )
        if not ready:
            self.stop()
            raise FlowerError(f"the server did not start: {last_words(self.log_path, begin)}; see {self.log_path}")

    def stop(self) -> None:
        """Stop the hub."""
        if self.process is not None:
            processes.stop(self.process)


class SiteProcess:
    """A site as a background process (:mod:`fcac.flower.site_node`).

    Parameters
    ----------
    bundle : Path
    settings : SiteSettings
    """

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
            self.process = processes.start(["fcac.flower.site_node", str(self.bundle.resolve()), str(path)], log)

    def is_connected(self) -> bool:
        """Return whether the hub has accepted this site since it was last started."""
        return self.log_path.exists() and b"Connected" in self.log_path.read_bytes()[self.log_start :]

    def stop(self) -> None:
        """Stop the site."""
        if self.process is not None:
            processes.stop(self.process)


def last_words(log: Path, start: int = 0) -> str:
    """Return the last line of a process's log (from this byte on): it says why the process ended."""
    lines = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines() if log.exists() else []
    return plain(lines[-1]) if lines else "it said nothing"


def store_settings(settings: SiteSettings) -> Path:
    """Write a site's settings into its state directory, from which requests are answered; return the file."""
    make_private(Path(settings.state))
    path = (Path(settings.state) / "settings.json").resolve()
    settings.save(path)
    return path


def make_private(folder: Path) -> None:
    """Make a directory that only its owner can enter, whether or not it existed: it holds what the rows say."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def site_settings(bundle: Path, data: Path | str, state: Path, **choices: Any) -> SiteSettings:
    """Return the settings of a site from its bundle and its operator's choices, after checking them."""
    facts = read_bundle(bundle)
    choices |= summed_by(bundle, facts, choices)
    settings = SiteSettings(
        name=str(facts["site"]),
        data=data if isinstance(data, str) and is_address(data) else str(Path(data).resolve()),
        state=str(state.resolve()),
        schema=str((bundle / "schema.toml").resolve()),
        encoders=facts.get("encoders", {}),
        **facts.get("condensing", {}),
        **choices,
    )
    from fcac.federation import Site
    from fcac.privacy.samplers import OpenDPSampler
    from fcac.tables.schema import Schema

    make_private(state)
    if settings.agree is not None and Schema.load(settings.schema).bounds is None:
        # nothing can be released before the sites have agreed on bounds
        OpenDPSampler().check_ready()
        return settings
    mechanism = settings.mechanism()
    if mechanism is not None:
        mechanism.sampler.check_ready()
    # refuses a state that was made with other privacy settings
    Site(settings.name, mechanism, state, settings.make_condenser())
    return settings


def summed_by(bundle: Path, facts: dict[str, Any], choices: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a site whose study sums its sites, if its operator has agreed to the study's epsilon."""
    summing = facts.get("summing")
    if summing is None:
        return {}
    for name in ("epsilon", "delta"):
        chosen = choices.get(name, 1e-6 if name == "delta" else None)
        if chosen != summing[name]:
            raise ValueError(
                f"this study sums its sites at {name} = {summing[name]:g}, the same for all: "
                f"take part with --{name} {summing[name]:g}, or not at all"
            )
    key = (bundle / SITE_KEY_FILE).resolve()
    return {"summing_key": str(key)}


def budget_of(state: Path, epsilon: float, wanted: float | None) -> tuple[float, str]:
    """Return the budget of a site and its origin: the one in its ledger or, for a new one, the one requested."""
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
    if wanted is None:
        raise ValueError(
            "--budget is missing: the epsilon that this site may spend over all rounds. There is no default; "
            f"with --budget {epsilon:g} the site answers one round"
        )
    return wanted, "as given"


@contextlib.contextmanager
def running_hub(root: Path, settings: FederationSettings) -> Iterator[Callable[[], None]]:
    """Hold the right to play rounds; yield a check that raises an error once the hub no longer answers.

    Rounds are played by whoever can write the hub's files, one at a time; there is no interface to start them over the
    network.
    """
    from fcac.deployment.certificates import split_address

    port = split_address(settings.address)[1]

    def answers() -> bool:
        for attempt in range(_ATTEMPTS):
            if processes.is_healthy(root, port, settings.insecure):
                return True
            time.sleep(0.5 * attempt)
        return False

    if not answers():
        raise FlowerError(f"no server answers on port {port}: start 'fcac federation server {root}' first")
    next_look = time.monotonic() + _ALIVE_EVERY

    def check() -> None:
        nonlocal next_look
        if time.monotonic() < next_look:
            return
        if not answers():
            raise FlowerError(
                f"the server no longer answers; start it, then run 'fcac federation run {root}' again to continue "
                "where it stopped"
            )
        next_look = time.monotonic() + _ALIVE_EVERY

    try:
        with persistence.locked(root / STATE / "run-lock", 0.0):
            yield check
    except TimeoutError:
        raise FlowerError(f"rounds of {root} are already being played by another process") from None


def run_rounds(root: Path, rounds: int, say: Say, *, hand_out: bool = True) -> dict[str, Any]:
    """Play rounds and return the result.

    Parameters
    ----------
    root : Path
    rounds : int
    say : callable
        Called with every line that describes what happens.
    hand_out : bool
        Send the model to the sites at the end.

    Raises
    ------
    FlowerError
        If the hub does not run. What had arrived is kept, and the next run continues from there.
    """
    from fcac.flower.adapter import Link, LinkGrid
    from fcac.flower.server_app import play

    settings = FederationSettings.load(root)
    with running_hub(root, settings) as check, LinkGrid(Link(root.resolve() / "server" / DATABASE)) as grid:
        return play(grid, root, rounds, hand_out=hand_out, check=check, listen=lambda entry: say(in_words(entry)))


def in_words(entry: dict[str, Any]) -> str:
    """Return a journal entry as a line of text that can be shown, whatever a site has sent."""
    return plain(_in_words(entry), 1000)


def _in_words(entry: dict[str, Any]) -> str:
    site, number = entry.get("site", ""), entry.get("round", "")
    match entry["event"]:
        case "asking":
            absent = f"; not connected: {', '.join(entry['absent'])}" if entry.get("absent") else ""
            unnamed = [f"{entry['unnamed']} not named yet"] if entry.get("unnamed") else []
            return f"round {number}: asking {', '.join([*entry['sites'], *unnamed]) or 'nobody'}{absent}"
        case "accepted":
            return f"round {number}: {site} sent {entry['nodes']} nodes ({entry['bytes']:,} bytes)"
        case "agreeing":
            asked = {"schema": "handing the schema to"}.get(entry["stage"], f"asking for {entry['stage']} counts:")
            unnamed = [f"{entry['unnamed']} not named yet"] if entry.get("unnamed") else []
            return f"agreement: {asked} {', '.join([*entry['sites'], *unnamed]) or 'nobody'}"
        case "agreed":
            return f"agreement: {', '.join(entry['sites'])} have agreed on {entry['columns']} columns"
        case "rejected":
            return f"{f'round {number}: ' if number else ''}what {site} sent was rejected: {entry['reason']}"
        case "closed":
            return f"round {number}: closed with {', '.join(map(str, entry['sites']))}"
        case "failed":
            why = _FAILURES.get(entry["code"], "its program raised an error")
            return f"{f'round {number}: ' if number else ''}{site} failed: {why}"
        case "model taken":
            return f"{site} has the model of round {number}"
        case "budget":
            return f"round {number}: {site} has {100 * entry['left']:.0f} % of its privacy budget left"
        case "unusual":
            return f"round {number}: LOOK at what {site} sent: {entry['reason']}"
        case "refused":
            return f"{site}: {entry['reason']}"
        case "summing":
            again = f", attempt {entry['attempt']}" if entry.get("attempt", 1) > 1 else ""
            return f"round {number}: adding up all sites under secure aggregation{again}"
        case "no model for sites" | "no report" | "capped" | "too few sites" as event:
            site = f"{site} " if site else ""
            return f"round {number}: {site}{event}: {entry['reason']}"
        case event:
            return f"round {number}: {site} {event}" if number else f"{site} {event}"


def state_of(bundle: Path, state: Path | None) -> Path:
    """Return the state directory of a site: the one given, the one last used with this bundle, or one inside it.

    The note in the bundle counts only if the state directory it names was used with this bundle: a bundle comes from
    the hub, and where this site keeps its state is not the hub's to say.
    """
    if state is not None:
        return state
    pointer = bundle / "state-directory"
    if pointer.exists():
        named = Path(pointer.read_text("utf-8").strip())
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads((named / "settings.json").read_text("utf-8"))
            if Path(stored["schema"]) == (bundle / "schema.toml").resolve():
                return named
    return bundle / "state"


def remember_state(bundle: Path, state: Path) -> None:
    """Record in the bundle where the site's state is, so that other commands find it."""
    if (bundle / BUNDLE_FILE).exists() and state.resolve() != (bundle / "state").resolve():
        persistence.write_atomic(bundle / "state-directory", f"{state.resolve()}\n".encode())
