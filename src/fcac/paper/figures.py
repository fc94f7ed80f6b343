"""The paper's figures, drawn again: three clusterers on one Gaussian, the paper's noise, and continual learning."""

from __future__ import annotations

import io
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fcac._typing import Floats, Integers
from fcac.art.clusterers import CAE, CAEFC, CAPlus
from fcac.federation.replay import Snapshot, replay
from fcac.paper import check_extra
from fcac.paper.gaussians import GAUSSIANS, DemoResult, run_demo
from fcac.persistence import write_atomic
from fcac.report.charts import PALETTE

EPSILONS = (10, 15, 25, 50, 75)
#: The 1-Wasserstein distances that the paper prints, by epsilon.
PAPER_WASSERSTEIN = {10: 0.0793, 15: 0.0416, 25: 0.0177, 50: 0.0060, 75: 0.0040}

_N_GAUSSIAN = 16_000
_N_NOISE = 1_000
# Number of samples of data and noise over which the distances are averaged, besides the one in the figure.
_N_REPEATS = 20

_INK, _GREY, _PALE = "#1a1a1a", "#6e6e6e", "#c9ccd1"
_STYLE: dict[str, Any] = {
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": _GREY,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.use": True,
}


def reproduce_figures(
    out_dir: str | os.PathLike[str], seed: int = 0, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Draw the paper's figures as PDF and PNG, and write their numbers to ``figures.json`` and ``figures.md``.

    Parameters
    ----------
    out_dir : path-like
        Created if it does not exist.
    seed : int, default=0
        Seed of the data, the noise and the server's shuffle.
    progress : callable, optional
        Called with the name of each figure before it is drawn.

    Returns
    -------
    figures : dict
        What ``figures.json`` holds: ``gaussian`` (nodes, edges, clusters and seconds of CAE, CAE_FC and CA+),
        ``noise`` (distances by epsilon beside the paper's), ``continual`` (nodes, clusters and agreement after each
        round) and ``files``.

    Raises
    ------
    ImportError
        If the extra `experiments` is missing; it says what to install.
    """
    check_extra()
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    tell = progress if progress is not None else _silent
    figures: dict[str, Any] = {"seed": seed, "files": []}
    tell("CAE, CAE_FC and CA+ on a Gaussian")
    figures["gaussian"] = _draw_gaussian(folder, seed, figures["files"])
    tell("the effect of the paper's noise")
    figures["noise"] = _draw_noise(folder, seed, figures["files"])
    tell("three rounds of continual learning")
    figures["continual"] = _draw_continual(folder, seed, figures["files"])
    write_atomic(folder / "figures.json", (json.dumps(figures, indent=2) + "\n").encode())
    write_atomic(folder / "figures.md", _tables(figures).encode())
    return figures


def _tables(figures: dict[str, Any]) -> str:
    """Return the numbers of the figures as Markdown tables."""
    parts = ["# The numbers behind the figures\n"]
    titles = {
        "gaussian": f"CAE, CAE_FC and CA+ on {_N_GAUSSIAN:,} points of a Gaussian",
        "noise": "1-Wasserstein distance of the pooled coordinates, and transport in the plane, by epsilon",
        "continual": "After each round of continual learning (the paper's server)",
    }
    for name, title in titles.items():
        rows = [{key: value for key, value in row.items() if not isinstance(value, dict)} for row in figures[name]]
        lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
        lines += [" | ".join("" if value is None else str(value) for value in row.values()) for row in rows]
        parts.append(f"## {title}\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n")
    return "\n".join(parts)


def _silent(_: str) -> None:
    return None


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _save(figure: Any, folder: Path, name: str, files: list[str]) -> None:
    for kind in ("pdf", "png"):
        buffer = io.BytesIO()
        # no date in the file, so that the same numbers give the same bytes
        metadata = {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(buffer, format=kind, dpi=300, metadata=metadata)
        write_atomic(folder / f"{name}.{kind}", buffer.getvalue())
        files.append(f"{name}.{kind}")


def _to_unit(points: Floats, low: float = 0.0, high: float = 1.0) -> Floats:
    """Scale every feature to [low, high]."""
    least, most = points.min(axis=0), points.max(axis=0)
    scaled: Floats = low + (high - low) * (points - least) / (most - least)
    return scaled


def _cloud(axes: Any, points: Floats, colour: str = _PALE, size: float = 0.8) -> None:
    # thousands of points are drawn as pixels to keep the PDF small; everything else stays vector graphics
    axes.plot(points[:, 0], points[:, 1], "o", color=colour, ms=size, mew=0, rasterized=True, zorder=1)


def _clouds(axes: Any, points: Floats, gaussians: Integers) -> None:
    for g in np.unique(gaussians):
        _cloud(axes, points[gaussians == g], PALETTE[g], size=0.65)


def _network(
    axes: Any, nodes: Floats, counts: Integers, labels: Integers, edges: Integers | None = None, largest: float = 26.0
) -> None:
    """Draw edges and nodes, coloured by cluster, area by count."""
    from matplotlib.collections import LineCollection

    if edges is not None and len(edges):
        axes.add_collection(LineCollection(list(nodes[edges]), colors=_INK, linewidths=0.5, zorder=2))
    if len(nodes):
        area = np.maximum(largest * counts / counts.max(), 0.18 * largest)
        colours = [PALETTE[int(label) % len(PALETTE)] for label in labels]
        axes.scatter(nodes[:, 0], nodes[:, 1], s=area, c=colours, edgecolors=_INK, linewidths=0.35, zorder=3)


def _square(axes: Any, low: float, high: float, ticks: Sequence[float]) -> None:
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _by_size(labels: Integers, counts: Integers) -> Integers:
    """Renumber clusters by size, the largest first, so that colours follow the order of sizes."""
    found, place = np.unique(labels, return_inverse=True)
    order = np.argsort(-np.bincount(place.ravel(), weights=counts, minlength=len(found)), kind="stable")
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return rank[place.ravel()]


# ------------------------------------------------------------ three clusterers


def _draw_gaussian(folder: Path, seed: int, files: list[str]) -> list[dict[str, Any]]:
    """Draw CAE, CAE_FC and CA+ on 16,000 points of a standard Gaussian, scaled to [0, 1]."""
    import matplotlib

    points = _to_unit(np.random.default_rng(seed).normal(size=(_N_GAUSSIAN, 2)))
    rows = []
    with matplotlib.rc_context(_STYLE):
        figure = _figure(7.1, 2.3)
        panels = figure.subplots(1, 4)
        _cloud(panels[0], points, _GREY)
        panels[0].set_title("(a) Data")
        panels[0].set_xlabel(f"{_N_GAUSSIAN:,} points\nof a standard Gaussian")
        for letter, axes, name, kind in zip(
            "bcd", panels[1:], ("CAE", "CAE$_{\\mathrm{FC}}$", "CA+"), (CAE, CAEFC, CAPlus), strict=True
        ):
            kind().fit(points[:500])  # compile before the clock starts
            started = time.perf_counter()
            model = kind().fit(points)
            seconds = time.perf_counter() - started
            edges = getattr(model, "edges_", None)
            topological = edges is not None
            _cloud(axes, points)
            labels = _by_size(model.node_labels_, model.counts_) if topological else np.zeros(len(model.nodes_), int)
            _network(axes, model.nodes_, model.counts_, labels, edges, largest=16.0)
            axes.set_title(f"({letter}) {name}")
            n_clusters = model.n_clusters_ if topological else None
            found = "no clusters" if n_clusters is None else f"{n_clusters} cluster{'' if n_clusters == 1 else 's'}"
            n_edges = 0 if edges is None else len(edges)
            axes.set_xlabel(f"{len(model.nodes_)} nodes, {n_edges} edges\n{found}, {seconds:.2f} s")
            rows.append(
                {
                    "algorithm": kind.__name__,
                    "nodes": len(model.nodes_),
                    "edges": n_edges,
                    "clusters": n_clusters,
                    "isolated_nodes": _n_isolated(len(model.nodes_), edges),
                    "seconds": round(seconds, 4),
                }
            )
        for axes in panels:
            _square(axes, -0.02, 1.02, (0, 0.5, 1))
        _save(figure, folder, "gaussian", files)
    return rows


def _n_isolated(n_nodes: int, edges: Integers | None) -> int | None:
    return None if edges is None else n_nodes - len(np.unique(edges))


# ------------------------------------------------------------ the paper's noise


def _noised(points: Floats, epsilon: float, seed: int) -> Floats:
    from fcac.privacy import PaperLaplace

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it protects nobody, and this figure shows that
        return PaperLaplace(epsilon, random_state=seed).perturb(points)


def _distances(points: Floats, noised: Floats) -> tuple[float, float]:
    """Return the 1-Wasserstein distance of the pooled coordinates (as in the paper) and of the points in the plane."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist
    from scipy.stats import wasserstein_distance

    cost = cdist(points, noised)
    matched = linear_sum_assignment(cost)
    return float(wasserstein_distance(points.ravel(), noised.ravel())), float(cost[matched].mean())


def _noise_data(seed: int) -> Floats:
    return _to_unit(np.random.default_rng(seed).normal(size=(_N_NOISE, 2)), -1.0, 1.0)


def _draw_noise(folder: Path, seed: int, files: list[str]) -> list[dict[str, Any]]:
    """Draw what the paper's noise at eps = 10 to 75 does to 1,000 points scaled to [-1, 1]."""
    import matplotlib

    points = _noise_data(seed)
    radius = np.hypot(points[:, 0], points[:, 1])
    rows = []
    with matplotlib.rc_context(_STYLE):
        figure = _figure(7.1, 5.0)
        panels = figure.subplots(2, 3).ravel()
        look = {"cmap": "plasma_r", "vmin": 0.0, "vmax": float(radius.max())}
        panels[0].scatter(points[:, 0], points[:, 1], c=radius, s=5, linewidths=0, **look)
        panels[0].set_title("(a) Data")
        panels[0].set_xlabel("colour: distance from (0, 0)\nbefore the noise")
        for letter, axes, epsilon in zip("bcdef", panels[1:], EPSILONS, strict=True):
            noised = _noised(points, epsilon, seed)
            axes.scatter(noised[:, 0], noised[:, 1], c=radius, s=5, linewidths=0, **look)
            pooled, planar = _distances(points, noised)
            repeated = np.array([_repeat(seed + 1 + k, epsilon) for k in range(_N_REPEATS)])
            axes.set_title(f"({letter}) $\\epsilon$ = {epsilon}")
            printed = PAPER_WASSERSTEIN[epsilon]
            axes.set_xlabel(
                f"$D_{{\\mathrm{{WS}}}}$ = {pooled:.4f} (paper: {printed:.4f})\ntransport in the plane: {planar:.4f}"
            )
            rows.append(
                {
                    "epsilon": epsilon,
                    "wasserstein": round(pooled, 4),
                    "wasserstein_mean": round(float(repeated.mean()), 4),
                    "wasserstein_std": round(float(repeated.std()), 4),
                    "repeats": _N_REPEATS,
                    "wasserstein_paper": PAPER_WASSERSTEIN[epsilon],
                    "transport_2d": round(planar, 4),
                }
            )
        for axes in panels:
            _square(axes, -1.85, 1.85, (-1, 0, 1))
        _save(figure, folder, "noise", files)
    return rows


def _repeat(seed: int, epsilon: float) -> float:
    from scipy.stats import wasserstein_distance

    points = _noise_data(seed)
    return float(wasserstein_distance(points.ravel(), _noised(points, epsilon, seed).ravel()))


# ------------------------------------------------------------ continual learning


def _draw_continual(folder: Path, seed: int, files: list[str]) -> list[dict[str, Any]]:
    """Draw three rounds in which three Gaussians arrive at two sites; nothing is learned twice."""
    result = run_demo(seed, server="cae-fc")
    server = result.model.server_
    snapshots = replay(server)
    assert snapshots is not None
    _draw_arrivals(folder, result, files)
    _draw_rounds(folder, result, snapshots, files)
    return _continual_rows(result, snapshots, seed)


def _draw_arrivals(folder: Path, result: DemoResult, files: list[str]) -> None:
    import matplotlib

    sites = list(result.rounds[0].rows)
    everything, gaussians = result.points()
    with matplotlib.rc_context(_STYLE):
        figure = _figure(7.1, 3.4)
        panels = figure.subplots(2, 4)
        _clouds(panels[0, 0], everything, gaussians)
        for g, name in enumerate(GAUSSIANS):
            centre = everything[gaussians == g].mean(axis=0)
            panels[0, 0].text(*centre, name, color="white", fontweight="bold", ha="center", va="center")
        panels[0, 0].set_title("All data")
        panels[1, 0].axis("off")
        for row, site in enumerate(sites):
            for column, arriving in enumerate(result.rounds):
                axes = panels[row, column + 1]
                _clouds(axes, arriving.rows[site], arriving.gaussians[site])
                axes.set_title(f"{site.capitalize()}, round {arriving.number}")
        for axes in panels.ravel():
            _square(axes, -0.02, 1.02, (0, 0.5, 1))
        _save(figure, folder, "continual-data", files)


def _draw_rounds(folder: Path, result: DemoResult, snapshots: Sequence[Snapshot], files: list[str]) -> None:
    import matplotlib

    server = result.model.server_
    seen: dict[str, list[Floats]] = {site: [] for site in result.rounds[0].rows}
    with matplotlib.rc_context(_STYLE):
        figure = _figure(7.1, 6.9)
        panels = figure.subplots(len(snapshots), len(seen) + 1)
        for row, (snapshot, batch, arriving) in enumerate(zip(snapshots, server.log, result.rounds, strict=True)):
            for column, item in enumerate(batch):
                seen[str(item.site)].append(arriving.rows[str(item.site)])
                axes = panels[row, column]
                _cloud(axes, np.concatenate(seen[str(item.site)]), size=0.65)
                _network(axes, item.nodes, item.counts.astype(np.int64), np.zeros(len(item.nodes), int), largest=14.0)
                axes.set_title(f"{str(item.site).capitalize()}, round {arriving.number}")
                axes.set_xlabel(f"{len(item.nodes)} nodes")
            axes = panels[row, len(seen)]
            _cloud(axes, np.concatenate([block for blocks in seen.values() for block in blocks]), size=0.65)
            labels = _by_size(snapshot.labels, snapshot.counts)
            _network(axes, snapshot.nodes, snapshot.counts, labels, snapshot.edges)
            axes.set_title(f"Server, round {arriving.number}")
            axes.set_xlabel(f"{len(snapshot.nodes)} nodes, {snapshot.n_clusters} clusters")
        for axes in panels.ravel():
            _square(axes, -0.02, 1.02, (0, 0.5, 1))
        _save(figure, folder, "continual-rounds", files)


def _continual_rows(result: DemoResult, snapshots: Sequence[Snapshot], seed: int) -> list[dict[str, Any]]:
    """Run the rounds once more and score each against the Gaussians seen so far."""
    from sklearn.metrics import adjusted_rand_score, homogeneity_score

    from fcac.model.fcac import FCAC

    model, rows = FCAC(server="cae-fc", random_state=seed), []
    for arriving, snapshot in zip(result.rounds, snapshots, strict=True):
        model.partial_fit(arriving.rows)
        known = DemoResult(model, result.rounds[: arriving.number])
        points, gaussians = known.points()
        labels = model.predict(points)
        rows.append(
            {
                "round": arriving.number,
                "site_nodes": {str(item.site): len(item.nodes) for item in model.server_.log[-1]},
                "server_nodes": len(snapshot.nodes),
                "server_edges": len(snapshot.edges),
                "clusters": snapshot.n_clusters,
                "homogeneity": round(float(homogeneity_score(gaussians, labels)), 4),
                "ari": round(float(adjusted_rand_score(gaussians, labels)), 4),
            }
        )
    return rows
