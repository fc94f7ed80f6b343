"""How long the communities read-out takes with many nodes, and for a change of one site of a thousand.

    python benchmarks/readout_scale.py 10000 100000 1000000 --features 16 --json readout_scale.json

Prints a line per number of nodes, for a fit from nothing and for a fit after one site of a thousand sent new nodes:
seconds on the clock and seconds of computing (both cores together; on a busy machine only these mean something), and
the part of them that went into condensing; then 10,000 predictions, clusters found, ARI to the blobs the nodes were
drawn from, peak memory. With --budgets the same nodes are read with several limits on what is not condensed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fcac.clusters import Communities, bounded


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
    """Time a fit, and within it the condensing."""
    watch, plain = Stopwatch(), bounded.condense

    def condense(*arguments):
        with watch:
            return plain(*arguments)

    bounded.condense = condense
    try:
        return timed(model.fit, name) | watch.figures(f"{name}_condensing")
    finally:
        bounded.condense = plain


def measure(n_nodes: int, n_features: int, n_sites: int, budget: int) -> dict[str, object]:
    sites, blob = nodes_of_sites(n_nodes, n_features, n_sites)
    line: dict[str, object] = {"nodes": n_nodes, "features": n_features, "sites": n_sites, "budget": budget}
    model = Communities(max_nodes=budget).update(sites)
    line |= timed_fit(model, "fit")
    counted_in = model.counted_in
    found = model.node_labels if counted_in is None else model.node_labels[counted_in]
    line["ari"] = round(adjusted_rand_score(blob, found), 4)
    nodes, counts = sites[n_sites // 2]
    model.set_site(n_sites // 2, nodes + np.random.default_rng(1).normal(0, 0.1, nodes.shape), counts)
    line |= timed_fit(model, "update")
    rows = np.resize(nodes, (10_000, n_features)) + np.random.default_rng(2).normal(0, 0.1, (10_000, n_features))
    line |= timed(lambda: model.predict(rows), "predict_10000")
    line["clusters"] = model.n_clusters
    line["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    line["load"] = round(os.getloadavg()[0], 1)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--features", type=int, nargs="+", default=[16])
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--budgets", type=int, nargs="+", default=[bounded.MAX_READ])
    parser.add_argument("--json", type=Path, help="file to add the figures to")
    options = parser.parse_args()
    for n_features in options.features:
        measure(21_000, n_features, 1000, 8000)  # compile before the clock runs
        for n_nodes, budget in itertools.product(options.nodes, options.budgets):
            line = measure(n_nodes, n_features, options.sites, budget)
            print(json.dumps(line), flush=True)
            if options.json:
                held = json.loads(options.json.read_text()) if options.json.exists() else []
                key = ("nodes", "features", "sites", "budget")
                held = [old for old in held if any(old[name] != line[name] for name in key)]
                order = sorted([*held, line], key=lambda figures: (figures["features"], figures["nodes"]))
                options.json.write_text("[\n" + ",\n".join(json.dumps(figures) for figures in order) + "\n]\n")


if __name__ == "__main__":
    main()
