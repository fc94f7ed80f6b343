"""The page as a whole: head, sections, foot."""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
from functools import cache
from importlib import resources

from fcac.report import cluster_sections, history, sections
from fcac.report.cluster_style import PALETTE, SHAPES
from fcac.report.data import ReportData
from fcac.report.map_chart import as_json, map_data
from fcac.report.markup import Markup, tag
from fcac.report.tree_chart import tree_data, tree_section


@cache
def asset(name: str) -> str:
    """Return a file of the package's folder ``assets``, without comments and indentation."""
    text = resources.files("fcac.report").joinpath("assets", name).read_text("utf-8")
    if name.endswith(".css"):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def style_sheet() -> str:
    """Return the style sheet, with the clusters' colours."""
    return asset("report.css") + "".join(f".c{k}{{--c:{colour}}}" for k, colour in enumerate(PALETTE))


def page(data: ReportData, title: str | None = None) -> str:
    """Return the report as one HTML document.

    Parameters
    ----------
    data : ReportData
    title : str, optional
    """
    title = title or sections.title_of(data)
    parts = [
        ("network", "Map", sections.map_section(data)),
        ("clusters", "Clusters", cluster_sections.clusters_section(data)),
        ("columns", "Columns", cluster_sections.columns_section(data)),
        ("table", "Table", cluster_sections.table_section(data)),
        ("tree", "Tree", tree_section(data)),
        ("sure", "How sure", sections.sure_section(data)),
        ("rounds", "Change", history.rounds_section(data)),
        ("comparison", "Two read-outs", sections.comparison_section(data)),
        ("sites", "Sites", history.sites_section(data)),
        ("novelty", "Novelty", sections.novelty_section(data)),
        ("privacy", "Privacy", sections.privacy_section(data.privacy)),
        ("done", "What was done", sections.done_section(data.done, released=data.released)),
    ]
    present = [(name, label, content) for name, label, content in parts if content is not None]
    links = [tag("li", tag("a", label, href=f"#{name}")) for name, label, _ in present]
    chosen = tag(
        "div",
        tag("span", id="following-what"),
        tag("button", "Show all", type="button", id="following-end"),
        id="following",
        hidden=True,
    )
    script = asset("report.js")
    body = tag(
        "body",
        tag("a", "Skip to the map", href="#network", class_="skip"),
        tag(
            "header",
            tag("p", "FCAC report", class_="kicker"),
            tag("h1", title),
            sections.lead(data),
            tag("nav", tag("ul", links), aria_label="Sections"),
        ),
        tag("main", sections.opening(data), [content for _, _, content in present]),
        _foot(data),
        chosen,
        tag("div", id="tip", aria_hidden="true"),
        tag("div", id="live", class_="unseen", aria_live="polite"),
        tag("script", as_json(_script_data(data)), type="application/json", id="data"),
        tag("script", Markup(script)),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style_sheet())),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _script_data(data: ReportData) -> dict[str, object]:
    """Return what the script knows: the dots of the map, the tree, and the names of clusters."""
    return {
        "map": map_data(data),
        "tree": tree_data(data),
        "names": {str(c.label): data.profiles.name(c.label) for c in data.read.clusters},
        "counted": data.read.way.count_noun,
        "colours": len(PALETTE),
        "styles": len(PALETTE) * len(SHAPES),
    }


def _policy(script: str) -> str:
    """Return a policy under which nothing is loaded and only our own script, identified by its hash, may run."""
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'; base-uri 'none'"


def _foot(data: ReportData) -> Markup:
    from fcac._version import __version__

    source = (
        "Everything here is computed from what the sites contributed; no row was read for it."
        if data.novelty is None
        else "Novelty and exact sizes were counted over the rows of this run; no row is in this file."
    )
    words = [
        ("Node", "A prototype: a point that stands for the rows most like it. Sites send nodes, not rows."),
        ("Count", "The number of rows (at a site) or nodes (at the server) that a node has won so far."),
        ("Cluster", "Nodes that belong together, numbered as predict numbers them."),
        ("Round", "Each site sends its nodes once, and the server continues from where it was."),
    ]
    glossary = [part for term, text in words for part in (tag("dt", term), tag("dd", text))]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return tag(
        "footer",
        tag("div", tag("dl", glossary), tag("p", source), tag("p", f"Written by fcac {__version__} on {today}.")),
    )
