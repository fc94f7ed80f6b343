"""How long the communities read-out takes with many nodes, and for a change of one site of a thousand.

    python benchmarks/readout_scale.py 10000 100000 1000000 --features 16 --json readout_scale.json

Prints a line per number of nodes, for a fit from nothing and for a fit after one site of a thousand sent new nodes:
seconds on the clock and seconds of computing (both cores together; on a busy machine only these mean something), and
the part of them that went into neighbour lists; then 10,000 predictions, clusters found, ARI to the blobs the nodes
were drawn from, AMI of the updated result to one made from nothing, peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from fcac.clusters import Communities
from fcac.clusters.snapshot import Fitted


def nodes_of_sites(n_nodes: int, n_features: int, n_sites: int, seed: int = 0):
    """Blobs of different sizes and widths, dealt out to sites; counts as CA+ gives them, many ones and a long tail."""
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-12, 12, size=(30, n_features))
    blob = generator.choice(30, size=n_nodes, p=generator.dirichlet(np.full(30, 3.0)))
    width = generator.uniform(0.7, 1.3, size=30)[blob]
    nodes = centres[blob] + generator.normal(size=(n_nodes, n_features)) * width[:, None]
    counts = np.ceil(generator.pareto(1.5, size=n_nodes)).clip(1, 1000)
    pieces = np.array_split(np.arange(n_nodes), n_sites)
    return {site: (nodes[rows], counts[rows]) for site, rows in enumerate(pieces)}, blob


class Stopwatch:
    """Adds up clock and computing seconds of everything done under it."""

    def __init__(self) -> None:
        self.clock = self.computing = 0.0

    def __enter__(self) -> Stopwatch:
        self._from = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock += time.perf_counter() - self._from[0]
        self.computing += time.process_time() - self._from[1]

    def figures(self, name: str) -> dict[str, float]:
        return {f"{name}_s": round(self.clock, 2), f"{name}_cpu_s": round(self.computing, 2)}


def timed(work, name: str) -> dict[str, float]:
    with Stopwatch() as watch:
        work()
    return watch.figures(name)


def timed_fit(model: Communities, name: str) -> dict[str, float]:
    """Time a fit, and within it the neighbour lists."""
    links, plain = Stopwatch(), Fitted.link

    def link(self, *arguments):
        with links:
            plain(self, *arguments)

    Fitted.link = link
    try:
        return timed(model.fit, name) | links.figures(f"{name}_lists")
    finally:
        Fitted.link = plain


def measure(n_nodes: int, n_features: int, n_sites: int, neighbors: str, compare: bool) -> dict[str, object]:
    sites, blob = nodes_of_sites(n_nodes, n_features, n_sites)
    line: dict[str, object] = {"nodes": n_nodes, "features": n_features, "sites": n_sites, "neighbors": neighbors}
    model = Communities(neighbors=neighbors).update(sites)
    line |= timed_fit(model, "fit") | {"ari": round(adjusted_rand_score(blob, model.node_labels), 4)}
    nodes, counts = sites[n_sites // 2]
    sites[n_sites // 2] = nodes + np.random.default_rng(1).normal(0, 0.1, nodes.shape), counts
    model.set_site(n_sites // 2, *sites[n_sites // 2])
    line |= timed_fit(model, "update")
    rows = np.resize(nodes, (10_000, n_features)) + np.random.default_rng(2).normal(0, 0.1, (10_000, n_features))
    line |= timed(lambda: model.predict(rows), "predict_10000")
    line["clusters"] = model.n_clusters
    line["exact"] = model._result().exact
    line["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    if compare:
        anew = Communities(neighbors=neighbors).update(sites).fit()
        line["ami_to_one_shot"] = round(adjusted_mutual_info_score(anew.node_labels, model.node_labels), 5)
    line["load"] = round(os.getloadavg()[0], 1)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--features", type=int, nargs="+", default=[16])
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--neighbors", default="auto", choices=["auto", "exact", "approximate"])
    parser.add_argument("--compare-up-to", type=int, default=100_000, help="most nodes for a comparison with one shot")
    parser.add_argument("--json", type=Path, help="file to add the figures to")
    options = parser.parse_args()
    for n_features in options.features:
        # compile before the clock runs
        measure(21_000, n_features, 1000, "exact", compare=False)
        measure(21_000, n_features, 1000, "approximate", compare=False)
        for n_nodes in options.nodes:
            compare = n_nodes <= options.compare_up_to
            line = measure(n_nodes, n_features, options.sites, options.neighbors, compare)
            print(json.dumps(line), flush=True)
            if options.json:
                held = json.loads(options.json.read_text()) if options.json.exists() else []
                key = ("nodes", "features", "sites", "neighbors")
                held = [old for old in held if any(old[name] != line[name] for name in key)]
                order = sorted([*held, line], key=lambda figures: (figures["features"], figures["nodes"]))
                options.json.write_text("[\n" + ",\n".join(json.dumps(figures) for figures in order) + "\n]\n")


if __name__ == "__main__":
    main()
