"""What a person at several sites of one ledger costs in a summed round, against what the ledger says; what an active
hub that drops t sites beside t colluders sees of the noise, as it was drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fcac.aggregation.member import certain_shares
from fcac.aggregation.pooled import PooledGrowth, share_scales, site_vector
from fcac.federation import Site
from fcac.federation.summed_round import Summed
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.cell_release import noise_scales
from fcac.privacy.cell_statistics import to_grid
from fcac.privacy.samplers import InsecureTestSampler, OpenDPSampler
from fcac.privacy.zcdp import SMOOTHING, separation

BOUNDS, EPSILON, BUDGET = [[0.0, 1.0], [0.0, 1.0]], 1.0, 4.0
NAMES = [f"clinic-{n}" for n in range(4)]


class _Shares:
    """Keeps what every site adds before its share of the noise, and gives the shares of an earlier run."""

    secure = True

    def __init__(self, before: _Shares | None = None) -> None:
        self._inner, self._before = InsecureTestSampler(0), before
        self.asked: list[tuple[np.ndarray, np.ndarray, float]] = []

    def check_ready(self) -> None:
        pass

    def add_noise(self, values: Any, scale: float) -> Any:
        if self._before is None:
            noised = self._inner.add_noise(values, scale)
        else:
            noised = self._before.asked[len(self.asked)][1]
        self.asked.append((np.array(values), noised, scale))
        return noised.copy()


def _cost(with_person: _Shares, without: _Shares) -> float:
    """Return the rho of a person: by how much totals of all sites differ, over the noise that is certain in them."""
    parts: list[list[list[Any]]] = []
    for source in (with_person, without):
        groups, last = [], 0
        # a site's parts follow each other; each step asks all sites, for two parts or (with rings) three
        while last < len(source.asked):
            size = 3 if last + 2 < len(source.asked) and source.asked[last + 2][0].shape == (10,) else 2
            sites = [source.asked[last + size * place : last + size * (place + 1)] for place in range(len(NAMES))]
            groups.append([[site[part] for site in sites] for part in range(size)])
            last += size * len(NAMES)
        parts.append(groups)
    found = 0.0
    for step, other in zip(*parts, strict=True):
        for mine, theirs in zip(step, other, strict=True):
            moved = sum(item[0] for item in mine) - sum(item[0] for item in theirs)
            variance = certain_shares(len(NAMES), 1) * mine[0][2] ** 2
            found += float((moved.astype(float) ** 2).sum()) / (2.0 * (variance - SMOOTHING))
    return found


def _play(folder: Path, rows: dict[str, np.ndarray], ids: Any, source: Any) -> Ledger:
    ledger = Ledger(folder / "one.db", BUDGET)
    mechanism = NodeRelease(EPSILON, BOUNDS, ledger=ledger, n_cells=4, sampler=source)
    sites: dict[Any, Site] = {}
    Summed(sites, rows, mechanism, tolerance=1, record_ids=ids).contribute(1)
    return ledger


@pytest.mark.parametrize("n_at", [1, 2, 4])
def test_a_person_at_several_sites_costs_what_the_ledger_says(tmp_path: Path, n_at: int) -> None:
    """Spelt in another way at each of them, and with another number of rows."""
    rng = np.random.default_rng(n_at)
    crowd = {name: rng.uniform(0.0, 0.4, (15, 2)) for name in NAMES}
    ids: dict[str, list[str]] = {name: [f"{name} {n}" for n in range(15)] for name in NAMES}
    spelt = ["Ann 1", "ANN01", "ann\u200b1", " ann001 "]
    rows, named = dict(crowd), dict(ids)
    for place, name in enumerate(NAMES[:n_at]):
        rows[name] = np.vstack([crowd[name], np.ones((place + 1, 2))])
        named[name] = [*ids[name], *[spelt[place]] * (place + 1)]
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    first = _Shares()
    ledger = _play(tmp_path / "with", rows, named, first)
    second = _Shares(first)
    _play(tmp_path / "without", crowd, ids, second)
    mu, said = separation(_cost(first, second)), separation(ledger.spent_rho())
    print(f"at {n_at} sites: mu {mu:.4f}, the ledger says {said:.4f}")
    assert 0.8 * said < mu <= said * (1 + 1e-9)


@pytest.mark.soak
@pytest.mark.parametrize(("n_sites", "tolerance"), [(4, 1), (10, 1), (10, 3), (13, 4), (40, 4), (40, 13)])
def test_noise_that_was_drawn_is_as_wide_as_promised(n_sites: int, tolerance: int) -> None:
    """The exact scales are compared in tests/aggregation/test_noise_under_attack.py; these are draws of OpenDP."""
    mechanism, squares, n_drawn = NodeRelease(EPSILON, BOUNDS, n_cells=4), 0.0, 0
    request = PooledGrowth(mechanism, None, 1).request
    assert request is not None
    rows, shares = to_grid(np.empty((0, 2))), certain_shares(n_sites, tolerance)
    counts, sums, rings = noise_scales(request.radius, request.rho, request.last)
    promised = np.concatenate([np.full(1, counts), np.full(2, sums), np.full(10, rings)])
    assert share_scales(request, shares).counts ** 2 * shares >= counts**2
    for _ in range(10_000 // shares):
        left = sum(site_vector(rows, request, shares, OpenDPSampler()) for _ in range(n_sites - 2 * tolerance))
        squares += float(((left / promised) ** 2).sum())
        n_drawn += len(promised)
    ratio = math.sqrt(squares / n_drawn)
    print(f"n = {n_sites}, t = {tolerance}: {ratio:.4f} of the promised deviation over {n_drawn:,} draws")
    assert squares >= chi2.ppf(1e-9, n_drawn)
