"""A fitted model in a notebook: a small picture and a table of its clusters."""

from __future__ import annotations

from fcac.federation import Server
from fcac.model.fcac import FCAC
from fcac.report.charts import small_network
from fcac.report.cluster_style import PALETTE
from fcac.report.data import ReportData, gather
from fcac.report.markup import Markup, join, tag
from fcac.tables.shown_column import percent

_MAX_LISTED = 30
# Notebooks have light and dark themes of their own: colours of text and background are left alone.
_STYLE = (
    ".fcac-shown{display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start}"
    ".fcac-shown>svg{width:420px;max-width:100%;height:auto}"
    ".fcac-shown .k circle,.fcac-shown .k polygon,.fcac-shown .chip>*"
    "{fill:var(--c,#8d98a2);stroke:currentColor;stroke-width:.6;stroke-opacity:.6}"
    ".fcac-shown text{fill:currentColor;font:600 12px sans-serif;text-anchor:middle;dominant-baseline:central}"
    ".fcac-shown .edges{fill:none;stroke:#8d98a2}.fcac-shown .chip{width:14px;height:14px;display:inline-block}"
    ".fcac-shown td,.fcac-shown th{text-align:left}"
) + "".join(f".fcac-shown .c{k}{{--c:{colour}}}" for k, colour in enumerate(PALETTE))


def notebook_html(model: FCAC | Server) -> str:
    """Return a small picture and a table of clusters as HTML.

    Parameters
    ----------
    model : FCAC or Server
        Fitted.
    """
    data = gather(model, stability=False)
    picture = small_network(data.read.dots, data.read.style, data.read.dots.points, width=480, height=360, numbers=True)
    return tag("div", tag("style", Markup(_STYLE)), picture, _listed(data), class_="fcac-shown")


def _listed(data: ReportData) -> Markup:
    told = any(c.stability is not None for c in data.read.clusters)
    head = ["", "cluster", "rows", "share", *(["stability"] if told else []), "what sets it apart"]
    lines = []
    for cluster in data.read.clusters[:_MAX_LISTED]:
        stability = [] if not told else ["–" if cluster.stability is None else f"{cluster.stability:.2f}"]
        cells = [str(cluster.label), f"{cluster.rows:,}", percent(cluster.share), *stability]
        named = data.profiles.name(cluster.label)
        lines.append(tag("tr", tag("td", cluster.style.chip()), [tag("td", cell) for cell in [*cells, named]]))
    more = len(data.read.clusters) - len(lines)
    note = tag("p", f"and {more} smaller clusters") if more > 0 else None
    table = tag("table", tag("thead", tag("tr", [tag("th", name) for name in head])), tag("tbody", lines))
    return join([tag("div", table, note)])
