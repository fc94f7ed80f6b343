"""How long the communities read-out takes with many nodes, and for a change of one site of a thousand.

    python benchmarks/readout_scale.py 10000 100000 1000000 --features 8

Prints a line per number of nodes: seconds for a fit from nothing, for a fit after one site of a thousand sent new
nodes, and for 10,000 predictions; clusters found; ARI to the blobs the nodes were drawn from; peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from functools import partial

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fcac.readout import Communities


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


def timed(work):
    start = time.perf_counter()
    result = work()
    return result, round(time.perf_counter() - start, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", type=int, nargs="+")
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--neighbors", default="auto", choices=["auto", "exact", "approximate"])
    options = parser.parse_args()
    # compile before the clock runs
    Communities(neighbors=options.neighbors).update(nodes_of_sites(3000, options.features, 10)[0]).fit()
    for n_nodes in options.nodes:
        sites, blob = nodes_of_sites(n_nodes, options.features, options.sites)
        model = Communities(neighbors=options.neighbors).update(sites)
        _, first = timed(model.fit)
        quality = adjusted_rand_score(blob, model.node_labels)
        nodes, counts = sites[options.sites // 2]
        model.set_site(options.sites // 2, nodes + np.random.default_rng(1).normal(0, 0.1, nodes.shape), counts)
        changed, links = timed(partial(_relinked, model))
        _, update = timed(model.fit)
        _, predict = timed(partial(model.predict, nodes[np.arange(10_000) % len(nodes)]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        line = {"nodes": n_nodes, "features": options.features, "fit_s": first, "update_s": update}
        line |= {"links_mended_s": links, "links_equal": changed, "predict_10000_s": predict}
        print(json.dumps(line | {"clusters": model.n_clusters, "ari": round(quality, 4), "peak_gb": round(peak, 2)}))


def _relinked(model: Communities) -> bool:
    """Time the mending of neighbour lists alone; tells whether there were lists to mend."""
    from fcac.readout.model import _Fitted

    now = _Fitted(model._sites, model.sites)
    now.link(model.neighbors, model._fitted)
    return now.near()[0].shape[0] == len(now.points)


if __name__ == "__main__":
    main()
