"""What the hub's history costs: CPU seconds for the deliveries of a round, and for closing it.

``python benchmarks/hub_history.py`` plays 20 rounds of 200 sites straight into the hub's state (no network) and writes
what rounds 1, 2, 5 and 20 cost to ``results/hub_history.json``. ``--rounds 100`` plays more; ``--label NAME`` stores
the figures under that name, so that two versions can be compared (this file runs with fcac 0.1.0 too). Bar: deliveries
of the last round cost at most 1.2 times those of round 2 (round 1 holds first-use costs).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, Member
from fcac.federation import Contribution, Server
from fcac.tables.schema import Schema

N_FEATURES = 8
SHOWN = (1, 2, 5, 20, 50, 100)


def contribution(site: str, round: int, n_nodes: int) -> bytes:
    """Nodes around a few centres, others in every round."""
    rng = np.random.default_rng([int(site[1:]), round])
    centres = np.random.default_rng(0).uniform(0.2, 0.8, size=(5, N_FEATURES))
    nodes = np.clip(centres[rng.integers(5, size=n_nodes)] + rng.normal(0, 0.05, (n_nodes, N_FEATURES)), 0, 1)
    return Contribution(site, round, nodes, rng.integers(1, 50, size=n_nodes)).to_bytes()


def cpu(task: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a task, and its result."""
    started = time.process_time()
    result = task()
    return time.process_time() - started, result


def play(kind: str, n_sites: int, n_nodes: int, rounds: int) -> list[dict[str, Any]]:
    """Play rounds and measure those that are shown."""
    names = [f"s{i:04d}" for i in range(n_sites)]
    schema = Schema([f"f{i}" for i in range(N_FEATURES)])
    settings = FederationSettings(schema, server=kind, members={name: Member() for name in names})
    figures = []
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        hub = Hub(state, settings)
        write_report = hub._report
        spent = {"report": 0.0}

        def report(server: Server, number: int) -> None:
            spent["report"], _ = cpu(lambda: write_report(server, number))

        hub._report = report  # type: ignore[method-assign]
        for number in range(1, rounds + 1):
            messages = [contribution(site, number, n_nodes) for site in names]

            def deliver(messages: list[bytes] = messages) -> int:
                return sum(hub.receive(s, m).outcome == "accepted" for s, m in zip(names, messages, strict=True))

            receiving, accepted = cpu(deliver)
            closing, closed = cpu(hub.close_round)
            assert accepted == len(closed) == n_sites
            if number in SHOWN or number == rounds:
                stored = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
                figures.append(
                    {
                        "server": kind,
                        "round": number,
                        f"CPU s of {n_sites} deliveries": round(receiving, 2),
                        "CPU s to close": round(closing - spent["report"], 2),
                        "CPU s of the report": round(spent["report"], 2),
                        "MB on disk": round(stored / 1e6, 1),
                    }
                )
                print(json.dumps(figures[-1]), flush=True)
    return figures


def main() -> None:
    """Measure both kinds of servers and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="cae-fc,communities")
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--label", default="now")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:  # compile first
        members = {"s0000": Member()}
        first = Hub(name, FederationSettings(Schema([f"f{i}" for i in range(N_FEATURES)]), members=members))
        first.receive("s0000", contribution("s0000", 1, 50))
        first.close_round()
    path = Path(__file__).parent / "results" / "hub_history.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for kind in chosen.servers.split(","):
        figures = play(kind, chosen.sites, chosen.nodes, chosen.rounds)
        results[f"{chosen.label}, {kind}"] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "nodes per site": chosen.nodes,
            "figures": figures,
        }
        path.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
