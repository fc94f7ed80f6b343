"""Where every mark of the report's charts stands; ``templates/charts.html`` draws them as SVG, which scales and prints.

Positions are whole units of a picture at most 1,000 wide: no coordinate is given to more than three digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from fcac._text import counted
from fcac._typing import Floats, Integers
from fcac.report.map_shapes import as_path, contours, hull, place_labels

if TYPE_CHECKING:
    from fcac.report.clustering import Clustering
    from fcac.report.dots import Dots
    from fcac.report.novelty_histogram import Novelty
    from fcac.report.profiles import ColumnProfile
    from fcac.report.report_data import ReportData
    from fcac.report.round_history import RoundData
    from fcac.tables.shown_column import ShownColumn

Chart = dict[str, Any]

#: Okabe and Ito's colours, in an order that keeps the first few far apart; the last is a grey.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A")
SHAPES = ("circle", "square", "diamond", "triangle", "wedge", "hexagon")
N_STYLES = len(PALETTE) * len(SHAPES)

# Corners of the shapes around (0, 0), sized to appear about as large as a circle of radius 1.
_CORNERS = {
    "circle": (),
    "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    "diamond": ((0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)),
    "triangle": ((0.0, -1.25), (1.15, 0.8), (-1.15, 0.8)),
    "wedge": ((0.0, 1.25), (1.15, -0.8), (-1.15, -0.8)),
    "hexagon": ((0.55, -1.0), (1.1, 0.0), (0.55, 1.0), (-0.55, 1.0), (-1.1, 0.0), (-0.55, -1.0)),
}


@dataclass(frozen=True)
class ClusterStyle:
    """Colour and shape of a cluster: eight colours that suit colour-blind readers, six shapes, and always a number.

    Rank 0 is the largest cluster. From `N_STYLES` on, clusters share one plain style and differ only by number.
    """

    rank: int

    @property
    def colour(self) -> str:
        """CSS class of the colour."""
        return f"c{self.rank % len(PALETTE)}" if self.rank < N_STYLES else "cx"

    @property
    def shape(self) -> str:
        """Name of the shape."""
        return SHAPES[self.rank // len(PALETTE)] if self.rank < N_STYLES else SHAPES[0]

    def corners(self, radius: float) -> str:
        """Return the corners of a mark around (0, 0); empty for a circle."""
        return " ".join(f"{_short(radius * x)},{_short(radius * y)}" for x, y in _CORNERS[self.shape])


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Frame:
    """Maps coordinates of a projection into a picture, both axes at the same scale."""

    low: Floats
    scale: float
    origin: tuple[float, float]
    height: int

    @classmethod
    def around(cls, points: Floats, width: int, height: int, margin: int) -> Frame:
        """Return a frame in which all points are visible and centred."""
        if not len(points):
            points = np.zeros((1, 2))
        low, high = points.min(axis=0), points.max(axis=0)
        extent = np.maximum(high - low, 1e-12 * max(1.0, float(np.abs(points).max())))
        scale = float(min((width - 2 * margin) / extent[0], (height - 2 * margin) / extent[1]))
        if not np.isfinite(scale) or (high == low).all():
            scale = 1.0
        used = scale * (high - low)
        return cls(low, scale, ((width - float(used[0])) / 2, (height - float(used[1])) / 2), height)

    def place(self, points: Floats) -> list[tuple[int, int]]:
        """Return positions in whole picture units, with the y axis pointing up."""
        x = self.origin[0] + self.scale * (points[:, 0] - self.low[0])
        y = self.height - self.origin[1] - self.scale * (points[:, 1] - self.low[1])
        return [(round(a), round(b)) for a, b in zip(x, y, strict=True)]

    def on_axis(self, axis: int, value: float) -> int:
        """Return where a value of one axis stands."""
        corner = self.low.copy()
        corner[axis] = value
        return self.place(corner[None, :])[0][axis]


def radii(counts: Integers, largest: float) -> list[float]:
    """Return radii of dots whose areas grow with counts; where all counts are small, so are all dots."""
    if not len(counts):
        return []
    relative = np.sqrt(counts / max(float(counts.max()), 12.0))
    return [round(float(r), 1) for r in np.maximum(largest * relative, 0.24 * largest)]


def nice_values(low: float, high: float, most: int = 5) -> list[float]:
    """Return round values between two numbers, for the ticks of an axis.

    >>> nice_values(0.03, 0.97)
    [0.2, 0.4, 0.6, 0.8]
    """
    if not high > low:
        return [float(f"{low:.3g}")]
    rough = (high - low) / most
    unit = 10.0 ** np.floor(np.log10(rough))
    step = unit * next(m for m in (1, 2, 5, 10) if m * unit >= rough)
    first = int(np.ceil(low / step))
    return [float(f"{step * k:.12g}") for k in range(first, int(np.floor(high / step)) + 1)]


# ------------------------------------------------------------ dots and the lines between them


def small_network(
    dots: Dots,
    style_of: Callable[[int], ClusterStyle],
    frame_points: Floats,
    *,
    width: int = 320,
    height: int = 250,
    largest: float = 8.0,
    numbers: bool = False,
) -> Chart:
    """Return nodes (area by count) and edges; pictures to be compared are given the same `frame_points`."""
    places = Frame.around(frame_points, width, height, margin=14).place(dots.points)
    order = _drawing_order(dots, style_of)
    labels: list[Any] = []
    if numbers and order:
        anchors = [
            np.average(np.array([places[i] for i in some]), axis=0, weights=dots.counts[some]) for _, some in order
        ]
        found = place_labels([(label, str(label)) for label, _ in order], np.array(anchors), width, height)
        labels = [(p.label, round(p.x), round(p.y)) for p in found]
    marks = _groups(order, style_of, radii(dots.counts, largest), places)
    return {"width": width, "height": height, "edges": _edges(dots, places), "groups": marks, "labels": labels}


def round_chart(shown: RoundData, rounds: Sequence[RoundData], found: Clustering) -> Chart:
    """Return the picture of one round, in the frame of all rounds and the colours of the last."""
    everything = np.concatenate([r.dots.points for r in rounds])
    return small_network(shown.dots, lambda label: found.style(shown.becomes.get(label, label)), everything)


def comparison_chart(shown: Clustering, both: Sequence[Clustering]) -> Chart:
    """Return one of two clusterings, in the frame of both."""
    everything = np.concatenate([one.dots.points for one in both])
    return small_network(shown.dots, shown.style, everything, width=480, height=380, largest=9.0, numbers=True)


def _drawing_order(dots: Dots, style_of: Callable[[int], ClusterStyle]) -> list[tuple[int, list[int]]]:
    """Return clusters with their dots as they are drawn: large clusters first, so that small ones lie on top."""
    order = []
    for label in sorted({int(label) for label in dots.labels}, key=lambda label: (style_of(label).rank, label)):
        inside = np.flatnonzero(dots.labels == label)
        order.append((label, inside[np.lexsort((dots.points[inside, 1], dots.points[inside, 0]))].tolist()))
    return order


def _groups(
    order: list[tuple[int, list[int]]],
    style_of: Callable[[int], ClusterStyle],
    sizes: list[float],
    places: Sequence[tuple[int, int]],
) -> list[Chart]:
    return [
        {"label": label, "style": style_of(label), "marks": [(_short(sizes[i]), *places[i]) for i in inside]}
        for label, inside in order
    ]


def _edges(dots: Dots, places: Sequence[tuple[int, int]]) -> str:
    return "".join(f"M{places[a][0]} {places[a][1]}L{places[b][0]} {places[b][1]}" for a, b in dots.edges)


# ------------------------------------------------------------ the map

_WIDTH, _HEIGHT, _MARGIN = 960, 620, 44
# Radius of the largest dot: the more dots, the smaller.
_LARGEST = ((150, 10.0), (600, 8.0), (10**9, 6.0))
_LEVELS = (0.08, 0.25, 0.55)
# How far a hull keeps from its dots: the more clusters, the nearer.
# With few dots it keeps as far as it takes to join them, within limits.
_HULLS = ((20, 16.0, 60.0), (60, 11.0, 20.0), (10**9, 8.0, 10.0))
# With more clusters than this, labels are numbers only, and only the first view has hulls.
_MAX_NAMED, _MAX_HULLS_TWICE = 14, 60
_MAX_LABEL = 26
_FEW_DOTS, _ABOVE = 3, 20.0


def map_chart(data: ReportData) -> Chart:
    """Return the large picture: dots, hulls, density contours and labels, in two views between which dots move."""
    dots = data.found.dots
    order = _drawing_order(dots, data.found.style)
    frame = Frame.around(dots.points, _WIDTH, _HEIGHT, _MARGIN)
    size = radii(dots.counts, next(radius for most, radius in _LARGEST if len(dots.counts) <= most))
    places = frame.place(dots.points)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "edges": _edges(dots, places),
        "groups": _groups(order, data.found.style, size, places),
        "views": [
            _view(data, order, dots.points, "a", hulls=True),
            _view(data, order, data.other_points, "b", hulls=len(order) <= _MAX_HULLS_TWICE),
        ],
    }


def map_data(data: ReportData) -> Chart:
    """Return what the script needs to know of the dots, in the order in which they are drawn."""
    dots = data.found.dots
    order = [i for _, inside in _drawing_order(dots, data.found.style) for i in inside]
    second = Frame.around(data.other_points, _WIDTH, _HEIGHT, _MARGIN)
    columns = data.hover_columns
    return {
        "n": [int(dots.counts[i]) for i in order],
        "nodes": [int(dots.n_merged[i]) for i in order],
        "other": [list(place) for place in second.place(data.other_points[order])],
        "columns": [c.name for c in columns],
        "values": [[_in_words(c, v) for c, v in zip(columns, row, strict=False)] for row in data.dot_values[order]],
        "leaf": None if data.tree is None else data.tree.leaf_of_dots(dots)[order].tolist(),
    }


def _in_words(column: ShownColumn, value: float) -> str:
    return f"mostly {column.categories[int(value)]}" if column.kind == "category" else column.shown(float(value))


def _view(data: ReportData, order: list[tuple[int, list[int]]], points: Floats, name: str, *, hulls: bool) -> Chart:
    """Return axes, contours, hulls and labels of one view."""
    frame = Frame.around(points, _WIDTH, _HEIGHT, _MARGIN)
    placed = np.array(frame.place(points), dtype=np.float64).reshape(-1, 2)
    is_projection = data.views.map_first == (name == "b")
    ticks: list[Chart] = []
    if is_projection and not data.views.projection.is_reduced and len(points):
        ticks = _ticks(data, frame, points)
    levels = contours(placed, data.found.dots.counts.astype(np.float64), 17.0, _LEVELS) if len(placed) else []
    labels = []
    for place in _label_places(data, order, placed):
        number, _, rest = place.text.partition(" ")
        leader = f"M{round(place.x)} {round(place.y)}L{round(place.anchor[0])} {round(place.anchor[1])}"
        labels.append(
            {"label": place.label, "number": number, "name": rest, "x": round(place.x), "y": round(place.y),
             "colour": data.found.style(place.label).colour, "leader": leader if place.far else ""}
        )  # fmt: skip
    return {
        "name": name,
        "axes": data.axis_labels if is_projection else None,
        "ticks": ticks,
        "contours": [as_path(polygons, 1.2) for polygons in levels],
        "hulls": [
            (label, data.found.style(label).colour, as_path(hull(placed[some], _reach(placed[some], len(order)))))
            for label, some in (order if hulls else [])
        ],
        "labels": labels,
    }


def _ticks(data: ReportData, frame: Frame, points: Floats) -> list[Chart]:
    found = []
    for axis in (0, 1) if data.axis_labels[1] else (0,):
        for value in nice_values(float(points[:, axis].min()), float(points[:, axis].max())):
            at, text = frame.on_axis(axis, value), data.axis_value(axis, value)
            if axis == 0:
                found.append({"text": text, "x": at, "y": _HEIGHT - 22, "mid": True, "line": f"M{at} 0V{_HEIGHT}"})
            else:
                found.append({"text": text, "x": 8, "y": at - 4, "mid": False, "line": f"M0 {at}H{_WIDTH}"})
    return found


def _reach(points: Floats, n_clusters: int) -> float:
    """How far the hull of some dots keeps from them: enough to join most neighbours where there are few dots."""
    near, far = next((near, far) for most, near, far in _HULLS if n_clusters <= most)
    gap = 0.0 if len(points) < 2 else 0.75 * float(np.quantile(cKDTree(points).query(points, 2)[0][:, 1], 0.9))
    return max(near, min(gap, far))


def _label_places(data: ReportData, order: list[tuple[int, list[int]]], placed: Floats) -> list[Any]:
    """Return where the labels of clusters stand, at their densest dots, the largest clusters first."""
    texts, anchors = [], []
    for label, inside in order:
        name = data.profiles.name(label) if len(order) <= _MAX_NAMED else ""
        texts.append((label, shortened_label(f"{label} {name}".strip())))
        where = placed[inside]
        centre = np.average(where, axis=0, weights=data.found.dots.counts[inside])
        # a label must not hide the only dots
        above = _ABOVE if len(inside) <= _FEW_DOTS else 0.0
        anchors.append(where[np.argmin(((where - centre) ** 2).sum(axis=1))] - [0.0, above])
    return place_labels(texts, np.array(anchors), _WIDTH, _HEIGHT) if texts else []


def shortened_label(text: str) -> str:
    """Shorten a label at the end of a term, or within a long one.

    >>> shortened_label("3 older, high creatinine, mostly E11")
    '3 older, high creatinine'
    """
    while len(text) > _MAX_LABEL and "," in text:
        text = text[: text.rindex(",")]
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1].rstrip()}…"


# ------------------------------------------------------------ rows flowing between rounds


def flow_chart(rounds: Sequence[RoundData], found: Clustering, names: Sequence[str]) -> Chart:
    """Return how rows move between clusters from round to round: bars are clusters, ribbons are rows."""
    width, height, top, bar, gap = 640, 320, 30, 14, 5
    columns = [
        sorted(
            r.snapshot.cluster_rows.items(),
            key=lambda item: (found.style(r.becomes.get(item[0], item[0])).rank, -item[1], item[0]),
        )
        for r in rounds
    ]
    tallest = max(sum(rows for _, rows in column) for column in columns) or 1
    scale = (height - top - 14 - gap * max(len(column) for column in columns)) / tallest
    lefts = [round(float(x)) for x in np.linspace(30, width - 30 - bar, len(columns))]
    spans = [_spans(column, scale, top, height - 14, gap) for column in columns]
    ribbons, bars, last = [], [], len(columns) - 1
    for k, (column, x) in enumerate(zip(columns, lefts, strict=True)):
        for label, rows in column:
            low, high = spans[k][label]
            becomes = rounds[k].becomes.get(label, label)
            number = k == last and high - low > 9
            bars.append(
                {"x": x, "y": f"{low:.1f}", "height": f"{max(high - low, 1.5):.1f}", "label": becomes,
                 "colour": found.style(becomes).colour, "tip": f"{names[k]}, cluster {label}: {counted(rows, 'row')}",
                 "text": (label, x + bar + 5, f"{(low + high) / 2 + 4:.1f}") if number else None}
            )  # fmt: skip
        if k:
            ribbons += _ribbons(rounds[k], found, spans[k - 1 : k + 1], scale, lefts[k - 1] + bar, x)
    heads = [
        (name, x if k == 0 else x + bar if k == last else x + bar // 2, "" if k == 0 else "end" if k == last else "mid")
        for k, (name, x) in enumerate(zip(names, lefts, strict=True))
    ]
    return {"width": width, "height": height, "bar": bar, "heads": heads, "bars": bars, "ribbons": ribbons}


_Span = dict[int, tuple[float, float]]


def _spans(column: Sequence[tuple[int, int]], scale: float, top: int, bottom: int, gap: int) -> _Span:
    used = scale * sum(rows for _, rows in column) + gap * max(len(column) - 1, 0)
    y = top + max(0.0, (bottom - top - used) / 2)
    spans = {}
    for label, rows in column:
        spans[label] = (y, y + scale * rows)
        y += scale * rows + gap
    return spans


def _ribbons(
    now: RoundData, found: Clustering, spans: Sequence[_Span], scale: float, left: int, right: int
) -> list[Chart]:
    leaving, entering = ({label: low for label, (low, _) in column.items()} for column in spans)
    place = [{label: k for k, label in enumerate(column)} for column in spans]
    arriving: dict[int, int] = {}
    for (_, target), rows in now.snapshot.flow.items():
        arriving[target] = arriving.get(target, 0) + rows
    middle, drawn = (left + right) // 2, []
    flows = [(a, b, rows) for (a, b), rows in now.snapshot.flow.items() if a in place[0] and b in place[1]]
    for source, target, rows in sorted(flows, key=lambda item: (place[0][item[0]], place[1][item[1]])):
        thick = scale * rows
        a, b = leaving[source], entering[target]
        # a cluster can have fewer rows than flow into it if nodes have moved since: its ribbons then share its height
        low, high = spans[1][target]
        thin = thick * min(1.0, (high - low) / (scale * arriving[target])) if arriving[target] else 0.0
        leaving[source], entering[target] = a + thick, b + thin
        follows = now.becomes.get(target, target)
        shape = (
            f"M{left} {a:.1f}C{middle} {a:.1f} {middle} {b:.1f} {right} {b:.1f}"
            f"V{b + thin:.1f}C{middle} {b + thin:.1f} {middle} {a + thick:.1f} {left} {a + thick:.1f}Z"
        )
        tip = f"{counted(rows, 'row')}: cluster {source} to cluster {target}"
        drawn.append({"path": shape, "label": follows, "colour": found.style(follows).colour, "tip": tip})
    return drawn


# ------------------------------------------------------------ histograms


def novelty_chart(novelty: Novelty) -> Chart:
    """Return a histogram of the distance between rows and their nearest nodes, with the threshold of novelty."""
    width, height, left, bottom, top = 640, 276, 10, 40, 46  # the words above the threshold have a line of their own
    tallest = int((novelty.known + novelty.novel).max()) or 1
    each = (width - left - 10) / len(novelty.known)
    reach = float(novelty.edges[-1])
    bars = []
    for k in range(len(novelty.known)):
        floor = float(height - bottom)
        upto = f"{novelty.edges[k + 1]:.3g}" if k < len(novelty.known) - 1 else "more"
        for rows, word in ((int(novelty.known[k]), "known"), (int(novelty.novel[k]), "novel")):
            if not rows:
                continue
            tall = max((height - bottom - top) * rows / tallest, 1.0)
            floor -= tall
            tip = f"Distance {novelty.edges[k]:.3g} to {upto}: {rows:,} {word} {'row' if rows == 1 else 'rows'}"
            place = [f"{value:.1f}" for value in (left + k * each + 0.5, floor, each - 1, tall)]
            bars.append({"place": place, "kind": "plain" if word == "known" else "novel", "tip": tip})
    across = [(f"{v:g}", round(left + (width - left - 10) * v / reach)) for v in nice_values(0.0, reach)]
    up = [
        (f"{v:,.0f} rows", round(height - bottom - (height - bottom - top) * v / tallest))
        for v in nice_values(0.0, tallest, 3)[1:]
    ]
    threshold = None
    if novelty.threshold is not None and 0 < novelty.threshold < reach:
        threshold = round(left + (width - left - 10) * novelty.threshold / reach)
    sides = {"left": left, "right": width - 10, "floor": height - bottom}
    return {"width": width, "height": height, **sides, "bars": bars, "across": across, "up": up, "threshold": threshold}


_MINI_WIDTH, _MINI_HEIGHT = 120, 28


def staircase(bars: Floats) -> str:
    """Return the outline of a small histogram in whole units, the highest step as high as the chart."""
    n, heights = len(bars), bars / max(float(bars.max(initial=0.0)), 1e-12)
    xs = np.rint(np.linspace(0, _MINI_WIDTH, n + 1)).astype(int)
    ys = np.rint((1 - heights) * (_MINI_HEIGHT - 1) + 1).astype(int)
    return f"M0 {_MINI_HEIGHT}" + "".join(f"V{ys[j]}H{xs[j + 1]}" for j in range(n)) + f"V{_MINI_HEIGHT}Z"


def small_histogram(profile: ColumnProfile, edges: Floats) -> Chart:
    """Return a histogram of a cluster with its mean and, where noise is known, the mean's error."""
    span = float(edges[-1] - edges[0]) or 1.0
    at = float(np.clip((profile.own.mean - edges[0]) / span, 0, 1)) * _MINI_WIDTH
    error = ""
    if profile.error is not None:
        half = 2 * profile.error / span * _MINI_WIDTH
        low, high = max(at - half, 0.0), min(at + half, float(_MINI_WIDTH))
        error = f"M{low:.0f} 3H{high:.0f}M{low:.0f} 0V6M{high:.0f} 0V6"
    return {"own": staircase(profile.own.bars), "mean": f"M{at:.0f} 0V{_MINI_HEIGHT}", "error": error}
