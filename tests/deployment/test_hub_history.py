"""What a delivery and a round cost the hub does not depend on how many rounds there were; counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fcac import persistence
from fcac.deployment import status_lines
from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, Member
from fcac.federation import Contribution, Server
from fcac.tables.schema import Schema
from testing.data import nodes_and_counts
from testing.federation_study import make_study

pytestmark = pytest.mark.slow

N_SITES = 60


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)  # bytes are counted here, not what survives a power cut


@pytest.fixture
def _no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliveries and the status have nothing to do with the report that follows every round."""
    monkeypatch.setattr(Hub, "_report", lambda self: None)


def names(n_sites: int = N_SITES) -> list[str]:
    return [f"s{i:03d}" for i in range(n_sites)]


def sent(site: str, round: int, n_nodes: int = 20) -> bytes:
    nodes, counts = nodes_and_counts(n_nodes, [int(site[1:]), round], 50)
    return Contribution(site, round, nodes, counts).to_bytes()


def make(folder: Path, n_sites: int = N_SITES, server: str = "cae-fc") -> Hub:
    members = {name: Member() for name in names(n_sites)}
    return Hub(folder / "state", FederationSettings(Schema(["x", "y"]), server=server, members=members))


def play(hub: Hub, number: int) -> None:
    for site in hub.settings.active:
        assert hub.receive(site, sent(site, number)).outcome == "accepted"
    assert len(hub.close_round()) == len(hub.settings.active)


class Work:
    """Counts what is decoded, and how many bytes go from and to files."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        for owner, name in ((Contribution, "from_bytes"), (Server, "from_parts"), (Server, "resume")):
            if hasattr(owner, name):
                patch.setattr(owner, name, self._counted(name, getattr(owner, name)))
        patch.setattr(persistence, "unpack", self._counted("unpack", persistence.unpack))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return real(*args, **kwargs)

        return call

    def of(self, task: Callable[[], Any]) -> tuple[Counter[str], int]:
        """Return what a task calls and how many bytes it reads and writes."""
        self.calls.clear()
        before = _bytes_moved()
        task()
        return Counter(self.calls), _bytes_moved() - before


# where Linux counts the bytes that a process reads and writes
COUNTED = Path("/proc/self/io")


def _bytes_moved() -> int:
    if not COUNTED.exists():  # then calls are compared, and bytes are all 0
        return 0
    lines = dict(line.split(": ") for line in COUNTED.read_text().splitlines())
    return int(lines["rchar"]) + int(lines["wchar"])


@pytest.mark.usefixtures("_no_report")
def test_a_delivery_costs_its_own_weight_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = make(tmp_path)
    work = Work(monkeypatch)
    moved = {}
    for number in (1, 2, 3, 4, 5):
        for site in hub.settings.active[:30]:
            hub.receive(site, sent(site, number))
        message = sent("s045", number)
        calls, moved[number] = work.of(lambda message=message: hub.receive("s045", message))
        # a repeated delivery and a refused one are no dearer
        again, moved_again = work.of(lambda message=message: hub.receive("s045", message))
        other = sent("s046", number + 7)
        refused, moved_refused = work.of(lambda other=other: hub.receive("s046", other))
        for counted in (calls, again, refused):
            assert counted == {"from_bytes": 1, "unpack": 1}
        assert max(moved_again, moved_refused) <= moved[number] + 4096
        for site in hub.settings.active[30:]:
            hub.receive(site, sent(site, number))
        assert len(hub.close_round()) == N_SITES
    # a page or two more as the tree grows, never the history: the contributions of one round are 60 kB
    assert max(moved.values()) <= moved[2] + 10_000, moved


@pytest.mark.usefixtures("_no_report")
def test_asking_for_the_open_round_reads_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = make(tmp_path, 20)
    for number in (1, 2, 3):
        play(hub, number)
    hub.receive("s003", sent("s003", 4))
    work = Work(monkeypatch)
    calls, _ = work.of(lambda: (hub.open_round, hub.missing(), hub.holdings()))
    assert not calls
    assert hub.open_round == 4
    assert len(hub.missing()) == 19
    assert set(hub.holdings().values()) == {3}


@pytest.mark.parametrize("kind", ["cae-fc", "communities"])
def test_closing_a_round_costs_what_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    n_sites = 4
    hub = make(tmp_path, n_sites, kind)
    work = Work(monkeypatch)
    decoded, moved = {}, {}
    with monkeypatch.context() as quick:
        quick.setattr(Hub, "_report", lambda self: None)
        for number in range(1, 7):
            play(hub, number)
    for number in range(7, 12):
        for site in hub.settings.active:
            hub.receive(site, sent(site, number))
        with monkeypatch.context() as quick:
            if number in (8, 10):
                quick.setattr("fcac.report.snapshot", lambda server: server)
                quick.setattr(Hub, "_report", lambda self: None)
            calls, moved[number] = work.of(hub.close_round)
        decoded[number] = calls["from_bytes"]
    # a report shows six rounds, each with the sites' nodes as they were then; beyond six nothing is added
    assert decoded[11] == decoded[9] == decoded[7] > decoded[8]
    assert moved[11] <= 1.5 * moved[7]
    assert not list((tmp_path / "state").glob("*.part"))


@pytest.mark.usefixtures("_no_report")
def test_status_rebuilds_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schema.toml").write_text("fcac_schema = 1\n[columns]\nx = {}\ny = {}\n")
    root = make_study(tmp_path, names(5), tmp_path / "schema.toml")
    hub = Hub(root / "state", FederationSettings.load(root))
    for number in (1, 2, 3):
        play(hub, number)
    hub.receive("s003", sent("s003", 4))
    expected = hub.snapshot().server
    work = Work(monkeypatch)
    lines: list[str] = []
    calls, _ = work.of(lambda: lines.extend(status_lines.describe(root)))
    assert not calls
    assert f"model: {expected.n_clusters} clusters, {len(expected.nodes)} nodes (communities)" in lines
    assert "arrived for the open round: s003" in lines
    assert "rounds closed: 3; round 4 is open" in lines


@pytest.mark.usefixtures("_no_report")
def test_a_look_reads_what_is_new_since_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of another process: what was read of the journal is kept, as long as it is of this journal."""
    (tmp_path / "schema.toml").write_text("fcac_schema = 1\n[columns]\nx = {}\ny = {}\n")
    root = make_study(tmp_path, names(3), tmp_path / "schema.toml")
    hub = Hub(root / "state", FederationSettings.load(root))
    play(hub, 1)
    hub.note("unusual", site="s001", round=1, reason="to be looked at")
    monkeypatch.setattr("fcac.deployment.facts._WORTH_KEEPING", 0)
    whole = status_lines.describe(root)
    assert any("to be looked at" in line for line in whole)
    read: list[int] = []
    before = Hub.journal_since

    def counted(self: Hub, offset: int) -> tuple[list[dict[str, Any]], int]:
        found = before(self, offset)
        read.append(len(found[0]))
        return found

    monkeypatch.setattr(Hub, "journal_since", counted)
    assert status_lines.describe(root) == whole
    hub.note("rejected", site="s001", round=2, reason="x")
    assert status_lines.describe(root) != whole
    assert read == [0, 1]
    # a back-up was brought back, and something else happened since: nothing of the other history is kept
    path = root / "state" / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    hub.note("no reply", site="s002", round=2)
    read.clear()
    shown = status_lines.describe(root)
    assert read[0] > 5
    (about,) = [line for line in shown if line.startswith("s001")]
    assert about.partition("round 1")[2].split()[:2] == ["0", "0"]
