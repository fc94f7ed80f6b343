"""What privacy costs: AMI against the total epsilon of a record, for every mechanism, as JSON and as one picture.

    python benchmarks/privacy_utility.py                                   # digits; a few minutes
    python benchmarks/privacy_utility.py --data pendigits.npz --low 0 --high 100 --name pendigits

Bars (digits, 10 sites, Dirichlet 0.5, 8 seeds, the paper's server): mean AMI at least 0.44 at eps = 4 and 0.48 at
eps = 8 on the ledger's epsilon. The exit code is 1 if a bar is missed. No central k-means under differential privacy
is drawn: the one in diffprivlib does not install beside these versions, and OpenDP has none.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fcac.paper.utility import digits_utility, utility_curve
from fcac.persistence import write_atomic

BARS = {4.0: 0.44, 8.0: 0.48}
HERE = Path(__file__).parent
STYLES = {"NodeRelease": ("#1b6e53", "-"), "LocalNoise": ("#b3541e", "--"), "PaperLaplace": ("#6b6b6b", ":")}
READOUTS = {"cae-fc": "paper's server", "communities": "communities", "k-means": "k-means on the nodes, true k"}


def draw(result: dict[str, Any], path: Path) -> None:
    """One panel per read-out; every mechanism a line, no noise a thin one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for panel, (readout, words) in zip(panels, READOUTS.items(), strict=True):
        for name, curve in result["curves"].items():
            colour, line = STYLES[name]
            mean, spread = np.array(curve[readout]["mean"]), np.array(curve[readout]["std"])
            panel.plot(result["epsilons"], mean, line, color=colour, marker="o", markersize=3, label=name)
            panel.fill_between(result["epsilons"], mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
        panel.axhline(result["no_noise"][readout]["mean"], color="black", lw=0.8, label="no noise")
        panel.set_xscale("log", base=2)
        panel.set_xticks(result["epsilons"], [f"{epsilon:g}" for epsilon in result["epsilons"]])
        panel.set_xlabel("total eps of a record")
        panel.set_title(words, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"AMI, {result['data']}")
    panels[-1].legend(fontsize=8, frameon=False, loc="center right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="npz file with X and y; digits if not given")
    parser.add_argument("--name", default="digits")
    parser.add_argument("--low", type=float, help="public lower bound of every feature of --data")
    parser.add_argument("--high", type=float, help="public upper bound of every feature of --data")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--mechanisms", nargs="+", default=list(STYLES))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--picture", type=Path, help="png file to draw")
    options = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    common = {"n_seeds": options.seeds, "mechanisms": options.mechanisms, "progress": say}
    if options.data is None:
        result = digits_utility(**common)
    else:
        with np.load(options.data, allow_pickle=False) as stored:
            X, y = stored["X"], stored["y"]
        bounds = np.tile([options.low, options.high], (X.shape[1], 1))
        result = {"data": options.name, **utility_curve(X, y, bounds, **common)}
    options.out.mkdir(parents=True, exist_ok=True)
    written = options.out / f"privacy_utility_{options.name}.json"
    write_atomic(written, (json.dumps(result, indent=1) + "\n").encode())
    print(f"no noise: {result['no_noise']}\nwritten: {written}")
    if options.picture is not None:
        draw(result, options.picture)
    if options.data is not None or "NodeRelease" not in result["curves"]:
        return 0
    reached = result["curves"]["NodeRelease"]["cae-fc"]["mean"]
    missed = 0
    for epsilon, bar in BARS.items():
        value = reached[result["epsilons"].index(epsilon)]
        print(f"eps = {epsilon:g}: {value:.3f}, bar {bar}: {'reached' if value >= bar else 'MISSED'}")
        missed += value < bar
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
