"""What one poisoned site of ten can and cannot do, with and without caps; prints the table of docs/threat-model.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_mutual_info_score

from fcac.deployment.limits import cap_round
from fcac.deployment.settings import Limits
from fcac.federation import Contribution, Server, Site, readouts
from fcac.federation.condenser import condenser_for

CAPS = Limits(max_node_share=0.2, max_count_share=0.2, min_spacing=0.25)
N_RUNS = 4

Attack = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def crowd(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """200 nodes in one spot."""
    return 0.5 + rng.normal(0, 1e-3, (200, X.shape[1]))


def flood(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """5,000 nodes everywhere."""
    return rng.uniform(0, 1, (5000, X.shape[1]))


def bridges(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """5,000 nodes between records."""
    one, other = X[rng.integers(len(X), size=(2, 5000))]
    where = rng.uniform(size=(5000, 1))
    return where * one + (1 - where) * other


def quality(kind: str, attack: Attack | None, limits: Limits) -> float:
    """Mean AMI on the rows of the nine honest sites."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    found = []
    for run in range(N_RUNS):
        parts = np.array_split(np.random.default_rng(run).permutation(len(X)), 10)
        condenser = condenser_for(readouts.find(kind).condenser)
        batch = [Site(f"s{i}", condenser=condenser).contribute(X[p], round=1) for i, p in enumerate(parts)]
        if attack is not None:
            nodes = attack(X, np.random.default_rng(1000 + run))
            batch[9] = Contribution("s9", 1, nodes, np.ones(len(nodes), np.int64))
        server = Server(kind, run)
        server.absorb(cap_round(batch, limits))
        rows = np.concatenate(parts[:9])
        found.append(adjusted_mutual_info_score(y[rows], server.predict(X[rows])))
    return float(np.mean(found))


def main() -> None:
    """Print the table."""
    attacks: list[tuple[str, Attack | None]] = [
        ("honest", None),
        ("200 nodes in one spot", crowd),
        ("5,000 nodes everywhere", flood),
        ("5,000 nodes between records", bridges),
    ]
    for name, attack in attacks:
        cells = [quality(kind, attack, caps) for kind in ("cae-fc", "communities") for caps in (Limits(), CAPS)]
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
