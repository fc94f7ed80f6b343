"""The report's pictures in Python: the map, the tree and the profiles of clusters, drawn with Matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcac.federation import Server
from fcac.model.fcac import FCAC
from fcac.report.charts import PALETTE, shortened_label
from fcac.report.report_data import ReportData, gather

KINDS = ("map", "pca", "tree", "profiles")
_MAX_PROFILES = 12
_MAX_COLUMNS = 8
_MAX_NAMED = 14
_GREY = "#8d98a2"


def plot(model: FCAC | Server, kind: str = "map", ax: Any = None) -> Any:
    """Draw a fitted model with Matplotlib (extra ``plot``).

    Like the report, pictures are made from nodes, and a dot made of the sites' own nodes stands for at least five rows.

    Parameters
    ----------
    model : FCAC or Server
    kind : {"map", "pca", "tree", "profiles"}, default="map"
        The map of the neighbourhood graph (of two columns: the columns themselves), the principal components, the tree
        of clusters, or how far each cluster's means are from those of all rows.
    ax : matplotlib Axes, optional
        By default the axes of a new figure.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fcac import FCAC
    >>> from fcac.report.plots import plot
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(500, 3)) for c in (0.0, 5.0)])
    >>> plot(FCAC(random_state=0).fit(X), "profiles").get_title()
    'Means of 2 clusters'
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; it is {kind!r}")
    if ax is None:
        ax = _new_axes(kind)
    data = gather(model)
    if kind == "tree":
        return _draw_tree(data, ax)
    return _draw_profiles(data, ax) if kind == "profiles" else _draw_map(data, ax, second=kind == "pca")


def _new_axes(kind: str) -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise ImportError("plot needs Matplotlib: pip install 'fcac[plot]'") from None
    return pyplot.subplots(figsize=(8, 4) if kind == "tree" else (8, 6), layout="constrained")[1]


def _colour(data: ReportData, label: int) -> str:
    style = data.found.style(label)
    return PALETTE[style.rank % len(PALETTE)] if style.colour != "cx" else _GREY


def _draw_map(data: ReportData, ax: Any, *, second: bool) -> Any:
    dots = data.found.dots
    show_other = second and data.views.map_first
    points = data.other_points if show_other else dots.points
    is_projection = show_other or not data.views.map_first
    named = len(data.found.clusters) <= _MAX_NAMED
    size = 12 + 130 * dots.counts / max(float(dots.counts.max(initial=1)), 12.0)
    for cluster in reversed(data.found.clusters):
        inside = dots.labels == cluster.label
        if not inside.any():
            continue
        colour = _colour(data, cluster.label)
        ax.scatter(*points[inside].T, s=size[inside], c=colour, edgecolors="k", linewidths=0.3, alpha=0.85)
        centre = np.average(points[inside], axis=0, weights=dots.counts[inside])
        text = f"{cluster.label} {data.profiles.name(cluster.label)}" if named else str(cluster.label)
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": colour, "alpha": 0.85}
        ax.annotate(shortened_label(text), centre, ha="center", va="center", fontsize=8, bbox=box)
    ax.set_aspect("equal", adjustable="datalim")
    if is_projection:
        ax.set_xlabel(data.views.projection.x_label)
        ax.set_ylabel(data.views.projection.y_label)
    else:
        ax.set_xticks([])
        ax.set_yticks([])
    n = len(data.found.clusters)
    ax.set_title(f"{n} cluster{'s' if n != 1 else ''} in {data.n_rows:,} rows")
    return ax


def _draw_tree(data: ReportData, ax: Any) -> Any:
    tree = data.tree
    if tree is None:
        raise ValueError('kind="tree": this server has no hierarchy; use server="communities"')
    middle = tree.middles({leaf: float(at) for at, leaf in enumerate(tree.leaves)})
    total = tree.branches[0].rows or 1.0
    for number, branch in enumerate(tree.branches):
        found = tree.cluster_of(number)
        colour = _GREY if found is None else _colour(data, found)
        wide = 0.8 + 6 * float(np.sqrt(branch.rows / total))
        x, top, bottom = middle[number], branch.born, branch.ends + 1
        ax.plot([x, x], [top, bottom], color=colour, lw=wide, solid_capstyle="round")
        if branch.children:
            ends = [middle[c] for c in branch.children]
            ax.plot([min(ends), max(ends)], [bottom, bottom], color=colour, lw=wide, solid_capstyle="round")
        if branch.cluster is not None:
            ax.annotate(
                str(branch.cluster),
                (x, tree.n_found + 0.5),
                ha="center",
                va="center",
                fontsize=8,
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": colour},
            )
    ax.axhline(tree.n_found + 0.5, color="k", ls="--", lw=0.8, zorder=0)
    ax.set_yscale("log")
    ax.set_ylim(tree.n_finest + 1, 1)
    levels = [level for level in (1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200) if level <= tree.n_finest]
    ax.set_yticks([level + 0.5 for level in levels], [str(level) for level in levels])
    ax.set_yticks([], minor=True)
    ax.set_xticks([])
    ax.set_ylabel("clusters")
    ax.set_title("The tree of clusters")
    return ax


def _draw_profiles(data: ReportData, ax: Any) -> Any:
    """Cluster means as a heat map in standard deviations of all rows, with the values in the table's units."""
    labels = [c.label for c in data.found.clusters if c.label in data.profiles.clusters][:_MAX_PROFILES]
    columns = [c for c, _ in data.profiles.importance if c.kind != "category"][:_MAX_COLUMNS]
    shades = np.zeros((len(labels), len(columns)))
    for i, label in enumerate(labels):
        effects = {p.column.name: p.effect for p in data.profiles.clusters[label].columns}
        shades[i] = [effects.get(c.name, 0.0) for c in columns]
    limit = max(float(np.abs(shades).max(initial=0.0)), 1e-9)
    ax.imshow(shades, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    listed = [c for c, _ in data.profiles.importance]
    for i, label in enumerate(labels):
        for j, column in enumerate(columns):
            at = listed.index(column)
            values = data.cluster_values[label]
            if at < len(values):
                dark = abs(shades[i, j]) > 0.6 * limit
                ax.text(
                    j,
                    i,
                    column.shown(values[at]),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else "black",
                )
    ax.set_xticks(range(len(columns)), [shortened_label(c.name) for c in columns], rotation=30, ha="right")
    ax.set_yticks(range(len(labels)), [shortened_label(f"{k} {data.profiles.name(k)}") for k in labels])
    ax.set_title(f"Means of {len(labels)} cluster{'s' if len(labels) != 1 else ''}")
    return ax
