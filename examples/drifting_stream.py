"""A drifting stream: one group of rows moves day by day, another stays, a third appears on day 5; at four sensors.

Run ``python examples/drifting_stream.py [FOLDER]``. It writes ``drifting_stream.png`` and needs
``pip install 'fcac[experiments]'``.

Nothing seen is forgotten. Every day the rows are first judged by yesterday's model (how many are unlike anything seen?)
and then learned.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from fcac import FCAC

N_DAYS = 8
N_SENSORS = 4
SHOWN = (1, 3, 5, 8)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SHAPES = "os^Dvp"


def arriving(day: int, rng: np.random.Generator) -> np.ndarray:
    """Return one day's rows."""
    still = rng.normal([0, 0], 0.5, size=(1200, 2))
    moving = rng.normal([4 + 0.7 * day, 4], 0.5, size=(1200, 2))
    fresh = rng.normal([9, -2], 0.5, size=(1200, 2)) if day >= 5 else np.empty((0, 2))
    return rng.permutation(np.concatenate([still, moving, fresh]))


def main(folder: Path) -> None:
    """Play the days and draw four of them, and how novel each day was."""
    # Every day is a round: judge the new rows by yesterday's model, then learn them.
    rng = np.random.default_rng(0)
    model = FCAC(random_state=0)
    novel: dict[int, float] = {}
    figure, axes = plt.subplot_mosaic(
        [[f"day {day}" for day in SHOWN], ["novel"] * len(SHOWN)],
        figsize=(10, 5),
        height_ratios=(2, 1),
        layout="constrained",
    )
    for day in range(1, N_DAYS + 1):
        rows = arriving(day, rng)
        if day > 1:
            novel[day] = float(model.is_novel(rows).mean())
        model.partial_fit(rows, groups=np.arange(len(rows)) % N_SENSORS)
        print(f"day {day}: {model.n_clusters_} clusters" + (f", {novel[day]:.1%} novel" if day > 1 else ""))
        if day in SHOWN:
            draw_day(model, rows, axes[f"day {day}"])
            axes[f"day {day}"].set_title(f"day {day}: {model.n_clusters_} clusters", fontsize=10)
    axes["novel"].bar(list(novel), [100 * share for share in novel.values()], color="#444444", width=0.5)
    axes["novel"].set(xlabel="day", ylabel="% novel", title="rows unlike anything seen before that day")
    figure.savefig(folder / "drifting_stream.png", dpi=110)
    plt.close(figure)
    print(f"Picture: {folder / 'drifting_stream.png'}")

    # What became of the clusters over the days.
    for change in model.lineage_:
        if change.kind in ("born", "merged", "split", "died"):
            print(f"  round {change.round}: cluster {change.cluster} {change.kind}")


def draw_day(model: FCAC, rows: np.ndarray, axis: plt.Axes) -> None:
    """The day's rows in grey, and all nodes the model has, by cluster."""
    axis.scatter(*rows.T, s=1, c="#c9d0d6", linewidths=0)
    server = model.server_
    for cluster in np.unique(server.node_labels):
        mine = server.node_labels == cluster
        look = int(cluster) % len(COLOURS)
        axis.scatter(*server.nodes[mine].T, s=9, c=COLOURS[look], marker=SHAPES[look], linewidths=0)
    axis.set(xlim=(-2.5, 12), ylim=(-4.5, 6.5), xticks=[], yticks=[])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
