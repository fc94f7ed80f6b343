"""The pages: the report, what a notebook shows, and the statement of a ledger, from templates.

Everything that goes into a template is escaped: site names, feature names and the texts in a contribution are not
trusted. Jinja escapes every value of every template; only what a template says itself, and the package's own style
sheet and script, are markup.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fcac._text import counted
from fcac._version import __version__
from fcac.federation import Server
from fcac.model.fcac import FCAC
from fcac.privacy import Ledger
from fcac.privacy.officer_sheet import officer_sheet
from fcac.report import charts
from fcac.report.dendrogram import tree_chart, tree_data
from fcac.report.dots import MIN_ROWS
from fcac.report.report_data import MANY_CLUSTERS, ReportData, gather
from fcac.tables.shown_column import day, figure, percent

_SECTIONS = {
    "network": "Map",
    "clusters": "Clusters",
    "columns": "Columns",
    "table": "Table",
    "tree": "Tree",
    "rounds": "Change",
    "comparison": "Two clusterings",
    "sites": "Sites",
    "novelty": "Novelty",
    "privacy": "Privacy",
    "provenance": "What was done",
}


def page(data: ReportData, title: str | None = None) -> str:
    """Return the report as one HTML document."""
    script = asset("report.js")
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = {"data": data, "charts": charts, "tree_chart": tree_chart}
    macros = environment().get_template("sections.html").make_module(shown)
    sections = [(name, label, getattr(macros, name)().strip()) for name, label in _SECTIONS.items()]
    names = {str(c.label): data.profiles.name(c.label) for c in data.found.clusters}
    known: dict[str, Any] = {"names": names, "colours": len(charts.PALETTE), "styles": charts.N_STYLES}
    known |= {"map": charts.map_data(data), "tree": tree_data(data), "counted": data.found.way.count_noun}
    return fill(
        "report.html",
        **shown,
        title=title,
        sections=[section for section in sections if section[2]],
        style=Markup(style_sheet()),
        script=Markup(script),
        # under this policy nothing is loaded, and only our own script, known by its hash, may run
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{fingerprint}'; base-uri 'none'",
        script_data=known,
    )


def notebook_html(model: FCAC | Server) -> str:
    """Return a small picture and a table of the clusters of a fitted model as HTML."""
    data = gather(model)
    dots = data.found.dots
    picture = charts.small_network(dots, data.found.style, dots.points, width=480, height=360, numbers=True)
    return fill("notebook.html", data=data, picture=picture, palette=charts.PALETTE).strip()


def ledger_statement(ledger: Ledger, n_people: int | None = None, overlap: int | None = None) -> str:
    """Return the statement as one HTML document; see :func:`fcac.privacy.officer_sheet.officer_sheet`."""
    return fill(
        "ledger_statement.html",
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        sheet=officer_sheet(ledger, n_people, overlap),
    )


def fill(template: str, **values: Any) -> str:
    """Return a template filled with values."""
    return environment().get_template(template).render(**values).strip() + "\n"


@cache
def environment() -> Environment:
    """Return the templates, all of them escaped."""
    found = Environment(
        loader=PackageLoader("fcac.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    found.filters |= {"percent": percent, "figure": figure, "shortened": shortened, "commas": lambda n: f"{n:,}"}
    found.filters["without"] = lambda text, unit: text.removesuffix(f" {unit}") if unit else text
    found.globals |= {
        "MIN_ROWS": MIN_ROWS,
        "MANY_CLUSTERS": MANY_CLUSTERS,
        "counted": counted,
        "day": day,
        "finite": lambda value: value is not None and abs(value) < float("inf"),
        "today": lambda: datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
    }
    return found


def _printable(value: Any) -> Any:
    """Replace what an HTML document must not contain, and lone surrogates, which cannot be encoded."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c in "\t\n " or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)


def shortened(text: str, most: int = 17) -> str:
    """Shorten a long name in the middle, since names often differ at the end.

    >>> shortened("a hospital with a long name 7")
    'a hospit…g name 7'
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail].rstrip()}…{text[-tail:].lstrip()}"


@cache
def asset(name: str) -> str:
    """Return a file of the package's folder ``assets``, without comments and indentation."""
    text = resources.files("fcac.report").joinpath("assets", name).read_text("utf-8")
    if name.endswith(".css"):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def style_sheet() -> str:
    """Return the style sheet, with the clusters' colours."""
    return asset("report.css") + "".join(f".c{k}{{--c:{colour}}}" for k, colour in enumerate(charts.PALETTE))
