"""What a report tells of earlier rounds and of sites: bounded, however many rounds there were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fcac._sites import SiteName, in_reading_order
from fcac._text import clusters_named, counted
from fcac.clusters.tracking import Move
from fcac.federation import Server
from fcac.federation.log import Entry
from fcac.federation.replay import Event, Snapshot, descendants, events, replay
from fcac.federation.summed_round import sites_behind
from fcac.report.dots import Dots, make_dots
from fcac.report.layout import Views

# The newest rounds are listed, the largest sites, the newest events, and the drift of the largest clusters.
_MAX_ROUNDS, _MAX_SITES, _MAX_EVENTS, _MAX_CHANGES = 24, 60, 24, 400


@dataclass(frozen=True)
class Participation:
    """A site's participation in one round."""

    n_nodes: int
    rows: int
    late: bool


@dataclass(frozen=True)
class SiteData:
    """One site: what it stands for now, and its part in the newest rounds, by position of the round."""

    name: SiteName
    rows: int
    n_nodes: int
    participation: dict[int, Participation]
    #: How many sites it stands for: more than one where they were summed before anyone saw.
    n_sites: int = 1


@dataclass(frozen=True)
class RoundData:
    """One round that is drawn: its dots, and what its clusters become."""

    snapshot: Snapshot
    dots: Dots
    becomes: dict[int, int]


@dataclass(frozen=True)
class History:
    """Rounds, sites, and what became of clusters.

    `entries` are all contributions without their nodes. At most six rounds are drawn, None where it would take too long
    to play them again; events and moves are the newest.
    """

    entries: list[list[Entry]]
    sites: list[SiteData]
    drawn_rounds: list[RoundData] | None = None
    events: list[Event] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    @property
    def n_rounds(self) -> int:
        """Number of rounds with a contribution."""
        return len(self.entries)

    def name(self, position: int) -> int:
        """Return the number that sites gave to the round at a position from 0 on."""
        return max(entry.round for entry in self.entries[min(position, self.n_rounds - 1)])

    def n_taking(self, position: int) -> int:
        """Return how many sites took part in a round."""
        return len({entry.site for entry in self.entries[position]})

    @property
    def listed_rounds(self) -> range:
        """Positions of the newest rounds."""
        return range(max(0, self.n_rounds - _MAX_ROUNDS), self.n_rounds)

    @property
    def listed_sites(self) -> list[SiteData]:
        """The sites of most rows, in their usual order."""
        largest = {site.name for site in sorted(self.sites, key=lambda site: -site.rows)[:_MAX_SITES]}
        return [site for site in self.sites if site.name in largest]

    @property
    def drift(self) -> dict[tuple[int, int], float]:
        """How far each cluster has moved in each of the newest rounds, by cluster and round."""
        rounds = sorted({move.round for move in self.moves})[-_MAX_ROUNDS:]
        return {(move.cluster, move.round): move.moved for move in self.moves if move.round in rounds}

    @property
    def drawn_names(self) -> list[str]:
        """Names of the rounds that are drawn."""
        return [f"Round {self.name(r.snapshot.round - 1)}" for r in self.drawn_rounds or ()]

    @property
    def clusters_by_round(self) -> str:
        """Numbers of clusters in the rounds that are drawn."""
        drawn = zip(self.drawn_names, self.drawn_rounds or (), strict=True)
        return ", ".join(f"{name} {r.snapshot.n_clusters}" for name, r in drawn)

    @property
    def flow_lines(self) -> list[tuple[str, str, str, str]]:
        """Where rows went between the rounds that are drawn."""
        drawn = list(zip(self.drawn_names, self.drawn_rounds or (), strict=True))
        return [
            (name, str(a), str(b), f"{n:,}") for name, r in drawn[1:] for (a, b), n in sorted(r.snapshot.flow.items())
        ]

    def lines(self, *, growth: bool = False) -> list[str]:
        """Return the newest events in words: births, joins, splits and deaths; or how clusters grew and shrank."""
        told = [event for event in self.events if (event.kind in ("grew", "shrank")) == growth]
        lines = []
        for number in sorted({event.round for event in told}):
            when = f"Round {self.name(number - 1)}"
            here = [event for event in told if event.round == number]
            born = [label for event in here if event.kind == "born" for label in event.after]
            if born:
                lines.append(f"{when}: {clusters_named(born)} {'was' if len(born) == 1 else 'were'} born.")
            lines += [f"{when}: {_in_words(event)}" for event in here if event.kind != "born"]
        return lines[-_MAX_EVENTS:]

    def drawn(self, server: Server, views: Views) -> History:
        """Return this history with its pictures and events."""
        snapshots = replay(server) if server.n_rounds > 1 else None
        rounds = None if snapshots is None else _rounds(server, snapshots, views)
        told = _told_lineage(server) or events(snapshots or [])
        return replace(self, drawn_rounds=rounds, events=told)


def make_history(server: Server) -> History:
    """Return the history of a server, without pictures."""
    entries = server.history
    participation: dict[SiteName, dict[int, Participation]] = {}
    for position in range(max(0, len(entries) - _MAX_ROUNDS), len(entries)):
        newest = max(entry.round for entry in entries[position])
        for entry in entries[position]:
            own = participation.setdefault(entry.site, {})
            late = entry.round < newest and position not in own
            own[position] = Participation(entry.n_nodes, round(entry.n_rows), late)
    latest = server.latest()
    sites = []
    for site in in_reading_order(latest):
        item, own = latest[site], participation.get(site, {})
        sites.append(SiteData(site, round(float(item.counts.sum())), len(item.counts), own, sites_behind(item)))
    oldest = server.n_rounds - _MAX_ROUNDS
    return History(entries, sites, moves=[move for move in server.readout.moves if move.round > oldest])


def _rounds(server: Server, snapshots: list[Snapshot], views: Views) -> list[RoundData]:
    return [
        RoundData(s, make_dots(server, views.places(s.nodes), s.counts, s.labels, s.edges, small=True), becomes)
        for s, becomes in zip(snapshots, descendants(snapshots), strict=True)
    ]


def _told_lineage(server: Server) -> list[Event]:
    """Return the newest lineage of clusters that the read-out itself records, if it does."""
    told = []
    for change in server.readout.lineage[-_MAX_CHANGES:]:
        own, others = (int(change.cluster),), tuple(int(label) for label in change.others)
        before, after = {"merged": (others, own), "split": (own, others), "born": ((), own)}.get(
            change.kind, (own, own)
        )
        rows = (round(change.mass_before), round(change.mass_after))
        told.append(Event(min(int(change.round), server.n_rounds), str(change.kind), before, after, rows))
    return told


def _in_words(event: Event) -> str:
    if event.kind in ("merged", "split"):
        return f"{clusters_named(event.before)} of the round before {event.kind} into {clusters_named(event.after)}."
    if event.kind == "died":
        return f"{clusters_named(event.before)} died; it stood for {counted(event.rows[0], 'row')}."
    return f"{clusters_named(event.after)} {event.kind} from {event.rows[0]:,} to {counted(event.rows[1], 'row')}."
