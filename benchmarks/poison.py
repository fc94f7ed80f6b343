"""What one or two poisoned sites of ten can do to the clusters of the others, with the default settings and without.

Run ``python benchmarks/poison.py`` for the table of docs/threat-model.md (digits), ``--data blobs`` for made-up data,
on which nothing was tuned either. Bar: any attack of one site costs the other nine at most .05 AMI by default.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_mutual_info_score

from fcac.deployment.limits import cap_round
from fcac.deployment.settings import Limits
from fcac.federation import Contribution, Server, Site, readouts
from fcac.federation.condenser import condenser_for

N_SITES, N_RUNS, N_ROUNDS = 10, 2, 3
NO_CAPS = Limits(max_node_share=1.0, max_count_share=1.0)
BAR = 0.05

#: Fewer than no poisoned sites means honest sites of very different sizes.
#: An attack: rows of everybody (the attacker guesses well), its own rows, a generator and the round give nodes, counts.
Attack = Callable[[np.ndarray, np.ndarray, np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def heavy(n: int) -> Attack:
    """Return an attack with nodes anywhere and enormous counts."""

    def attack(X: np.ndarray, own: np.ndarray, rng: np.random.Generator, round: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.uniform(X.min(0), X.max(0), (n, X.shape[1])), np.full(n, 10**6)

    return attack


def many(X: np.ndarray, own: np.ndarray, rng: np.random.Generator, round: int) -> tuple[np.ndarray, np.ndarray]:
    """As many nodes as the hub accepts, anywhere."""
    return rng.uniform(X.min(0), X.max(0), (5_000, X.shape[1])), np.ones(5_000, np.int64)


def crowd(X: np.ndarray, own: np.ndarray, rng: np.random.Generator, round: int) -> tuple[np.ndarray, np.ndarray]:
    """Many nodes in one spot."""
    return X.mean(0) + rng.normal(0, 1e-3, (200, X.shape[1])), np.ones(200, np.int64)


def between(X: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return points between rows."""
    one, other = X[rng.integers(len(X), size=(2, n))]
    where = rng.uniform(0.3, 0.7, size=(n, 1))
    return np.asarray(where * one + (1 - where) * other)


def midpoints(X: np.ndarray, own: np.ndarray, rng: np.random.Generator, round: int) -> tuple[np.ndarray, np.ndarray]:
    """Bridges between clusters, with large counts."""
    return between(X, rng, 5000), np.full(5000, 1000)


def drift(X: np.ndarray, own: np.ndarray, rng: np.random.Generator, round: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that look honest in the first round and are bridges in the last; counts stay honest."""
    fixed = np.random.default_rng(7)
    goal = between(X, fixed, len(own))
    part = (round - 1) / (N_ROUNDS - 1)
    return (1 - part) * own + part * goal, np.ones(len(own), np.int64)


ATTACKS: list[tuple[str, Attack | None, int]] = [
    ("honest, all of one size", None, 0),
    ("honest, one with two thirds of all rows", None, -1),
    ("300 nodes anywhere, a million rows each", heavy(300), 1),
    ("20 nodes anywhere, a million rows each", heavy(20), 1),
    ("5,000 nodes anywhere", many, 1),
    ("200 nodes in one spot", crowd, 1),
    ("5,000 nodes between clusters, large counts", midpoints, 1),
    ("drifting between clusters over three rounds", drift, 1),
    ("two sites: a million rows each", heavy(300), 2),
    ("two sites: between clusters", midpoints, 2),
]


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in [0, 1] and their classes."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X / 16, y
    X, y = make_blobs(2000, 16, centers=8, cluster_std=1.6, random_state=3)
    return (X - X.min(0)) / (X.max(0) - X.min(0)), y


def quality(kind: str, attack: Attack | None, n_bad: int, limits: Limits, name: str) -> float:
    """Mean AMI on the rows of the honest sites after the last round."""
    X, y = data(name)
    found = []
    for run in range(N_RUNS):
        order = np.random.default_rng(run).permutation(len(X))
        cuts = np.linspace(0, 1, N_SITES + 1)[1:-1] if n_bad >= 0 else 2 / 3 + np.linspace(0, 1 / 3, N_SITES)[:-1]
        parts = np.split(order, (cuts * len(X)).astype(int))
        sites = [Site(f"s{i}", condenser=condenser_for(readouts.find(kind).condenser)) for i in range(N_SITES)]
        server = Server(kind, run)
        rng = np.random.default_rng(1000 + run)
        for round in range(1, N_ROUNDS + 1):
            batch = []
            for i, part in enumerate(parts):
                fresh = np.array_split(part, N_ROUNDS)[round - 1]
                if attack is not None and i >= N_SITES - n_bad:
                    so_far = np.concatenate(np.array_split(part, N_ROUNDS)[:round])
                    batch.append(Contribution(f"s{i}", round, *attack(X, X[so_far], rng, round), {}))
                else:
                    batch.append(sites[i].contribute(X[fresh], round=round))
            server.absorb(cap_round(batch, limits))
        rows = np.concatenate(parts[: N_SITES - n_bad]) if n_bad >= 0 else order
        found.append(adjusted_mutual_info_score(y[rows], server.predict(X[rows])))
    return float(np.mean(found))


def main() -> None:
    """Print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=["digits", "blobs"], default="digits")
    parser.add_argument("--server", default="communities,cae-fc")
    chosen = parser.parse_args()
    path = Path(__file__).parent / "results" / "poison.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    kinds = chosen.server.split(",")
    for name, attack, n_bad in ATTACKS:
        cells = {
            f"{kind}, {label}": round(quality(kind, attack, n_bad, limits, chosen.data), 3)
            for kind in kinds
            for label, limits in (("no caps", NO_CAPS), ("default", Limits()))
        }
        results.setdefault(chosen.data, {}).setdefault(name, {}).update(cells)
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells.values()) + " |", flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
