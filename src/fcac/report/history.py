"""The sections on rounds and sites: what happened to clusters, and which sites took part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fcac._text import counted
from fcac.federation.replay import SMALLEST_SHARE, Event
from fcac.report import charts
from fcac.report.cluster_style import ClusterStyle
from fcac.report.components import details, image, plot, section, shortened, table
from fcac.report.data import Reading, ReportData, SiteData
from fcac.report.markup import Markup, tag

_MAX_SITES_IN_GRID = 60
_MAX_ROUNDS_IN_GRID = 24
_MAX_EVENTS = 24
_MAX_LISTED = 6
_MAX_DRIFTING = 40
# Drift from which a cluster is said to have moved, in spreads.
_MOVED = 0.25

# ------------------------------------------------------------ rounds


def rounds_section(data: ReportData) -> Markup | None:
    """Show the rounds side by side, and what became of the clusters."""
    if len(data.round_names) < 2:
        return None
    if data.rounds is None:
        happened = _event_list(data)
        return section(
            "rounds",
            "Round by round",
            "There are too many contributions to draw every round again; the map above is of the last.",
            tag("div", tag("h3", "What became of the clusters"), happened, class_="panel") if happened else None,
            _drift(data),
        )
    rounds, read = data.rounds, data.read
    everything = np.concatenate([r.dots.points for r in rounds])
    pictures = []
    for r in rounds:
        name = f"Round {data.round_names[r.snapshot.round - 1]}"
        picture = charts.small_network(r.dots, partial(_later_style, read, r.becomes), everything)
        n_nodes, n_clusters = len(r.snapshot.nodes), r.snapshot.n_clusters
        alt = f"{name}: {counted(n_nodes, 'node')} in {counted(n_clusters, 'cluster')}."
        heading = tag("h3", name, tag("span", f"{counted(n_clusters, 'cluster')}"))
        sites = [s for s in data.sites if r.snapshot.round - 1 in s.participation]
        present = (
            "all sites in one sum" if data.summed else f"{len(sites)} of {counted(len(data.sites), 'site')} took part"
        )
        took_part = f"{counted(n_nodes, 'node')}; {present}."
        pictures.append(tag("figure", heading, image(picture, alt), tag("figcaption", took_part), class_="panel"))
    names = [f"Round {data.round_names[r.snapshot.round - 1]}" for r in rounds]
    flow_rows = [
        (names[k], f"{a}", f"{b}", f"{n:,}")
        for k in range(1, len(rounds))
        for (a, b), n in sorted(rounds[k].snapshot.flow.items())
    ]
    moved = tag(
        "div",
        tag("h3", "What became of the clusters"),
        tag(
            "p",
            "Bars are clusters, with heights in proportion to their rows; ribbons show where earlier rows went. "
            "Parts of a bar that no ribbon reaches are new.",
            class_="caption",
        ),
        plot(charts.flow(rounds, read, names), _flow_alt(data, names)),
        _event_list(data),
        details(
            "Show as a table",
            table(["Until", "From cluster", "To cluster", "Rows"], flow_rows, caption="Rows passed on between rounds"),
        ),
        class_="panel gap",
    )
    shown = "" if len(rounds) == len(data.round_names) else f" {len(rounds)} of {len(data.round_names)} are shown."
    intro = (
        "The same picture after every round. A cluster has the colour of the cluster that it became in the last round."
        f"{shown}"
    )
    return section(
        "rounds",
        "Round by round",
        intro,
        tag("div", pictures, class_="small", style=f"--n:{_columns(len(rounds))}"),
        moved,
        _drift(data),
    )


def _drift(data: ReportData) -> Markup | None:
    """How far clusters have moved in each round, where the server has seen it."""
    rounds = sorted({move.round for move in data.moves})[-_MAX_ROUNDS_IN_GRID:]
    if not rounds:
        return None
    found = {(move.cluster, move.round): move.moved for move in data.moves}
    clusters = [c for c in data.read.clusters if any((c.label, r) in found for r in rounds)][:_MAX_DRIFTING]
    if not clusters:
        return None
    names = {number: data.round_names[min(number, len(data.round_names)) - 1] for number in rounds}
    head = tag("tr", tag("th", "Cluster", scope="col"), [tag("th", f"Round {names[r]}", scope="col") for r in rounds])
    lines = [
        tag(
            "tr",
            tag("th", cluster.style.chip(), f" {cluster.label}", scope="row"),
            [_moved_cell(found.get((cluster.label, r))) for r in rounds],
            class_="k",
            data_k=cluster.label,
        )
        for cluster in clusters
    ]
    grid = tag(
        "table",
        tag("caption", "How far each cluster has moved in each round", class_="unseen"),
        tag("thead", head),
        tag("tbody", lines),
        class_="presence follow",
    )
    return tag(
        "div",
        tag("h3", "How far clusters have moved"),
        tag(
            "p",
            "Distance between a cluster's centres before and after the round, in units of the cluster's own spread: "
            "below 0.25 is little, above 1 the cluster is somewhere else.",
            class_="caption",
        ),
        tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="Drift of clusters"),
        class_="panel gap",
    )


def _moved_cell(moved: float | None) -> Markup:
    if moved is None:
        return tag("td", "–", class_="out")
    far = "late" if moved >= _MOVED else "in"
    return tag("td", f"{moved:.2f}" if np.isfinite(moved) else "far", class_=far)


def _columns(n: int) -> int:
    """Return the number of pictures per row, chosen so that no row has a single one."""
    return n if n <= 4 else 3


def _later_style(read: Reading, becomes: dict[int, int], label: int) -> ClusterStyle:
    """Return the style of the cluster that this one became in the last round."""
    return read.style(becomes.get(label, label))


def _flow_alt(data: ReportData, names: Sequence[str]) -> str:
    assert data.rounds is not None
    steps = [f"{name} {r.snapshot.n_clusters}" for name, r in zip(names, data.rounds, strict=True)]
    return f"Clusters over the rounds: {', '.join(steps)}."


def _event_list(data: ReportData) -> Markup | None:
    if not data.events:
        return None
    renamed = not data.read.way.names_last
    note = "Clusters keep their names."
    if renamed:
        note = (
            "The paper's server numbers its components anew in every round; what concerns less than "
            f"{SMALLEST_SHARE:.0%} of the rows is not told."
        )
    quiet = [event for event in data.events if event.kind in ("grew", "shrank")]
    loud = [event for event in data.events if event not in quiet]
    return tag(
        "div",
        _listed(_event_lines(loud, data.round_names)),
        tag("p", note, class_="caption"),
        details("Show how clusters grew", _listed(_event_lines(quiet, data.round_names))) if quiet else None,
    )


def _listed(lines: Sequence[str]) -> Markup:
    older = len(lines) - _MAX_EVENTS
    shown = tag("ul", [tag("li", line) for line in lines[-_MAX_EVENTS:]], class_="events")
    earlier = tag("p", f"and {counted(older, 'earlier event')}", class_="caption") if older > 0 else None
    return tag("div", shown, earlier)


def _event_lines(events: Sequence[Event], round_names: Sequence[int]) -> list[str]:
    """Return one line for all births of a round, then one line for each other event."""
    lines = []
    for number in sorted({event.round for event in events}):
        when = f"Round {round_names[number - 1]}"
        here = [event for event in events if event.round == number]
        born = [label for event in here if event.kind == "born" for label in event.after]
        if born:
            lines.append(f"{when}: {_clusters(born)} {'was' if len(born) == 1 else 'were'} born.")
        lines += [f"{when}: {_event_words(event)}" for event in here if event.kind != "born"]
    return lines


def _event_words(event: Event) -> str:
    if event.kind in ("merged", "split"):
        return f"{_clusters(event.before)} of the round before {event.kind} into {_clusters(event.after)}."
    if event.kind == "died":
        return f"{_clusters(event.before)} died; it stood for {counted(event.rows[0], 'row')}."
    return f"{_clusters(event.after)} {event.kind} from {event.rows[0]:,} to {counted(event.rows[1], 'row')}."


def _clusters(labels: Sequence[int]) -> str:
    names = [str(label) for label in labels]
    if len(names) == 1:
        return f"cluster {names[0]}"
    if len(names) > _MAX_LISTED:
        return f"{len(names)} clusters"
    return f"clusters {', '.join(names[:-1])} and {names[-1]}"


# ------------------------------------------------------------ sites


def sites_section(data: ReportData) -> Markup | None:
    """Show which sites took part in which rounds, if there is more than one of either."""
    if data.n_sites == 1 and len(data.round_names) == 1:
        return None
    largest = {s.name for s in sorted(data.sites, key=lambda s: -s.rows)[:_MAX_SITES_IN_GRID]}
    sites = [s for s in data.sites if s.name in largest]
    first = max(0, len(data.round_names) - _MAX_ROUNDS_IN_GRID)
    columns = range(first, len(data.round_names))
    head = ["Site", *[f"Round {data.round_names[k]}" for k in columns], "Rows", "Nodes"]
    lines = [
        tag(
            "tr",
            tag("th", shortened(str(site.name), 24), scope="row", title=str(site.name)),
            [_presence(site, k) for k in columns],
            tag("td", f"{site.rows:,}"),
            tag("td", f"{site.n_nodes:,}"),
        )
        for site in sites
    ]
    grid = tag(
        "table",
        tag("caption", "Nodes that each site sent in each round", class_="unseen"),
        tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
        tag("tbody", lines),
        class_="presence",
    )
    notes = ["Numbers in the grid are nodes sent."]
    if len(sites) < len(data.sites):
        notes.append(f"The {len(sites)} largest of {len(data.sites):,} sites are listed.")
    if first:
        notes.append(f"The last {len(columns)} of {len(data.round_names)} rounds are listed.")
    taking = [sum(k in s.participation for s in data.sites) for k in range(len(data.round_names))]
    if len(data.sites) > 1:
        notes.append(f"Sites per round: {min(taking)} to {max(taking)}." if min(taking) < max(taking) else "")
    told = "Which sites took part in which round. A site that is away does not affect the others."
    if data.summed:
        told = (
            "The sites were summed before anyone saw (secure aggregation): there is one contributor for all of them. "
            "Shares of single sites are known to nobody, so they are not shown."
        )
    return section(
        "sites",
        "The sites",
        told,
        tag(
            "div",
            tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="Participation of sites"),
            tag("p", " ".join(note for note in notes if note), class_="caption"),
            class_="panel",
        ),
    )


def _presence(site: SiteData, k: int) -> Markup:
    part = site.participation.get(k)
    if part is None:
        return tag("td", "away", class_="out")
    tip = f"{site.name}: {counted(part.n_nodes, 'node')} for {counted(part.rows, 'row')}"
    if part.late:
        return tag("td", f"{part.n_nodes:,} late", class_="late", data_t=f"{tip}, for an earlier round")
    return tag("td", f"{part.n_nodes:,}", class_="in", data_t=tip)
