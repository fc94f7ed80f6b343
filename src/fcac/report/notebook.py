"""A fitted model in a notebook: a small picture and a table of its clusters."""

from __future__ import annotations

from fcac.federation import Server
from fcac.model.fcac import FCAC
from fcac.report import charts
from fcac.report.page import fill
from fcac.report.report_data import gather


def notebook_html(model: FCAC | Server) -> str:
    """Return a small picture and a table of the clusters of a fitted model as HTML."""
    data = gather(model, judged=False)
    dots = data.found.dots
    picture = charts.small_network(dots, data.found.style, dots.points, width=480, height=360, numbers=True)
    return fill("notebook.html", data=data, picture=picture, palette=charts.PALETTE).strip()
