"""How far clusters are apart in the report's map, beside principal components: ten data sets of different kinds.

For each: the share of nodes whose nearest neighbour in the picture is of their own cluster, in the map, among the
principal components, and (what the partition itself allows) in the space of the features. The data are synthetic or
come with scikit-learn.

    python benchmarks/report_layout.py
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree

from fcac import FCAC
from fcac.model.demo import SCHEMA, clinic_tables, fit_clinics
from fcac.paper.gaussians import run_demo
from fcac.report import render_report
from fcac.report.layout import make_views
from fcac.report.report_data import gather


def gaussians(k: int, d: int, n: int, apart: float, seed: int) -> np.ndarray:
    """Return rows of Gaussians whose centres are normally distributed."""
    rng = np.random.default_rng(seed)
    return (apart * rng.normal(size=(k, d)))[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def pixels() -> FCAC:
    """Twelve patterns of 784 pixels with noise."""
    rng = np.random.default_rng(0)
    patterns = 200.0 * (rng.random((12, 784)) < 0.2)
    return FCAC(random_state=0).fit(
        np.clip(patterns[rng.integers(12, size=5000)] + rng.normal(0, 40, (5000, 784)), 0, 255)
    )


def texts() -> FCAC:
    """Counts of 300 words in texts on nine topics."""
    rng = np.random.default_rng(5)
    topics = rng.dirichlet(np.full(300, 0.05), size=9)
    counts = np.stack([rng.multinomial(60, topics[t]) for t in rng.integers(9, size=4000)]).astype(float)
    return FCAC(random_state=0).fit(counts / np.linalg.norm(counts, axis=1, keepdims=True))


def wine() -> FCAC:
    """178 wines."""
    from sklearn.datasets import load_wine

    return FCAC(random_state=0).fit(load_wine().data)


def mixed() -> FCAC:
    """Patients of three clinics, numbers and codes, without privacy."""
    pieces = ((name, SCHEMA.apply(table)) for name, table in clinic_tables(0).items())
    return FCAC(random_state=0).play_stream(pieces, SCHEMA.n_features, SCHEMA.feature_names, schema=SCHEMA)


def federation() -> FCAC:
    """Twelve sites over four rounds."""
    rng = np.random.default_rng(0)
    centres, model = 4 * rng.normal(size=(6, 9)), FCAC(random_state=0)
    for number in range(4):
        sites = [k for k in range(12) if (k + number) % 4]
        model.partial_fit({f"site {k}": centres[rng.integers(6, size=200)] + rng.normal(size=(200, 9)) for k in sites})
    return model


SETS: dict[str, Callable[[], FCAC]] = {
    "three Gaussians, 2 columns": lambda: run_demo(0).model,
    "wine, 13 columns": wine,
    "50 clusters, 10 columns": lambda: FCAC(random_state=0).fit(gaussians(50, 10, 15_000, 3.0, 3)),
    "200 clusters, 20 columns": lambda: FCAC(random_state=0).fit(gaussians(200, 20, 40_000, 3.0, 4)),
    "784 columns": pixels,
    "texts, 300 words": texts,
    "one cluster": lambda: FCAC(random_state=0).fit(np.random.default_rng(1).normal(size=(3000, 6))),
    "mixed columns": mixed,
    "mixed columns, private": lambda: fit_clinics(0),
    "federation": federation,
}


def purity(places: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of points whose nearest neighbour is of their cluster."""
    if len(places) < 2:
        return 1.0
    return float((labels[cKDTree(places).query(places, 2)[1][:, 1]] == labels).mean())


def main() -> None:
    """Print a line for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of the names of data sets; all by default")
    wanted = parser.parse_args().names
    print(f"{'data':<28}{'clusters':>9}{'points':>8}{'map':>8}{'PCA':>8}{'features':>10}{'report s':>10}{'kB':>7}")
    for name, make in SETS.items():
        if wanted and not any(part in name for part in wanted):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make()
        server = model.server_
        views = make_views(server, [str(j) for j in range(server.n_features or 0)], server.n_features or 0)
        # one node for each point of the layout: nodes that share a point lie on top of each other
        _, first = np.unique(views.layout.point_of, return_index=True)
        nodes, labels = server.nodes[first], server.node_labels[first]
        started = time.perf_counter()
        text = render_report(model)
        seconds = time.perf_counter() - started
        print(
            f"{name:<28}{len(gather(model).found.clusters):>9}{len(first):>8}"
            f"{purity(views.layout.places[views.layout.point_of[first]], labels):>8.3f}"
            f"{purity(views.projection.project(nodes), labels):>8.3f}"
            f"{purity(views.layout.points[views.layout.point_of[first]], labels):>10.3f}"
            f"{seconds:>10.1f}{len(text.encode()) / 1000:>7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
