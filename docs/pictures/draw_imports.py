"""Draw which packages of fcac import which.

``python docs/pictures/draw_imports.py`` writes ``imports.svg`` beside itself, from the imports in the source and the
layers in pyproject.toml. A test compares it with the source.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import grimp
import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "fcac"

INK, GREY, PALE, BOX = "#22303c", "#8c96a0", "#d3d8dd", "#eaf2f8"
# What everything may use is one box at the bottom: arrows to it would hide all others.
BASE = "shared by all"
# Where boxes stand from left to right; neighbours in the list of layers stand apart, so that arrows can pass.
COLUMNS = {
    "cli": 0.5,
    "paper": 0.83,
    "spark": 0.42,
    "flower": 0.12,
    "deployment": 0.18,
    "report": 0.5,
    "model": 0.75,
    "federation": 0.42,
    "aggregation": 0.68,
    "privacy": 0.12,
    "nodes": 0.88,
    "clusters": 0.6,
    "codebook": 0.4,
    "search": 0.66,
    "art": 0.85,
    "tables": 0.3,
    "persistence": 0.08,
}


def layers() -> list[list[str]]:
    """Return the layers of pyproject.toml, top first, each a list of packages and modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    listed = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip() for name in line.split("|")] for line in listed]


def packages() -> list[str]:
    """Return the packages, top layer first; single modules are not among them."""
    return [name for layer in layers() for name in layer if (SOURCE / name).is_dir()]


def exceptions() -> dict[str, set[str]]:
    """Return the imports that pyproject.toml lets pass, by importing module."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: dict[str, set[str]] = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        for line in contract.get("ignore_imports", []) if contract["type"] == "layers" else []:
            importer, _, imported = line.partition(" -> ")
            found.setdefault(importer, set()).add(imported)
    return found


def imports() -> Counter[tuple[str, str]]:
    """Count, for every two packages, the imports of modules of the second in modules of the first."""
    graph = grimp.build_graph("fcac", exclude_type_checking_imports=True, cache_dir=None)
    shown, passed = set(packages()), exceptions()
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer) - passed.get(importer, set()):
            pair = (importer.split(".")[1:] or [""])[0], (imported.split(".")[1:] or [""])[0]
            if pair[0] != pair[1] and shown.issuperset(pair):
                found[pair] += 1
    return found


def needed(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges that no chain of others replaces (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for name in reversed(packages()):  # lower layers first
        direct = {b for a, b in edges if a == name}
        below[name] = direct.union(*(below[b] for b in direct)) if direct else set()
    return {(a, b) for a, b in edges if not any(b in below[c] for d, c in edges if d == a and c != b)}


def draw(path: Path = HERE / "imports.svg") -> None:
    """Draw the packages layer by layer, with an arrow for every import between them."""
    names, found = packages(), imports()
    height = {name: len(names) - row for row, name in enumerate(names)}
    place = {name: (COLUMNS.get(name, 0.5), height[name]) for name in names}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fcac", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.2, 9.0))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(-0.08, 1.08)
        axes.set_ylim(-0.75, len(names) + 0.6)
        axes.set_axis_off()
        boxes = {name: _box(axes, name, x, y, 0.16) for name, (x, y) in place.items()}
        main = needed(set(found))
        for (importer, imported), count in sorted(found.items()):
            strong = (importer, imported) in main
            arrow = FancyArrowPatch(
                place[importer],
                place[imported],
                connectionstyle="arc3,rad=0.08",
                arrowstyle="-|>",
                mutation_scale=9 if strong else 7,
                color=INK if strong else GREY,
                alpha=1.0 if strong else 0.55,
                linewidth=0.6 + 0.09 * min(count, 12),
                patchA=boxes[importer],
                patchB=boxes[imported],
                shrinkA=0,
                shrinkB=1.5,
                zorder=3 if strong else 2,
            )
            arrow.set_gid(f"{importer}-imports-{imported}")
            axes.add_patch(arrow)
        shared = [name for layer in layers() for name in layer if name not in names]
        _box(axes, f"{BASE}: {', '.join(shared)}", 0.5, -0.1, 1.06, size=7.5)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _box(axes: Axes, text: str, x: float, y: float, width: float, size: float = 10.0) -> FancyBboxPatch:
    style = "round,pad=0.0,rounding_size=0.02"
    box = FancyBboxPatch(
        (x - width / 2, y - 0.24),
        width,
        0.48,
        boxstyle=style,
        facecolor=BOX,
        edgecolor=PALE,
        zorder=4,
        mutation_aspect=12,
    )
    axes.add_patch(box)
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=INK, zorder=5)
    return box


if __name__ == "__main__":
    draw()
