"""What the wire costs: processor time of the hub for a delivery, bytes beyond the nodes', and time of an exchange.

Run ``python benchmarks/federation_wire.py [N_SITES ...]``. The hub is a real process, the sites are connections
with their own certificates in one process, and answer at once: what is timed is not theirs. No round is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fcac.deployment import study
from fcac.deployment.hub import Hub
from fcac.deployment.outbox import OutboxWire
from fcac.deployment.presence import counters, read
from fcac.deployment.processes import ServerProcess, free_port
from fcac.deployment.rehearsal import join_here
from fcac.deployment.settings import STATE, FederationSettings, SiteSettings
from fcac.deployment.site_link import SiteLink
from fcac.deployment.wire import CONTRIBUTE, CONTRIBUTION, DONE, Reply, Request
from fcac.federation import Contribution

N_FEATURES, N_NODES, ROUNDS = 5, 50, 10
SCHEMA = "fcac_schema = 1\nbounds_are_public = true\n[columns]\n" + "".join(
    f"f{i} = {{ min = 0, max = 1 }}\n" for i in range(N_FEATURES)
)


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used so far."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


async def site(bundle: Path, name: str, seed: int) -> None:
    """Answer every request at once, until cancelled."""
    link = SiteLink(bundle, SiteSettings(name, "", str(bundle), ""), bundle)
    rng = np.random.default_rng(seed)
    async with link._session() as session:
        while True:
            async with session.get("/work", headers={"X-Fcac-Instance": name}) as answered:
                letter, data = answered.headers.get("X-Fcac-Letter"), await answered.read()
            if letter is None:
                continue
            request = Request.from_bytes(data)
            reply = Reply(DONE, name)
            if request.kind == CONTRIBUTE:
                nodes = rng.uniform(0, 1, (N_NODES, N_FEATURES))
                sent = Contribution(name, request.round, nodes, np.full(N_NODES, 9))
                reply = Reply(CONTRIBUTION, name, sent.to_bytes())
            async with session.post("/reply", data=reply.to_bytes(), headers={"X-Fcac-Letter": letter}):
                pass


def exchange(hub: Hub, names: list[str]) -> None:
    """Ask all sites again and again, as a run does, and take what they send."""
    wire = OutboxWire(hub)
    for number in range(1, ROUNDS + 1):
        requests = {name: Request(CONTRIBUTE, number).to_bytes() for name in names}
        for _, data in wire.exchange(requests, 600.0):
            assert data is not None
            Reply.from_bytes(data)


async def measure(n_sites: int) -> dict[str, Any]:
    """Play rounds with so many sites."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.toml").write_text(SCHEMA)
        names = [f"s{i:03d}" for i in range(n_sites)]
        root = study.init(folder / "study", folder / "schema.toml", address=f"127.0.0.1:{free_port()}")
        for one in names:
            join_here(root, one, folder / "bundles" / one)
        server = ServerProcess(root)
        server.start()
        sites = [asyncio.create_task(site(root.parent / "bundles" / one, one, i)) for i, one in enumerate(names)]
        try:
            while sum(heard.open for heard in read(root / STATE).values()) < n_sites:
                await asyncio.sleep(0.2)
            assert server.process is not None
            before, counted = cpu_seconds(server.process.pid), counters(root / STATE)
            hub = Hub(root / STATE, FederationSettings.load(root))
            begin = time.perf_counter()
            await asyncio.to_thread(exchange, hub, names)
            seconds, used = time.perf_counter() - begin, cpu_seconds(server.process.pid) - before
            await asyncio.sleep(6)
            after = counters(root / STATE)
        finally:
            for task in sites:
                task.cancel()
            await asyncio.gather(*sites, return_exceptions=True)
            server.stop()
    n_deliveries = n_sites * ROUNDS
    grown = {key: after.get(key, 0) - counted.get(key, 0) for key in after}
    nodes = N_NODES * (N_FEATURES + 1) * 8
    return {
        "sites": n_sites,
        "hub, CPU ms a delivery": round(1000 * used / n_deliveries, 1),
        "bytes of a reply beyond the nodes": round(grown["reply_bytes"] / n_deliveries - nodes),
        "an exchange, s": round(seconds / ROUNDS, 2),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    for wanted in [int(text) for text in sys.argv[1:]] or [3, 30, 100]:
        print(json.dumps(asyncio.run(measure(wanted)), indent=1), flush=True)
