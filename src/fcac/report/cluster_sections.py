"""The sections on clusters: what each is, which columns matter, and a table of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcac._text import counted
from fcac.report.components import section, shortened
from fcac.report.data import Cluster, ReportData
from fcac.report.dots import MIN_ROWS
from fcac.report.markup import Child, Markup, tag
from fcac.report.mini_charts import distribution, in_words, shared_shapes
from fcac.report.profiles import ColumnProfile
from fcac.tables.shown_column import ShownColumn, percent

# So many cards are shown at once; the others when they are chosen or all are asked for.
_MAX_CARDS = 9
_MAX_SITES_IN_CARD = 4
_MAX_MATTERING = 12
_MAX_TABLE_COLUMNS, _MAX_TABLE_COLUMNS_OF_MANY, _MANY = 10, 5, 60


def clusters_section(data: ReportData) -> Markup | None:
    """Describe each cluster."""
    clusters = data.read.clusters
    if not clusters:
        return None
    described = [c for c in clusters if c.label in data.profiles.clusters]
    shapes = {name: number for number, name in enumerate(data.profiles.overall)}
    cards = [_card(cluster, data, shapes, hidden=k >= _MAX_CARDS) for k, cluster in enumerate(described)]
    if not cards:
        few = tag("p", f"No cluster stands for {MIN_ROWS} rows or more, so none is described.", class_="panel")
        return section("clusters", "The clusters", None, few)
    more = len(cards) - _MAX_CARDS
    unfold = None
    if more > 0:
        unfold = tag("button", f"Show {counted(more, 'more cluster')}", type="button", id="all-cards", class_="plain")
    left_out = len(clusters) - len(described)
    note = None
    if left_out:
        verb = "is" if left_out == 1 else "are"
        words = f"{counted(left_out, 'cluster')} of fewer than {MIN_ROWS} rows {verb} not described."
        note = tag("p", words, class_="caption")
    intro = (
        "What sets each cluster apart, the most telling columns first: its mean beside that of all rows, in the "
        "table's own units, and how values are spread (coloured: this cluster; grey: all rows; line: its mean)."
    )
    if any(p.error is not None for c in described for p in data.profiles.clusters[c.label].columns):
        intro += " The bar above a histogram shows within what range noise leaves the mean in 95 of 100 cases."
    if any(profile.words for profile in data.profiles.clusters.values()):
        intro += " Words for texts are those of the encoder's public vocabulary nearest to what sets a cluster apart."
    intro += " Distributions are those of nodes, which are means of rows: somewhat narrower than those of rows."
    shared = shared_shapes(data.profiles.overall)
    return section("clusters", "The clusters", intro, shared, tag("div", cards, class_="cards follow"), unfold, note)


def size_in_words(cluster: Cluster, data: ReportData) -> str:
    """Return the number of rows of a cluster, with the error that noise causes."""
    size = counted(cluster.rows, "row")
    if cluster.rows_error:
        return f"{cluster.rows:,} ± {round(2 * cluster.rows_error):,} rows"
    return size if data.exact_counts else f"about {size}"


def _card(cluster: Cluster, data: ReportData, shapes: dict[str, int], *, hidden: bool) -> Markup:
    profile = data.profiles.clusters[cluster.label]
    many_sites = len(data.sites) > 1
    return tag(
        "article",
        tag(
            "button",
            cluster.style.chip(),
            tag("span", f"Cluster {cluster.label}", class_="id"),
            tag("span", percent(cluster.share), class_="num"),
            type="button",
            class_="pick",
            aria_pressed="false",
            data_k=cluster.label,
        ),
        tag("h3", _sentence(profile.name)),
        tag("p", size_in_words(cluster, data), _stability(cluster), class_="size"),
        [
            tag("p", tag("span", f"{shortened(column, 26)}: "), ", ".join(words), class_="sites-line")
            for column, words in profile.words
        ],
        tag("ul", [_column_line(p, data, cluster, shapes[p.column.name]) for p in profile.columns], class_="profile"),
        _sites_line(cluster) if many_sites else None,
        class_=f"panel card k{' more' if hidden else ''}",
        data_k=cluster.label,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _stability(cluster: Cluster) -> Markup | None:
    if cluster.stability is None:
        return None
    return tag("span", f" · stability {cluster.stability:.2f}")


def _column_line(profile: ColumnProfile, data: ReportData, cluster: Cluster, number: int) -> Markup:
    column = profile.column
    edges = data.profiles.edges[column.name]
    chart = distribution(profile, edges, cluster.style.colour, number)
    name = tag("span", shortened(column.name, 26), class_="name", title=column.name)
    if column.kind == "category":
        return tag("li", name, chart, class_="cat")
    reach = float(edges[-1] - edges[0])
    value = column.shown(profile.own.median if column.kind == "date" else profile.own.mean, reach)
    usual = column.shown(profile.all.median if column.kind == "date" else profile.all.mean, reach)
    alone = len(data.read.clusters) == 1
    compared = None if alone else tag("span", f" all {usual}", class_="all-value")
    return tag(
        "li",
        name,
        tag("span", tag("b", value), compared, class_="value"),
        chart,
        data_t=in_words(profile, brief=len(data.read.clusters) > _MANY),
    )


def _sites_line(cluster: Cluster) -> Markup | None:
    sites = list(cluster.site_shares.items())
    if not sites:
        return None
    shown = sites if len(sites) <= _MAX_SITES_IN_CARD + 1 else sites[:_MAX_SITES_IN_CARD]
    words = [f"{shortened(str(name), 24)} {percent(share)}" for name, share in shown]
    if len(shown) < len(sites):
        rest = sum(share for _, share in sites[len(shown) :])
        words.append(f"{len(sites) - len(shown)} others {percent(rest)}")
    return tag("p", tag("span", "Sites: "), ", ".join(words), class_="sites-line")


# ------------------------------------------------------------ columns


def columns_section(data: ReportData) -> Markup | None:
    """Show which columns matter most for the whole partition."""
    shown = [(c, v) for c, v in data.profiles.importance if v > 0][:_MAX_MATTERING]
    if not shown or len(data.read.clusters) < 2:
        return None
    lines = [
        tag(
            "li",
            tag("span", shortened(column.name, 34), class_="name", title=column.name),
            tag("span", tag("i", style=f"width:{100 * min(value, 1.0):.1f}%"), class_="meter"),
            tag("span", percent(min(value, 1.0)), class_="num"),
        )
        for column, value in shown
    ]
    more = len(data.columns) - len(shown)
    note = f" The other {f'{more:,} columns matter' if more > 1 else 'column matters'} less." if more else ""
    return section(
        "columns",
        "The columns that matter most",
        "How much of a column's variation lies between clusters: 100 % means that the cluster says all about the "
        f"column, 0 % that it says nothing.{note}",
        tag("div", tag("ul", lines, class_="rows"), class_="panel"),
    )


# ------------------------------------------------------------ table


def table_section(data: ReportData) -> Markup | None:
    """List all clusters in a table that sorts and can be downloaded."""
    clusters = data.read.clusters
    if not clusters:
        return None
    most = _MAX_TABLE_COLUMNS if len(clusters) <= _MANY else _MAX_TABLE_COLUMNS_OF_MANY
    columns = [column for column, _ in data.profiles.importance[:most]]
    told = any(c.stability is not None for c in clusters)
    noised = any(c.rows_error for c in clusters)
    many_sites = len(data.sites) > 1
    head: list[str] = ["Cluster", "Name", "Rows", *(["±"] if noised else []), "Share", "Nodes"]
    head += ["Stability"] if told else []
    head += ["Mostly at"] if many_sites else []
    head += [f"{c.name}{f' ({c.unit})' if c.unit else ''}" for c in columns]
    body = [_table_line(c, data, columns, told, noised, many_sites) for c in clusters]
    words = {"Name", "Mostly at", *(c.name for c in columns if c.kind == "category")}
    header = [
        tag(
            "th",
            tag("button", name, type="button", title=name),
            scope="col",
            aria_sort="none",
            class_="left" if name in words else None,
        )
        for name in head
    ]
    listed = tag(
        "table",
        tag("caption", "All clusters", class_="unseen"),
        tag("thead", tag("tr", header)),
        tag("tbody", body),
        class_="sortable follow",
        id="cluster-table",
    )
    return section(
        "table",
        "All clusters in a table",
        "Values are means in the table's own units; of categories, the most frequent one. A click on a heading sorts, "
        "a click on a line follows that cluster through the page.",
        tag("div", listed, class_="scroll panel tall", tabindex="0", role="region", aria_label="Table of all clusters"),
        tag("p", tag("button", "Download as CSV", type="button", id="csv", class_="plain")),
    )


def _table_line(
    cluster: Cluster,
    data: ReportData,
    columns: Sequence[ShownColumn],
    told: bool,
    noised: bool,
    many_sites: bool,
) -> Markup:
    cells: list[Markup] = [
        tag("td", data.profiles.name(cluster.label) or "–", class_="left"),
        _cell(f"{cluster.rows:,}", cluster.rows),
    ]
    if noised:
        cells.append(_cell(f"{round(2 * (cluster.rows_error or 0)):,}", round(2 * (cluster.rows_error or 0))))
    cells += [_cell(percent(cluster.share), round(cluster.share, 5)), _cell(f"{cluster.n_nodes:,}", cluster.n_nodes)]
    if told:
        value = cluster.stability
        cells.append(_cell("–" if value is None else f"{value:.2f}", "" if value is None else round(value, 3)))
    if many_sites:
        top = next(iter(cluster.site_shares.items()), None)
        words = "–" if top is None else f"{shortened(str(top[0]), 24)} ({percent(top[1])})"
        cells.append(tag("td", words, class_="left"))
    means = _means(cluster.label, data, columns)
    cells += means if means is not None else [tag("td", "–") for _ in columns]
    number = tag("th", cluster.style.chip(), f" {cluster.label}", scope="row", data_v=cluster.label)
    return tag("tr", number, cells, class_="k", data_k=cluster.label)


def _cell(text: str, value: Child) -> Markup:
    return tag("td", text, data_v=value)


def _means(label: int, data: ReportData, columns: Sequence[ShownColumn]) -> list[Markup] | None:
    if label not in data.profiles.clusters:
        return None
    found = data.cluster_values.get(label)
    if found is None:
        return None
    cells = []
    for column, value in zip(columns, found, strict=False):
        if column.kind == "category":
            cells.append(tag("td", shortened(column.categories[int(value)], 24), class_="left"))
        else:
            edges = data.profiles.edges.get(column.name)
            reach = 0.0 if edges is None or not len(edges) else float(edges[-1] - edges[0])
            cells.append(_cell(column.shown(value, reach), f"{value:.4g}" if np.isfinite(value) else ""))
    return cells
