"""Many small private rounds: is a table that arrives in pieces read as one? Clusters and AMI, as JSON.

    python benchmarks/many_rounds.py        # two minutes

25 rounds of 50 new rows each at eps = 1 (every row is in one round), six groups in two features, beside one round of
all 1,250 rows at the same epsilon.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.persistence import write_atomic
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler

SIX = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.5], [0.2, 0.8], [0.8, 0.8], [0.5, 0.1]])


class Certified(InsecureTestSampler):
    """Repeatable noise that is read as released nodes are."""

    secure = True


def play(rounds: int, rows_a_round: int, epsilon: float, seed: int) -> dict[str, Any]:
    """Play rounds at one site; return what was found in the end."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 6, (rounds, rows_a_round))
    rows = (SIX[groups] + rng.normal(0, 0.03, (rounds, rows_a_round, 2))).clip(0, 1)
    model = FCAC(privacy=NodeRelease(epsilon, [[0, 1]] * 2, sampler=Certified(seed)), random_state=0)
    for block in rows:
        model.partial_fit({"a": block})
    labels = model.predict(rows.reshape(-1, 2))
    return {
        "nodes": len(model.sites_["a"].model.counts),
        "clusters": model.n_clusters_,
        "ami": round(float(adjusted_mutual_info_score(groups.ravel(), labels)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_rounds.json")
    options = parser.parse_args()
    result: dict[str, Any] = {"epsilon": options.epsilon, "seeds": options.seeds}
    for rounds, rows in ((25, 50), (1, 1250)):
        found = [play(rounds, rows, options.epsilon, seed) for seed in range(options.seeds)]
        scores = [one["ami"] for one in found]
        result[f"{rounds} x {rows}"] = {
            "mean": round(float(np.mean(scores)), 3),
            "worst": min(scores),
            "clusters": [one["clusters"] for one in found],
            "nodes": [one["nodes"] for one in found],
        }
        print(f"{rounds} x {rows}: {result[f'{rounds} x {rows}']}", flush=True)
    write_atomic(options.out, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
