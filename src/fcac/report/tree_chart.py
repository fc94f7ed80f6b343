"""The tree of clusters as a picture: joins above the found cut, splits below it."""

from __future__ import annotations

import math
from typing import Any

from fcac._text import counted
from fcac.report.components import details, plot, section, table
from fcac.report.data import ReportData
from fcac.report.markup import Markup, tag
from fcac.report.tree import TreeData
from fcac.tables.shown_column import percent

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _SIDE = 960, 320, 22, 8, 34
_MAX_NUMBERED = 60
_LEAST_GAP = 24.0
_LEAST_GAP_ON_PHONE = 48.0  # letters are twice as large there


def tree_section(data: ReportData) -> Markup | None:
    """Show the hierarchy above and below the clusters."""
    tree = data.tree
    if tree is None or tree.n_finest < 2:
        return None
    n_rows = tree.branches[0].rows or 1.0
    stability = {c.label: c.stability for c in data.read.clusters}
    lines = []
    for branch in tree.branches:
        if branch.cluster is None:
            continue
        told = stability.get(branch.cluster)
        lines.append(
            (
                f"Cluster {branch.cluster}",
                f"{round(branch.rows):,}",
                percent(branch.rows / n_rows),
                "–" if told is None else f"{told:.2f}",
                f"{branch.born}",
                f"{branch.ends + 1}" if branch.children else "–",
            )
        )
    head = ["Cluster", "Rows", "Share", "Stability", "Apart from so many clusters on", "Splits at so many"]
    as_table = details("Show as a table", table(head, lines, caption="Where clusters join and split"))
    slider = tag(
        "div",
        tag("label", "Number of clusters shown", for_="cut"),
        tag("input", type="range", id="cut", min=1, max=tree.n_finest, value=tree.n_found, step=1),
        tag("output", str(tree.n_found), id="cut-value", for_="cut"),
        tag("button", f"Back to the {tree.n_found} found", type="button", id="cut-back", class_="plain", disabled=True),
        class_="slider",
    )
    words = (
        f"Tree of clusters, from one that holds everything to {tree.n_finest} parts; "
        f"{counted(tree.n_found, 'cluster')} were found."
    )
    intro = (
        "Upwards, clusters join, those with the weakest border first; downwards, they would split. The dashed line is "
        "the cut that was found. Click another height, or move the slider, to see that cut in the map; branches are "
        "as thick as they have rows."
    )
    return section(
        "tree",
        "The tree",
        intro,
        tag("figure", slider, plot(_chart(data, tree), words, id_="tree-plot"), as_table, class_="panel"),
    )


def _height(level: float, tree: TreeData) -> float:
    """Height of a cut into so many clusters: logarithmic, since few clusters matter more."""
    share = math.log(level) / math.log(tree.n_finest + 1)
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * share


def _chart(data: ReportData, tree: TreeData) -> Markup:
    leaves = tree.leaves
    step = (_WIDTH - 2 * _SIDE) / max(len(leaves), 1)
    middle: dict[int, float] = {leaf: _SIDE + step * (at + 0.5) for at, leaf in enumerate(leaves)}
    for number in range(len(tree.branches) - 1, -1, -1):
        children = tree.branches[number].children
        if children:
            middle[number] = sum(middle[c] for c in children) / len(children)
    total = tree.branches[0].rows or 1.0
    drawn: list[Markup] = []
    numbers: list[tuple[float, float, int]] = []
    for number, branch in enumerate(tree.branches):
        x, top = middle[number], _height(branch.born, tree)
        bottom = _height(branch.ends + 1, tree)
        wide = 1.2 + 9 * math.sqrt(branch.rows / total)
        cluster = _cluster_at(tree, number)
        colour = "cx" if cluster is None else data.read.style(cluster).colour
        tip = _tip(data, tree, number)
        path = f"M{x:.0f} {top:.0f}V{bottom:.0f}"
        if branch.children:
            ends = sorted(middle[c] for c in branch.children)
            path += f"M{ends[0]:.0f} {bottom:.0f}H{ends[-1]:.0f}"
        drawn.append(
            tag(
                "path",
                d=path,
                class_=f"branch{' k' if cluster is not None else ''} {colour}",
                style=f"stroke-width:{wide:.1f}",
                data_k=cluster,
                data_t=tip,
            )
        )
        if branch.cluster is not None and tree.n_found <= _MAX_NUMBERED:
            y = _height(min(tree.n_found + 0.5, branch.ends + 0.5), tree)
            numbers.append((x, y, branch.cluster))
    texts, last, last_on_phone = [], -math.inf, -math.inf
    for x, y, cluster in sorted(numbers):
        if x - last >= _LEAST_GAP:  # numbers side by side must not run into each other
            spare = x - last_on_phone < _LEAST_GAP_ON_PHONE
            style = "number k spare" if spare else "number k"
            texts.append(tag("text", cluster, x=round(x), y=round(y), class_=style, data_k=cluster))
            last, last_on_phone = x, last_on_phone if spare else x
    y = _height(tree.n_found + 0.5, tree)
    line = tag("path", d=f"M32 {y:.0f}H{_WIDTH - 6}", class_="cut-line", id="cut-line")
    ticks = [
        tag("text", level, x=4, y=round(_height(level + 0.5, tree)) + 4, class_="tick")
        for level in (1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200)
        if level <= tree.n_finest
    ]
    return tag(
        "svg",
        drawn,
        line,
        texts,
        ticks,
        tag("text", "clusters", x=4, y=12, class_="tick head"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="tree follow",
        aria_hidden="true",
        focusable="false",
    )


def _cluster_at(tree: TreeData, number: int) -> int | None:
    """The found cluster that a branch is or is part of; None above the cut."""
    while number >= 0:
        branch = tree.branches[number]
        if branch.cluster is not None:
            return branch.cluster
        if branch.born <= tree.n_found:
            return None
        number = branch.parent
    return None


def _tip(data: ReportData, tree: TreeData, number: int) -> str:
    branch = tree.branches[number]
    rows = counted(round(branch.rows), "row")
    if branch.cluster is not None:
        told = next((c.stability for c in data.read.clusters if c.label == branch.cluster), None)
        sure = "" if told is None else f", stability {told:.2f}"
        name = data.profiles.name(branch.cluster)
        return f"Cluster {branch.cluster}{f' ({name})' if name else ''}: {rows}{sure}"
    above = branch.ends < tree.n_found
    found = _cluster_at(tree, number)
    if above or found is None:
        return f"{rows}, together up to {counted(branch.ends, 'cluster')}"
    return f"Part of cluster {found}: {rows}, apart from {counted(branch.born, 'cluster')} on"


def tree_data(data: ReportData) -> dict[str, Any] | None:
    """Return what the script needs to show another cut: leaves, what joins them, and where heights are."""
    tree = data.tree
    if tree is None:
        return None
    position = {branch: at for at, branch in enumerate(tree.leaves)}
    below = {number: _leaves_below(tree, number) for number in range(len(tree.branches))}
    return {
        "found": tree.n_found,
        "finest": tree.n_finest,
        # for each branch: from which to which cut it is a cluster, its leaves, and the style of its cluster
        "branches": [
            [
                branch.born,
                branch.ends,
                min(position[leaf] for leaf in below[number]),
                max(position[leaf] for leaf in below[number]),
                round(branch.rows),
                _style_rank(data, tree, number, below),
            ]
            for number, branch in enumerate(tree.branches)
        ],
        "heights": [round(_height(level + 0.5, tree)) for level in range(1, tree.n_finest + 1)],
    }


def _leaves_below(tree: TreeData, number: int) -> list[int]:
    children = tree.branches[number].children
    return [number] if not children else [leaf for child in children for leaf in _leaves_below(tree, child)]


def _style_rank(data: ReportData, tree: TreeData, number: int, below: dict[int, list[int]]) -> int:
    """Rank of the largest found cluster in a branch, or of the cluster it is part of."""
    found = _cluster_at(tree, number)
    if found is not None:
        return data.read.style(found).rank
    ranks = [data.read.style(c).rank for c in (_cluster_at(tree, leaf) for leaf in below[number]) if c is not None]
    return min(ranks, default=0)
