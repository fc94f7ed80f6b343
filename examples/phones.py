"""Digits over phones: fifty phones with about 36 digits each find out together which digits there are.

Run ``python examples/phones.py [FOLDER]``. It writes ``phones.png`` and needs ``pip install 'fcac[experiments]'``.

Each phone has written mostly a few of the ten digits. What the phones send are nodes, which here are often single
images: look at "with privacy" in the guide before you do this with real phones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.paper.rivals import KFed, KMeansMerged
from fcac.paper.simulated_sites import as_groups, dirichlet

N_PHONES = 50


def main(folder: Path) -> None:
    """Cluster, compare with two rivals that know the number, and draw each cluster's average digit."""
    # Fifty phones, each with mostly a few of the ten digits.
    X, y = load_digits(return_X_y=True)
    rows, phone = as_groups(dirichlet(y, N_PHONES, alpha=0.5, seed=0))
    X, y = X[rows], y[rows]

    # One round, and two rivals that are told that there are ten clusters.
    model = FCAC(random_state=0).fit(X, groups=phone)
    scores = {f"communities, found {model.n_clusters_}": adjusted_mutual_info_score(y, model.labels_)}
    for name, rival in {"k-FED": KFed(10, random_state=0), "k-means, merged": KMeansMerged(10, random_state=0)}.items():
        scores[f"{name}, told 10"] = adjusted_mutual_info_score(y, rival.fit(X, groups=phone).labels_)
    print(f"{len(X)} digits on {N_PHONES} phones, {len(model.server_.nodes)} nodes sent; adjusted mutual information:")
    for name, score in scores.items():
        print(f"  {name:<24} {score:.3f}")

    # The average digit of each cluster.
    draw(model, y, folder / "phones.png")
    print(f"Picture: {folder / 'phones.png'}")


def draw(model: FCAC, y: np.ndarray, path: Path) -> None:
    """The average of each cluster's nodes, as an image, with what the cluster holds."""
    server = model.server_
    clusters, sizes = np.unique(model.labels_, return_counts=True)
    order = np.argsort(-sizes)
    n_columns = 6
    n_lines = -(-len(order) // n_columns)
    figure, grid = plt.subplots(n_lines, n_columns, figsize=(9, 2 * n_lines), squeeze=False, layout="constrained")
    for axis in grid.flat:
        axis.axis("off")
    for axis, which in zip(grid.flat, order, strict=False):
        cluster = clusters[which]
        mine = server.node_labels == cluster
        image = np.average(server.nodes[mine], axis=0, weights=server.counts[mine]).reshape(8, 8)
        digits = np.bincount(y[model.labels_ == cluster], minlength=10)
        share = digits.max() / digits.sum()
        axis.imshow(image, cmap="gray_r")
        axis.set_title(f"{sizes[which]} digits,\n{share:.0%} are {digits.argmax()}", fontsize=9)
    figure.suptitle(f"{len(clusters)} clusters, found by {N_PHONES} phones together")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
