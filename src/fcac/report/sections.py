"""The sections of the page, one function each; every figure is also given as text or in a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcac._text import counted
from fcac.report import charts
from fcac.report.components import details, plot, section, shortened, table
from fcac.report.data import Cluster, Comparison, Reading, ReportData
from fcac.report.markup import Child, Markup, tag
from fcac.report.privacy_statement import PrivacyStatement
from fcac.report.projection import MIN_ROWS

_MAX_CARDS = 9
_MAX_DIFFERENCES = 6
_MAX_SITES_IN_CARD = 5
_MAX_LEGEND = 60
_MAX_CROSS = 20
_HARDLY_CONDENSED = 0.9


# ------------------------------------------------------------ opening


def opening(data: ReportData) -> list[Markup]:
    """Return the headline figures, and a banner if privacy requires one."""
    clusters = data.read.clusters
    privacy = data.privacy
    sent = f"{data.n_rows / data.n_sent_nodes:,.1f}" if data.n_sent_nodes else "–"
    about = "" if data.exact_counts else "≈ "
    tiles = [
        ("Clusters found", f"{len(clusters):,}"),
        (f"Rows behind them{'' if data.exact_counts else ' (noised)'}", f"{about}{data.n_rows:,}"),
        ("Sites", f"{len(data.sites):,}"),
        ("Rounds", f"{len(data.round_names):,}"),
        (f"Nodes sent, one for {sent} rows", f"{data.n_sent_nodes:,}"),
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


def lead(data: ReportData) -> Markup:
    """Return the result in one sentence."""
    clusters = data.read.clusters
    rows, sites = counted(data.n_rows, "row"), counted(len(data.sites), "site")
    rounds = counted(len(data.round_names), "round")
    if not clusters:
        return tag(
            "p", f"{sites} took part in {rounds}; no node has arrived yet, so there is no cluster.", class_="lead"
        )
    about = "" if data.exact_counts else "About "
    n = min(3, len(clusters))
    top = sum(c.share for c in clusters[:n])
    tail = f" The {n} largest hold {top:.0%} of the rows." if len(clusters) > 3 else ""
    return tag(
        "p",
        f"{about}{rows} at {sites}, seen over {rounds}, fall into ",
        tag("strong", counted(len(clusters), "cluster")),
        f".{tail}",
        class_="lead",
    )


# ------------------------------------------------------------ the network


def network_section(data: ReportData) -> Markup:
    """Show the picture of the network with its legend."""
    read = data.read
    picture = charts.network(read.dots, read.style, data.projection, read.dots.points, what_counts=read.way.count_noun)
    legend = [_legend_entry(cluster) for cluster in read.clusters[:_MAX_LEGEND]]
    more = len(read.clusters) - len(legend)
    alt = _network_alt(read)
    clusters = table(
        ["Cluster", "Rows", "Share", "Nodes"],
        [(f"{c.label}", f"{c.rows:,}", f"{c.share:.1%}", f"{c.n_nodes:,}") for c in read.clusters],
        caption="Clusters with their rows and nodes",
    )
    stage = tag(
        "div",
        tag(
            "figure",
            plot(picture, alt, id_="network-plot"),
            tag("figcaption", _network_caption(data)),
        ),
        tag(
            "div",
            tag("ul", legend, class_="legend", aria_label="Clusters: choose one to single it out in the picture"),
            tag("p", f"and {counted(more, 'smaller cluster')}", class_="caption") if more else None,
        ),
        class_="stage panel",
    )
    intro = f"Every dot is a node that stands for rows like it. Clusters are read as {read.way.title}."
    return section("network", "The network", intro, stage, details("Show as a table", clusters))


def _network_alt(read: Reading) -> str:
    if not read.clusters:
        return "An empty network."
    first = read.clusters[0]
    return (
        f"Network of {counted(read.n_nodes, 'node')} in {counted(len(read.clusters), 'cluster')}; "
        f"the largest, cluster {first.label}, holds {first.share:.0%} of the rows."
    )


def _network_caption(data: ReportData) -> str:
    dots, projection = data.read.dots, data.projection
    parts = ["Area grows with the node's count."]
    if data.read.way.count_noun == "wins":
        parts[0] = "Area grows with how often a node won; lines join nodes that won together."
    if projection.is_reduced:
        scaled = "each divided by its standard deviation, " if projection.standardised else ""
        shown = sum(projection.shares)
        parts.append(
            f"The {len(data.feature_names)} features, {scaled}are projected onto the two directions in which nodes "
            f"differ most ({shown:.0%} of the variance)."
        )
    if dots.condensed:
        least = f", so that each stands for at least {MIN_ROWS} rows" if data.read.way.nodes_are_contributed else ""
        parts.append(f"Neighbouring nodes of a cluster are drawn as one dot{least}.")
    if dots.n_hidden:
        parts.append(f"{counted(dots.n_hidden, 'node')} of clusters with fewer than {MIN_ROWS} rows are not drawn.")
    parts.append("Positions are rounded to three digits.")
    if data.n_sent_nodes > _HARDLY_CONDENSED * data.n_rows:
        parts.append(
            "Nearly every row was sent as a node of its own: there are few rows per site, or features of very "
            "different scales; a schema with scaling may help."
        )
    return " ".join(parts)


def _legend_entry(cluster: Cluster) -> Markup:
    return tag(
        "li",
        tag(
            "button",
            cluster.style.chip(),
            tag("span", f"Cluster {cluster.label}"),
            tag("span", _percent(cluster.share), class_="num"),
            _meter(cluster.share, cluster.style.colour),
            type="button",
            aria_pressed="false",
            data_k=cluster.label,
        ),
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _meter(share: float, colour: str = "") -> Markup:
    return tag("span", tag("i", style=f"width:{100 * share:.1f}%"), class_=f"meter {colour}".strip())


# ------------------------------------------------------------ clusters


def clusters_section(data: ReportData) -> Markup | None:
    """Describe each cluster."""
    clusters = data.read.clusters
    if not clusters:
        return None
    described = [c for c in clusters if c.differences is not None][:_MAX_CARDS]
    # one scale for all, so that bars can be compared between clusters
    widest = max((abs(d.value) for c in described for d in c.differences or []), default=0.0) or 1.0
    cards = [_card(cluster, data, widest) for cluster in described]
    few = None
    if not cards:
        few = tag("p", f"No cluster stands for {MIN_ROWS} rows or more, so none is described.", class_="panel")
    rest = [c for c in clusters if c not in described]
    more = None
    if rest:
        body = [(str(c.label), f"{c.rows:,}", f"{c.share:.1%}", _top_site(c), _top_difference(c)) for c in rest]
        more = details(
            f"Show the {counted(len(rest), 'smaller cluster')}",
            table(
                ["Cluster", "Rows", "Share", "Mostly at", "Largest difference"],
                body,
                caption="Smaller clusters",
            ),
        )
    intro = (
        "The size of each cluster, the sites of its rows, and what sets it apart: the distance of its mean from the "
        "mean of all rows, in standard deviations of all nodes, largest first."
    )
    return section("clusters", "The clusters", intro, few or tag("div", cards, class_="cards"), more)


def _card(cluster: Cluster, data: ReportData, widest: float) -> Markup:
    size = counted(cluster.rows, "row")
    if not data.exact_counts:
        size = f"about {size}"
    sites = list(cluster.site_shares.items())
    shown = sites[:_MAX_SITES_IN_CARD] if len(sites) > _MAX_SITES_IN_CARD + 1 else sites
    lines = [_site_line(str(name), share) for name, share in shown]
    if len(shown) < len(sites):
        lines.append(_site_line(f"{len(sites) - len(shown)} others", sum(share for _, share in sites[len(shown) :])))
    return tag(
        "article",
        tag(
            "header", cluster.style.chip(), tag("h3", f"Cluster {cluster.label}"), tag("span", _percent(cluster.share))
        ),
        tag("div", size, class_="big"),
        tag("div", tag("h4", "Where its rows are"), tag("ul", lines, class_="rows")) if lines else None,
        tag("div", tag("h4", "What sets it apart"), _difference_list(cluster, widest)),
        class_="panel card",
    )


def _site_line(name: str, share: float) -> Markup:
    return tag(
        "li",
        tag("span", shortened(name), class_="name", title=name),
        _meter(share),
        tag("span", _percent(share), class_="num"),
    )


def _difference_list(cluster: Cluster, widest: float) -> Markup:
    differences = cluster.differences or []
    shown = differences[:_MAX_DIFFERENCES]
    lines = []
    for difference in shown:
        half = 50 * abs(difference.value) / widest
        side = f"left:50%;width:{half:.1f}%" if difference.value >= 0 else f"right:50%;width:{half:.1f}%"
        lines.append(
            tag(
                "li",
                tag("span", shortened(difference.feature), class_="name", title=difference.feature),
                tag("span", tag("i", style=side, class_="up" if difference.value >= 0 else "down"), class_="swing"),
                tag("span", signed(difference.value), class_="num"),
            )
        )
    more = len(differences) - len(shown)
    listed = tag("ul", lines, class_="rows")
    return (
        listed
        if not more
        else tag("div", listed, tag("p", f"and {counted(more, 'feature')} with smaller differences", class_="caption"))
    )


def signed(value: float) -> str:
    """Return a number with its sign."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") if abs(value) >= 0.005 else "0.00"


def _top_site(cluster: Cluster) -> str:
    if not cluster.site_shares:
        return "–"
    name, share = next(iter(cluster.site_shares.items()))
    return f"{shortened(str(name))} ({share:.0%})"


def _top_difference(cluster: Cluster) -> str:
    if not cluster.differences:
        return "–"
    return f"{shortened(cluster.differences[0].feature)} {signed(cluster.differences[0].value)}"


# ------------------------------------------------------------ two read-outs


def comparison_section(data: ReportData) -> Markup | None:
    """Compare two read-outs of the same contributions."""
    if data.comparison is None:
        return None
    second = data.comparison.other
    everything = np.concatenate([data.read.dots.points, second.dots.points])
    panels = []
    for read in (data.read, second):
        picture = charts.network(
            read.dots,
            read.style,
            data.projection,
            everything,
            width=480,
            height=380,
            what_counts=read.way.count_noun,
        )
        panels.append(
            tag(
                "figure",
                tag("h3", read.way.title.capitalize(), ": ", counted(len(read.clusters), "cluster")),
                plot(picture, _network_alt(read)),
                class_="panel",
            )
        )
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
