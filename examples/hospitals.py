"""Patients over hospitals: four hospitals find kinds of tumour together, and no patient leaves.

Run ``python examples/hospitals.py [FOLDER]``. It writes ``hospitals.png`` and the report ``hospitals.html``, and needs
``pip install 'fcac[experiments]'``.

Scikit-learn's breast cancer table (569 patients, 30 measurements) is divided so that hospitals differ: some see mostly
malignant tumours, some mostly benign ones. Nobody tells the server that there are two kinds; the diagnosis is used only
to judge the result.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

from fcac import FCAC
from fcac.paper.simulated_sites import as_groups, dirichlet
from fcac.report import write_report

HOSPITALS = ("north", "south", "east", "west")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SHAPES = "os^Dvp"


def main(folder: Path) -> None:
    """Cluster, print what came out, and draw it."""
    # Four hospitals that see different patients.
    table = load_breast_cancer()
    rows, hospital = as_groups(dirichlet(table.target, len(HOSPITALS), alpha=1.0, seed=0), HOSPITALS)
    X, malignant = table.data[rows], table.target[rows] == 0

    # Each hospital condenses its rows to nodes; the server clusters the nodes of all four.
    model = FCAC(random_state=0).fit(X, groups=hospital)

    # The diagnoses were not used; do the clusters agree with them?
    print(f"{len(X)} patients at {len(HOSPITALS)} hospitals, {model.n_clusters_} clusters")
    for cluster in np.unique(model.labels_):
        share = malignant[model.labels_ == cluster].mean()
        print(f"  cluster {cluster}: {(model.labels_ == cluster).sum()} patients, {share:.0%} of them malignant")

    # A report for a browser, and a picture.
    write_report(model, folder / "hospitals.html", title="Four hospitals", feature_names=list(table.feature_names))
    draw(model, hospital, malignant, folder / "hospitals.png")
    print(f"Pictures: {folder / 'hospitals.png'} and {folder / 'hospitals.html'}")


def draw(model: FCAC, hospital: np.ndarray, malignant: np.ndarray, path: Path) -> None:
    """Nodes in two dimensions; patients per hospital and cluster; diagnoses per cluster."""
    server, labels = model.server_, model.labels_
    clusters = np.unique(labels)
    figure, (plane, who, what) = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")

    scaled = server.nodes / server.nodes.std(axis=0)
    flat = PCA(2, random_state=0).fit_transform(scaled)
    for place, cluster in enumerate(clusters):
        mine = server.node_labels == cluster
        plane.scatter(*flat[mine].T, s=12, c=COLOURS[place % 6], marker=SHAPES[place % 6], label=f"cluster {cluster}")
    plane.set(title=f"{len(flat)} nodes, two principal components", xticks=[], yticks=[])
    plane.legend(frameon=False, fontsize=8)

    bottom = np.zeros(len(HOSPITALS))
    for place, cluster in enumerate(clusters):
        counts = np.array([((hospital == name) & (labels == cluster)).sum() for name in HOSPITALS])
        who.bar(HOSPITALS, counts, bottom=bottom, color=COLOURS[place % 6], label=f"cluster {cluster}")
        bottom += counts
    who.set(title="patients of each hospital, by cluster", ylabel="patients")

    names = [f"cluster {cluster}" for cluster in clusters]
    ill = np.array([(malignant & (labels == cluster)).sum() for cluster in clusters])
    well = np.array([(~malignant & (labels == cluster)).sum() for cluster in clusters])
    what.bar(names, ill, color="#444444", label="malignant")
    what.bar(names, well, bottom=ill, color="#c9d0d6", label="benign")
    what.set(title="diagnoses in each cluster", ylabel="patients")
    what.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples")
    target.mkdir(parents=True, exist_ok=True)
    main(target)
