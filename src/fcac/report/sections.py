"""The sections of the page, one function each; every figure is also given as text or in a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcac._text import counted
from fcac.clusters.stability import DOUBTFUL
from fcac.report import charts
from fcac.report.components import details, image, plot, section, shortened, table
from fcac.report.data import Cluster, Comparison, Reading, ReportData
from fcac.report.done import Done
from fcac.report.dots import MIN_ROWS
from fcac.report.map_chart import describe_map, map_chart
from fcac.report.markup import Child, Markup, tag
from fcac.report.privacy_statement import PrivacyStatement
from fcac.tables.shown_column import figure, percent

_MAX_LEGEND = 250
_MAX_CROSS = 20
_MAX_STABLE = 30


# ------------------------------------------------------------ opening


def opening(data: ReportData) -> list[Markup]:
    """Return the headline figures, and a banner if privacy requires one."""
    clusters = data.read.clusters
    privacy = data.privacy
    per_node = figure(data.n_rows / data.n_sent_nodes) if data.n_sent_nodes else "–"
    about = "" if data.exact_counts else "≈ "
    tiles = [
        (f"{_plural(len(clusters), 'Cluster')} found", f"{len(clusters):,}"),
        (f"Rows behind them{'' if data.exact_counts else ' (noised)'}", f"{about}{data.n_rows:,}"),
        ("Sites, summed before anyone saw" if data.summed else _plural(data.n_sites, "Site"), f"{data.n_sites:,}"),
        (_plural(len(data.round_names), "Round"), f"{len(data.round_names):,}"),
        (f"Nodes sent; rows per node: {per_node}", f"{data.n_sent_nodes:,}"),
    ]
    banner = None
    if privacy.level in ("danger", "warning"):
        banner = tag(
            "div",
            tag(
                "p",
                tag("strong", privacy.headline),
                f" {privacy.warning} ",
                tag("a", "What that means", href="#privacy"),
            ),
            class_=f"callout {privacy.level}",
            role="note",
        )
    where = "Privacy" if data.federation else "Privacy; all in one process"
    last = tag("div", tag("dt", where), tag("dd", privacy.badge), class_=privacy.level)
    listed = tag("dl", [tag("div", tag("dt", term), tag("dd", figure)) for term, figure in tiles], last, class_="tiles")
    return [part for part in (banner, listed) if part is not None]


def _plural(n: int, word: str) -> str:
    return word if n == 1 else f"{word}s"


def title_of(data: ReportData) -> str:
    """Return the heading of a report that was given none."""
    found = counted(len(data.read.clusters), "cluster")
    if data.n_sites > 1:
        return f"{found} at {data.n_sites:,} sites"
    return f"{found} in {'' if data.exact_counts else 'about '}{counted(data.n_rows, 'row')}"


def lead(data: ReportData) -> Markup:
    """Return the result in one sentence."""
    clusters = data.read.clusters
    rows, sites = counted(data.n_rows, "row"), counted(data.n_sites, "site")
    rounds = counted(len(data.round_names), "round")
    if not clusters:
        return tag(
            "p", f"{sites} took part in {rounds}; no node has arrived yet, so there is no cluster.", class_="lead"
        )
    about = "" if data.exact_counts else "About "
    where = f"at {sites}, seen over {rounds}, " if data.n_sites > 1 or len(data.round_names) > 1 else ""
    n = min(3, len(clusters))
    top = sum(c.share for c in clusters[:n])
    tail = f" The {n} largest hold {top:.0%} of the rows." if len(clusters) > 3 else ""
    return tag(
        "p",
        f"{about}{rows} {where}{'falls' if data.n_rows == 1 else 'fall'} into ",
        tag("strong", counted(len(clusters), "cluster")),
        f".{tail}",
        class_="lead",
    )


# ------------------------------------------------------------ the map


def map_section(data: ReportData) -> Markup:
    """Show the large picture with its legend."""
    read = data.read
    legend = [_legend_entry(cluster, data) for cluster in read.clusters[:_MAX_LEGEND]]
    more = len(read.clusters) - len(legend)
    first, second = ("Map", "Principal components") if data.views.map_first else ("Columns", "Map")
    tools = tag(
        "div",
        tag(
            "div",
            tag("button", first, type="button", data_view="a", aria_pressed="true"),
            tag("button", second, type="button", data_view="b", aria_pressed="false"),
            class_="switch",
            role="group",
            aria_label="View",
        ),
        tag(
            "div",
            tag("button", "+", type="button", data_zoom="in", aria_label="Zoom in"),
            tag("button", "\N{MINUS SIGN}", type="button", data_zoom="out", aria_label="Zoom out"),
            tag("button", "Whole", type="button", data_zoom="all", aria_label="Show the whole picture"),
            class_="switch",
            role="group",
            aria_label="Zoom",
        ),
        class_="tools",
    )
    stage = tag(
        "div",
        tag(
            "figure",
            tools,
            plot(map_chart(data), describe_map(data), id_="network-plot"),
            tag("figcaption", _map_caption(data)),
        ),
        tag(
            "div",
            tag("ul", legend, class_="legend follow", aria_label="Clusters: choose one to follow it through the page"),
            tag("p", f"and {counted(more, 'smaller cluster')}", class_="caption") if more else None,
        ),
        class_="stage panel",
    )
    intro = (
        "Every dot stands for rows that are alike. Choose a cluster, here or anywhere on the page, to follow it "
        "through every panel; drag to move, Ctrl and wheel (or + and \N{MINUS SIGN}) to zoom."
    )
    return section("network", "The map", intro, stage)


def _map_caption(data: ReportData) -> str:
    dots, projection = data.read.dots, data.views.projection
    parts = []
    if data.views.map_first:
        scaled = ", each divided by its standard deviation," if projection.standardised else ""
        parts.append(
            "In the map, dots lie near each other if they are neighbours in the data; distances between far clusters "
            f"mean little. The other view shows the two directions in which the {len(data.feature_names)} features"
            f"{scaled} differ most ({sum(projection.shares):.0%} of the variance)."
        )
    else:
        parts.append("The columns as they are; the map puts neighbours in the data near each other.")
    if data.read.way.count_noun == "wins":
        parts.append("The area of a dot grows with how often a node won; lines join nodes that won together.")
    else:
        parts.append("The area of a dot grows with its rows; shading shows where rows are dense.")
    if dots.condensed:
        least = f", so that each stands for at least {MIN_ROWS} rows" if data.read.way.nodes_are_contributed else ""
        parts.append(f"Neighbouring nodes of a cluster are drawn as one dot{least}.")
    if dots.n_hidden:
        parts.append(f"{counted(dots.n_hidden, 'node')} of clusters with fewer than {MIN_ROWS} rows are not drawn.")
    parts.append("Positions are rounded to three digits.")
    return " ".join(parts)


def _legend_entry(cluster: Cluster, data: ReportData) -> Markup:
    return tag(
        "li",
        tag(
            "button",
            cluster.style.chip(),
            tag("span", tag("b", str(cluster.label)), f" {data.profiles.name(cluster.label)}", class_="what"),
            tag("span", percent(cluster.share), class_="num"),
            _meter(cluster.share, cluster.style.colour),
            type="button",
            class_="pick k",
            aria_pressed="false",
            data_k=cluster.label,
        ),
    )


def _meter(share: float, colour: str = "") -> Markup:
    return tag("span", tag("i", style=f"width:{100 * share:.1f}%"), class_=f"meter {colour}".strip())


# ------------------------------------------------------------ how sure


def sure_section(data: ReportData) -> Markup | None:
    """Tell how far the clusters can be relied on."""
    told = [c for c in data.read.clusters if c.stability is not None]
    if not data.cautions and not told and data.stability is None:
        return None
    parts: list[Markup] = []
    if data.stability is not None:
        parts.append(
            tag(
                "p",
                "All clusters together: ",
                tag("strong", f"{data.stability:.2f}"),
                " on a scale from 0 (arbitrary) to 1 (found again whenever half of the nodes are clustered anew). "
                f"Be careful with values below {DOUBTFUL:g}. It is computed from nodes alone, without any labels.",
            )
        )
    if told:
        lines = [
            tag(
                "li",
                tag("span", c.style.chip(), f" Cluster {c.label}", class_="name"),
                tag("span", tag("i", style=f"width:{100 * (c.stability or 0):.0f}%"), class_=f"meter {c.style.colour}"),
                tag("span", f"{c.stability:.2f}", class_="num"),
                class_="k",
                data_k=c.label,
            )
            for c in told[:_MAX_STABLE]
        ]
        more = len(told) - len(lines)
        parts.append(tag("h3", "Stability of each cluster"))
        parts.append(tag("ul", lines, class_="rows follow"))
        if more > 0:
            parts.append(tag("p", f"and {counted(more, 'smaller cluster')}; see the table", class_="caption"))
    warned = None
    if data.cautions:
        warned = tag(
            "div",
            tag("h3", "Before relying on it"),
            tag("ul", [tag("li", text) for text in data.cautions], class_="events"),
            class_="callout warning",
        )
    intro = "How stable the clusters are, and what to keep in mind."
    return section("sure", "How sure", intro, tag("div", parts, class_="panel") if parts else None, warned)


# ------------------------------------------------------------ two read-outs


def comparison_section(data: ReportData) -> Markup | None:
    """Compare two read-outs of the same contributions."""
    if data.comparison is None:
        return None
    second = data.comparison.other
    everything = np.concatenate([data.read.dots.points, second.dots.points])
    panels = []
    for read in (data.read, second):
        picture = charts.small_network(
            read.dots, read.style, everything, width=480, height=380, largest=9.0, numbers=True
        )
        words = f"{read.way.title.capitalize()}: {counted(len(read.clusters), 'cluster')}"
        panels.append(tag("figure", tag("h3", words), image(picture, f"{words}."), class_="panel"))
    return section(
        "comparison",
        "Two read-outs side by side",
        "The same contributions, read in two ways. Clusters that share most of their rows share a colour. "
        f"Adjusted Rand index between the two: {data.comparison.agreement:.2f}.",
        tag("div", panels, class_="two"),
        _cross_table(data.read, data.comparison),
    )


def _cross_table(read: Reading, comparison: Comparison) -> Markup:
    rows, other = comparison.rows, comparison.other
    columns = [c.label for c in read.clusters[:_MAX_CROSS]]
    body = []
    for cluster in other.clusters[:_MAX_CROSS]:
        cells: list[Child] = [Markup(cluster.style.chip() + tag("span", f" {cluster.label}"))]
        for label in columns:
            n = rows.get((label, cluster.label), 0)
            cells.append(f"{n:,}" if n else "·")
        body.append(cells)
    head = [other.way.title.capitalize(), *[f"{read.way.title} {label}" for label in columns]]
    listed = table(head, body, caption="Rows shared by clusters of the two read-outs", class_="cross")
    cut = len(read.clusters) > _MAX_CROSS or len(other.clusters) > _MAX_CROSS
    note = tag("p", f"The {_MAX_CROSS} largest clusters of each are listed.", class_="caption") if cut else None
    return details("Show the rows that their clusters share", listed, note)


# ------------------------------------------------------------ novelty and privacy


def novelty_section(data: ReportData) -> Markup | None:
    """Show how far rows are from what was learned."""
    novelty = data.novelty
    if novelty is None:
        return None
    share = novelty.n_novel / novelty.n_rows
    beyond = "the nearest node's threshold" if novelty.threshold is None else f"the threshold {novelty.threshold:.3g}"
    alt = (
        f"Histogram of the distance of {novelty.n_rows:,} rows to their nearest node; {novelty.n_novel:,} "
        f"({share:.1%}) are further than {beyond}."
    )
    body = [
        (f"{novelty.edges[k]:.3g} to {novelty.edges[k + 1]:.3g}", f"{known:,}", f"{novel:,}")
        for k, (known, novel) in enumerate(zip(novelty.known, novelty.novel, strict=True))
        if known or novel
    ]
    as_table = table(["Distance", "Known rows", "Novel rows"], body, caption="Rows by distance to the nearest node")
    return section(
        "novelty",
        "Novelty",
        f"{novelty.n_novel:,} of {novelty.n_rows:,} rows ({share:.1%}) are unlike anything seen: further from every "
        f"node than {beyond}. Blue is known, orange novel.",
        tag(
            "figure",
            plot(charts.histogram(novelty), alt),
            details("Show as a table", as_table),
            class_="panel",
        ),
    )


def privacy_section(privacy: PrivacyStatement) -> Markup:
    """State what is guaranteed for the records, and what is not."""
    figures = tag(
        "dl", [tag("div", tag("dt", text), tag("dd", number)) for number, text in privacy.figures], class_="figures"
    )
    statement = tag(
        "div",
        tag("p", tag("strong", privacy.headline)),
        [tag("p", text) for text in privacy.paragraphs],
        figures if privacy.figures else None,
        class_=f"callout {privacy.level}",
    )
    groups = table(
        ["Sites", "Mechanism", "Cost", "Spent so far", "Contributions"],
        [
            (_site_names([str(site) for site in g.sites]), g.summary(), g.cost(), g.total(), str(g.n_rounds))
            for g in privacy.groups
        ],
        caption="What sites state about their privacy",
        class_="words",
    )
    own_words = None
    if privacy.facts:
        terms = [part for term, text in privacy.facts for part in (tag("dt", term), tag("dd", text))]
        own_words = tag("div", tag("dl", terms, class_="facts"), class_="panel gap")
    not_promised = None
    if privacy.not_promised:
        lines = tag("ul", [tag("li", line) for line in privacy.not_promised], class_="events")
        not_promised = tag("div", tag("h3", "What is not promised"), lines, class_="panel gap")
    return section(
        "privacy",
        "Privacy",
        None,
        statement,
        own_words,
        not_promised,
        tag("div", tag("h3", "By site"), groups, class_="panel gap"),
    )


def _site_names(names: Sequence[str]) -> str:
    shown = [shortened(name, 30) for name in names]
    return ", ".join(shown) if len(shown) <= 4 else f"{', '.join(shown[:3])} and {len(shown) - 3} more"


# ------------------------------------------------------------ what was done


def done_section(done: Done, *, released: bool) -> Markup:
    """List what was done, so that it can be repeated."""

    def facts(pairs: Sequence[tuple[str, str]]) -> Markup:
        return tag("dl", [part for a, b in pairs for part in (tag("dt", a), tag("dd", b))], class_="facts")

    parts: list[Markup | None] = [
        tag("h3", "Settings"),
        facts(done.settings),
        tag("h3", "Rows and time") if done.rows else None,
        facts(done.rows) if done.rows else None,
        tag("h3", "Versions"),
        facts(done.versions),
    ]
    if done.schema:
        parts += [tag("h3", "Schema"), details(f"Show {counted(len(done.schema), 'column')}", facts(done.schema))]
    return section(
        "done",
        "What was done",
        "Enough to repeat it. "
        + ("The noise of a private release is drawn anew each time, so that clusters can differ." if released else "")
        + ("" if released else "The same rows with the same settings give the same clusters."),
        tag("div", parts, class_="panel stack"),
    )
