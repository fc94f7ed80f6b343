"""A whole federation on one machine, for trying it out: made-up rows, keys, hub, sites and rounds; real processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fcac.aggregation import SigningKey
from fcac.deployment import certificates, invitations, study
from fcac.deployment.aggregated_study import SITE_KEY_FILE
from fcac.deployment.policy import Policy, described
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port, wait_until
from fcac.deployment.running import run_rounds
from fcac.deployment.site_setup import site_settings
from fcac.exceptions import FederationError
from fcac.tables.schema import Schema

Say = Callable[[str], None]

_SCHEMA = """\
fcac_schema = 1
bounds_are_public = true

[columns]
pressure = { min = 60, max = 220 }
pulse = { min = 30, max = 200 }
"""
_CENTRES = np.array([[115.0, 62.0], [140.0, 98.0], [168.0, 72.0], [190.0, 130.0]])
_ROWS = 600
_CONNECT_SECONDS = 300.0


def join_here(root: Path, site: str, bundle: Path) -> Path:
    """Let a site join at the hub's own machine, where nobody compares fingerprints; return its bundle.

    The site's keys are made in its bundle and stay there; the hub gets what it gets from any site.
    """
    bundle.mkdir(parents=True, exist_ok=True, mode=0o700)
    invitation = invitations.invite(root, site)
    asked = {
        "site": site,
        "token": invitation.token,
        "request": certificates.make_key(bundle / study.KEY_FILE, site),
        "summing": SigningKey.at(bundle / SITE_KEY_FILE).public.hex(),
    }
    invitations.ask(root, asked)
    invitations.accept(root, site)
    files = invitations.ask(root, asked)
    invitations.write_bundle(bundle, files, site)
    (bundle / study.CERTIFICATE_FILE).write_text(files[study.CERTIFICATE_FILE], "ascii")
    return bundle


class Rehearsal:
    """A federation below a new or empty folder, with processes that are stopped at the end, whatever happens.

    `epsilon` is the privacy cost of a round at every site.
    """

    def __init__(self, folder: Path, n_sites: int, say: Say, epsilon: float | None = None) -> None:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: a rehearsal needs an empty folder")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.say, self.epsilon = folder, say, epsilon
        self.names = [f"site-{number}" for number in range(1, n_sites + 1)]
        (folder / "schema.toml").write_text(_SCHEMA, "utf-8")
        address = f"127.0.0.1:{free_port()}"
        self.root = study.init(folder / "study", folder / "schema.toml", address=address)
        for name in self.names:
            join_here(self.root, name, folder / "bundles" / name)
        self._rng = np.random.default_rng(0)
        self._sites: list[SiteProcess] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the hub and the sites; stop them at the end."""
        server = ServerProcess(self.root)
        try:
            server.start()
            self.say(f"The hub listens on {server.settings.address}; its sites are known by their certificates.")
            for name in self.names:
                self._sites.append(self._start(name))
            for site in self._sites:
                if not wait_until(site.is_connected, _CONNECT_SECONDS, site.process):
                    raise FederationError(f"a site did not connect; see {site.log_path}")
            self.say(f"{len(self.names)} sites are connected.")
            yield
        finally:
            for site in self._sites:
                site.stop()
            server.stop()

    def _start(self, name: str) -> SiteProcess:
        data, state, bundle = (
            self.folder / f"{name}-tables",
            self.folder / f"{name}-state",
            self.folder / "bundles" / name,
        )
        data.mkdir()
        settings = site_settings(
            bundle, data, state, epsilon=self.epsilon, budget=None if self.epsilon is None else 10 * self.epsilon
        )
        # nobody waits an hour between two rounds of a rehearsal
        Policy(least_count=5, columns=tuple(described(Schema.load(settings.schema)))).save(state)
        process = SiteProcess(bundle, settings)
        process.start()
        return process

    def new_rows(self, day: int) -> None:
        """Give every site a new file; on later days there are kinds of rows that were not there before."""
        centres = _CENTRES[: min(len(_CENTRES), day + 1)]
        for name in self.names:
            rows = centres[self._rng.integers(len(centres), size=_ROWS)] + self._rng.normal(0, 4, (_ROWS, 2))
            # under a name that is passed over, until it is complete
            draft = self.folder / f"{name}-tables" / f".day-{day}.csv"
            np.savetxt(draft, rows, delimiter=",", header="pressure,pulse", comments="", fmt="%.1f")
            draft.rename(draft.with_name(f"day-{day}.csv"))

    def play(self, rounds: int) -> None:
        """Play rounds, with new rows before each; the model is handed out after the last."""
        for day in range(1, rounds + 1):
            self.new_rows(day)
            result = run_rounds(self.root, 1, self.say, hand_out=day == rounds)
            if not result["closed"]:
                raise FederationError(f"round {day} brought nothing; see {self.root / 'state' / 'journal.jsonl'}")


def rehearse(
    folder: Path,
    n_sites: int,
    rounds: int,
    say: Say,
    *,
    epsilon: float | None = None,
    while_running: Callable[[Path], None] | None = None,
) -> Path:
    """Make a federation, play rounds, stop everything, and return the federation's directory.

    `while_running` is called with it after the last round, while hub and sites are still running.
    """
    rehearsal = Rehearsal(folder, n_sites, say, epsilon)
    with rehearsal.running():
        rehearsal.play(rounds)
        if while_running is not None:
            while_running(rehearsal.root)
    return rehearsal.root
