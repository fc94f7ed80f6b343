"""What one poisoned site can do to the clusters of the others, field by field, private and not, among 2, 3 and 10.

Run ``python benchmarks/poison.py`` for the tables of docs/threat-model.md (digits), ``--data blobs`` for made-up data,
on which nothing was tuned either. Bar: with three sites or more, an attack of one costs the others at most .05 AMI by
default; what exceeds it is listed. "No limits" is a server that takes every contribution as it comes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_mutual_info_score

from fcac.deployment.limits import cap_round
from fcac.deployment.settings import Limits
from fcac.federation import Contribution, Server, Site, readouts
from fcac.federation.admission import admit
from fcac.federation.condenser import condenser_for
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler

BAR, EPSILON, DELTA = 0.05, 4.0, 1e-6

#: An attack: what the site would honestly send, everybody's rows (it guesses well) and a generator give what it sends.
Attack = Callable[[Contribution, np.ndarray, np.random.Generator], Contribution]


def sent(item: Contribution, nodes: np.ndarray, counts: np.ndarray) -> Contribution:
    """Return other nodes under the same statement; in a private federation with the noise that fits their counts."""
    if item.deviation is None:
        return Contribution(item.site, item.round, nodes, counts, item.privacy)
    noise = float(item.count_deviation.max())
    counts = np.maximum(counts, int(2 * noise) + 1)
    deviation = np.full(nodes.shape, 0.1 * noise) / counts[:, None]
    return Contribution(item.site, item.round, nodes, counts, item.privacy, deviation, np.full(len(nodes), noise))


def nothing(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """As if the site were not there."""
    return Contribution(item.site, item.round, item.nodes[:0], np.empty(0, np.int64))


def anywhere(n: int, rows: int) -> Attack:
    """Return an attack with n nodes anywhere, each for so many rows."""
    return lambda item, X, rng: sent(item, rng.uniform(X.min(0), X.max(0), (n, X.shape[1])), np.full(n, rows))


def crowd(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """Many nodes in one spot."""
    return sent(item, np.clip(X.mean(0) + rng.normal(0, 1e-3, (200, X.shape[1])), 0, 1), np.ones(200, np.int64))


def bridges(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """Nodes between rows, with large counts."""
    one, other = X[rng.integers(len(X), size=(2, 5000))]
    where = rng.uniform(0.3, 0.7, size=(5000, 1))
    return sent(item, where * one + (1 - where) * other, np.full(5000, 1000))


def corners(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """As far from everything as the bounds allow."""
    return sent(item, (rng.random((5000, X.shape[1])) < 0.5).astype(float), np.ones(5000, np.int64))


def shuffled(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """Rows whose values stand in other columns."""
    return sent(item, X[rng.integers(len(X), size=5000)][:, rng.permutation(X.shape[1])], np.ones(5000, np.int64))


def far(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """Honest nodes, and one a million widths away."""
    nodes = item.nodes.copy()
    nodes[0] = 1e6
    return replace(item, nodes=nodes)


def counts(value: int) -> Attack:
    """Return an attack with honest nodes that all stand for so many rows."""
    return lambda item, X, rng: replace(item, counts=np.full(len(item.counts), value))


def deviation(change: Callable[[np.ndarray], None]) -> Attack:
    """Return an attack that changes the deviations of honest nodes."""

    def attack(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
        changed = np.array(item.deviation)
        change(changed)
        return replace(item, deviation=changed)

    return attack


def first(value: float) -> Callable[[np.ndarray], None]:
    """Return a change of the first node alone."""

    def change(array: np.ndarray) -> None:
        array[0] = value

    return change


def half_of_the_features(array: np.ndarray) -> None:
    """Claim much noise in every other feature, so that it counts for nothing."""
    array[:, ::2] = 10.0


def count_deviation(value: float) -> Attack:
    """Return an attack that changes the deviation of counts."""
    return lambda item, X, rng: replace(item, count_deviation=np.full(len(item.counts), value))


def widest_noise(item: Contribution, X: np.ndarray, rng: np.random.Generator) -> Contribution:
    """As much noise as the hub believes, at an epsilon of the attacker's choice, on nodes anywhere."""
    n, d, noise = 48, X.shape[1], 88.0
    said = {**item.privacy, "epsilon": 0.25}
    share = 0.99 * np.sqrt(0.12 / 0.88) * np.sqrt(d) / 2
    nodes = rng.uniform(X.min(0), X.max(0), (n, d))
    return Contribution(
        item.site, item.round, nodes, np.full(n, 89), said, np.full((n, d), share * noise / 89), np.full(n, noise)
    )


def without_noise(attack: Attack) -> Attack:
    """Return an attack that sends exact nodes into a private federation."""
    return lambda item, X, rng: attack(
        Contribution(item.site, item.round, item.nodes, item.counts, {"mechanism": "none"}), X, rng
    )


BOTH: list[tuple[str, Attack]] = [
    ("positions and counts: 300 nodes anywhere, a million rows each", anywhere(300, 10**6)),
    ("positions: 5,000 nodes anywhere", anywhere(5000, 1)),
    ("positions: 5,000 nodes in corners of the bounds", corners),
    ("positions: 5,000 rows, columns exchanged", shuffled),
    ("positions: 200 nodes in one spot", crowd),
    ("positions: 5,000 nodes between clusters, large counts", bridges),
    ("positions: one node a million widths away", far),
    ("counts: a million rows for every node", counts(10**6)),
    ("counts: one row for every node", counts(1)),
]
PRIVATE: list[tuple[str, Attack]] = [
    ("deviation: 1e30 for one node", deviation(first(1e30))),
    ("deviation: 1e30 for all", deviation(lambda array: array.fill(1e30))),
    ("deviation: none claimed", deviation(lambda array: array.fill(0.0))),
    ("deviation: large in every other feature", deviation(half_of_the_features)),
    ("count deviation: 1e30", count_deviation(1e30)),
    ("count deviation: none claimed", count_deviation(0.0)),
    ("statement: a small epsilon, and all the noise that allows", widest_noise),
    ("no deviations: exact nodes between clusters", without_noise(bridges)),
    ("no deviations: exact nodes anywhere", without_noise(anywhere(300, 10**6))),
]


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in [0, 1] and their classes."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X / 16, y
    X, y = make_blobs(2000, 16, centers=8, cluster_std=1.6, random_state=3)
    return (X - X.min(0)) / (X.max(0) - X.min(0)), y


def at_the_hub(batch: list[Contribution], bounds: np.ndarray, limits: Limits) -> list[Contribution]:
    """Return what a hub lets its server learn of a round; a contribution that is refused is missing."""
    taken = []
    for item in batch:
        try:
            if ((item.nodes < bounds[:, 0] - 1) | (item.nodes > bounds[:, 1] + 1)).any():
                raise ValueError("outside the bounds")
            taken.append(admit(item, bounds).item)
        except ValueError:
            continue
    return cap_round(taken, limits)


def quality(private: bool, n_sites: int, attack: Attack | None, limited: bool, name: str, runs: int) -> float:
    """Mean AMI on the rows of all sites but the last, which is the attacker."""
    X, y = data(name)
    bounds = np.array([[0.0, 1.0]] * X.shape[1])
    found = []
    for run in range(runs):
        parts = np.array_split(np.random.default_rng(run).permutation(len(X)), n_sites)
        batch = []
        for number, part in enumerate(parts):
            said: dict[str, Any] = {}
            if private:
                mechanism = NodeRelease(EPSILON, bounds, DELTA, sampler=InsecureTestSampler(100 * run + number))
                site = Site(f"s{number}", mechanism)
                said = {"mechanism": "NodeRelease", "epsilon": EPSILON, "delta": DELTA, "spent": EPSILON, "rounds": 1}
            else:
                site = Site(f"s{number}", condenser=condenser_for(readouts.find("communities").condenser))
            batch.append(replace(site.contribute(X[part]), privacy=said))
        if attack is not None:
            batch[-1] = attack(batch[-1], X, np.random.default_rng(1000 + run))
        server = Server("communities", run)
        server.learn(at_the_hub(batch, bounds, Limits()) if limited else batch)
        rows = np.concatenate(parts[:-1])
        found.append(adjusted_mutual_info_score(y[rows], server.predict(X[rows])))
    return float(np.mean(found))


def main() -> None:
    """Print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=["digits", "blobs"], default="digits")
    parser.add_argument("--kind", choices=["plain", "private"], default=None)
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 3, 10])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--without-limits", action="store_true", help="measure what the limits prevent, too")
    chosen = parser.parse_args()
    path = Path(__file__).parent / "results" / "poison.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    over: list[str] = []
    for kind in ["plain", "private"] if chosen.kind is None else [chosen.kind]:
        private = kind == "private"
        honest: dict[int, float] = {}
        for label, attack in [("honest", None), ("nothing", nothing), *BOTH, *(PRIVATE if private else [])]:
            cells = {}
            for n_sites in chosen.sites:
                score = quality(private, n_sites, attack, True, chosen.data, chosen.runs)
                honest.setdefault(n_sites, score)
                cells[f"{n_sites} sites"] = round(score, 3)
                if n_sites >= 3 and honest[n_sites] - score > BAR:
                    over.append(f"{kind}, {n_sites} sites: {label}")
                if chosen.without_limits:
                    cells[f"{n_sites} sites, no limits"] = round(
                        quality(private, n_sites, attack, False, chosen.data, chosen.runs), 3
                    )
            results.setdefault(chosen.data, {}).setdefault(kind, {})[label] = cells
            print(f"| {kind}: {label} | " + " | ".join(f"{cell:.2f}" for cell in cells.values()) + " |", flush=True)
            path.write_text(json.dumps(results, indent=1) + "\n")
    print("Over the bar:", *(over or ["none"]), sep="\n  ")


if __name__ == "__main__":
    main()
