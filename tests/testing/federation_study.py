"""A small federation on disk for tests: real directories, real files, the real apps; only the wire differs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

try:
    import aiohttp  # noqa: F401
    import cryptography  # noqa: F401
except ImportError:
    if os.environ.get("FCAC_NO_SKIP") == "1":
        raise
    pytest.skip("fcac runs no federation here: pip install 'fcac[federation]'", allow_module_level=True)

from fcac import persistence
from fcac.aggregation import RosterFile, SigningKey
from fcac.codebook import Codebook
from fcac.deployment import study
from fcac.deployment.aggregated_study import SITE_KEY_FILE, offered
from fcac.deployment.answers import answer
from fcac.deployment.conversation import Conversation, Timeouts
from fcac.deployment.hub import Hub
from fcac.deployment.rehearsal import join_here
from fcac.deployment.settings import FederationSettings
from fcac.deployment.site_setup import site_settings
from fcac.deployment.wire import Request
from fcac.federation import Contribution, Server, Site, readouts
from fcac.federation.condenser import condenser_for
from fcac.model import storage
from testing.data import write_csv

SCHEMA = """\
fcac_schema = 1
bounds_are_public = true

[columns]
x = { min = -8, max = 8 }
y = { min = -8, max = 8 }
"""

#: What happens to a reply in transit: the site, the request and the reply; returns the replies that arrive instead
#: (none: silence; None: lost on the way; two: delivered twice).
Fault = Callable[[str, Request, bytes], list[bytes | None]]


def make_study(folder: Path, names: Iterable[str], schema: Path, **settings: Any) -> Path:
    """Make a study in FOLDER/study whose sites have joined, each with its bundle in FOLDER/bundles/NAME."""
    root = study.init(folder / "study", schema, **settings)
    for name in names:
        join_here(root, name, folder / "bundles" / name)
    return root


def agree_to_sites(root: Path, name: str, state: Path) -> None:
    """Let a site's operator agree to the list of sites that the hub offers."""
    data, public = offered(root), SigningKey.at(root.parent / "bundles" / name / SITE_KEY_FILE).public
    assert data is not None
    state.mkdir(exist_ok=True)
    file = RosterFile(state)
    if file.offer(data, name, public):
        assert file.offered is not None
        file.agree(file.offered.code)


class DirectWire:
    """A wire inside one process: each request is answered at once by the code that a site's process runs."""

    def __init__(self, sites: Mapping[str, Path], fault: Fault | None = None) -> None:
        self.sites, self.fault = dict(sites), fault

    def connected(self) -> set[str]:
        return set(self.sites)

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | None]]:
        for site, data in sorted(requests.items()):
            reply = answer(self.sites[site], data)
            arrived = [reply] if self.fault is None else self.fault(site, Request.from_bytes(data), reply)
            for one in arrived:
                yield site, one

    def late(self) -> Iterator[tuple[str, bytes]]:
        return iter(())


class Study:
    """A federation below a folder, with sites that are asked inside this process."""

    def __init__(
        self,
        folder: Path,
        names: Iterable[str] = "abc",
        server: str = "cae-fc",
        summing: Any = None,
        schema: str = SCHEMA,
        **privacy: Any,
    ) -> None:
        self.folder, self.privacy = folder, privacy
        (folder / "schema.toml").write_text(schema)
        self.root = make_study(
            folder,
            names,
            folder / "schema.toml",
            server=server,
            timeout=0.2,
            wait=0.0,
            summing=summing,
        )
        # what is compared is what sites have sent: no cap may thin it out
        settings = self.root / "federation.toml"
        text = re.sub("# (max_(node|count)_share) = 0.25", r"\1 = 1.0", settings.read_text())
        settings.write_text(text)
        self.sites: dict[str, Path] = {}
        self.fault: Fault | None = None
        for name in names:
            self.join(name)

    @property
    def settings(self) -> FederationSettings:
        return FederationSettings.load(self.root)

    @property
    def hub(self) -> Hub:
        return Hub(self.root / "state", self.settings)

    @property
    def server(self) -> Server:
        return self.hub.snapshot().server

    def data(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def state(self, name: str) -> Path:
        return self.folder / f"state-{name}"

    def join(self, name: str) -> None:
        """Start a site that has a bundle; where sites are summed, it agrees to the list of them."""
        self.data(name).mkdir(exist_ok=True)
        settings = site_settings(self.root.parent / "bundles" / name, self.data(name), self.state(name), **self.privacy)
        settings.save(self.state(name) / "settings.json")
        self.sites[name] = self.state(name) / "settings.json"
        if self.settings.summing is not None:
            agree_to_sites(self.root, name, self.state(name))

    def give(self, rows: Mapping[str, np.ndarray], file: str = "rows.csv") -> None:
        """Put new rows at the end of sites' files."""
        for name, block in rows.items():
            path = self.data(name) / file
            write_csv(path, block, header=not path.exists())

    def conversation(self) -> Conversation:
        """Return the hub's conversation with the sites."""
        wire = DirectWire(self.sites, self.fault)
        return Conversation(self.hub, wire, Timeouts(0.2, 0.0), reload=lambda: self.settings)

    def play(self, new: Mapping[str, np.ndarray] | None = None, rounds: int = 1) -> None:
        """Give sites what is new, play rounds, and hand out the model."""
        self.give(new or {})
        self.conversation().play(rounds)

    def events(self, *kinds: str) -> list[tuple[Any, ...]]:
        """Return (event, site, round) from the journal."""
        return [
            (entry["event"], entry.get("site"), entry.get("round"))
            for entry in self.hub.journal()
            if not kinds or entry["event"] in kinds
        ]

    def reasons(self) -> list[str]:
        return [entry["reason"] for entry in self.hub.journal() if entry["event"] == "rejected"]

    def sent(self, name: str, round: int) -> Contribution:
        """What a site has stored as sent."""
        return Contribution.from_bytes((self.state(name) / "sent" / f"{round:09d}.fcac").read_bytes())


class Reference:
    """The same federation without any wire: sites and server called directly."""

    def __init__(self, kind: str = "cae-fc", min_rows: int = 3) -> None:
        self.sites: dict[str, Site] = {}
        self.server = Server(kind)
        self.condenser = condenser_for(readouts.find(kind).condenser, min_rows=min_rows)

    def contribute(self, rows: Mapping[str, np.ndarray], round: int) -> list[Contribution]:
        return [
            self.sites.setdefault(name, Site(name, condenser=self.condenser)).contribute(block, round=round)
            for name, block in sorted(rows.items())
        ]

    def play(self, rows: Mapping[str, np.ndarray], round: int) -> None:
        self.server.absorb(self.contribute(rows, round))


def assert_no_secret(folder: Path) -> None:
    """Private keys and one-time tokens stay in their files: no line of one is in any log, journal or database."""
    secrets = {
        line for key in folder.rglob("*.key") for line in key.read_bytes().splitlines() if len(line) > 30
    }  # a ledger's key has no lines
    assert len(secrets) > 3
    looked_at = 0
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".key":
            looked_at += 1
            found = path.read_bytes()
            assert not any(secret in found for secret in secrets), path
    assert looked_at > 10


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in megabytes."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024


def hostile(name: str, now: int = 1) -> tuple[bytes, str]:
    """Return (what site b sends in a round, words of the reason why it is rejected)."""
    nodes, counts = np.zeros((3, 2)), np.ones(3, np.int64)

    def packed(nodes: Any, counts: Any, site: Any = "b", round: Any = now) -> bytes:
        meta = {"site": site, "round": round, "privacy": {}}
        return persistence.pack("contribution", meta, {"nodes": nodes, "counts": counts})

    return {
        "nan": (packed(np.full((3, 2), np.nan), counts), "NaN or infinite"),
        "infinite": (packed(np.full((3, 2), np.inf), counts), "NaN or infinite"),
        "wrong d": (packed(np.zeros((3, 5)), counts), "5 features"),
        "million nodes": (packed(np.zeros((1_000_000, 2)), np.ones(1_000_000, np.int64)), "bytes; 20000 nodes"),
        "too many nodes": (packed(np.zeros((20_001, 1)), np.ones(20_001, np.int64)), "features"),
        "negative counts": (packed(nodes, -counts), "at least 1"),
        "huge counts": (packed(nodes, np.full(3, 2**62)), "at least 1"),
        "another's name": (packed(nodes, counts, site="a"), "name of another site"),
        "a number for a name": (packed(nodes, counts, site=7), "name of another site"),
        "future round": (packed(nodes, counts, round=now + 8), f"answers round {now + 8}"),
        "round zero": (packed(nodes, counts, round=0), "round must be"),
        "far outside": (packed(np.full((3, 2), 1e6), counts), "outside the bounds"),
        "no contribution": (b"GET / HTTP/1.1", "not an FCAC file"),
        "a model": (storage.to_bytes(Codebook([[0.0, 0.0]], [0])), "not a contribution"),
        "empty": (b"", "not an FCAC file"),
        "cut short": (packed(nodes, counts)[:-9], "FCAC file"),
        "altered": (packed(nodes, counts)[:-1] + b"\x07", "checksum"),
    }[name]
