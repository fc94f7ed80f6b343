"""Processes killed at random, a hub that went back in time, a flood: nothing is lost, doubled or overspent.

Each test has a small form, which `make test` runs, and a large one for `make soak`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fcac.deployment import audit_log, processes, study
from fcac.deployment.hub import Hub
from fcac.deployment.processes import ServerProcess, SiteProcess, free_port
from fcac.deployment.settings import STATE, FederationSettings
from fcac.deployment.site_setup import site_settings
from fcac.federation import Contribution
from fcac.privacy import Ledger
from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA, Study, assert_no_secret, make_study, memory_of
from testing.hostile_client import ask
from testing.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

N_ROWS = 60
BUDGET = 1000.0


class Chaos:
    """A federation of real processes with TLS and keys, of which any may be killed at any moment.

    Every second site is private. The sites have a policy with which no round is refused.
    """

    def __init__(self, folder: Path, n_sites: int, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.names = [f"s{number:02d}" for number in range(n_sites)]
        (folder / "schema.toml").write_text(SCHEMA)
        address = f"127.0.0.1:{free_port()}"
        self.root = make_study(
            folder, self.names, folder / "schema.toml", address=address, timeout=PATIENCE, wait=PATIENCE
        )
        settings = self.root / "federation.toml"
        # what counts here is that every row arrives: no cap may scale it
        text = settings.read_text()
        assert "# max_count_share = 0.25" in text
        settings.write_text(re.sub("# (max_(node|count)_share) = 0.25", r"\1 = 1.0", text))
        self.given = dict.fromkeys(self.names, 0)
        self.kills: list[str] = []
        self.server = ServerProcess(self.root)
        self.sites = {name: self._site(name) for name in self.names}
        self.round: subprocess.Popen[bytes] | None = None

    def private(self, name: str) -> bool:
        return int(name[1:]) % 2 == 1

    def _site(self, name: str) -> SiteProcess:
        data, bundle = self.folder / f"data-{name}", self.root.parent / "bundles" / name
        data.mkdir()
        privacy = {"epsilon": 0.5, "budget": BUDGET} if self.private(name) else {}
        return SiteProcess(bundle, site_settings(bundle, data, self.folder / f"state-{name}", **privacy))

    def new_rows(self, day: int) -> None:
        for number, name in enumerate(self.names):
            draft = self.folder / f"data-{name}" / f".{day}.csv"
            write_csv(draft, blobs(N_ROWS, 100 * day + number), header=True)
            draft.rename(draft.with_name(f"{day:03d}.csv"))
            self.given[name] += N_ROWS

    def revive(self) -> None:
        """Start everything that is dead, and wait until every site is connected."""
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.start()
        for site in self.sites.values():
            if site.process is None or site.process.poll() is not None:
                site.start()
        for site in self.sites.values():
            wait_until(site.is_connected, site.process, every=0.1)

    def play(self, day: int, kills: int) -> None:
        """Play a round while processes are killed; go on until it is closed and every row has arrived."""
        self.new_rows(day)
        left = kills
        while not self._everything_arrived():
            self.revive()
            self.round = subprocess.Popen(
                [sys.executable, "-m", "fcac", "federation", "run", str(self.root), "--rounds", "1"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            while left and self.round.poll() is None:
                time.sleep(self.random.uniform(0.0, 3.0))
                left -= self._kill_one()
            self.round.wait(PATIENCE)

    def _kill_one(self) -> int:
        alive = {name: site.process for name, site in self.sites.items()} | {"hub": self.server.process}
        # the hub and the command that plays rounds are met as often as all sites together
        chosen = self.random.choice(["hub", "run", *self.random.choices(self.names, k=2)])
        process = self.round if chosen == "run" else alive[chosen]
        if process is None or process.poll() is not None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.kills.append(chosen)
        return 1

    def latest(self) -> dict[str, Contribution]:
        server = Hub(self.root / STATE, FederationSettings.load(self.root)).snapshot().server
        return {str(name): item for name, item in server.latest().items()}

    def _everything_arrived(self) -> bool:
        held = self.latest()
        return all(
            name in held and (self.private(name) or int(held[name].counts.sum()) == self.given[name])
            for name in self.names
        )

    def check(self, n_rounds: int) -> None:
        """Nothing is lost, doubled or overspent, every log is in order, and no key is in any of them."""
        held = self.latest()
        for name in self.names:
            state = self.folder / f"state-{name}"
            verdict = audit_log.verify(state / audit_log.FILE)
            assert verdict.problem is None or not verdict.problem
            if not self.private(name):
                assert int(held[name].counts.sum()) == self.given[name], name
                continue
            ledger = Ledger.open(state / "ledger.db")
            entries = audit_log.AuditLog(state).entries()
            drawn = {entry["round"] for entry in entries if entry["event"] in ("contributed", "sent late")}
            # a kill between charge and draw wastes a charge; nothing is drawn without one
            charged = ledger.spent_rho() / ledger.rho_of(0.5)
            assert len(drawn) <= charged + 1e-6 <= len(drawn) + self.kills.count(name) + 1e-3, name
            assert ledger.spent() <= BUDGET
        assert_no_secret(self.folder)

    def stop(self) -> None:
        for process in [self.round, self.server.process, *(site.process for site in self.sites.values())]:
            if process is not None and process.poll() is None:
                processes.stop(process)


@contextlib.contextmanager
def chaos(folder: Path, n_sites: int, seed: int) -> Iterator[Chaos]:
    made = Chaos(folder, n_sites, seed)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("n_sites", "n_rounds", "n_kills"),
    [
        pytest.param(2, 1, 2, id="small"),
        pytest.param(6, 5, 12, id="medium", marks=pytest.mark.soak),
        pytest.param(30, 20, 50, id="large", marks=pytest.mark.soak),
    ],
)
def test_random_kills(tmp_path: Path, n_sites: int, n_rounds: int, n_kills: int) -> None:
    with chaos(tmp_path, n_sites, seed=n_sites) as made:
        for day in range(1, n_rounds + 1):
            made.play(day, n_kills * day // n_rounds - n_kills * (day - 1) // n_rounds)
            print(f"round {day}: killed so far {made.kills}", flush=True)
        # the last kills may have come after the last round
        assert len(made.kills) >= n_kills // 2
        made.check(n_rounds)


@pytest.mark.parametrize("privacy", [{}, {"epsilon": 1.0, "budget": 50.0}], ids=["plain", "private"])
def test_a_hub_restored_from_an_older_copy(tmp_path: Path, privacy: dict[str, float]) -> None:
    """Sites answer again what they answered before, with the same bytes, and pay nothing for it."""
    made = Study(tmp_path, "abc", server="communities", **privacy)
    made.give({name: blobs(120, number) for number, name in enumerate("abc")})
    made.play()
    copy = tmp_path / "yesterday"
    shutil.copytree(made.root / STATE, copy)
    made.give({name: blobs(120, 10 + number) for number, name in enumerate("abc")})
    made.play()
    before = {name: item.to_bytes() for name, item in made.hub.snapshot().server.latest().items()}
    spent = [Ledger.open(path).spent() for path in sorted(tmp_path.rglob("ledger.db"))]
    shutil.rmtree(made.root / STATE)
    shutil.copytree(copy, made.root / STATE)
    assert made.hub.snapshot().closed == 1
    made.play()
    after = {name: item.to_bytes() for name, item in made.hub.snapshot().server.latest().items()}
    assert after == before
    assert [Ledger.open(path).spent() for path in sorted(tmp_path.rglob("ledger.db"))] == spent
    assert len(spent) == (3 if privacy else 0)


def in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.soak
def test_the_wire_is_flooded_by_a_valid_site(tmp_path: Path) -> None:
    """Rounds go on for the others, and the hub's memory does not grow."""
    with chaos(tmp_path, 3, seed=1) as made:
        # the first site is ours: its key floods, its process does not run
        flooder = made.sites.pop("s00")
        made.names.remove("s00")
        made.revive()
        assert made.server.process is not None
        pid, asked, ended = made.server.process.pid, [0], threading.Event()

        def flood() -> None:
            while not ended.is_set():
                asked[0] += 1
                with contextlib.suppress(OSError, http.client.HTTPException):
                    ask(flooder.bundle, "POST", "/reply", bytes(100_000))

        before = memory_of(pid)
        threads = [in_background(flood) for _ in range(8)]
        try:
            study.forget(made.root, "s00")  # it is not asked; its key is still good
            made.play(1, 0)
            made.play(2, 0)
        finally:
            ended.set()
            for thread in threads:
                thread.join(PATIENCE)
        assert asked[0] > 20
        assert memory_of(pid) < before + 100
        made.check(2)


@pytest.mark.soak
def test_a_hundred_rounds_cost_alike(tmp_path: Path) -> None:
    """200 virtual sites: the deliveries of the last round cost at most 1.2 times those of an early one."""
    names = [f"s{number:04d}" for number in range(200)]
    (tmp_path / "schema.toml").write_text(SCHEMA)
    root = make_study(tmp_path, names, tmp_path / "schema.toml")
    hub = Hub(root / STATE, FederationSettings.load(root))
    spent = []
    for number in range(1, 101):
        rng = np.random.default_rng(number)
        messages = [
            Contribution(name, number, rng.uniform(-8, 8, (20, 2)), rng.integers(1, 9, 20)).to_bytes() for name in names
        ]
        started = time.process_time()
        for name, message in zip(names, messages, strict=True):
            assert hub.receive(name, message).outcome == "accepted"
        received = time.process_time()
        hub.close_round()
        spent.append((received - started, time.process_time() - received))
    for kind in (0, 1):
        early = np.median([pair[kind] for pair in spent[1:11]])
        late = np.median([pair[kind] for pair in spent[-10:]])
        print(("deliveries", "closing")[kind], f"{early:.3f} {late:.3f} CPU seconds, ratio {late / early:.2f}")
        assert late <= 1.2 * early
