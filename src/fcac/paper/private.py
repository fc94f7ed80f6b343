"""Private clustering side by side, at equal epsilon for a record: releases, noise on rows, and private k-means.

Every method gets the same rows, the same public bounds and the same epsilon; delta is 1e-6 for those that have one.
Sites hold Dirichlet(0.5) shares of the classes. What the methods see differs, and the names say so: "central" means
that somebody sees all rows in the clear, "k given" that it is told the number of clusters.

In sets "per person" five rows of one class belong to one person, who is at one site and is protected as a whole.
Methods that can only protect rows get a fifth of epsilon there: that is what group privacy leaves them.

NodeRelease, one site
    All rows are at one site, which releases noised nodes.
NodeRelease, per site
    Every site releases noised nodes of its own; the server knows the scale of the noise.
NodeRelease, summed
    The same over all sites at once, by secure aggregation: noise is added once.
LocalNoise
    Every record is noised before anyone sees it.
the paper's noise
    The paper's Laplace noise and server, with a record's epsilon divided among the features. Its scale comes from the
    rows, so that this epsilon is no guarantee.
DP-Lloyd, summed Lloyd, FedDP-KMeans
    See :class:`fcac.paper.rivals.DPLloyd`, :class:`~fcac.paper.rivals.SummedLloyd` and
    :class:`~fcac.paper.rivals.FedDPKMeans`. "100 public rows": the server knows these in the clear, and they are not
    among the private ones.
diffprivlib's k-means
    It has no delta.

The noise comes from seeded generators with the scales of the secure ones, so that trials can be repeated. It protects
nobody.

References
----------
N. Holohan, S. Braghin, P. Mac Aonghusa, K. Levacher. Diffprivlib: The IBM Differential Privacy Library.
https://arxiv.org/abs/1907.02444, 2019.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats, Integers
from fcac.paper.grid import scores
from fcac.privacy.bounds import check_bounds, check_rows
from fcac.privacy.mechanisms.local_noise import LocalNoise

DELTA = 1e-6
PER_PERSON = ", per person"
ROWS_A_PERSON = 5
SUMMED = "NodeRelease, summed"
DIFFPRIVLIB = "diffprivlib (central, k given)"
NO_NOISE = "no noise"


@dataclass(frozen=True)
class PrivateTable:
    """Rows with classes, public bounds, number of sites, and whose rows they are; None: one of each person."""

    X: Floats
    y: NDArray[np.int64]
    bounds: Floats
    n_sites: int
    people: Integers | None = None


# ---------------------------------------------------------------- sets


def _digits() -> PrivateTable:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return PrivateTable(X, y.astype(np.int64), np.tile([0.0, 16.0], (64, 1)), 10)


def _gaussians() -> PrivateTable:
    rng = np.random.default_rng(7)
    y = rng.integers(0, 8, 5000)
    X = rng.uniform(0.15, 0.85, (8, 10))[y] + 0.05 * rng.normal(size=(5000, 10))
    return PrivateTable(np.clip(X, 0, 1), y, np.tile([0.0, 1.0], (10, 1)), 4)


def _characters() -> PrivateTable:
    """Ten made-up characters, drawn as polygons of five strokes on 8 x 8 pixels."""
    rng = np.random.default_rng(3)
    pixels = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(64, 2)
    corners, y = rng.uniform(1, 6, size=(10, 6, 2)), rng.choice(10, 1800)
    drawn = corners[y] + 0.35 * rng.normal(size=(1800, 1, 2)) + 0.45 * rng.normal(size=(1800, 6, 2))
    along = np.linspace(0, 1, 4)[None, None, :, None]
    ink = (drawn[:, :-1, None] * (1 - along) + drawn[:, 1:, None] * along).reshape(1800, -1, 2)
    away = ((pixels[None, :, None] - ink[:, None]) ** 2).sum(-1).min(-1)
    X = np.clip(16 * np.exp(-away / 0.9) + 0.8 * rng.normal(size=(1800, 64)), 0, 16)
    return PrivateTable(X, y.astype(np.int64), np.tile([0.0, 16.0], (64, 1)), 10)


#: Sets that need no file.
MADE: dict[str, Callable[[], PrivateTable]] = {
    "digits": _digits,
    "eight Gaussians": _gaussians,
    "made-up characters": _characters,
}


@lru_cache(maxsize=2)
def load(name: str, data_dir: Path | None) -> PrivateTable:
    """Return a set: one of :data:`MADE`, or NAME.npz with the arrays X, y, bounds (d, 2) and, if wanted, n_sites.

    Bounds must be known without looking at the rows, so they are never taken from them. "NAME, per person" is the same
    set with five rows a person.
    """
    if name.endswith(PER_PERSON):
        table = load(name.removesuffix(PER_PERSON), data_dir)
        return replace(table, people=people_of(table.y))
    if name in MADE:
        return MADE[name]()
    if data_dir is None or not (path := data_dir / f"{name}.npz").exists():
        raise ValueError(f"set {name}: give the directory of its file {name}.npz (X, y, bounds) with --data-dir")
    with np.load(path, allow_pickle=False) as stored:
        if "bounds" not in stored:
            raise ValueError(f"set {name}: {path} has no array bounds (d, 2): what is known of each feature's range")
        bounds = check_bounds(stored["bounds"])
        X = check_rows(stored["X"], len(bounds))
        y = np.unique(stored["y"], return_inverse=True)[1].astype(np.int64)
        return PrivateTable(X, y, bounds, int(stored["n_sites"]) if "n_sites" in stored else 10)


def people_of(y: NDArray[np.int64]) -> Integers:
    """Give every five rows of a class, in their order, to one person."""
    people, first = np.empty(len(y), np.int64), 0
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        people[rows] = first + np.arange(len(rows)) // ROWS_A_PERSON
        first = int(people[rows[-1]]) + 1
    return people


def sites_of(table: PrivateTable, seed: int) -> list[Integers]:
    """Deal rows, or whole people, to sites by Dirichlet(0.5) shares of the classes."""
    from fcac.paper.simulated_sites import dirichlet

    if table.people is None:
        return list(dirichlet(table.y, table.n_sites, 0.5, seed))
    people, first = np.unique(table.people, return_index=True)
    dealt = dirichlet(table.y[first], table.n_sites, 0.5, seed)
    return [np.flatnonzero(np.isin(table.people, people[some])) for some in dealt]


# ---------------------------------------------------------------- methods


def _of_a_row(table: PrivateTable, epsilon: float) -> float:
    """Return the epsilon of a row under which everybody has `epsilon`, by group privacy."""
    return epsilon if table.people is None else epsilon / ROWS_A_PERSON


class _RepeatableLocalNoise(LocalNoise):
    """LocalNoise with a seeded generator in place of the operating system's."""

    def __init__(self, epsilon: float, bounds: Any, seed: int) -> None:
        super().__init__(epsilon, bounds)
        self._below = Random(seed).randrange

    def perturb(self, X: Any, site: str | int | None = None, round: int = 1) -> Floats:
        return self._perturb(check_rows(X, len(self.bounds)), self._below)


def _federation(table: PrivateTable, seed: int, **settings: Any) -> Integers:
    from fcac.model.fcac import FCAC
    from fcac.privacy.mechanisms.node_release import NodeRelease

    parts, ids = dict(enumerate(sites_of(table, seed))), None
    if table.people is not None and isinstance(settings.get("privacy"), NodeRelease):
        ids = {site: table.people[rows] for site, rows in parts.items()}
    model = FCAC(random_state=seed, n_jobs=1, **settings)
    return model.fit({site: table.X[rows] for site, rows in parts.items()}, record_ids=ids).predict(table.X)


def _node_release(table: PrivateTable, epsilon: float, seed: int) -> Any:
    from fcac.privacy.mechanisms.node_release import NodeRelease
    from fcac.privacy.samplers import InsecureTestSampler

    noise = InsecureTestSampler(1000 * seed + round(16 * epsilon))
    return NodeRelease(epsilon, table.bounds, DELTA, sampler=noise)


def _one_site(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    from fcac.model.fcac import FCAC

    model = FCAC(random_state=seed, n_jobs=1, privacy=_node_release(table, epsilon, seed))
    return model.fit(table.X, record_ids=table.people).predict(table.X)


def _per_site(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    return _federation(table, seed, privacy=_node_release(table, epsilon, seed))


def _summed(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    return _federation(table, seed, privacy=_node_release(table, epsilon, seed), aggregation="secure")


def _local(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    return _federation(table, seed, privacy=_RepeatableLocalNoise(_of_a_row(table, epsilon), table.bounds, seed))


def _papers(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    from fcac.privacy.mechanisms.paper_laplace import PaperLaplace

    noise = PaperLaplace(_of_a_row(table, epsilon) / len(table.bounds), random_state=seed)
    return _federation(table, seed, privacy=noise, server="cae-fc")


def _dp_lloyd(central: bool) -> Callable[[PrivateTable, float, int], Integers]:
    def labels(table: PrivateTable, epsilon: float, seed: int) -> Integers:
        from fcac.paper.rivals import DPLloyd

        k, own = len(np.unique(table.y)), _of_a_row(table, epsilon)
        model = DPLloyd(k, epsilon=own, bounds=table.bounds, delta=DELTA, random_state=seed)
        if central:
            return model.fit(table.X).labels_
        return model.fit({site: table.X[rows] for site, rows in enumerate(sites_of(table, seed))}).predict(table.X)

    return labels


def _by_sums(model: Any, table: PrivateTable, rows: Integers) -> Integers:
    """Fit a rival that sees totals; where people are protected, each is a group."""
    if table.people is not None:
        model.set_params(unit="group")
    groups = None if table.people is None else table.people[rows]
    labels: Integers = model.fit(table.X[rows], groups=groups).predict(table.X)
    return labels


def _summed_lloyd(table: PrivateTable, epsilon: float, seed: int) -> Integers:
    from fcac.paper.rivals import SummedLloyd

    model = SummedLloyd(len(np.unique(table.y)), epsilon=epsilon, bounds=table.bounds, delta=DELTA, random_state=seed)
    return _by_sums(model, table, np.arange(len(table.X)))


def _feddp(n_public: int) -> Callable[[PrivateTable, float, int], Integers]:
    def labels(table: PrivateTable, epsilon: float, seed: int) -> Integers:
        from fcac.paper.rivals import FedDPKMeans

        order = np.random.default_rng(seed).permutation(len(table.X))
        public, k = table.X[order[:n_public]] if n_public else None, len(np.unique(table.y))
        model = FedDPKMeans(k, public=public, epsilon=epsilon, bounds=table.bounds, delta=DELTA, random_state=seed)
        return _by_sums(model, table, order[n_public:])

    return labels


# Run by a Python of its own: diffprivlib 0.6.6 cannot be imported beside scikit-learn 1.7 and later.
_SCRIPT = """
import sys, warnings
import numpy as np
from diffprivlib.models import KMeans
warnings.simplefilter("ignore")
with np.load(sys.argv[1]) as given:
    k, epsilon, seed = int(given["k"]), float(given["epsilon"]), int(given["seed"])
    model = KMeans(k, epsilon=epsilon, bounds=(given["low"], given["high"]), random_state=seed).fit(given["X"])
    np.save(sys.argv[2], model.predict(given["X"]))
"""


def _diffprivlib(table: PrivateTable, epsilon: float, seed: int, python: str) -> Integers:
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npy"
        low, high = table.bounds.T
        np.savez(
            given,
            X=table.X,
            low=low,
            high=high,
            k=len(np.unique(table.y)),
            epsilon=_of_a_row(table, epsilon),
            seed=seed,
        )
        subprocess.run([python, "-c", _SCRIPT, str(given), str(made)], check=True)
        labels: Integers = np.load(made, allow_pickle=False).astype(np.int64)
    return labels


METHODS: dict[str, Callable[[PrivateTable, float, int], Integers]] = {
    "NodeRelease, one site": _one_site,
    "NodeRelease, per site": _per_site,
    SUMMED: _summed,
    "LocalNoise": _local,
    "the paper's noise": _papers,
    "DP-Lloyd, per site (k given)": _dp_lloyd(central=False),
    "DP-Lloyd (central, k given)": _dp_lloyd(central=True),
    "summed Lloyd (k given)": _summed_lloyd,
    "FedDP-KMeans (k given)": _feddp(0),
    "FedDP-KMeans (100 public rows, k given)": _feddp(100),
}


@cache
def has_diffprivlib(python: str) -> bool:
    """Return whether this Python can import diffprivlib's models."""
    try:
        done = subprocess.run(
            [python, "-c", "import diffprivlib.models"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def left_out(methods: Sequence[str], python: str = sys.executable) -> dict[str, str]:
    """Return the methods that cannot run, each with the reason and what to do."""
    absent = {}
    if SUMMED in methods and find_spec("cryptography") is None:
        absent[SUMMED] = "secure aggregation needs cryptography: pip install 'fcac[secure]'"
    if DIFFPRIVLIB in methods and not has_diffprivlib(python):
        absent[DIFFPRIVLIB] = (
            "diffprivlib cannot be imported here (version 0.6.6 needs scikit-learn 1.6 or earlier); install it in an "
            "environment of its own and name that Python with --diffprivlib"
        )
    return absent


# ---------------------------------------------------------------- trials


def name_at(name: str, epsilon: float) -> str:
    """Return the name that a set has in the tables at one epsilon."""
    return f"{name}, eps {epsilon:g}"


def trial_with(python: str = sys.executable) -> Callable[[str, str, int, Path | None], dict[str, float]]:
    """Return the function that runs one trial.

    Parameters
    ----------
    python : str
        The Python that runs diffprivlib.
    """

    def trial(name: str, method: str, number: int, data_dir: Path | None) -> dict[str, float]:
        of, _, shown = name.rpartition(", eps ")
        table, epsilon = load(of, data_dir), float(shown)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if method == NO_NOISE:
                labels = _without_noise(of, number, data_dir)
            elif method == DIFFPRIVLIB:
                labels = _diffprivlib(table, epsilon, number, python)
            else:
                labels = METHODS[method](table, epsilon, number)
        return scores(table.y, labels) | {"clusters": float(len(np.unique(labels)))}

    return trial


@lru_cache(maxsize=32)
def _without_noise(name: str, number: int, data_dir: Path | None) -> Integers:
    return _federation(load(name, data_dir), number)  # the same at every epsilon


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw AMI against epsilon, one panel a set, one line a method; dashed: told the number of clusters.

    Parameters
    ----------
    results : dict
        What :func:`fcac.paper.runs.run` returns.
    path : Path
        Picture file.
    """
    import io

    from matplotlib.figure import Figure

    from fcac.persistence import write_atomic

    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, by_method in results["means"].items():
        of, _, shown = name.rpartition(", eps ")
        for method, figures in by_method.items():
            curves.setdefault(of, {}).setdefault(method, []).append((float(shown), figures["AMI"][0]))
    figure = Figure(figsize=(3.6 * len(curves) + 0.4, 3.9), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    colours = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F5539", "#999999"]
    colours += ["#882255", "#332288", "#117733"]
    for panel, (of, by_method) in zip(panels, curves.items(), strict=True):
        for colour, (method, points) in zip(colours, by_method.items(), strict=False):
            told, plain = method.endswith("k given)"), method == NO_NOISE
            panel.plot(
                *zip(*sorted(points), strict=True),
                label=method,
                color="#000000" if plain else colour,
                linestyle=":" if plain else "--" if told else "-",
                marker=None if plain else "o",
                markersize=3,
            )
        epsilons = sorted({epsilon for points in by_method.values() for epsilon, _ in points})
        panel.set_xscale("log", base=2)
        panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        panel.set_title(of, fontsize=9)
        panel.set_xlabel("eps of a record")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("AMI")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=110)
    write_atomic(path, content.getvalue())
