"""Rounds in one process whose sites are summed before anyone sees."""

import numpy as np
import pytest

from fcac import FCAC
from fcac.aggregation.pooled import POOLED, PooledGrowth, site_vector
from fcac.exceptions import BudgetExceeded, TooFewSites
from fcac.federation import Server
from fcac.federation.pooled import Summed, tolerance_for
from fcac.federation.rounds import Round
from fcac.model import models
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.cell_statistics import to_grid
from fcac.privacy.samplers import InsecureTestSampler

BOUNDS = [[0, 1], [0, 1]]


def _rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]])
    which = rng.integers(3, size=n)
    return np.clip(rng.normal(centres[which], 0.04), 0, 1), which


def _sites(n_sites, n=600, seed=0):
    rows, _ = _rows(n, seed)
    return {f"s{i}": rows[i::n_sites] for i in range(n_sites)}


def play_summed_round(server, sites, data, privacy, **settings):
    (sent,) = Round.play(server, Summed(sites, data, privacy, **settings)).sent
    return sent


def _mechanism(seed=1, **more):
    return NodeRelease(4, BOUNDS, sampler=InsecureTestSampler(seed), **more)


class _Recorded:
    """A named test sampler that remembers the noise of every call."""

    secure = False

    def __init__(self, seed):
        self.inner, self.noise = InsecureTestSampler(seed), []

    def check_ready(self):
        pass

    def add_noise(self, values, scale):
        noised = self.inner.add_noise(values, scale)
        self.noise.append(noised - values)
        return noised


class _Replayed(_Recorded):
    """Adds the sum of what several sites have drawn, part by part."""

    def add_noise(self, values, scale):
        return values + self.noise.pop(0)


@pytest.mark.slow
def test_totals_equal_those_of_one_site_with_the_same_rows_and_noise():
    """Bit for bit: the protocol adds nothing and loses nothing."""
    n_sites, sampler = 5, _Recorded(3)
    data, sites = _sites(n_sites), {}
    play_summed_round(Server(), sites, data, NodeRelease(4, BOUNDS, sampler=sampler))
    alone = _Replayed(0)
    drawn = iter(sampler.noise)
    for step in range(6):
        parts = 2 if step == 5 else 3
        by_site = [[next(drawn) for _ in range(parts)] for _ in range(n_sites)]
        alone.noise += [sum(own[part] for own in by_site) for part in range(parts)]
    mechanism = NodeRelease(4, BOUNDS, sampler=alone)
    rows, growth = to_grid(np.vstack(list(data.values()))), PooledGrowth(mechanism, None, 1)
    while growth.request is not None:
        growth.take(site_vector(rows, growth.request, 4, alone), n_sites, 4)
    assert sites[POOLED].model == growth.released


@pytest.mark.slow
def test_sites_that_vanish_are_left_out_and_pay_only_for_what_they_drew(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 4, 1e-6)
    mechanism = _mechanism(ledger=ledger)

    def fault(site, stage, step, answer):
        if (site, stage) == ("s1", "share") or (site, stage, step) == ("s4", "confirm", 2):
            return None
        return answer

    sent = play_summed_round(Server(), {}, _sites(7), mechanism, tolerance=2, fault=fault)
    assert sent.privacy["sites"] == 5
    spent = {name: ledger.spent_rho(name) for name in ("s0", "s1", "s4")}
    assert spent["s1"] == 0
    assert spent["s0"] == pytest.approx(mechanism.rho)
    assert spent["s4"] == pytest.approx(0.15 * mechanism.rho)
    assert ledger.spent("s0") <= 4


def test_too_many_vanish():
    def fault(site, stage, step, answer):
        return None if stage == "mask" and step == 2 and site in ("s0", "s1") else answer

    server, sites = Server(), {}
    with pytest.raises(TooFewSites, match="3 of 5 sites have sent"):
        play_summed_round(server, sites, _sites(5), _mechanism(), fault=fault)
    assert server.n_rounds == 0
    assert sites == {}


@pytest.mark.slow
def test_budget_is_checked_before_anybody_pays(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 4, 1e-6)
    mechanism, sites = _mechanism(ledger=ledger), {}
    play_summed_round(Server(), sites, _sites(4), mechanism)
    before = len(ledger.entries())
    with pytest.raises(BudgetExceeded, match="s0"):
        play_summed_round(Server(), sites, _sites(4, seed=2), mechanism)
    assert len(ledger.entries()) == before == 24
    assert all(entry["completed"] for entry in ledger.entries())


@pytest.mark.slow
def test_small_sites_find_the_clusters_together():
    """Forty sites of one to twenty rows: alone, none of them could say anything."""
    rows, truth = _rows(420)
    site = np.repeat(np.arange(40), 1 + np.arange(40) % 20)
    model = FCAC(privacy=_mechanism(), aggregation="secure:t=2", random_state=0).fit(rows, groups=site)
    labels = model.predict(rows)
    assert model.n_clusters_ >= 2
    assert np.mean([np.bincount(labels[truth == k]).max() / (truth == k).sum() for k in range(3)]) > 0.8
    assert model.server_.sites == [POOLED]


@pytest.mark.slow
def test_estimator_goes_on_saves_and_refuses_to_forget(tmp_path):
    mechanism = NodeRelease(4, BOUNDS)
    model = FCAC(privacy=mechanism, aggregation="secure", random_state=0).fit(_sites(4, 200))
    statement = model.server_.latest()[POOLED].privacy
    assert (statement["aggregation"], statement["sites"], statement["tolerance"]) == ("secure", 4, 1)
    models.save(model, tmp_path / "model.fcac")
    again = models.load(tmp_path / "model.fcac")
    assert again.aggregation == "secure"
    again.partial_fit(_sites(5, 200, seed=1))
    assert again.n_rounds_ == 2
    assert again.sites_[POOLED].model.n_releases == 2
    assert again.lineage_
    with pytest.raises(ValueError, match="cannot be unsummed"):
        again.forget("s0")
    assert again.export().nodes.shape[1] == 2


def test_settings_that_do_not_fit():
    data = _sites(4, 40)
    with pytest.raises(ValueError, match="only the totals of NodeRelease"):
        FCAC(aggregation="secure").fit(data)
    with pytest.raises(ValueError, match="'secure:t=2'"):
        FCAC(privacy=_mechanism(), aggregation="safe").fit(data)
    with pytest.raises(ValueError, match="needs at least 7 sites, this round has 4"):
        FCAC(privacy=_mechanism(), aggregation="secure:t=2").fit(data)
    with pytest.raises(ValueError, match="sample_weight"):
        FCAC(privacy=_mechanism(), aggregation="secure").fit(np.vstack(list(data.values())), sample_weight=np.ones(40))
    assert tolerance_for(100, None) == 10


@pytest.mark.slow
def test_rows_in_pieces_are_joined():
    data = _sites(4, 80)
    pieces = [(name, half) for name, rows in data.items() for half in np.array_split(rows, 2)]
    streamed = FCAC(privacy=_mechanism(7), aggregation="secure", random_state=0).play_stream(iter(pieces), 2)
    at_once = FCAC(privacy=_mechanism(7), aggregation="secure", random_state=0).fit(data)
    assert np.array_equal(streamed.server_.nodes, at_once.server_.nodes)
