"""The large picture: dots, hulls, density contours and labels of all clusters, in two views."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from fcac._text import counted
from fcac._typing import Floats
from fcac.report.charts import Frame, edge_path, nice_values, radii
from fcac.report.data import ReportData
from fcac.report.label_places import LabelPlace, place_labels
from fcac.report.markup import Markup, tag
from fcac.report.outline import as_path, contours, hull
from fcac.tables.shown_column import figure

WIDTH, HEIGHT, _MARGIN = 960, 620, 44
# Radius of the largest dot: the more dots, the smaller.
_LARGEST = ((150, 10.0), (600, 8.0), (10**9, 6.0))
_LEVELS = (0.08, 0.25, 0.55)
# How far a hull keeps from its dots: the more clusters, the nearer.
# With few dots it keeps as far as it takes to join them, within limits.
_HULLS = ((20, 16.0, 60.0), (60, 11.0, 20.0), (10**9, 8.0, 10.0))
# With more clusters than this, labels are numbers only, and only the first view has hulls.
_MAX_NAMED, _MAX_HULLS_TWICE = 14, 60
_MAX_LABEL = 26


def map_chart(data: ReportData) -> Markup:
    """Draw the picture; the script moves its dots between the two views."""
    dots = data.read.dots
    first, second = frames(data)
    places = first.place(dots.points)
    order = drawing_order(data)
    size = radii(dots.counts, next(radius for most, radius in _LARGEST if len(dots.counts) <= most))
    groups = []
    for label, inside in order:
        style = data.read.style(label)
        marks = [style.mark(size[i], places[i], class_="m") for i in inside]
        groups.append(tag("g", marks, class_=f"k {style.colour}", data_k=label))
    shapes = [
        _backdrop(data, dots.points, first, "a", hulls=True),
        _backdrop(data, data.other_points, second, "b", hulls=len(order) <= _MAX_HULLS_TWICE),
    ]
    labels = [
        _labels(data, dots.points, first, "a"),
        _labels(data, data.other_points, second, "b"),
    ]
    return tag(
        "svg",
        tag("g", shapes, edge_path(dots, places), class_="shapes"),
        tag("g", groups, class_="marks"),
        labels,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="net map follow",
        aria_hidden="true",
        focusable="false",
    )


def frames(data: ReportData) -> tuple[Frame, Frame]:
    """Return the frames of the two views."""
    return (
        Frame.around(data.read.dots.points, WIDTH, HEIGHT, _MARGIN),
        Frame.around(data.other_points, WIDTH, HEIGHT, _MARGIN),
    )


def drawing_order(data: ReportData) -> list[tuple[int, list[int]]]:
    """Return clusters with their dots as they are drawn: large clusters first, so that small ones lie on top."""
    dots = data.read.dots
    labels = sorted({int(label) for label in dots.labels}, key=lambda label: (data.read.style(label).rank, label))
    order = []
    for label in labels:
        inside = np.flatnonzero(dots.labels == label)
        inside = inside[np.lexsort((dots.points[inside, 1], dots.points[inside, 0]))]
        order.append((label, inside.tolist()))
    return order


def map_data(data: ReportData) -> dict[str, Any]:
    """Return what the script needs to know of the dots, in the order in which they are drawn."""
    dots = data.read.dots
    order = [i for _, inside in drawing_order(data) for i in inside]
    _, second = frames(data)
    columns = data.hover_columns
    tree = data.tree
    leaf = None
    if tree is not None:
        # a dot has the leaf of most of its nodes' rows
        position = {branch: at for at, branch in enumerate(tree.leaves)}
        of_node = np.array([position[b] for b in tree.leaf_of.tolist()])
        drawn = dots.group >= 0
        mass = np.zeros((len(dots.points), len(position)))
        np.add.at(mass, (dots.group[drawn], of_node[drawn]), 1.0)
        leaf = mass.argmax(axis=1)[order].tolist()
    return {
        "n": [int(dots.counts[i]) for i in order],
        "nodes": [int(dots.n_merged[i]) for i in order],
        "other": [list(second.place(data.other_points[[i]])[0]) for i in order],
        "columns": [
            {"name": c.name, "unit": c.unit, "kind": c.kind, "categories": list(c.categories)} for c in columns
        ],
        "values": [
            [int(v) if c.kind == "category" else c.shown(float(v)) for c, v in zip(columns, row, strict=False)]
            for row in data.dot_values[order]
        ],
        "leaf": leaf,
    }


def as_json(values: Any) -> Markup:
    """Return values as JSON that can stand inside a script element."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _backdrop(data: ReportData, points: Floats, frame: Frame, view: str, *, hulls: bool) -> Markup:
    """Axes, contours and hulls of one view."""
    parts: list[Markup] = []
    placed = np.array(frame.place(points), dtype=np.float64).reshape(-1, 2)
    is_projection = data.views.map_first == (view == "b")
    if is_projection and not data.views.projection.is_reduced and len(points):
        parts += _grid(frame, points, bool(data.views.projection.y_label))
    if len(placed):
        levels = contours(placed, data.read.dots.counts.astype(np.float64), 17.0, _LEVELS)
        parts += [tag("path", d=as_path(polygons, 1.2), class_="contour") for polygons in levels]
    if hulls:
        order = drawing_order(data)
        near, far = next((near, far) for most, near, far in _HULLS if len(order) <= most)
        for label, inside in order:
            style = data.read.style(label)
            path = as_path(hull(placed[inside], max(near, min(_gap(placed[inside]), far))))
            parts.append(tag("path", d=path, class_=f"hull k {style.colour}", data_k=label))
    return tag("g", parts, class_=f"view {view}")


def _gap(points: Floats) -> float:
    """Reach of a hull that joins most neighbouring dots where a cluster has few of them."""
    if len(points) < 2:
        return 0.0
    nearest = cKDTree(points).query(points, 2)[0][:, 1]
    return 0.75 * float(np.quantile(nearest, 0.9))


def _grid(frame: Frame, points: Floats, both: bool) -> list[Markup]:
    parts = []
    for axis in (0, 1) if both else (0,):
        for value in nice_values(float(points[:, axis].min()), float(points[:, axis].max())):
            corner = frame.low.copy()
            corner[axis] = value
            x, y = frame.place(corner[None, :])[0]
            line = f"M{x} 0V{HEIGHT}" if axis == 0 else f"M0 {y}H{WIDTH}"
            parts.append(tag("path", d=line, class_="grid"))
    return parts


def _ticks(data: ReportData, frame: Frame, points: Floats) -> list[Markup]:
    projection = data.views.projection
    parts = []
    for axis in (0, 1) if projection.y_label else (0,):
        for value in nice_values(float(points[:, axis].min()), float(points[:, axis].max())):
            corner = frame.low.copy()
            corner[axis] = value
            x, y = frame.place(corner[None, :])[0]
            at = f"translate({x},{HEIGHT - 22})" if axis == 0 else f"translate(8,{y - 4})"
            parts.append(tag("text", figure(value), transform=at, class_="tick mid" if axis == 0 else "tick"))
    return parts


def _labels(data: ReportData, points: Floats, frame: Frame, view: str) -> Markup:
    """Labels of clusters at their densest dots, and of the axes."""
    projection = data.views.projection
    is_projection = data.views.map_first == (view == "b")
    fixed: list[Markup] = []
    if is_projection:
        if not projection.is_reduced and len(points):
            fixed += _ticks(data, frame, points)
        fixed.append(tag("text", projection.x_label, x=WIDTH - 8, y=HEIGHT - 6, class_="axis end"))
        fixed.append(tag("text", projection.y_label, x=8, y=16, class_="axis"))
    placed = label_places(data, points, frame)
    texts = []
    for place in placed:
        colour = data.read.style(place.label).colour
        moved = f"translate({round(place.x)},{round(place.y)})"
        number, _, rest = place.text.partition(" ")
        texts.append(
            tag(
                "text",
                tag("tspan", number, class_="n"),
                tag("tspan", f" {rest}", class_="name") if rest else None,
                transform=moved,
                class_=f"number k {colour}",
                data_k=place.label,
            )
        )
    lines = [
        tag(
            "path",
            d=f"M{round(p.x)} {round(p.y)}L{round(p.anchor[0])} {round(p.anchor[1])}",
            class_="leader k",
            data_k=p.label,
        )
        for p in placed
        if p.far
    ]
    return tag("g", tag("g", lines, class_="leaders"), texts, tag("g", fixed, class_="fixed"), class_=f"view {view}")


def label_places(data: ReportData, points: Floats, frame: Frame) -> list[LabelPlace]:
    """Return where the labels of clusters stand, the largest clusters first."""
    order = drawing_order(data)
    named = len(order) <= _MAX_NAMED
    texts, anchors = [], []
    dots = data.read.dots
    placed = np.array(frame.place(points), dtype=np.float64).reshape(-1, 2)
    for label, inside in order:
        name = data.profiles.name(label) if named else ""
        texts.append((label, shortened_label(f"{label} {name}".strip())))
        where = placed[inside]
        centre = np.average(where, axis=0, weights=dots.counts[inside])
        anchors.append(where[np.argmin(((where - centre) ** 2).sum(axis=1))])
    if not texts:
        return []
    return place_labels(texts, np.array(anchors), WIDTH, HEIGHT)


def shortened_label(text: str) -> str:
    """Shorten a label at the end of a term, or within a long one.

    Examples
    --------
    >>> from fcac.report.map_chart import shortened_label
    >>> shortened_label("3 older, high creatinine, mostly E11")
    '3 older, high creatinine'
    """
    while len(text) > _MAX_LABEL and "," in text:
        text = text[: text.rindex(",")]
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1].rstrip()}…"


def describe_map(data: ReportData) -> str:
    """Return the picture in words."""
    read = data.read
    if not read.clusters:
        return "An empty map."
    first = read.clusters[0]
    return (
        f"Map of {counted(read.n_nodes, 'node')} in {counted(len(read.clusters), 'cluster')}; "
        f"the largest, cluster {first.label}, holds {first.share:.0%} of the rows."
    )
