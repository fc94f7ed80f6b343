"""Secure aggregation measured: quality of the clusters, what a step costs, and a hundred sites over TLS.

    python benchmarks/secure_aggregation.py quality [--sets digits] [--sites 10] [--seeds 16] [--data-dir DATA]
    python benchmarks/secure_aggregation.py quality --sites 100 --equal --seeds 8 --sampler test
    python benchmarks/secure_aggregation.py cost [--sites 100]

Every figure goes through the whole protocol: keys, masks, shares and totals of ``FCAC(aggregation="secure")``, with the
noise of every site drawn by OpenDP. With ``--sampler test`` a repeatable generator draws noise of the same scale, much
faster. Results are printed as they come and, with ``--out``, added to a file of JSON lines.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.aggregation import Assignment, Collector, Member, Roster, SigningKey
from fcac.aggregation.pooled import PooledGrowth, read_task, site_vector, terms, to_task
from fcac.aggregation.roster import fewest_sites, usual_tolerance
from fcac.federation import Contribution
from fcac.paper.simulated_sites import dirichlet
from fcac.privacy import NodeRelease
from fcac.privacy.cell_statistics import to_grid
from fcac.privacy.samplers import InsecureTestSampler, OpenDPSampler

Table = tuple[np.ndarray, np.ndarray, list[list[float]]]
Say = Callable[[dict[str, Any]], None]


def table(name: str, data_dir: Path | None) -> Table:
    """Return rows, classes and public bounds of a set."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y, [[0, 16]] * 64
    if name == "blobs":  # the larger set: 40,000 rows, 16 features, 12 clusters of different width
        widths = np.linspace(0.4, 1.6, 12)
        X, y = make_blobs(40_000, 16, centers=12, cluster_std=widths, center_box=(-4, 4), random_state=7)
        return np.clip(X, -10, 10), y, [[-10, 10]] * 16
    if data_dir is None:
        raise SystemExit(f"{name}: give --data-dir, a folder with {name}.npz (arrays X and y)")
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as stored:
        return stored["X"].astype(float), stored["y"], [[0, 100]] * stored["X"].shape[1]


def dealt(y: np.ndarray, n_sites: int, equal: bool, seed: int) -> np.ndarray:
    """Return the site of every row: as many rows at each, or different mixes and sizes (Dirichlet 0.5)."""
    if equal:
        return np.random.default_rng(seed).permutation(np.arange(len(y)) % n_sites)
    site = np.empty(len(y), dtype=np.int64)
    for number, rows in enumerate(dirichlet(y, n_sites, 0.5, seed)):
        site[rows] = number
    return site


def quality(given: argparse.Namespace, say: Say) -> None:
    """Agreement with the classes, seed by seed, then mean and standard error."""
    for name in given.sets:
        X, y, bounds = table(name, given.data_dir)
        for epsilon in given.epsilons:
            scores = []
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                begin = time.process_time()
                noise = OpenDPSampler() if given.sampler == "opendp" else InsecureTestSampler(1000 * seed + 7)
                mechanism = NodeRelease(epsilon, bounds, sampler=noise)
                model = FCAC(privacy=mechanism, aggregation="secure", random_state=0)
                model.fit(X, groups=dealt(y, given.sites, given.equal, seed), public_groups=True)
                scores.append(float(adjusted_mutual_info_score(y, model.predict(X))))
                say({
                    "set": name, "sites": given.sites, "equal": given.equal, "sampler": given.sampler,
                    "epsilon": epsilon, "seed": seed, "ami": round(scores[-1], 4), "clusters": model.n_clusters_,
                    "seconds": round(time.process_time() - begin, 1),
                })  # fmt: skip
            say({
                "set": name, "sites": given.sites, "sampler": given.sampler, "epsilon": epsilon, "seeds": len(scores),
                "mean": round(float(np.mean(scores)), 4), "worst": round(min(scores), 4),
                "error": round(float(np.std(scores)) / math.sqrt(len(scores)), 4),
            })  # fmt: skip


def cost(n_sites: int, say: Say, n_cells: int = 24, n_features: int = 64) -> None:
    """Processor seconds and bytes of setting up a round and of two of its steps, all sites in this process.

    Bytes are divided into payload (the codebook down, the masked numbers up) and all that the protocol adds: keys,
    sealed shares, lists of sites, signatures, frames.
    """
    mechanism = NodeRelease(1, [[0, 1]] * n_features)
    tolerance = usual_tolerance(n_sites)
    keys = {f"site-{i:05d}": SigningKey.new() for i in range(n_sites)}
    roster = Roster("cost", {n: k.public for n, k in keys.items()}, tolerance, fewest_sites(tolerance))
    members = {n: Member(n, key, roster, terms(mechanism)) for n, key in keys.items()}
    hub = Collector(roster, 1, 1, 6, terms(mechanism))
    rng = np.random.default_rng(0)
    rows = to_grid(rng.random((10, n_features)))
    request = PooledGrowth(mechanism, None, 1).request
    assert request is not None
    words = to_grid(rng.random((n_cells, n_features)))
    # as in a usual step: a quarter of the cells have just been split and start from the other half's base
    bases = words.copy()
    bases[-n_cells // 4 :] = bases[: n_cells // 4]
    task = to_task(request._replace(codebook=words, bases=bases))
    plain = len(Contribution("site-00000", 1, from_unit(words), np.full(n_cells, 10.0)).to_bytes())

    def work(assigned: Assignment) -> Any:
        return site_vector(rows, read_task(assigned, mechanism), assigned.certain_shares, mechanism.sampler)

    totals: dict[str, tuple[float, float]] = {}
    for _ in range(8):
        if hub.stage == "mask":
            hub.begin_step(task)
        begin, sent, stage = time.process_time(), 0, f"{hub.stage} {hub.step}"
        for name, question in hub.requests().items():
            reply = members[name].answer(question, work)
            sent += len(question) + len(reply)
            hub.take(name, reply)
        hub.close_stage()
        totals[stage] = (time.process_time() - begin, sent / n_sites)
        say({"sites": n_sites, "stage": stage, "seconds": round(totals[stage][0], 1), "bytes": round(sent / n_sites)})
    payload = len(task) + 8 * (n_cells * (n_features + 1) + 10)
    for name, stages in (("set up", "join 0, share 0"), ("step 1", "1"), ("step 2", "2")):
        mine = [totals[stage] for stage in totals if stage in stages.split(", ") or stage.endswith(stages)]
        size = sum(part for _, part in mine)
        say({
            "sites": n_sites, "what": name, "seconds": round(sum(part for part, _ in mine), 1), "bytes": round(size),
            "payload": 0 if name == "set up" else payload, "plain": plain, "times plain": round(size / plain, 2),
            "payload, times plain": 0 if name == "set up" else round(payload / plain, 2),
        })  # fmt: skip


def from_unit(words: np.ndarray) -> np.ndarray:
    """Return grid points as nodes."""
    return words / 2.0**16


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "cost"])
    parser.add_argument("--sets", nargs="+", default=["digits"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--equal", action="store_true", help="as many rows at every site, instead of Dirichlet 0.5")
    parser.add_argument("--sampler", choices=["opendp", "test"], default="opendp")
    parser.add_argument("--data-dir", type=Path, help="folder with NAME.npz for sets that are not made here")
    parser.add_argument("--out", type=Path, help="file of JSON lines to which results are added")
    given = parser.parse_args()

    def say(found: dict[str, Any]) -> None:
        print(json.dumps(found), flush=True)
        if given.out is not None:
            with given.out.open("a") as stream:
                stream.write(json.dumps(found) + "\n")

    if given.what == "quality":
        quality(given, say)
    else:
        cost(given.sites, say)


if __name__ == "__main__":
    main()
