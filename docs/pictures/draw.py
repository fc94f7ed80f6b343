"""Draw the pictures of the documentation from real runs of the demo data.

Run ``python docs/pictures/draw.py`` after ``pip install '.[experiments]'``; it writes PNG files beside itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import ConnectionPatch
from sklearn.metrics import adjusted_rand_score

from fcac import CAE, CAEFC, CAPlus
from fcac.federation import Server
from fcac.paper.gaussians import DemoResult, run_demo

HERE = Path(__file__).parent
GREY = "#8c96a0"
INK = "#22303c"
# Okabe and Ito's colours, which colour-blind readers can tell apart; shapes say the same again.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SHAPES = ("o", "s", "^", "D", "v", "P")


def main(folder: Path = HERE) -> None:
    """Draw everything into a folder."""
    plt.rcParams.update({"font.size": 10, "font.family": "DejaVu Sans", "text.color": INK, "axes.titlecolor": INK})
    result = run_demo(seed=0, server="communities")
    overview(result, folder / "overview.png")
    three_rounds(result, folder / "rounds.png")
    two_servers(result, folder / "servers.png")
    three_networks(folder / "networks.png")
    side_by_side(folder / "clusterers.png")


def overview(result: DemoResult, path: Path) -> None:
    """Rows at the sites, nodes that are sent, clusters at the server."""
    server = result.model.server_
    figure, axes = plt.subplot_mosaic(
        [["rows 1", "nodes 1", "clusters"], ["rows 2", "nodes 2", "clusters"]],
        figsize=(9.6, 4.6),
        width_ratios=(1, 1, 2.1),
        gridspec_kw={"wspace": 0.45, "hspace": 0.3},
    )
    for number, (site, rows) in enumerate(result.rows.items(), start=1):
        few = np.random.default_rng(0).permutation(len(rows))[:4000]
        axes[f"rows {number}"].scatter(*rows[few].T, s=1, c=GREY, linewidths=0)
        axes[f"rows {number}"].set_title(f"{site}: {len(rows):,} rows", fontsize=9)
        sent = server.latest()[site]
        axes[f"nodes {number}"].scatter(*sent.nodes.T, s=_sizes(sent.counts), c=INK, alpha=0.75, linewidths=0)
        axes[f"nodes {number}"].set_title(f"sends {len(sent.nodes)} nodes", fontsize=9)
        _arrow(figure, axes[f"rows {number}"], axes[f"nodes {number}"])
        _arrow(figure, axes[f"nodes {number}"], axes["clusters"])
    _clusters(axes["clusters"], server)
    axes["clusters"].set_title(f"server: {server.n_clusters} clusters; nobody said how many", fontsize=10)
    _finish(figure, axes.values(), path)


def three_rounds(result: DemoResult, path: Path) -> None:
    """What arrives at each site in each round, and what the server knows after it."""
    figure, grid = plt.subplots(3, 3, figsize=(8.2, 8.2), gridspec_kw={"wspace": 0.1, "hspace": 0.22})
    replay = Server("communities", random_state=0)
    for column, (arriving, batch) in enumerate(zip(result.rounds, result.model.server_.log, strict=True)):
        replay.absorb(batch)
        for row, (site, rows) in enumerate(arriving.rows.items()):
            few = np.random.default_rng(0).permutation(len(rows))[:2500]
            grid[row, column].scatter(*rows[few].T, s=1, c=GREY, linewidths=0)
            grid[row, column].set_title(f"{site}, round {arriving.number}: new rows", fontsize=9)
        _clusters(grid[2, column], replay)
        found = f"{replay.n_clusters} cluster" + ("s" if replay.n_clusters > 1 else "")
        grid[2, column].set_title(f"server after round {arriving.number}: {found}", fontsize=9)
    _finish(figure, grid.flat, path)


def two_servers(result: DemoResult, path: Path) -> None:
    """The same contributions, read by the two servers."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.4), gridspec_kw={"wspace": 0.08})
    points, gaussians = result.points()
    for axis, kind in zip(axes, ("cae-fc", "communities"), strict=True):
        server = Server(kind, random_state=0)
        for batch in result.model.server_.log:
            server.absorb(batch)
        for i, j in server.readout.edges:
            axis.plot(*server.nodes[[i, j]].T, c=GREY, lw=0.7, zorder=0)
        _clusters(axis, server)
        score = adjusted_rand_score(gaussians, server.predict(points))
        axis.set_title(f'server="{kind}"\n{server.n_clusters} clusters, adjusted Rand index {score:.2f}', fontsize=10)
    _finish(figure, axes, path)


def three_networks(path: Path) -> None:
    """CA+, CAE and CAE_FC on the same 16,000 points of one Gaussian, each point once."""
    points = np.random.default_rng(0).normal(size=(16_000, 2))
    low, high = points.min(axis=0), points.max(axis=0)
    points = (points - low) / (high - low)
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.7), gridspec_kw={"wspace": 0.08})
    few = points[:4000]
    for axis, (name, model) in zip(axes, (("CA+", CAPlus()), ("CAE", CAE()), ("CAE_FC", CAEFC())), strict=True):
        model.fit(points)
        axis.scatter(*few.T, s=1, c="#d8dde2", linewidths=0)
        edges = getattr(model, "edges_", np.empty((0, 2), int))
        for i, j in edges:
            axis.plot(*model.nodes_[[i, j]].T, c=INK, lw=0.8)
        axis.scatter(*model.nodes_.T, s=14, c=COLOURS[0], linewidths=0, zorder=3)
        axis.set_title(f"{name}: {len(model.nodes_)} nodes, {len(edges)} edges", fontsize=10)
    _finish(figure, axes, path)


def side_by_side(path: Path) -> None:
    """Five small sets, clustered by this package's clusterers, by HDBSCAN, and by k-means, which is told the number."""
    from sklearn.cluster import HDBSCAN, KMeans
    from sklearn.datasets import make_blobs, make_circles, make_moons

    from fcac import FCAC

    rng = np.random.default_rng(0)
    sheared = make_blobs(1200, random_state=170)[0] @ np.array([[0.6, -0.6], [-0.4, 0.8]])
    sets = {
        "moons": (make_moons(1200, noise=0.05, random_state=0)[0], 2),
        "circles": (make_circles(1200, factor=0.5, noise=0.05, random_state=0)[0], 2),
        "sheared": (sheared, 3),
        "unequal": (make_blobs(1200, cluster_std=[1.0, 2.5, 0.5], random_state=170)[0], 3),
        "one square": (rng.random((1200, 2)), 1),
    }
    figure, grid = plt.subplots(len(sets), 4, figsize=(6.8, 8.4), gridspec_kw={"wspace": 0.06, "hspace": 0.06})
    for lines, (name, (rows, k)) in zip(grid, sets.items(), strict=True):
        low, high = rows.min(axis=0), rows.max(axis=0)
        rows = rng.permutation((rows - low) / (high - low))
        for axis, (title, model) in zip(
            lines,
            {
                "FCAC": FCAC(),
                "FCAC, server cae-fc": FCAC(server="cae-fc", random_state=0),
                "HDBSCAN": HDBSCAN(min_cluster_size=15, copy=True),
                "k-means, told k": KMeans(k, n_init=10, random_state=0),
            }.items(),
            strict=True,
        ):
            labels = model.fit_predict(rows)
            sizes = {label: (labels == label).sum() for label in np.unique(labels) if label >= 0}
            for place, label in enumerate(sorted(sizes, key=lambda label: -sizes[label])):
                colour = COLOURS[place] if place < len(COLOURS) else GREY
                axis.scatter(*rows[labels == label].T, s=2, c=colour, linewidths=0)
            axis.scatter(*rows[labels < 0].T, s=2, c="#d8dde2", linewidths=0)
            axis.text(0.97, 0.03, len(sizes), transform=axis.transAxes, ha="right", fontsize=9)
            if axis in grid[0]:
                axis.set_title(title, fontsize=9)
        lines[0].set_ylabel(name, fontsize=9)
    _finish(figure, grid.flat, path)


def _clusters(axis: plt.Axes, server: Server) -> None:
    """Draw the server's nodes, the largest clusters in colours and shapes of their own, the small ones in grey."""
    labels, sizes = server.node_labels, _sizes(server.counts)
    names, first = np.unique(labels, return_inverse=True)
    order = np.arange(len(names))
    if server.kind == "cae-fc":  # its numbers do not last, so the heaviest cluster comes first; communities keep theirs
        order = np.argsort(-np.bincount(first, weights=server.counts.astype(float)), kind="stable")
    for place, which in enumerate(order):
        chosen = labels == names[which]
        large = place < len(COLOURS)
        axis.scatter(
            *server.nodes[chosen].T,
            s=sizes[chosen],
            c=COLOURS[place] if large else GREY,
            marker=SHAPES[place] if large else "x",
            alpha=0.85,
            linewidths=0 if large else 1,
        )


def _sizes(counts: np.ndarray) -> np.ndarray:
    return 6 + 50 * np.sqrt(counts / counts.max())


def _arrow(figure: plt.Figure, start: plt.Axes, end: plt.Axes) -> None:
    height = start.get_position().y0 + start.get_position().height / 2
    place = end.get_position()
    figure.add_artist(
        ConnectionPatch(
            (start.get_position().x1 + 0.008, height),
            (place.x0 - 0.008, height),
            "figure fraction",
            "figure fraction",
            arrowstyle="-|>",
            mutation_scale=14,
            color=INK,
        )
    )


def _finish(figure: plt.Figure, axes: object, path: Path) -> None:
    for axis in axes:
        axis.set(xticks=[], yticks=[], xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axis.set_box_aspect(1)
        for spine in axis.spines.values():
            spine.set_color("#c9d0d6")
    figure.savefig(path, dpi=110, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
