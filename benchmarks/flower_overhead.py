"""What Flower costs: overhead over the in-process run, size of messages, and a thousand virtual sites.

Run ``python benchmarks/flower_overhead.py`` for everything, or name parts: ``messages``, ``virtual``, ``processes``.
Bars: a message exceeds its nodes by less than 2 kB; 1,000 virtual sites take less than 30 s. The overhead of real
processes has no bar; it is stated, for 3 and 10 sites on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from fcac.flower.in_process import InProcessGrid
from fcac.flower.service import ServerProcess, SiteProcess, run_rounds, site_settings
from flwr.app import Context, RecordDict

from fcac.deployment import study
from fcac.deployment.certificates import public_pem
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, SiteSettings
from fcac.federation import Contribution, Server, Site
from fcac.flower import processes, server_app

N_FEATURES = 8
ROWS_PER_SITE = 200


def rows_of(site: int, n: int = ROWS_PER_SITE) -> np.ndarray:
    """Rows in [0, 1] around a few centres."""
    rng = np.random.default_rng(site)
    centres = np.random.default_rng(0).uniform(0.2, 0.8, size=(5, N_FEATURES))
    return np.clip(centres[rng.integers(5, size=n)] + rng.normal(0, 0.05, (n, N_FEATURES)), 0, 1)


def make(folder: Path, n_sites: int, insecure: bool, address: str = "127.0.0.1:18000") -> tuple[Path, list[str]]:
    """Make a federation with data for every site."""
    columns = "".join(f"f{i} = {{ min = 0, max = 1 }}\n" for i in range(N_FEATURES))
    (folder / "schema.toml").write_text(f"fcac_schema = 1\nbounds_are_public = true\n[columns]\n{columns}")
    names = [f"s{i:04d}" for i in range(n_sites)]
    root = study.init(
        folder / "study", names, folder / "schema.toml", insecure=insecure, address=address, timeout=600, wait=120
    )
    for i, name in enumerate(names):
        np.savez(folder / f"{name}.npz", X=rows_of(i), columns=np.array([f"f{k}" for k in range(N_FEATURES)]))
    return root, names


def in_process_seconds(n_sites: int) -> float:
    """Time of the same round without any wire."""
    started = time.perf_counter()
    server = Server("cae-fc")
    server.absorb([Site(f"s{i:04d}").contribute(rows_of(i), round=1) for i in range(n_sites)])
    return time.perf_counter() - started


def virtual(n_sites: int, insecure: bool = True) -> dict[str, Any]:
    """Play one round of many sites over the in-process Grid, durable states and model hand-out included."""
    # Virtual sites need not survive a power cut: in memory, where there is such a place, writes cost no disk time.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        root, names = make(folder, n_sites, insecure)
        nodes = {}
        for i, site in enumerate(names):
            state = folder / f"state-{site}"
            state.mkdir()
            SiteSettings(site, str(folder / f"{site}.npz"), str(state), str(folder / "schema.toml")).save(
                state / "settings.json"
            )
            nodes[1000 + i] = state / "settings.json"
        members = FederationSettings.load(root).members
        keys = {} if insecure else {1000 + i: public_pem(members[site].key) for i, site in enumerate(names)}
        grid = InProcessGrid(nodes, keys=keys)
        config = {"fcac-federation": str(root), "fcac-rounds": 1, "fcac-poll": 0.01}
        started, busy = time.perf_counter(), time.process_time()
        server_app.app(grid, Context(1, 1, {}, RecordDict(), config))
        seconds, busy = time.perf_counter() - started, time.process_time() - busy
        assert len(Hub(root / "state", FederationSettings.load(root)).snapshot().newest) == n_sites
    return {
        "sites": n_sites,
        "seconds": round(seconds, 2),
        "of processor": round(busy, 2),
        "bar": 30.0 if n_sites == 1000 else None,
    }


def message_sizes() -> list[dict[str, Any]]:
    """Bytes of a site's reply against the bytes of its nodes and counts."""
    from flwr.app import Message
    from flwr.supercore.task_identity import TaskIdentity

    from fcac.flower import messages

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    found = []
    for d, n in ((2, 500), (8, 1000), (64, 2000)):
        rng = np.random.default_rng(0)
        sent: Contribution = Site("clinic-with-a-long-name").contribute(rng.normal(size=(n, d)), round=1)
        request = Message(messages.ask_contribution(1, {}), 7, messages.CONTRIBUTE, ttl=60)
        reply = Message(
            messages.write_reply(messages.Reply(messages.CONTRIBUTION, str(sent.site), sent.to_bytes())),
            reply_to=request,
        )
        record = reply.content["fcac"]
        size = len(reply.deflate()) + len(reply.content.deflate()) + len(record.deflate())
        nodes = len(sent.nodes) * (d + 1) * 8
        found.append(
            {"features": d, "nodes": len(sent.nodes), "bytes": size, "beyond nodes": size - nodes, "bar": 2000}
        )
    return found


def real(n_sites: int, insecure: bool) -> dict[str, Any]:
    """Play one round with real processes on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root, names = make(folder, n_sites, insecure, f"127.0.0.1:{processes.free_port()}")
        server, sites = ServerProcess(root), []
        marks = {"start": time.perf_counter()}
        try:
            server.start()
            marks["server ready"] = time.perf_counter()
            for site in names:
                bundle = root / "bundles" / site
                process = SiteProcess(bundle, site_settings(bundle, folder / f"{site}.npz", folder / f"state-{site}"))
                process.start()
                sites.append(process)
            for process in sites:
                assert processes.wait_until(process.is_connected, 300)
            time.sleep(10 + 2 * n_sites)  # imports are done, so that only the round is timed
            begun, busy = time.time(), _processor_seconds()
            run_rounds(root, 1, lambda line: None, hand_out=False)
            seconds, busy = time.time() - begun, _processor_seconds() - busy
            load = os.getloadavg()[0]
            journal = Hub(root / "state", FederationSettings.load(root)).journal()
            sent = [entry for entry in journal if entry["event"] == "accepted"]
            asked = next(_moment(entry) for entry in journal if entry["event"] == "asking") - begun
            answered = max(_moment(entry) for entry in sent) - begun
        finally:
            for process in sites:
                process.stop()
            server.stop()
    alone = in_process_seconds(n_sites)
    return {
        "sites": n_sites,
        "protection": "plain" if insecure else "TLS and keys",
        "server ready after": round(marks["server ready"] - marks["start"], 1),
        "one round, submission included": round(seconds, 1),
        "of it until sites are asked": round(asked, 1),
        "until the last has answered": round(answered - asked, 1),
        "processor time of all processes": round(busy, 1),
        "load of the machine": round(load, 1),
        "the same in process": round(alone, 3),
        "overhead": round(seconds - alone, 1),
        "contributions": len(sent),
        "bytes per site": round(float(np.mean([entry["bytes"] for entry in sent]))) if sent else 0,
    }


def _processor_seconds(pid: int | None = None) -> float:
    """Processor time of a process (by default this one), of all it has started and of those that have ended."""
    own, total = os.getpid() if pid is None else pid, 0.0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(place.name) == own:
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        elif int(fields[1]) == own:
            total += _processor_seconds(int(place.name))
    return total


def _moment(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["time"]).timestamp()


def main() -> None:
    """Run the parts asked for and print one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["messages", "virtual", "processes"])
    parser.add_argument("--sites", default="3,10", help="numbers of sites for real processes")
    chosen = parser.parse_args()
    path = Path(__file__).parent / "results" / "flower_overhead.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    in_process_seconds(2)  # compile first

    def keep(part: str, lines: list[dict[str, Any]]) -> None:
        """Print, and write over what this part had measured before."""
        for line in lines:
            print(json.dumps(line), flush=True)
        results[part] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "figures": lines}
        path.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")

    if "messages" in chosen.parts:
        keep("messages", message_sizes())
    if "virtual" in chosen.parts:
        keep("virtual", [virtual(n_sites) for n_sites in (10, 1000)])
    if "processes" in chosen.parts:
        keep("processes", [real(n_sites, insecure=False) for n_sites in map(int, chosen.sites.split(","))])


if __name__ == "__main__":
    main()
