"""Rounds in one process whose sites are summed before anyone sees."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fcac import FCAC
from fcac.aggregation import Assignment
from fcac.aggregation.pooled import POOLED, PooledGrowth, site_vector, step_cost
from fcac.exceptions import BudgetExceeded, LedgerError, TooFewSites
from fcac.federation import Server
from fcac.federation.rounds import Round
from fcac.federation.summed_round import PooledRows, Summed, tolerance_for
from fcac.model import storage
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.cell_statistics import WEIGHT, to_grid
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
        growth.take(site_vector(rows, growth.request, 3, alone), n_sites, 3)
    assert replace(sites[POOLED].model, account=growth.released.account) == growth.released


@pytest.mark.slow
def test_sites_that_vanish_are_left_out(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", 4, 1e-6)
    mechanism = _mechanism(ledger=ledger)

    def fault(site, stage, step, answer):
        if (site, stage) == ("s1", "share") or (site, stage, step) == ("s4", "confirm", 2):
            return None
        return answer

    sent = play_summed_round(Server(), {}, _sites(7), mechanism, tolerance=2, fault=fault)
    assert sent.privacy["sites"] == 5
    # the sites are one owner's: a step that any of them drew is charged, once for all
    assert len(ledger.entries()) == 6
    assert ledger.spent_rho() == pytest.approx(mechanism.rho)


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
    assert len(ledger.entries()) == before == 6
    assert all(entry["completed"] for entry in ledger.entries())


@pytest.mark.slow
def test_small_sites_find_the_clusters_together():
    """Forty sites of one to twenty rows: alone, none of them could say anything."""
    rows, truth = _rows(420)
    site = np.repeat(np.arange(40), 1 + np.arange(40) % 20)
    model = FCAC(privacy=_mechanism(), aggregation="secure:t=2", random_state=0).fit(
        rows, groups=site, public_groups=True
    )
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
    storage.save(model, tmp_path / "model.fcac")
    again = storage.load(tmp_path / "model.fcac")
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
    with pytest.raises(ValueError, match="up to 100 sites, got 101"):
        tolerance_for(101, None)


@pytest.mark.slow
def test_rows_in_pieces_are_joined():
    data = _sites(4, 80)
    pieces = [(name, half) for name, rows in data.items() for half in np.array_split(rows, 2)]
    streamed = FCAC(privacy=_mechanism(7), aggregation="secure", random_state=0).play_stream(iter(pieces), 2)
    at_once = FCAC(privacy=_mechanism(7), aggregation="secure", random_state=0).fit(data)
    assert np.array_equal(streamed.server_.nodes, at_once.server_.nodes)


class _Watched(Ledger):
    """Takes note of charges and draws in their order."""

    def admit(self, *given, **named):
        admission = super().admit(*given, **named)
        self.told.append("charged")
        return admission


class TestWhatARoundCosts:
    """People with rows at several sites of one ledger, ledgers that were put back, and the order of charge and draw."""

    def _pooled(self, tmp_path, budget=8.0, seed=1):
        ledger = Ledger(tmp_path / "ledger.db", budget, 1e-6)
        return ledger, NodeRelease(4, BOUNDS, ledger=ledger, sampler=InsecureTestSampler(seed))

    def _people(self, mechanism, prepared):
        pooled = PooledRows(mechanism, prepared)
        growth = PooledGrowth(mechanism, None, 1)
        assigned = Assignment(growth.task(), 1, growth.n_steps, 2)
        return pooled, growth, assigned

    def test_a_person_at_four_sites_is_one_person(self, tmp_path):
        """Their rows weigh one row together, and they are charged once, under whatever spelling."""
        ledger, mechanism = self._pooled(tmp_path)
        spelled = ["Ann", "ann", " ANN ", "\uff21nn"]
        rows = np.array([[0.9, 0.9]])
        silent = InsecureTestSampler(0, factor=0.0)
        mechanism.sampler = silent
        prepared = {
            f"s{i}": mechanism.prepare(rows, site=f"s{i}", round=1, record_ids=[name]) for i, name in enumerate(spelled)
        }
        pooled, growth, assigned = self._people(mechanism, prepared)
        total = sum(pooled(name, assigned) for name in prepared)
        n_cells, d = growth.request.codebook.shape
        counts, sums = total[:n_cells], total[n_cells : n_cells * (d + 1)].reshape(n_cells, d)
        assert counts.sum() == WEIGHT
        assert np.linalg.norm(sums) <= WEIGHT * growth.request.radius
        assert len(ledger.entries()) == 1
        assert ledger.people() == [pytest.approx(ledger.spent())]
        assert ledger.spent_rho() == pytest.approx(step_cost(mechanism, 1, growth.n_steps))

    def test_people_who_have_spent_all_are_left_out_at_every_site(self, tmp_path):
        ledger, mechanism = self._pooled(tmp_path, budget=4.0)
        mechanism.sampler = InsecureTestSampler(0, factor=0.0)
        ledger.charge("before", mechanism.rho, record_ids=["ann"])
        rows = np.array([[0.9, 0.9], [0.1, 0.1]])
        prepared = {
            f"s{i}": mechanism.prepare(rows, site=f"s{i}", round=1, record_ids=["ann", f"bob{i}"]) for i in range(3)
        }
        pooled, growth, assigned = self._people(mechanism, prepared)
        total = sum(pooled(name, assigned) for name in prepared)
        assert total[: len(growth.request.codebook)].sum() == 3 * WEIGHT
        assert ledger.spent() <= 4.0

    def test_charged_before_anybody_draws_and_once_a_step(self, tmp_path):
        told = []

        class Sampler(InsecureTestSampler):
            def add_noise(self, values, scale):
                told.append("drawn")
                return super().add_noise(values, scale)

        ledger = _Watched(tmp_path / "ledger.db", 8.0, 1e-6)
        ledger.told = told
        mechanism = NodeRelease(4, BOUNDS, ledger=ledger, sampler=Sampler(1))
        play_summed_round(Server(), {}, _sites(4, 80), mechanism)
        assert told == [*(["charged", *["drawn"] * 12] * 5), "charged", *["drawn"] * 8]

    def test_nothing_is_drawn_if_the_charge_is_refused(self, tmp_path):
        ledger, mechanism = self._pooled(tmp_path, budget=0.01)
        sampler = mechanism.sampler = _Recorded(1)
        rows = mechanism.prepare(_rows(20)[0], site="s0", round=1)
        pooled, _, assigned = self._people(mechanism, {"s0": rows})
        with pytest.raises(BudgetExceeded):
            pooled("s0", assigned)
        assert sampler.noise == []
        assert ledger.entries() == []

    def test_a_ledger_that_was_put_back_or_deleted_stops_the_round(self, tmp_path):
        ledger, mechanism = self._pooled(tmp_path, budget=30.0)
        sites, server = {}, Server()
        play_summed_round(server, sites, _sites(4, 80), mechanism)
        old = Path(ledger.path).read_bytes()
        play_summed_round(server, sites, _sites(4, 80, seed=1), mechanism)
        for put_back in (lambda: Path(ledger.path).write_bytes(old), lambda: Path(ledger.path).unlink()):
            put_back()
            with pytest.raises(LedgerError, match=r"older|is missing but its key"):
                play_summed_round(server, sites, _sites(4, 80, seed=2), mechanism)
            assert server.n_rounds == 2

    def test_an_attempt_in_vain_is_counted(self, tmp_path):
        ledger, mechanism = self._pooled(tmp_path, budget=30.0)
        sites, server = {}, Server()
        play_summed_round(server, sites, _sites(5, 80), mechanism)
        told = sites[POOLED].model.account

        def fault(site, stage, step, answer):
            return None if stage == "mask" and step == 2 and site in ("s0", "s1") else answer

        with pytest.raises(TooFewSites):
            play_summed_round(server, sites, _sites(5, 80, seed=1), mechanism, fault=fault)
        after = sites[POOLED].model.account
        assert after.rho == pytest.approx(ledger.spent_rho())
        assert after.spent == pytest.approx(ledger.spent())
        assert after.rho > 1.3 * told.rho

    def test_ids_at_some_sites_only_are_refused(self, tmp_path):
        _, mechanism = self._pooled(tmp_path)
        prepared = {
            name: mechanism.prepare(_rows(3)[0], site=name, round=1, record_ids=ids)
            for name, ids in (("a", list("xyz")), ("b", None))
        }
        with pytest.raises(ValueError, match="or none does"):
            PooledRows(mechanism, prepared)
