"""Charts as inline SVG: they scale, print, need no library and can be read by keyboard and screen reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fcac._typing import Floats, Integers
from fcac.report.cluster_style import ClusterStyle
from fcac.report.data import Novelty, Reading, RoundData
from fcac.report.dots import Dots
from fcac.report.label_places import place_labels
from fcac.report.markup import Markup, tag


@dataclass(frozen=True)
class Frame:
    """Maps coordinates of a projection into a picture, both axes at the same scale.

    Positions are whole units of a picture at most 1,000 wide: no coordinate is given to more than three digits.
    """

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


# ------------------------------------------------------------ small pictures of the network


def small_network(
    dots: Dots,
    style_of: Callable[[int], ClusterStyle],
    frame_points: Floats,
    *,
    width: int = 320,
    height: int = 250,
    largest: float = 8.0,
    numbers: bool = False,
) -> Markup:
    """Draw nodes (area by count) and edges, without anything to point at.

    Parameters
    ----------
    dots : Dots
    style_of : callable
        Returns the style of a cluster.
    frame_points : array of shape (n, 2)
        Points that must be visible; pass the same ones to pictures that are to be compared.
    """
    frame = Frame.around(frame_points, width, height, margin=14)
    places, size = frame.place(dots.points), radii(dots.counts, largest)
    drawn: list[Markup | None] = [edge_path(dots, places)]
    # large clusters first, so that small ones are drawn on top
    labels = sorted({int(label) for label in dots.labels}, key=lambda label: (style_of(label).rank, label))
    anchors = []
    for label in labels:
        style, inside = style_of(label), np.flatnonzero(dots.labels == label)
        marks = [style.mark(size[i], places[i]) for i in inside]
        drawn.append(tag("g", marks, class_=f"k {style.colour}", data_k=label))
        anchors.append(np.average(np.array([places[i] for i in inside]), axis=0, weights=dots.counts[inside]))
    if numbers and labels:
        named = [(label, str(label)) for label in labels]
        found = place_labels(named, np.array(anchors), width, height)
        drawn += [tag("text", p.text, class_="number k", data_k=p.label, x=round(p.x), y=round(p.y)) for p in found]
    return tag("svg", drawn, viewBox=f"0 0 {width} {height}", class_="net", aria_hidden="true", focusable="false")


def radii(counts: Integers, largest: float) -> list[float]:
    """Return radii of dots whose areas grow with counts; where all counts are small, so are all dots."""
    if not len(counts):
        return []
    relative = np.sqrt(counts / max(float(counts.max()), 12.0))
    return [round(float(r), 1) for r in np.maximum(largest * relative, 0.24 * largest)]


def edge_path(dots: Dots, places: Sequence[tuple[int, int]]) -> Markup | None:
    """Return the lines between linked dots."""
    if not len(dots.edges):
        return None
    path = "".join(f"M{places[a][0]} {places[a][1]}L{places[b][0]} {places[b][1]}" for a, b in dots.edges)
    return tag("path", d=path, class_="edges")


def nice_values(low: float, high: float, most: int = 5) -> list[float]:
    """Return round values between two numbers, for the ticks of an axis.

    Examples
    --------
    >>> from fcac.report.charts import nice_values
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


# ------------------------------------------------------------ rows flowing between rounds


def flow(rounds: Sequence[RoundData], read: Reading, names: Sequence[str]) -> Markup:
    """Draw how rows move between clusters from round to round: bars are clusters, ribbons are rows."""
    width, height, top, bar, gap = 640, 320, 30, 14, 5
    columns = [_column(r, read) for r in rounds]
    tallest = max(sum(rows for _, rows in column) for column in columns) or 1
    room = height - top - 14 - gap * max(len(column) for column in columns)
    scale = room / tallest
    lefts = np.linspace(30, width - 30 - bar, len(columns))
    spans = [_spans(column, scale, top, height - 14, gap) for column in columns]
    ribbons, bars, texts = [], [], []
    for k, (column, left) in enumerate(zip(columns, lefts, strict=True)):
        x = round(float(left))
        anchor = "tick mid" if 0 < k < len(columns) - 1 else "tick" if k == 0 else "tick end"
        at = x if k == 0 else x + bar if k == len(columns) - 1 else x + bar // 2
        texts.append(tag("text", names[k], x=at, y=16, class_=anchor))
        for label, rows in column:
            low, high = spans[k][label]
            style = read.style(rounds[k].becomes.get(label, label))
            tip = f"{names[k]}, {_cluster_name(label)}: {rows:,} rows"
            bars.append(
                tag(
                    "rect",
                    x=x,
                    y=f"{low:.1f}",
                    width=bar,
                    height=f"{max(high - low, 1.5):.1f}",
                    class_=f"bar k {style.colour}",
                    data_k=rounds[k].becomes.get(label, label),
                    data_t=tip,
                )
            )
            if k == len(columns) - 1 and high - low > 9:
                texts.append(tag("text", label, x=x + bar + 5, y=f"{(low + high) / 2 + 4:.1f}", class_="tick strong"))
        if k:
            ribbons += _ribbons(rounds[k], read, spans[k - 1 : k + 1], scale, float(lefts[k - 1]) + bar, x)
    return tag(
        "svg",
        tag("g", ribbons),
        bars,
        texts,
        viewBox=f"0 0 {width} {height}",
        class_="flow wide",
        aria_hidden="true",
        focusable="false",
    )


def _cluster_name(label: int) -> str:
    return f"cluster {label}"


def _column(data: RoundData, read: Reading) -> list[tuple[int, int]]:
    """Return the clusters of a round with their rows, ordered by the clusters that they become."""
    rows = data.snapshot.cluster_rows
    return sorted(
        rows.items(), key=lambda item: (read.style(data.becomes.get(item[0], item[0])).rank, -item[1], item[0])
    )


def _spans(
    column: Sequence[tuple[int, int]], scale: float, top: int, bottom: int, gap: int
) -> dict[int, tuple[float, float]]:
    used = scale * sum(rows for _, rows in column) + gap * max(len(column) - 1, 0)
    y = top + max(0.0, (bottom - top - used) / 2)
    spans = {}
    for label, rows in column:
        spans[label] = (y, y + scale * rows)
        y += scale * rows + gap
    return spans


def _ribbons(
    now: RoundData,
    read: Reading,
    spans: Sequence[dict[int, tuple[float, float]]],
    scale: float,
    left: float,
    right: float,
) -> list[Markup]:
    order = {label: k for k, label in enumerate(spans[1])}
    leaving = {label: low for label, (low, _) in spans[0].items()}
    entering = {label: low for label, (low, _) in spans[1].items()}
    arriving: dict[int, int] = {}
    for (_, target), rows in now.snapshot.flow.items():
        arriving[target] = arriving.get(target, 0) + rows
    sources = {label: k for k, label in enumerate(spans[0])}
    middle = (left + right) / 2
    drawn = []
    flows = [item for item in now.snapshot.flow.items() if item[0][0] in sources and item[0][1] in order]
    for (source, target), rows in sorted(flows, key=lambda item: (sources[item[0][0]], order[item[0][1]])):
        thick = scale * rows
        a, b = leaving[source], entering[target]
        # a cluster can have fewer rows than flow into it if nodes have moved since: its ribbons then share its height
        low, high = spans[1][target]
        thin = thick * min(1.0, (high - low) / (scale * arriving[target])) if arriving[target] else 0.0
        leaving[source], entering[target] = a + thick, b + thin
        style = read.style(now.becomes.get(target, target))
        shape = (
            f"M{left:.0f} {a:.1f}C{middle:.0f} {a:.1f} {middle:.0f} {b:.1f} {right:.0f} {b:.1f}"
            f"V{b + thin:.1f}C{middle:.0f} {b + thin:.1f} {middle:.0f} {a + thick:.1f} {left:.0f} {a + thick:.1f}Z"
        )
        tip = f"{rows:,} rows: {_cluster_name(source)} to {_cluster_name(target)}"
        follows = now.becomes.get(target, target)
        drawn.append(tag("path", d=shape, class_=f"ribbon k {style.colour}", data_k=follows, data_t=tip))
    return drawn


# ------------------------------------------------------------ novelty


def histogram(novelty: Novelty) -> Markup:
    """Draw a histogram of the distance between rows and their nearest nodes, with the threshold of novelty."""
    width, height, left, bottom, top = 640, 276, 10, 40, 46  # the words above the threshold have a line of their own
    n = len(novelty.known)
    tallest = int((novelty.known + novelty.novel).max()) or 1
    each = (width - left - 10) / n
    bars: list[Markup] = []
    for k in range(n):
        floor = float(height - bottom)
        upto = f"{novelty.edges[k + 1]:.3g}" if k < n - 1 else "more"
        for rows, style, word in ((novelty.known[k], "plain", "known"), (novelty.novel[k], "novel", "novel")):
            if not rows:
                continue
            tall = max((height - bottom - top) * int(rows) / tallest, 1.0)
            floor -= tall
            bars.append(
                tag(
                    "rect",
                    x=f"{left + k * each + 0.5:.1f}",
                    y=f"{floor:.1f}",
                    width=f"{each - 1:.1f}",
                    height=f"{tall:.1f}",
                    class_=f"bar {style}",
                    data_t=f"Distance {novelty.edges[k]:.3g} to {upto}: {int(rows):,} {word} rows",
                )
            )
    axis = [tag("path", d=f"M{left} {height - bottom}H{width - 10}", class_="rule")]
    reach = float(novelty.edges[-1])
    for value in nice_values(0.0, reach):
        x = left + (width - left - 10) * value / reach
        axis.append(tag("text", f"{value:g}", x=round(x), y=height - bottom + 16, class_="tick mid"))
    for value in nice_values(0.0, tallest, 3)[1:]:
        y = height - bottom - (height - bottom - top) * value / tallest
        axis.append(tag("path", d=f"M{left} {y:.0f}H{width - 10}", class_="grid"))
        axis.append(tag("text", f"{value:,.0f} rows", x=width - 10, y=round(y) - 4, class_="tick end"))
    axis.append(tag("text", "Distance to the nearest node", x=width - 10, y=height - 4, class_="axis end"))
    threshold = []
    if novelty.threshold is not None and 0 < novelty.threshold < reach:
        x = left + (width - left - 10) * novelty.threshold / reach
        threshold = [
            tag("path", d=f"M{x:.0f} 6V{height - bottom}", class_="mark-line"),
            tag("text", "novel", x=round(x) + 6, y=18, class_="axis"),
            tag("text", "known", x=round(x) - 6, y=18, class_="axis end"),
        ]
    return tag(
        "svg",
        axis,
        bars,
        threshold,
        viewBox=f"0 0 {width} {height}",
        class_="hist wide",
        aria_hidden="true",
        focusable="false",
    )
