"""Federated clustering side by side, under the paper's protocol: those told the number of clusters, and those not."""

from __future__ import annotations

import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fcac.paper.grid import MIXTURE, Cell, model_of, permuted_sites, scores, stream_after_split

#: Methods by the names they have in the tables, and what the paper's grid calls them.
METHODS = {
    "fcac": "communities",
    "FCAC of the paper": "FCAC",
    MIXTURE: MIXTURE,
    "merged micro-clusters": "merged micro-clusters",
    "fcac (k given)": "communities (k given)",
    "k-FED (k given)": "k-FED",
    "FedFCM (k given)": "FedFCM",
    "MUFC (k given)": "MUFC",
    "k-means of all rows (k given)": "k-means",
}


def name_in(name: str, scenario: str) -> str:
    """Return the name that a set has in the tables in one scenario."""
    return f"{name}, {scenario}"


def trial(name: str, method: str, number: int, data_dir: Path | None) -> dict[str, float]:
    """Run one trial as the paper does, and measure scores, number of clusters, what sites sent, and CPU time."""
    dataset, _, scenario = name.rpartition(", ")
    cell = Cell(dataset, scenario, np.inf, METHODS[method])
    X, y, sites = permuted_sites(dataset, scenario, number, None if data_dir is None else str(data_dir))
    _compile(METHODS[method])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_of(cell.method, len(np.unique(y)), number)
        if cell.method == "FedFCM":
            model.init = stream_after_split(dataset, scenario, number, y)
        start = time.process_time()
        labels = model.fit(sites).predict(X)
        seconds = time.process_time() - start
    figures = scores(y, labels)
    figures["clusters"] = float(len(np.unique(labels)))
    figures["MB sent"] = bytes_sent(model) / 1e6
    figures["CPU s"] = round(seconds, 3)
    return figures


def bytes_sent(model: Any) -> int:
    """Return what the sites of a fitted model sent: of FCAC the very messages, of rivals eight bytes a number."""
    if hasattr(model, "server_"):
        return sum(len(sent.to_bytes()) for sent_in_round in model.server_.log for sent in sent_in_round)
    return int(model.bytes_sent_)


@cache
def _compile(method: str) -> None:
    """Run a method once on next to nothing, so that imports and compiling are not timed."""
    X = np.random.default_rng(0).normal(size=(120, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model_of(method, 2, 0).fit({0: X[:60], 1: X[60:]}).predict(X)
