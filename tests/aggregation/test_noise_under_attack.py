"""An active hub drops t sites and has t colluders: which shares of noise remain, and how wide they are together."""

import math

import numpy as np
import pytest
from aggregation_parties import Parties

from fcac.aggregation.pooled import PooledGrowth, read_task, site_vector
from fcac.exceptions import AggregationRefused, TooFewSites
from fcac.privacy import NodeRelease
from fcac.privacy.cell_release import noise_scales
from fcac.privacy.cell_statistics import to_grid

BOUNDS = [[0, 1], [0, 1]]


class _Scales:
    """Takes note of the scale of every share instead of drawing it, so that nothing here is up to chance."""

    secure = False

    def __init__(self):
        self.asked = []

    def check_ready(self):
        pass

    def add_noise(self, values, scale):
        self.asked.append(scale)
        return values


class _Attack:
    """A round of which the hub drops the first t sites in the first step, while the last t collude with it."""

    def __init__(self, n_sites, tolerance):
        self.parties = Parties(n_sites, tolerance, n_steps=6)
        self.mechanism = NodeRelease(1, BOUNDS, n_cells=4)
        self.growth = PooledGrowth(self.mechanism, None, 1)
        self.dropped = {f"site-{i:03d}" for i in range(tolerance)}
        self.colluders = {f"site-{i:03d}" for i in range(n_sites - tolerance, n_sites)}
        self.scales, self.vectors = {}, {}
        rng = np.random.default_rng(0)
        self.rows = {name: to_grid(rng.random((3, 2))) for name in self.parties.members}

    def stage(self, dropped=()):
        hub = self.parties.hub
        for name, request in hub.requests().items():
            if name in self.parties.gone:
                continue
            sampler = _Scales()

            def work(assigned, name=name, sampler=sampler):
                task = read_task(assigned, self.mechanism)
                vector = site_vector(self.rows[name], task, assigned.certain_shares, sampler)
                self.scales[name], self.vectors[name] = sampler.asked, vector
                return vector

            reply = self.parties.members[name].answer(request, work)
            if name in dropped:
                self.parties.gone.add(name)
            else:
                hub.take(name, reply)
        hub.close_stage()


@pytest.mark.slow
@pytest.mark.parametrize(("n_sites", "tolerance"), [(4, 1), (10, 1), (10, 3), (13, 4), (40, 4), (40, 13)])
def test_noise_that_remains_is_as_wide_as_promised(n_sites, tolerance):
    attack = _Attack(n_sites, tolerance)
    attack.stage()
    attack.stage()
    hub = attack.parties.hub
    hub.begin_step(attack.growth.task())
    attack.stage(attack.dropped)  # they have drawn and answered; the hub says that nothing came
    attack.stage()
    attack.stage()
    remains = hub.total - sum(attack.vectors[name] for name in attack.colluders)
    honest = set(attack.vectors) - attack.dropped - attack.colluders
    # the total holds the shares of exactly these sites, so their noise is what protects a record
    assert np.array_equal(remains, sum(attack.vectors[name] for name in honest))
    assert len(honest) == n_sites - 2 * tolerance
    request = attack.growth.request
    for part, promised in enumerate(noise_scales(request.radius, request.rho, request.last)):
        left = math.sqrt(math.fsum(attack.scales[name][part] ** 2 for name in honest))
        assert promised <= left < promised * (1 + 1e-9)


@pytest.mark.parametrize("stage", ["mask", "confirm"])
def test_one_more_cannot_be_dropped(stage):
    """Neither a hub that follows the protocol nor one that goes on all the same gets a total of fewer sites."""
    attack = _Attack(7, 2)
    attack.stage()
    attack.stage()
    hub = attack.parties.hub
    hub.begin_step(attack.growth.task())
    if stage == "mask":
        with pytest.raises(TooFewSites, match="4 of 7 sites have sent their vectors; at least 5"):
            attack.stage([*attack.dropped, "site-002"])
        return
    attack.stage(attack.dropped)
    hub.survivors.remove(2)
    with pytest.raises(AggregationRefused, match="4 of 7 sites; fewer than 5"):
        attack.parties.members["site-003"].answer(hub.requests()["site-003"])
