"""What the wire costs: processor time of the hub for a delivery, bytes beyond the nodes', and time of a round.

Run ``python benchmarks/federation_wire.py [N_SITES ...]``. The hub is a real process, the sites are connections
with their own certificates in one process, and answer at once: what is timed is not theirs. Rounds are played and
closed as ``fcac federation run`` does. Where the account may have a network namespace of its own, bytes are those of
its loopback interface, with the headers of TLS, TCP and IP; otherwise they are not counted. Bars: 12 ms, 3,000 bytes,
and 2, 6, 15 s for 3, 30 and 100 sites on an idle machine (processor seconds are given beside wall time).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fcac.deployment import study
from fcac.deployment.conversation import Conversation, Timeouts
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


def play(hub: Hub) -> None:
    """Play rounds, as a run does."""
    conversation = Conversation(hub, OutboxWire(hub), Timeouts(600.0, 60.0))
    for _ in range(ROUNDS):
        assert conversation.play_round()


def on_the_wire() -> int | None:
    """Return the bytes that have passed the loopback interface of this namespace, which is nobody else's."""
    if os.environ.get("FCAC_WIRE") != "inside":
        return None
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


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
            begin, bytes_before, own = time.perf_counter(), on_the_wire(), time.process_time()
            await asyncio.to_thread(play, hub)
            seconds, used = time.perf_counter() - begin, cpu_seconds(server.process.pid) - before
            own, bytes_after = time.process_time() - own, on_the_wire()
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
        "bytes on the wire beyond the nodes": None
        if bytes_after is None or bytes_before is None
        else round((bytes_after - bytes_before) / n_deliveries - nodes),
        "a round, s": round(seconds / ROUNDS, 2),
        "a round, CPU s of hub, run and sites' connections": round((used + own) / ROUNDS, 2),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    namespace = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    outside = "FCAC_WIRE" not in os.environ
    if outside and not subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        os.execvpe("unshare", [*namespace, sys.executable, *sys.argv], {**os.environ, "FCAC_WIRE": "inside"})
    for wanted in [int(text) for text in sys.argv[1:]] or [3, 30, 100]:
        print(json.dumps(asyncio.run(measure(wanted)), indent=1), flush=True)
