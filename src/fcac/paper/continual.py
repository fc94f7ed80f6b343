"""Continual learning: what clusterers still know of the past when data come class after class, or drift.

A stream is a list of stages. After each stage a clusterer is asked for the clusters of the held-out rows of every stage
so far, which gives a table R: R[i, j] is the score on stage j after stage i.

Average incremental accuracy
    The mean over stages of the score on all rows seen so far (Rebuffi and others, 2017, with clustering scores in place
    of accuracy).
Backward transfer
    The mean over earlier stages of R[last, j] - R[j, j]: below zero, learning something new has cost what was known
    (Lopez-Paz and Ranzato, 2017).

References
----------
S.-A. Rebuffi, A. Kolesnikov, G. Sperl, C. H. Lampert. iCaRL: Incremental Classifier and Representation Learning. CVPR,
2001-2010, 2017.

D. Lopez-Paz, M. Ranzato. Gradient Episodic Memory for Continual Learning. Advances in Neural Information Processing
Systems 30, 6467-6476, 2017.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac.paper.grid import scores
from fcac.paper.one_table import load

Rows = NDArray[np.float64]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """Rows to learn and rows to be asked about, with their classes."""

    X: Rows
    X_held_out: Rows
    y_held_out: Classes


# ---------------------------------------------------------------- streams


def class_after_class(X: Rows, y: Classes, n_stages: int, rng: np.random.Generator) -> list[Stage]:
    """Deal classes to stages at random; a fifth of the rows of each is held out."""
    stages = []
    for classes in np.array_split(rng.permutation(np.unique(y)), n_stages):
        rows = rng.permutation(np.flatnonzero(np.isin(y, classes)))
        held, learned = rows[: len(rows) // 5], rows[len(rows) // 5 :]
        stages.append(Stage(X[learned], X[held], y[held]))
    return stages


def drifting(rng: np.random.Generator, n_stages: int = 6, n_rows: int = 1000) -> list[Stage]:
    """Five clusters in five features; two of them wander by a spread and a half from stage to stage."""
    centres = rng.uniform(-25, 25, (5, 5))
    step = np.zeros((5, 5))
    step[:2] = rng.normal(size=(2, 5))
    step[:2] *= 1.5 / np.linalg.norm(step[:2], axis=1, keepdims=True)
    stages = []
    for stage in range(n_stages):
        y = rng.integers(5, size=n_rows + n_rows // 4)
        X = (centres + stage * step)[y] + rng.normal(size=(len(y), 5))
        stages.append(Stage(X[:n_rows], X[n_rows:], y[n_rows:]))
    return stages


def recurring(rng: np.random.Generator, n_stages: int = 6, n_rows: int = 1000) -> list[Stage]:
    """Two sets of three clusters that take turns: what was known comes back."""
    centres = rng.uniform(-25, 25, (6, 5))
    stages = []
    for stage in range(n_stages):
        y = 3 * (stage % 2) + rng.integers(3, size=n_rows + n_rows // 4)
        X = centres[y] + rng.normal(size=(len(y), 5))
        stages.append(Stage(X[:n_rows], X[n_rows:], y[n_rows:]))
    return stages


def stream(name: str, number: int, data_dir: Path | None) -> list[Stage]:
    """Return the stages of a stream; the trial's number is its seed."""
    rng = np.random.default_rng(5000 + number)
    if name == "drifting Gaussians":
        return drifting(rng)
    if name == "recurring Gaussians":
        return recurring(rng)
    kind, _, table = name.partition(": ")
    if kind != "class after class":
        raise ValueError(f"there is no stream {name!r}")
    X, y = load(table, number, data_dir)
    return class_after_class(X, y, min(5, len(np.unique(y)) // 2), rng)


# ---------------------------------------------------------------- clusterers


class _River:
    """A stream clusterer of river behind the interface of scikit-learn; it takes rows as dicts, one at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def partial_fit(self, X: Rows) -> _River:
        for row in X:
            self._model.learn_one(dict(enumerate(row.tolist())))
        return self

    def predict(self, X: Rows) -> Classes:
        return np.array([self._model.predict_one(dict(enumerate(row.tolist()))) for row in X], np.int64)


def clusterer(method: str, n_clusters: int, seed: int, scale: float) -> Any:
    """Return a fresh clusterer with `partial_fit` and `predict`.

    Parameters
    ----------
    method : str
    n_clusters : int
        Number of classes of the whole stream, for those that must be told it.
    seed : int
    scale : float
        Median distance of a row of the first stage to its tenth neighbour, for those that need a radius.
    """
    from fcac.model.fcac import FCAC

    if method in ("communities", "CA+ / CAE_FC"):
        return FCAC(server="communities" if method == "communities" else "cae-fc", random_state=seed, n_jobs=1)
    if method == "MiniBatchKMeans (k given)":
        from sklearn.cluster import MiniBatchKMeans

        return MiniBatchKMeans(n_clusters, n_init=3, random_state=seed)
    if method == "DBSTREAM":
        from river.cluster import DBSTREAM

        return _River(DBSTREAM(clustering_threshold=scale))
    if method == "CluStream (k given)":
        from river.cluster import CluStream

        return _River(CluStream(n_macro_clusters=n_clusters, seed=seed))
    from sklearn.base import clone

    from fcac.paper.networks.inside import INSIDE

    names = {"GNG": "gng", "GWR": "gwr", "ASOINN": "asoinn", "SOINN+": "soinn-plus"}
    return clone(INSIDE[names[method]])


def trial(name: str, method: str, number: int, data_dir: Path | None) -> dict[str, float]:
    """Let a clusterer learn a stream stage by stage, and measure what it knows after each.

    Besides the two measures, the result has ``seen 1``, ``seen 2`` ...: the AMI on all rows seen so far after each
    stage, from which the picture of forgetting is drawn.
    """
    stages = stream(name, number, data_dir)
    k = len(np.unique(np.concatenate([stage.y_held_out for stage in stages])))
    _compile(method)
    model = clusterer(method, k, number, _scale(stages[0].X))
    figures: dict[str, float] = {}
    tables = {measure: np.full((len(stages), len(stages)), np.nan) for measure in ("ARI", "AMI")}
    seen: dict[str, list[float]] = {measure: [] for measure in tables}
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, stage in enumerate(stages):
            model.partial_fit(stage.X)
            labels = [model.predict(past.X_held_out) for past in stages[: i + 1]]
            classes = [past.y_held_out for past in stages[: i + 1]]
            for j in range(i + 1):
                found = scores(classes[j], labels[j])
                for measure, table in tables.items():
                    table[i, j] = found[measure]
            overall = scores(np.concatenate(classes), np.concatenate(labels))
            for measure, values in seen.items():
                values.append(overall[measure])
            figures[f"seen {i + 1}"] = round(overall["AMI"], 4)
    last = len(stages) - 1
    for measure, table in tables.items():
        figures[f"average incremental {measure}"] = float(np.mean(seen[measure]))
        figures[f"backward transfer {measure}"] = float(np.mean([table[last, j] - table[j, j] for j in range(last)]))
    figures["CPU s"] = round(time.process_time() - start, 3)
    return figures


@cache
def _compile(method: str) -> None:
    """Let a clusterer learn next to nothing once, so that imports and compiling are not timed."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clusterer(method, 2, 0, 1.0).partial_fit(X).predict(X)


def _scale(X: Rows) -> float:
    from sklearn.neighbors import NearestNeighbors

    apart, _ = NearestNeighbors(n_neighbors=min(10, len(X) - 1)).fit(X).kneighbors()
    return float(np.median(apart[:, -1]))


def draw(results: dict[str, Any], trials: Callable[[str, str], list[dict[str, float]]], path: Path) -> None:
    """Draw the AMI on everything seen so far, stage by stage, one panel a stream.

    Parameters
    ----------
    results : dict
        What :func:`fcac.paper.runs.run` returns.
    trials : callable
        Returns the trials of a stream and a method.
    path : Path
        Picture file.
    """
    import io

    from matplotlib.figure import Figure

    from fcac.persistence import write_atomic

    streams = list(results["means"])
    figure = Figure(figsize=(3.4 * len(streams), 3.6), layout="constrained")
    panels = figure.subplots(1, len(streams), sharey=True, squeeze=False)[0]
    colours = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#7F5539"]
    for panel, name in zip(panels, streams, strict=True):
        for colour, method in zip(colours, results["means"][name], strict=False):
            found = trials(name, method)
            if not found:
                continue
            n = sum(key.startswith("seen ") for key in found[0])
            line = [float(np.mean([one[f"seen {i + 1}"] for one in found])) for i in range(n)]
            panel.plot(range(1, n + 1), line, marker="o", markersize=3, color=colour, label=method)
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("stage")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("AMI on everything seen so far")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=110)
    write_atomic(path, content.getvalue())
