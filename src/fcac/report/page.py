"""The page as a whole: head, sections, foot."""

from __future__ import annotations

import base64
import datetime
import hashlib

from fcac._text import counted
from fcac.report import history, sections
from fcac.report.data import ReportData
from fcac.report.markup import Markup, tag
from fcac.report.style import CSS, SCRIPT


def page(data: ReportData, title: str | None = None) -> str:
    """Return the report as one HTML document.

    Parameters
    ----------
    data : ReportData
    title : str, optional
    """
    sites, rounds = len(data.sites), len(data.round_names)
    title = title or f"Clusters of {counted(sites, 'site')} after {counted(rounds, 'round')}"
    parts = [
        ("network", "Network", sections.network_section(data)),
        ("clusters", "Clusters", sections.clusters_section(data)),
        ("rounds", "Rounds", history.rounds_section(data)),
        ("comparison", "Two read-outs", sections.comparison_section(data)),
        ("sites", "Sites", history.sites_section(data)),
        ("novelty", "Novelty", sections.novelty_section(data)),
        ("privacy", "Privacy", sections.privacy_section(data.privacy)),
    ]
    present = [(name, label, content) for name, label, content in parts if content is not None]
    links = [tag("li", tag("a", label, href=f"#{name}")) for name, label, _ in present]
    body = tag(
        "body",
        tag("a", "Skip to the network", href="#network", class_="skip"),
        tag(
            "header",
            tag("p", "FCAC report", class_="kicker"),
            tag("h1", title),
            sections.lead(data),
            tag("nav", tag("ul", links), aria_label="Sections"),
        ),
        tag("main", sections.opening(data), [content for _, _, content in present]),
        _foot(data),
        tag("div", id="tip", aria_hidden="true"),
        tag("div", id="live", class_="unseen", aria_live="polite"),
        tag("script", Markup(SCRIPT)),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _policy() -> str:
    """Return a policy under which nothing is loaded and only our own script, identified by its hash, may run."""
    fingerprint = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
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
