"""What privacy costs in quality: how well clusters are found at each epsilon, by every mechanism.

Mechanisms are compared at equal total epsilon of a record. For :class:`NodeRelease` that is what the ledger shows, for
:class:`LocalNoise` the cost of all features together, and for :class:`PaperLaplace` its epsilon times the number of
features, although its epsilon is no guarantee in any case.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcac._typing import Floats
from fcac.exceptions import PrivacyWarning
from fcac.federation.contribution import Contribution
from fcac.privacy.bounds import check_bounds, check_rows
from fcac.privacy.ledger import Ledger
from fcac.privacy.mechanisms.local_noise import LocalNoise
from fcac.privacy.mechanisms.node_release import NodeRelease
from fcac.privacy.mechanisms.paper_laplace import PaperLaplace
from fcac.privacy.samplers import Sampler

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MECHANISMS = ("NodeRelease", "LocalNoise", "PaperLaplace")

_DELTA = 1e-6


def utility_curve(
    X: ArrayLike,
    y: ArrayLike,
    bounds: Any,
    epsilons: Sequence[float] = EPSILONS,
    mechanisms: Sequence[str] = MECHANISMS,
    n_sites: int = 10,
    alpha: float = 0.5,
    n_seeds: int = 8,
    sampler: Sampler | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure adjusted mutual information (AMI) against the total epsilon of a record.

    The rows are divided among sites with Dirichlet-distributed shares of the classes, and each site sends one
    contribution. There are three read-outs: the paper's server (its sites condense with CA+), the communities server,
    and k-means (weighted, given the true number of clusters) on the nodes of communities. A release takes the place of
    condensing, so that all three then read the same contributions.

    Parameters
    ----------
    X, y : array-like
        Rows, and the classes that the clusters are compared with.
    bounds : array-like of shape (d, 2)
        Public bounds of the features.
    epsilons : sequence of float
        Total epsilon of a record.
    mechanisms : sequence of str
        Some of "NodeRelease", "LocalNoise", "PaperLaplace".
    n_sites, alpha, n_seeds : int, float, int
        How the rows are divided; each seed gives another division.
    sampler : Sampler, optional
        Source of NodeRelease's noise; None for the secure one.
    progress : callable, optional
        Called with one line of text after each measurement.

    Returns
    -------
    dict
        Ready for JSON: ``curves[mechanism][readout]`` has ``mean`` and ``std`` over the seeds, one number per epsilon;
        ``no_noise[readout]`` has one number each.
    """
    limits = check_bounds(bounds)
    rows, classes = check_rows(X, len(limits)), np.asarray(y)
    curves: dict[str, Any] = {name: {} for name in mechanisms}
    for name in mechanisms:
        for epsilon in epsilons:
            found = [
                _one_federation(rows, classes, limits, name, float(epsilon), n_sites, alpha, seed, sampler)
                for seed in range(n_seeds)
            ]
            _append(curves[name], found)
            if progress is not None:
                progress(f"{name} eps = {epsilon:g}: " + _in_words(curves[name], -1))
    plain: dict[str, Any] = {}
    _append(
        plain,
        [_one_federation(rows, classes, limits, "none", 0.0, n_sites, alpha, seed, None) for seed in range(n_seeds)],
    )
    return {
        "epsilons": [float(epsilon) for epsilon in epsilons],
        "delta": _DELTA,
        "n_rows": len(rows),
        "n_features": len(limits),
        "n_sites": n_sites,
        "alpha": alpha,
        "n_seeds": n_seeds,
        "curves": curves,
        "no_noise": {readout: {key: values[0] for key, values in both.items()} for readout, both in plain.items()},
    }


def digits_utility(n_seeds: int = 8, **options: Any) -> dict[str, Any]:
    """Run :func:`utility_curve` on scikit-learn's digits (1,797 records of 64 features from 0 to 16)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    bounds = np.tile([0.0, 16.0], (64, 1))
    return {"data": "digits", **utility_curve(digits.data, digits.target, bounds, n_seeds=n_seeds, **options)}


def _one_federation(
    rows: Floats,
    classes: NDArray[Any],
    bounds: Floats,
    name: str,
    epsilon: float,
    n_sites: int,
    alpha: float,
    seed: int,
    sampler: Sampler | None,
) -> dict[str, float]:
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score

    from fcac.federation import Server, Site, readouts
    from fcac.federation.condenser import condenser_for
    from fcac.paper.simulated_sites import dirichlet

    parts = dirichlet(classes, n_sites, alpha, seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        mechanism = _mechanism(name, epsilon, bounds, seed, sampler, Path(folder) / "ledger.db")
        sent: dict[str, list[Contribution]] = {}
        for kind in ("communities", "cae-fc"):
            if isinstance(mechanism, NodeRelease) and sent:
                sent[kind] = sent["communities"]  # a release takes the place of condensing, and is drawn once
                continue
            condenser = condenser_for(readouts.find(kind).condenser)
            # every site is an owner of its own, with a ledger of its own
            own = [
                _mechanism(name, epsilon, bounds, seed, sampler, Path(folder) / f"ledger-{number}.db")
                if isinstance(mechanism, NodeRelease)
                else mechanism
                for number in range(len(parts))
            ]
            sites = [Site(str(number), privacy, condenser=condenser) for number, privacy in enumerate(own)]
            sent[kind] = [site.contribute(rows[part]) for site, part in zip(sites, parts, strict=True)]
            for privacy in own:
                if isinstance(privacy, NodeRelease):
                    assert privacy.ledger is not None
                    if privacy.ledger.spent() > epsilon:
                        raise AssertionError("the ledger shows more than the epsilon on the axis")
    nodes = np.concatenate([item.nodes for item in sent["communities"]])
    counts = np.concatenate([item.counts for item in sent["communities"]])
    found = {"nodes": float(len(nodes))}
    for kind in ("cae-fc", "communities"):
        server = Server(kind, random_state=0)
        server.learn(sent[kind])
        found[kind] = float(adjusted_mutual_info_score(classes, server.predict(rows)))
    n_classes = min(len(np.unique(classes)), len(nodes))
    k_means = KMeans(n_classes, n_init=10, random_state=0).fit(nodes, sample_weight=counts)
    found["k-means"] = float(adjusted_mutual_info_score(classes, k_means.predict(rows)))
    return found


def _mechanism(
    name: str, epsilon: float, bounds: Floats, seed: int, sampler: Sampler | None, path: Path
) -> NodeRelease | LocalNoise | PaperLaplace | None:
    if name == "NodeRelease":
        return NodeRelease(epsilon, bounds, _DELTA, Ledger(path, epsilon, _DELTA), sampler=sampler)
    if name == "LocalNoise":
        return LocalNoise(epsilon, bounds)
    if name == "PaperLaplace":
        return PaperLaplace(epsilon / len(bounds), random_state=seed)
    if name == "none":
        return None
    raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")


def _append(curve: dict[str, Any], found: list[dict[str, float]]) -> None:
    for readout in found[0]:
        values = [one[readout] for one in found]
        both = curve.setdefault(readout, {"mean": [], "std": []})
        both["mean"].append(float(np.mean(values)))
        both["std"].append(float(np.std(values)))


def _in_words(curve: dict[str, Any], at: int) -> str:
    return ", ".join(f"{readout} {both['mean'][at]:.3f}" for readout, both in curve.items() if readout != "nodes")
