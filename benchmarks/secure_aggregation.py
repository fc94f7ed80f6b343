"""Secure aggregation measured: quality of the clusters, and what a step costs in time and bytes.

    python benchmarks/secure_aggregation.py quality [--sets digits] [--epsilons 0.5 1 2 4] [--seeds 16]
    python benchmarks/secure_aggregation.py cost [--sites 100]

Quality is measured on sums with the noise that the sites' shares add up to, without masks: masks cancel exactly (tests
compare the two bit for bit), so the figures are those of the protocol, and rows may be divided among sites at will.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_mutual_info_score

from fcac.aggregation import Collector, Member, Roster, SigningKey
from fcac.aggregation.masks import BITS
from fcac.aggregation.pooled import POOLED, PooledGrowth, read_task, share_scales, site_vector, terms, to_task
from fcac.aggregation.roster import fewest_sites, usual_tolerance
from fcac.federation import Server, Site
from fcac.federation.pooled import pooled_contribution
from fcac.privacy import NodeRelease
from fcac.privacy.bounds import to_unit
from fcac.privacy.cell_statistics import cell_totals, to_grid


def tables(name):
    """Rows, classes and public bounds of a set."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y, [[0, 16]] * X.shape[1]
    if name == "blobs":  # the larger set: 40,000 rows, 16 features, 12 clusters of different width
        widths = np.linspace(0.4, 1.6, 12)
        X, y = make_blobs(40_000, 16, centers=12, cluster_std=widths, center_box=(-4, 4), random_state=7)
        return X, y, [[-10, 10]] * 16
    from sklearn.datasets import fetch_openml

    X, y = fetch_openml(name, version=1, return_X_y=True, as_frame=False)
    return X.astype(float), y, [[0, 100]] * X.shape[1]


def released(X, bounds, epsilon, n_sites):
    """Nodes of one round over all sites."""
    mechanism = NodeRelease(epsilon, bounds)
    rows, growth = to_grid(to_unit(X, mechanism.bounds)), PooledGrowth(mechanism, None, 1)
    certain = n_sites - usual_tolerance(n_sites)
    while growth.request is not None:
        request = growth.request
        totals, scales = (
            cell_totals(rows, request.codebook, request.bases, request.radius),
            share_scales(request, certain),
        )
        add, wide = mechanism.sampler.add_noise, math.sqrt(n_sites)
        parts = [add(totals.counts, wide * scales.counts), add(totals.sums, wide * scales.sums).ravel()]
        if scales.rings is not None:
            parts.append(add(totals.rings, wide * scales.rings))
        growth.take(np.concatenate(parts), n_sites, certain)
    pooled = Site(POOLED, mechanism)
    pooled.adopt(growth.released, 1)
    return pooled_contribution(pooled, n_sites, usual_tolerance(n_sites))


def quality(sets, epsilons, n_seeds, n_sites):
    """Agreement with the classes, mean and standard error over repeated draws."""
    for name in sets:
        X, y, bounds = tables(name)
        for epsilon in epsilons:
            scores, clusters = [], []
            for _ in range(n_seeds):
                server = Server(random_state=0)
                server.absorb([released(X, bounds, epsilon, n_sites)])
                scores.append(adjusted_mutual_info_score(y, server.predict(X)))
                clusters.append(server.n_clusters)
            error = np.std(scores) / math.sqrt(n_seeds)
            print(
                f"{name} eps {epsilon:g}: AMI {np.mean(scores):.3f} +- {error:.3f}, {np.mean(clusters):.1f} clusters",
                flush=True,
            )


def cost(n_sites, n_cells=24, n_features=64):
    """Processor seconds and bytes of setting up a round and of one of its steps, all sites in this process."""
    mechanism = NodeRelease(1, [[0, 1]] * n_features)
    tolerance = usual_tolerance(n_sites)
    study = SigningKey.new()
    keys = {f"site-{i:05d}": SigningKey.new() for i in range(n_sites)}
    roster = Roster("cost", 1, {n: k.public for n, k in keys.items()}, tolerance, fewest_sites(tolerance))
    members = {n: Member(n, key, study.public, terms(mechanism)) for n, key in keys.items()}
    hub = Collector(roster, roster.signed_by(study), 1, 1, 6, terms(mechanism))
    rng = np.random.default_rng(0)
    rows = to_grid(rng.random((10, n_features)))
    request = PooledGrowth(mechanism, None, 1).request
    words = to_grid(rng.random((n_cells, n_features)))
    task = to_task(request._replace(codebook=words, bases=words))

    def work(assigned):
        return site_vector(rows, read_task(assigned, mechanism), assigned.certain_shares, mechanism.sampler)

    spent = {}
    for number in range(5):
        start, sent, stage = time.process_time(), 0, hub.stage
        if number == 2:
            hub.begin_step(task)
        for name, question in hub.requests().items():
            reply = members[name].answer(question, work)
            sent += len(question) + len(reply)
            hub.take(name, reply)
        hub.close_stage()
        spent[stage] = (time.process_time() - start, sent / n_sites)
    plain = n_cells * (n_features + 1) * 8 + 500
    for stage, (seconds, size) in spent.items():
        print(f"{stage}: {seconds:.1f} s, {size:,.0f} bytes per site")
    step = [spent[stage] for stage in ("mask", "confirm", "reveal")]
    print(
        f"{n_sites} sites, a step: {sum(s for s, _ in step):.1f} s, {sum(b for _, b in step):,.0f} bytes per site "
        f"({sum(b for _, b in step) / plain:.1f} times a plain contribution); modulo 2**{BITS}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["quality", "cost"])
    parser.add_argument("--sets", nargs="+", default=["digits"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--sites", type=int, default=10)
    given = parser.parse_args()
    if given.what == "quality":
        quality(given.sets, given.epsilons, given.seeds, given.sites)
    else:
        cost(given.sites)
