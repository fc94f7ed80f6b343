"""Attacks on the paper's noise: evidence, for anyone to check, of what it does not protect.

Each function runs one attack on the given rows and returns plain numbers; :func:`attack_figures` runs all of them on
scikit-learn's digits. docs/privacy/paper-noise.md explains them.

References
----------
I. Mironov. On Significance of the Least Significant Bits for Differential Privacy. Proceedings of the 2012 ACM
Conference on Computer and Communications Security, 650-661, 2012.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Floats
from fcac.exceptions import PrivacyWarning
from fcac.privacy.mechanisms.paper_laplace import PaperLaplace

_LATTICE = 2.0**-53
# Generous: a match can only lie within about ten lattice points of the rounded guess.
_NEIGHBOURHOOD = 40


def nearest_record_match(rows: Floats, epsilon: float, random_state: int = 0) -> float:
    """Return the share of noised records whose nearest original record is their own.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    epsilon : float
        As the paper uses it, per feature.
    random_state : int
    """
    noised = _noised(rows, epsilon, random_state)
    squared = (noised**2).sum(axis=1)[:, None] - 2.0 * noised @ rows.T + (rows**2).sum(axis=1)[None, :]
    return float((squared.argmin(axis=1) == np.arange(len(rows))).mean())


def neighbour_test(rows: Floats, epsilon: float, n_runs: int = 200) -> dict[str, float]:
    """Distinguish rows with a constant column from the same rows plus one record that differs in that column.

    The test: does the first record's value in that column arrive with noise?

    Returns
    -------
    dict
        ``true_alarms`` and ``false_alarms``, as shares of the runs; 1.0 and 0.0 mean that the noise hides nothing.
    """
    constant = np.flatnonzero(rows.max(axis=0) == rows.min(axis=0))
    if len(constant) == 0:
        raise ValueError("this attack needs a constant column, and rows have none")
    column = int(constant[0])
    extra = rows[:1].copy()
    extra[0, column] += 1.0
    neighbour = np.vstack([rows, extra])
    alarms = {True: 0, False: 0}
    for run in range(n_runs):
        for joined, data in ((True, neighbour), (False, rows)):
            alarms[joined] += bool(_noised(data, epsilon, run)[0, column] != rows[0, column])
    return {"true_alarms": alarms[True] / n_runs, "false_alarms": alarms[False] / n_runs}


def float_attack(values: Floats, candidates: Floats, epsilon: float, random_state: int = 0) -> dict[str, float]:
    """Rule out original values with certainty, by the gaps that floating-point Laplace noise leaves.

    The noise is the logarithm of one of 2^53 numbers. Far from 0 its possible values lie farther apart than
    neighbouring floats, so most sums can be reached from few originals only (Mironov, 2012).

    Parameters
    ----------
    values : ndarray of shape (n,)
        Original values of one feature.
    candidates : ndarray of shape (m,)
        Values the feature can have.

    Returns
    -------
    dict
        ``ruled_out``: mean number of candidates that are impossible given the noised value; ``candidates``: m;
        ``truth_ruled_out``: how often the true value was (it must be 0.0).
    """
    noised = _noised(values[:, None], epsilon, random_state)[:, 0]
    scale = float((values.max() - values.min()) / epsilon)
    impossible, wrong = 0, 0
    for truth, seen in zip(values, noised, strict=True):
        for candidate in candidates:
            if not _reachable(float(seen), float(candidate), scale):
                impossible += 1
                wrong += bool(candidate == truth)
    n = len(values)
    return {"ruled_out": impossible / n, "candidates": float(len(candidates)), "truth_ruled_out": wrong / n}


def shared_stream_attack(mine: Floats, theirs: Floats, epsilon: float, random_state: int = 0) -> float:
    """Return the share of another site's (whole-number) values recovered exactly when all sites use one seed.

    A site that knows its own rows can compute its own noise, and from it the other site's noise up to a scale per
    column. The right scale is the one that leaves whole numbers. Columns that are constant at the attacking site
    reveal nothing and are left as they were sent.
    """
    n = min(len(mine), len(theirs))
    my_width = np.ptp(mine, axis=0)
    stream = (_noised(mine, epsilon, random_state, shared=True) - mine)[:n]
    sent = _noised(theirs, epsilon, random_state, shared=True)[:n]
    recovered = sent.copy()
    for column in np.flatnonzero(my_width > 0):
        unit_noise = stream[:, column] / my_width[column]
        widths = np.arange(0.0, 2.0 + np.ptp(sent[:, column]))
        guesses = sent[:, column][None, :] - widths[:, None] * unit_noise[None, :]
        best = int(np.abs(guesses - np.rint(guesses)).sum(axis=1).argmin())
        recovered[:, column] = np.rint(guesses[best])
    return float((recovered == theirs[:n]).mean())


def single_record_nodes(sites: list[Floats], epsilon: float, random_state: int = 0) -> dict[str, float]:
    """Measure what CA+ sends of noised records: the share of nodes that are single records, and if counts add up."""
    from fcac.art.clusterers import CAPlus

    counts: list[NDArray[Any]] = []
    for number, rows in enumerate(sites):
        counts.append(CAPlus().fit(_noised(rows, epsilon, random_state + number)).counts_)
    everything = np.concatenate(counts)
    return {
        "single": float((everything == 1).mean()),
        "counts_minus_records": float(everything.sum() - sum(len(rows) for rows in sites)),
    }


def attack_figures(
    epsilons: tuple[float, ...] = (10.0, 15.0, 25.0, 50.0, 75.0), n_sites: int = 10, random_state: int = 0
) -> dict[str, Any]:
    """Run every attack on scikit-learn's digits (1,797 records, 64 features, whole numbers from 0 to 16).

    Parameters
    ----------
    epsilons : tuple of float
        The paper's values of epsilon (per feature).
    n_sites : int
        Number of sites among which the records are divided.
    random_state : int

    Returns
    -------
    dict
        Plain numbers by attack, ready for JSON.
    """
    from sklearn.datasets import load_digits

    rows = np.asarray(load_digits().data, dtype=np.float64)
    order = np.random.default_rng(random_state).permutation(len(rows))
    sites = [rows[part] for part in np.array_split(order, n_sites)]
    busy = int(np.argmax(rows.std(axis=0)))
    first = 15.0
    return {
        "data": {"name": "digits", "records": len(rows), "features": rows.shape[1]},
        "total_epsilon": {f"{epsilon:g}": float(epsilon * rows.shape[1]) for epsilon in epsilons},
        "nearest_record_match": {
            f"{epsilon:g}": nearest_record_match(rows, epsilon, random_state) for epsilon in epsilons
        },
        "neighbour_test": {"epsilon": first, **neighbour_test(sites[0], first)},
        "float_attack": {"epsilon": first, **float_attack(rows[:300, busy], np.arange(17.0), first, random_state)},
        "shared_stream": {"epsilon": first, "recovered": shared_stream_attack(sites[0], sites[1], first, random_state)},
        "single_record_nodes": {"epsilon": first, **single_record_nodes(sites, first, random_state)},
    }


def _noised(rows: Floats, epsilon: float, random_state: int, shared: bool = False) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return PaperLaplace(epsilon, random_state=random_state, paper_streams=shared).perturb(rows, site="attacked")


def _reachable(seen: float, candidate: float, scale: float) -> bool:
    """Return whether NumPy's Laplace sampler could have turned this candidate into exactly the number seen.

    The sampler draws a multiple U of 2^-53 and returns scale * log(2U) below one half, -scale * log((2 - U) - U) above.
    Its arithmetic is repeated here for every U near the only value that could give the number seen.
    """
    gap = seen - candidate
    distance = math.exp(-abs(gap) / scale) / 2.0
    for above in (True, False) if abs(gap) < 1e-9 else (gap > 0,):
        middle = round((1.0 - distance if above else distance) / _LATTICE)
        for step in range(-_NEIGHBOURHOOD, _NEIGHBOURHOOD + 1):
            uniform = (middle + step) * _LATTICE
            inner = (2.0 - uniform) - uniform if above else uniform + uniform
            if 0.0 < uniform < 1.0 and inner > 0.0:
                noise = scale * math.log(inner)
                if candidate + (-noise if above else noise) == seen:
                    return True
    return False
