"""Secure aggregation between many real processes over TLS, with processes killed in the middle of rounds.

    python benchmarks/summed_sites.py --sites 100 --kill 10
    python benchmarks/summed_sites.py --sites 10 --rounds 4 --kill 1 --kill-run 2 --kill-hub 1

A hub, n sites and the program that plays rounds, all on this machine, joined by Flower's transport with TLS and a key
for every site. Sites are real processes with their own connection, state and ledger; they are forked from one process
that has loaded the package, so that a hundred of them fit into memory. Processes are killed (SIGKILL) once a randomly
chosen stage of the round has been closed; sites stay away for the rest of the round and are started again after it.

Checked after every round: the total is that of the rows it should contain (up to its noise), every step that a site has
drawn is charged once, nothing else is charged, and repeated requests were answered with what was stored. Exit code 1 if
anything is wrong. Results are added to --out as JSON lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

# everything that a site loads, before the first fork; no channel is opened and no noise drawn in this process
import fcac.deployment.pooled_agent  # noqa: F401
from fcac.aggregation import RosterFile, SigningKey
from fcac.aggregation.pooled import POOLED
from fcac.aggregation.roster import usual_tolerance
from fcac.deployment import study
from fcac.deployment.aggregated_study import SITE_KEY_FILE, offered, summing_for
from fcac.deployment.hub import Hub
from fcac.deployment.presence import counters
from fcac.deployment.processes import ServerProcess, free_port, last_words, stopped_by_signals, wait_until
from fcac.deployment.rehearsal import join_here
from fcac.deployment.settings import FederationSettings
from fcac.deployment.site_link import SiteLink
from fcac.deployment.site_setup import site_settings, store_settings
from fcac.privacy import Ledger
from fcac.privacy.samplers import OpenDPSampler

SCHEMA = "fcac_schema = 1\nbounds_are_public = true\n[columns]\nx = { min = -8, max = 8 }\ny = { min = -8, max = 8 }\n"
EPSILON, DELTA = 4.0, 1e-6
FIRST_STEPS, LATER_STEPS = 6, 3
CPU_OF_RUNS: list[float] = []


class Sites:
    """The sites of a federation, each a process forked from this one."""

    def __init__(self, root: Path, folder: Path, names: list[str], n_rows: int, budget: float) -> None:
        self.root, self.folder, self.budget = root, folder, budget
        self.pids: dict[str, int] = {}
        self.rows = dict.fromkeys(names, 0)
        self.n_rows = n_rows
        for name in names:
            (folder / f"data-{name}").mkdir()

    def give(self, number: int) -> None:
        """Give every site new rows, in a new file."""
        for place, name in enumerate(self.rows):
            rng = np.random.default_rng([number, place])
            rows = np.clip(rng.normal(rng.choice([-4.0, 4.0], (self.n_rows, 1)), 0.5, (self.n_rows, 2)), -8, 8)
            np.savetxt(self.folder / f"data-{name}" / f"{number}.csv", rows, "%.6f", ",", header="x,y", comments="")
            self.rows[name] += self.n_rows

    def start(self, name: str) -> None:
        """Start a site as a process of its own."""
        bundle, state = self.root.parent / "bundles" / name, self.folder / f"state-{name}"
        settings = site_settings(bundle, self.folder / f"data-{name}", state, epsilon=EPSILON, budget=self.budget)
        path = store_settings(settings)
        roster, public = RosterFile(state), SigningKey.at(bundle / SITE_KEY_FILE).public
        if roster.offer(offered(self.root) or b"", name, public) and roster.offered is not None:
            roster.agree(roster.offered.code)
        pid = os.fork()
        if pid:
            self.pids[name] = pid
            return
        try:
            os.setsid()
            out = os.open(state / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            SiteLink(bundle, settings, path, lambda line: print(line, flush=True)).run()
        finally:
            os._exit(0)

    def connected(self) -> int:
        """Return how many sites have reached the hub."""
        logs = [self.folder / f"state-{name}" / "node.log" for name in self.pids]
        return sum(log.exists() and b"Connected" in log.read_bytes() for log in logs)

    def kill(self, name: str) -> None:
        """Kill a site."""
        pid = self.pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def memory(self) -> float:
        """Return the memory of all sites in GB, shared pages divided among those that share them."""
        found = 0
        for pid in self.pids.values():
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return found / 2**20

    def cpu(self) -> float:
        """Return the processor seconds that the sites have used so far."""
        return sum(cpu_seconds(pid) for pid in self.pids.values())

    def ledger(self, name: str) -> Ledger:
        """Return the ledger of a site."""
        return Ledger(self.folder / f"state-{name}" / "ledger.db", self.budget, DELTA)


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used so far."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def bytes_carried(root: Path) -> int:
    """Return the bytes of all messages so far, to and from all sites, as the hub counts them."""
    found = counters(root / "state")
    return found.get("message_bytes", 0) + found.get("reply_bytes", 0)


def closed_stages(root: Path) -> int:
    """Return how many stages of the open round the hub has closed."""
    return len(list((root / "state" / "summing").glob("*-*/*.fcac")))


def start_run(root: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start ``fcac federation run``."""
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "fcac", "federation", "run", str(root), "--rounds", "1"]
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)


def play_round(
    root: Path, sites: Sites, server: ServerProcess, kills: list[tuple[int, str]], given: argparse.Namespace
) -> int:
    """Play one round, killing processes as planned; return how often a run was started."""
    plan, runs, log = sorted(kills), 1, root.parent / "run.log"
    run = start_run(root, log)
    deadline = time.monotonic() + given.patience
    wanted = FederationSettings.load(root)
    before = Hub(root / "state", wanted).open_round
    try:
        while time.monotonic() < deadline:
            if plan and closed_stages(root) >= plan[0][0]:
                what = plan.pop(0)[1]
                if what == "hub":
                    assert server.process is not None
                    os.killpg(server.process.pid, signal.SIGKILL)
                    server.process.wait()
                    server.start()
                elif what == "run":
                    run.kill()
                else:
                    sites.kill(what)
            with contextlib.suppress(OSError, IndexError):
                CPU_OF_RUNS[:] = [cpu_seconds(run.pid)]
            if run.poll() is not None:
                if Hub(root / "state", wanted).open_round > before:
                    return runs
                time.sleep(1.0)
                run, runs = start_run(root, log), runs + 1
            time.sleep(0.05)
    finally:
        run.kill()
        run.wait()
    raise SystemExit(f"the round has not ended after {given.patience:g} seconds; the last run said: {last_words(log)}")


def wrong(root: Path, sites: Sites, round: int, killed: dict[str, int], runs: int) -> list[str]:
    """Return what is not as it should be after a round."""
    hub = Hub(root / "state", FederationSettings.load(root))
    pooled = hub.snapshot().server.latest()[POOLED]
    found = []
    least, most = sum(n for name, n in sites.rows.items() if name not in killed), sum(sites.rows.values())
    # forty records are many deviations of the noise in the sum of all counts at this epsilon
    slack = 40 * np.sqrt(round * len(pooled.counts))
    if not least - slack < pooled.counts.sum() < most + slack:
        found.append(f"round {round}: {pooled.counts.sum():.0f} rows in the total, {least} to {most} expected")
    expected = FIRST_STEPS if round == 1 else LATER_STEPS
    for name in sites.rows:
        entries = [entry for entry in sites.ledger(name).entries() if entry["round"] == round]
        drawn = sum(bool(entry["completed"]) for entry in entries)
        open_charges = len(entries) - drawn
        # a kill between charge and store wastes one charge, as in plain rounds; an attempt that was given up is paid
        if open_charges > (name in killed) or (runs == 1 and name not in killed and drawn != expected):
            found.append(f"round {round}: site {name} has {drawn} draws and {open_charges} open charges")
    return found


def main() -> int:
    """Play the rounds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--rows", type=int, default=20, help="new rows at a site in every round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kill", type=int, default=0, help="sites to kill in every round")
    parser.add_argument(
        "--kill-run", type=int, default=0, help="kills of the program that plays rounds, in every round"
    )
    parser.add_argument("--kill-hub", type=int, default=0, help="kills of the hub's process, in every round")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a site has to answer")
    parser.add_argument("--patience", type=float, default=3000.0, help="seconds that a round may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    OpenDPSampler().check_ready()
    faults: list[str] = []
    with stopped_by_signals(), tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "schema.toml").write_text(SCHEMA)
        names = [f"site-{i:03d}" for i in range(given.sites)]
        summing = summing_for(EPSILON, DELTA, usual_tolerance(len(names)), None)
        root = study.init(
            folder / "study", folder / "schema.toml", address=f"127.0.0.1:{free_port()}",
            timeout=given.timeout, wait=given.timeout, summing=summing,
        )  # fmt: skip
        for name in names:
            join_here(root, name, folder / "bundles" / name)
        sites, server = Sites(root, folder, names, given.rows, 1000.0), ServerProcess(root)
        rng = np.random.default_rng(given.seed)
        try:
            begin = time.monotonic()
            server.start()
            for name in names:
                sites.start(name)
            all_here = wait_until(lambda: sites.connected() == len(names), given.patience)
            say(given, what="started", sites=len(names), connected=sites.connected(), all=all_here,
                seconds=round(time.monotonic() - begin, 1), site_memory_gb=round(sites.memory(), 2))  # fmt: skip
            for number in range(1, given.rounds + 1):
                sites.give(number)
                last = 2 + 3 * (FIRST_STEPS if number == 1 else LATER_STEPS) - 1
                victims = rng.choice(names, size=given.kill, replace=False).tolist()
                targets = [*victims, *["run"] * given.kill_run, *["hub"] * given.kill_hub]
                # sites die together at three moments, so that the hub waits for those that are away three times
                moments = rng.choice(np.arange(1, last), size=3, replace=False)
                kills = [(int(moments[i % 3]), what) for i, what in enumerate(targets)]
                begin, carried, cpu = time.monotonic(), bytes_carried(root), sites.cpu()
                hub_cpu = cpu_seconds(server.process.pid) if server.process else 0.0
                runs = play_round(root, sites, server, kills, given)
                mine = wrong(root, sites, number, dict.fromkeys(victims, 1), runs)
                faults += mine
                hub = Hub(root / "state", FederationSettings.load(root))
                attempts = [e["attempt"] for e in hub.journal() if e["event"] == "summing" and e["round"] == number]
                say(given, what="round", round=number, sites=len(names),
                    in_total=hub.snapshot().server.latest()[POOLED].privacy["sites"], killed=sorted(kills),
                    runs=runs, attempts=max(attempts), seconds=round(time.monotonic() - begin, 1),
                    bytes_per_site=round((bytes_carried(root) - carried) / len(names)),
                    cpu_of_sites=round(sites.cpu() - cpu, 1) if not kills else None,
                    cpu_of_hub=round(cpu_seconds(server.process.pid) - hub_cpu, 1) if not kills else None,
                    cpu_of_run=round(CPU_OF_RUNS[-1], 1), load=os.getloadavg()[0],
                    wrong=mine)  # fmt: skip
                for name in victims:
                    if name not in sites.pids:
                        sites.start(name)
        finally:
            for name in list(sites.pids):
                sites.kill(name)
            server.stop()
    return 1 if faults else 0


def say(given: argparse.Namespace, **found: Any) -> None:
    """Print a result, and keep it."""
    print(json.dumps(found), flush=True)
    if given.out is not None:
        with given.out.open("a") as stream:
            stream.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    sys.exit(main())
