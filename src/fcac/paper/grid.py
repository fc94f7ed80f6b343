"""The paper's evaluation as a grid of cells: data set x scenario x epsilon x method, twenty trials each.

Every cell is one small file, rewritten after each trial, so that an interrupted run loses only unfinished trials.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._parallel import n_workers
from fcac.persistence import write_atomic

METHODS = ("k-means", "k-FED", "FedFCM", "MUFC", "FCAC")
#: FCAC with a growing network at sites and server, and the name of that server.
INSIDE = {"FCAC[GNG]": "gng", "FCAC[GWR]": "gwr", "FCAC[ASOINN]": "asoinn", "FCAC[SOINN+]": "soinn-plus"}
#: A rival that the paper does not have, and that is not told the number of clusters.
MIXTURE = "federated mixture"
SCENARIOS = ("iid", "non-iid")
EPSILONS = (np.inf, 15.0, 25.0, 50.0, 75.0)
METRICS = ("ARI", "AMI", "NMI")
N_TRIALS = 20

# Rivals pass over all rows many times; on the largest set they get fewer trials under noise, and the tables say so.
NOISY_RIVAL_TRIALS = {"Fashion-MNIST": 2}


@dataclass(frozen=True)
class Cell:
    """One entry of the tables."""

    dataset: str
    scenario: str
    epsilon: float
    method: str

    @property
    def file_name(self) -> str:
        """Name of the file that holds this cell's trials."""
        return f"{self.dataset}__{self.scenario}__{epsilon_name(self.epsilon)}__{self.method}.json"


def epsilon_name(epsilon: float) -> str:
    """Return "inf" or the number without a fraction."""
    return "inf" if np.isinf(epsilon) else f"{epsilon:g}"


def trial(cell: Cell, number: int, data_dir: str | None) -> dict[str, float]:
    """Run one trial under the paper's exact protocol and return its scores, sizes and time."""
    X, y, sites = permuted_sites(cell.dataset, cell.scenario, number, data_dir)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_of(cell.method, len(np.unique(y)), number)
        if cell.method == "FedFCM":
            model.init = stream_after_split(cell.dataset, cell.scenario, number, y)
        model.fit(_noised(sites, cell, number))
        seconds = time.perf_counter() - start
        labels = model.predict(X)
    figures = scores(y, labels)
    figures["seconds"] = round(seconds, 4)
    if hasattr(model, "server_"):
        figures["nodes"] = len(model.server_.nodes)
        figures["clusters"] = model.n_clusters_
    else:
        figures["nodes"] = figures["clusters"] = len(model.cluster_centers_)
    return figures


def scores(y: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Return ARI, AMI and NMI as the paper measures them."""
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score

    return {
        "ARI": float(adjusted_rand_score(y, labels)),
        "AMI": float(adjusted_mutual_info_score(y, labels)),
        "NMI": float(normalized_mutual_info_score(y, labels)),
    }


def permuted_sites(
    dataset: str, scenario: str, number: int, data_dir: str | None
) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[int, NDArray[np.float64]]]:
    """Return the rows of a trial in their permuted order, their classes, and the rows of each site."""
    from fcac.paper.datasets import find
    from fcac.paper.splits import paper_dirichlet, paper_iid

    X, y = _loaded(dataset, data_dir)
    order = np.random.RandomState(number).permutation(len(y))
    X, y = X[order], y[order]
    n_sites = find(dataset).n_sites
    parts = paper_iid(y, n_sites) if scenario == "iid" else paper_dirichlet(y, n_sites)
    return X, y, {site: X[rows] for site, rows in enumerate(parts)}


@lru_cache(maxsize=1)
def _loaded(dataset: str, data_dir: str | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from fcac.paper.datasets import load

    return load(dataset, data_dir=data_dir)


def _noised(sites: dict[int, NDArray[np.float64]], cell: Cell, number: int) -> dict[int, NDArray[np.float64]]:
    """Apply the paper's noise, with one stream for all sites, as in the paper."""
    if np.isinf(cell.epsilon):
        return sites
    from fcac.privacy import PaperLaplace

    noise = PaperLaplace(cell.epsilon, random_state=number, paper_streams=True)
    return {site: noise.perturb(rows) for site, rows in sites.items()}


def model_of(method: str, n_classes: int, number: int) -> Any:
    """Return the model of a method for a trial; FedFCM gets its first centres from :func:`stream_after_split`."""
    if method == "FCAC":
        from fcac.model.fcac import FCAC

        return FCAC(server="cae-fc", random_state=0, n_jobs=1)
    if method == "communities":
        from fcac.model.fcac import FCAC

        return FCAC(server="communities", random_state=0, n_jobs=1)
    if method == "communities (k given)":
        from fcac.model.fcac import FCAC

        return FCAC(server="communities", n_clusters=n_classes, random_state=0, n_jobs=1)
    if method in INSIDE:
        from fcac.model.fcac import FCAC
        from fcac.paper.networks import inside

        name = INSIDE[method]
        return FCAC(site=inside.NetworkCondenser(inside.INSIDE[name]), server=name, random_state=0, n_jobs=1)
    from fcac.paper import rivals

    if method == MIXTURE:
        return rivals.FederatedMixture(random_state=number)
    if method == "merged micro-clusters":
        return rivals.MergedMicroClusters(random_state=number)
    known = {
        "k-means": rivals.KMeansMerged,
        "k-FED": rivals.KFed,
        "FedFCM": rivals.FedFCM,
        "MUFC": rivals.MUFC,
    }
    return known[method](n_clusters=n_classes, random_state=number)


def stream_after_split(dataset: str, scenario: str, number: int, y: NDArray[np.int64]) -> np.random.RandomState:
    """Return NumPy's global generator as a trial's split leaves it: from there the paper drew FedFCM's first centres.

    In the IID scenario it is seeded with the trial's number and permutes the rows. In the other one the split seeds it
    with 0 in every trial, so all trials begin with the same centres. The paper does not say so; but with these centres,
    and no others that were tried, its figures come out to the printed digit.

    Parameters
    ----------
    dataset, scenario : str
    number : int
        Number of the trial.
    y : ndarray of shape (n,)
        Classes of the permuted rows.
    """
    from fcac.paper.datasets import find
    from fcac.paper.splits import paper_dirichlet

    if scenario == "iid":
        generator = np.random.RandomState(number)
        generator.permutation(len(y))
        return generator
    generator = np.random.RandomState(0)
    paper_dirichlet(y, find(dataset).n_sites, seed=generator)
    return generator


# ---------------------------------------------------------------- running


def read_cell(folder: Path, cell: Cell) -> dict[int, dict[str, float]]:
    """Return the finished trials of a cell."""
    path = folder / "cells" / cell.file_name
    if not path.exists():
        return {}
    return {int(number): figures for number, figures in json.loads(path.read_text())["trials"].items()}


def write_cell(folder: Path, cell: Cell, trials: dict[int, dict[str, float]]) -> None:
    """Store the trials of a cell."""
    content = {
        "dataset": cell.dataset,
        "scenario": cell.scenario,
        "epsilon": epsilon_name(cell.epsilon),
        "method": cell.method,
        "trials": {str(number): trials[number] for number in sorted(trials)},
    }
    write_atomic(folder / "cells" / cell.file_name, json.dumps(content, indent=0).encode())


def cells_of(
    datasets: Iterable[str], scenarios: Iterable[str], epsilons: Iterable[float], methods: Iterable[str]
) -> list[Cell]:
    """Return the cells of a grid, epsilon by epsilon."""
    return [Cell(d, s, e, m) for e in epsilons for d in datasets for s in scenarios for m in methods]


def trials_wanted(cell: Cell, n_trials: int) -> int:
    """Return how many trials a cell gets: rivals get fewer under noise on the largest set."""
    if np.isinf(cell.epsilon) or cell.method in ("FCAC", "communities", "communities (k given)"):
        return n_trials
    return min(n_trials, NOISY_RIVAL_TRIALS.get(cell.dataset, n_trials))


def run(
    cells: list[Cell],
    folder: Path,
    *,
    n_trials: int = N_TRIALS,
    data_dir: str | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int, int, Cell], None] | None = None,
) -> None:
    """Run the missing trials of the given cells and store them.

    Parameters
    ----------
    cells : list of Cell
        They are run in this order.
    folder : Path
        Results are written to ``folder/cells``.
    n_trials : int
    data_dir : str, optional
        Directory of NAME.npz files; by default the sets are downloaded from OpenML.
    n_jobs : int, optional
        Number of processes; one per core by default.
    progress : callable, optional
        Called after each trial with the number of trials done, their total, and the cell.
    """
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    known = {cell: read_cell(folder, cell) for cell in cells}
    tasks = [
        (cell, number) for cell in cells for number in range(trials_wanted(cell, n_trials)) if number not in known[cell]
    ]
    total = sum(trials_wanted(cell, n_trials) for cell in cells)
    done = total - len(tasks)
    for cell, number, figures in _results(tasks, data_dir, n_workers(n_jobs)):
        known[cell][number] = figures
        write_cell(folder, cell, known[cell])
        done += 1
        if progress is not None:
            progress(done, total, cell)


def _results(
    tasks: list[tuple[Cell, int]], data_dir: str | None, n_jobs: int
) -> Iterator[tuple[Cell, int, dict[str, float]]]:
    if n_jobs == 1 or len(tasks) < 2:
        for cell, number in tasks:
            yield cell, number, trial(cell, number, data_dir)
        return
    # Workers are single-threaded: trials are independent, and BLAS threads would only compete for cores. "spawn",
    # because forking a process that has started threads is not safe.
    with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        queue = iter(tasks)
        running: dict[Future[dict[str, float]], tuple[Cell, int]] = {}
        while True:
            while len(running) < n_jobs + 1 and (task := next(queue, None)) is not None:
                running[pool.submit(trial, task[0], task[1], data_dir)] = task
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cell, number = running.pop(future)
                yield cell, number, future.result()


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
