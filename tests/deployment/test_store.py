"""The hub's store: exact, all or nothing under kill -9."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import persistence
from fcac.deployment import seen
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, Limits, Member
from fcac.deployment.store import HubStore, StoreError
from fcac.deployment.upkeep import copy_database
from fcac.federation import Contribution, Server
from fcac.federation.replay import replay
from fcac.tables.schema import Schema
from testing.compare import assert_same_server
from testing.data import nodes_and_counts

pytestmark = pytest.mark.usefixtures("_no_report")

KINDS = ("cae-fc", "communities")


@pytest.fixture
def _no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report follows every round; it reads the store and writes nothing into it, so these tests do without."""
    monkeypatch.setattr(Hub, "_report", lambda self: None)


def sent(site: str, round: int, n_nodes: int = 25, privacy: dict[str, Any] | None = None) -> Contribution:
    """Return what a site sends to a round."""
    nodes, counts = nodes_and_counts(n_nodes, [ord(site), round], 9)
    return Contribution(site, round, nodes, counts, privacy or {})


def settings_of(kind: str = "cae-fc", sites: str = "abcd", **limits: Any) -> FederationSettings:
    members = {name: Member() for name in sites}
    without_caps = {"max_node_share": 1.0, "max_count_share": 1.0}
    return FederationSettings(
        Schema(["x", "y"]), server=kind, members=members, limits=Limits(**{**without_caps, **limits})
    )


def play(hub: Hub, number: int, sites: str = "abcd") -> list[Contribution]:
    for site in sites:
        assert hub.receive(site, sent(site, number).to_bytes()).outcome == "accepted"
    return hub.close_round()


# ------------------------------------------------------------ exact


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_stored_server_is_the_one_in_memory(tmp_path: Path, kind: str) -> None:
    hub, expected = Hub(tmp_path, settings_of(kind)), Server(kind)
    for number, sites in enumerate(("abcd", "abd", "abcd", "cd"), 1):
        play(hub, number, sites)
        expected.absorb([sent(site, number) for site in sites])
        stored = hub.snapshot().server
        assert stored.history == expected.history
        assert stored.sites == expected.sites
        assert {s: item.to_bytes() for s, item in stored.latest().items()} == {
            s: item.to_bytes() for s, item in expected.latest().items()
        }
        assert_same_server(stored, expected)
    hub.forget("b")
    expected.forget("b")
    assert_same_server(hub.snapshot().server, expected)
    play(hub, 5)
    expected.absorb([sent(site, 5) for site in "abcd"])
    assert_same_server(hub.snapshot().server, expected)
    points = np.concatenate([sent("a", 2).nodes, sent("b", 2).nodes, sent("a", 9).nodes])
    assert (hub.snapshot().server.was_contributed(points) == expected.was_contributed(points)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_earlier_states_are_those_of_a_replay(tmp_path: Path, kind: str) -> None:
    hub = Hub(tmp_path, settings_of(kind))
    for number in range(1, 7):
        play(hub, number)
    kept, again = hub.snapshot().server, hub.snapshot().server
    again.past = None
    found, played = replay(kept), replay(again)
    assert found is not None
    assert played is not None
    assert [one.round for one in found] == [other.round for other in played] == [1, 2, 3, 4, 5, 6]
    for one, other in zip(found, played, strict=True):
        assert (one.cluster_rows, one.flow) == (other.cluster_rows, other.flow)
        assert (one.nodes == other.nodes).all()
        assert (one.labels == other.labels).all()


def test_what_caps_leave_is_stored_and_the_delivery_is_still_recognised(tmp_path: Path) -> None:
    hub = Hub(tmp_path, settings_of(max_node_share=0.4))
    big = sent("d", 1, 500)
    for item in (sent("a", 1), sent("b", 1), sent("c", 1), big):
        hub.receive(str(item.site), item.to_bytes())
    assert [len(item.nodes) for item in hub.close_round()] == [25, 25, 25, 50]
    assert len(hub.snapshot().server.latest()["d"].nodes) == 50
    assert hub.receive("d", big.to_bytes()).outcome == "duplicate"


@pytest.mark.slow
def test_forgotten_nodes_are_not_left_in_the_file(tmp_path: Path) -> None:
    hub = Hub(tmp_path, settings_of())
    for number in (1, 2, 3):
        play(hub, number)
    traces = [sent("b", number).nodes[5].tobytes() for number in (1, 2, 3)]
    assert all(trace in (tmp_path / "hub.db").read_bytes() for trace in traces)
    hub.forget("b")
    assert not any(trace in (tmp_path / "hub.db").read_bytes() for trace in traces)
    assert hub.receive("b", sent("b", 2).to_bytes()).outcome == "accepted"


@pytest.mark.slow
def test_forgetting_everybody_leaves_an_empty_federation(tmp_path: Path) -> None:
    hub = Hub(tmp_path, settings_of(sites="ab"))
    play(hub, 1, "ab")
    assert hub.forget("a")
    assert hub.forget("b")
    assert not hub.forget("b")
    assert hub.snapshot().server.n_rounds == 0
    assert (hub.open_round, hub.summary(), hub.model_bytes()) == (2, None, None)
    play(hub, 2, "ab")
    assert hub.snapshot().server.n_rounds == 1


def test_nodes_seen_are_found_after_segments_were_merged() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in seen.TABLES.split(";")[:-1]:
        connection.execute(statement)
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(300, 3)) for _ in range(70)]
    blocks[3][7] = [0.0, 1.0, 2.0]
    for block in blocks:
        seen.add(connection, [block[:100], block[100:]])
    assert connection.execute("SELECT level, count(*) FROM segments GROUP BY level").fetchall() == [(0, 6), (2, 1)]
    points = np.array([blocks[0][0], blocks[69][299], [-0.0, 1.0, 2.0], [0.0, 1.0, 2.5], blocks[35][150] + 1e-9])
    assert seen.holds(connection, points).tolist() == [True, True, True, False, False]
    connection.close()


def test_a_damaged_or_newer_store_is_refused(tmp_path: Path) -> None:
    store = HubStore(tmp_path / "hub.db")
    store.path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="damaged"):
        _ = store.closed
    store.path.unlink()
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="upgrade fcac"):
        _ = store.closed


def test_a_copy_of_a_store_in_use_is_whole(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "state", settings_of())
    play(hub, 1)
    (tmp_path / "copy").mkdir()
    copy_database(hub.store.path, tmp_path / "copy" / "hub.db")
    play(hub, 2)
    restored = Hub(tmp_path / "copy", settings_of())
    play(restored, 2)
    assert_same_server(restored.snapshot().server, hub.snapshot().server)


# ------------------------------------------------------------ all or nothing


class Crash(BaseException):
    """Ends a process as kill -9 would: nothing catches it."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_around_any_commit_or_write_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    expected = Server(kind)
    for number in (1, 2):
        expected.absorb([sent(site, number) for site in "ab"])
    expected.forget("b")
    expected.absorb([sent("a", 3)])
    commit, write = HubStore._commit, persistence.write_atomic
    monkeypatch.setattr("os.fsync", lambda handle: None)  # a crash of the process, not of the machine

    def run(folder: Path, fatal: int) -> bool:
        """Play it all, crash at one step, go on; tell whether there was a crash."""
        steps = 0

        def crashing(real: Any) -> Any:
            def step(*args: Any) -> None:
                nonlocal steps
                steps += 1
                if steps == fatal:
                    raise Crash
                real(*args)
                steps += 1
                if steps == fatal:
                    raise Crash

            return step

        monkeypatch.setattr(HubStore, "_commit", crashing(commit))
        monkeypatch.setattr(persistence, "write_atomic", crashing(write))
        crashed = False
        for number, sites in ((1, "ab"), (2, "ab"), (0, "b"), (3, "a")):
            while True:
                hub = Hub(folder, settings_of(kind, sites="ab"))
                try:
                    if number == 0:
                        if "b" in hub.snapshot().server.sites:
                            hub.forget("b")
                        break
                    if hub.open_round > number:
                        break
                    for site in sites:
                        assert hub.receive(site, sent(site, number).to_bytes()).outcome != "rejected"
                    hub.close_round()
                except Crash:
                    crashed = True
        assert_same_server(Hub(folder, settings_of(kind, sites="ab")).snapshot().server, expected)
        return crashed

    # the moments are the same for both kinds: one is killed at each of them, the other at every third
    fatal, step = 1, 1 if kind == KINDS[0] else 3
    while run(tmp_path / str(fatal), fatal):
        fatal += step
    assert fatal > 20


# Plays rounds in processes of their own, forked so that importing is done only once, and kills them.
WORKER = """
import os, signal, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
from test_store import Hub, sent, settings_of
for line in sys.stdin:
    last, seconds = map(float, line.split())
    child = os.fork()
    if child == 0:
        hub = Hub(Path(sys.argv[2]), settings_of(sites="ab"))
        hub._report = lambda: None
        while hub.open_round <= last:
            number = hub.open_round
            for site in "ab":
                assert hub.receive(site, sent(site, number).to_bytes()).outcome != "rejected"
            hub.close_round()
        if seconds:  # it never ends by itself, so that the blow falls while it works or right after, never too late
            signal.pause()
        os._exit(0)
    if seconds:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_kill_9_at_any_moment_loses_and_doubles_nothing(tmp_path: Path, n_kills: int) -> None:
    rng, in_all = np.random.default_rng(0), 8 * n_kills + 1
    orders = [f"{8 * kill} {rng.uniform(0.02, 0.3)}" for kill in range(1, n_kills + 1)]
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(Path(__file__).parent), str(tmp_path / "state")],
        input="\n".join([*orders, f"{in_all} 0"]), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [str(-signal.SIGKILL)] * n_kills + ["0"], done.stderr
    expected = Server("cae-fc")
    for number in range(1, in_all + 1):
        expected.absorb([sent(site, number) for site in "ab"])
    assert_same_server(Hub(tmp_path / "state", settings_of(sites="ab")).snapshot().server, expected)
