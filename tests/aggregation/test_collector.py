"""The hub: totals of those that remain, whoever vanishes when."""

import numpy as np
import pytest
from aggregation_parties import Parties

from fcac.aggregation.messages import MessageError
from fcac.exceptions import TooFewSites


@pytest.mark.slow
@pytest.mark.parametrize(("n_sites", "tolerance"), [(4, 1), (7, 2), (12, 1)])
def test_total_is_the_sum(n_sites, tolerance):
    parties = Parties(n_sites, tolerance)
    parties.setup()
    for _ in range(2):
        for _ in range(3):
            parties.stage()
        assert len(parties.hub.survivors) == n_sites
        assert np.array_equal(parties.hub.total, parties.expected())


@pytest.mark.parametrize("when", range(1, 8))
def test_sites_vanish_at_any_stage(when):
    parties = Parties(7, 2, seed=when)
    victims = {"site-001", "site-005"}
    totals = 0
    for number in range(8):
        parties.stage((lambda name: name in victims) if number == when else None)
        if parties.hub.total is not None:
            assert np.array_equal(parties.hub.total, parties.expected())
            assert len(parties.hub.survivors) >= 5
            totals += 1
            parties.hub.total = None
    assert totals == 2


def test_those_who_vanish_after_their_vector_arrived_are_counted():
    parties = Parties(7, 2)
    parties.setup()
    parties.stage()
    parties.stage(lambda name: name == "site-003")
    parties.stage()
    assert len(parties.hub.survivors) == 7
    assert np.array_equal(parties.hub.total, parties.expected())
    assert len(parties.hub.active) == 6


@pytest.mark.parametrize("when", range(8))
def test_too_many_vanish_and_nothing_is_learned(when):
    parties = Parties(7, 2, seed=when, least=7)
    for _ in range(when):
        parties.stage()
        parties.hub.total = None
    with pytest.raises(TooFewSites, match=r"needed|must"):
        parties.stage(lambda name: name < "site-004")
    assert parties.hub.total is None
    # a vector is computed, and noise drawn, only once the step has been asked for
    assert len(parties.drawn) == 7 * ((when > 1) + (when > 4))


@pytest.mark.slow
def test_one_hundred_sites_ten_killed_at_random_stages():
    _hundred_sites(seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_one_hundred_sites_many_times(seed):
    _hundred_sites(seed)


def _hundred_sites(seed):
    parties = Parties(100, 10, seed=seed, n_steps=1)
    rng = np.random.default_rng(seed)
    when = {f"site-{i:03d}": rng.integers(1, 5) for i in rng.choice(100, size=10, replace=False)}
    for number in range(5):
        parties.stage(lambda name, number=number: when.get(name) == number)
    assert np.array_equal(parties.hub.total, parties.expected())
    assert len(parties.hub.survivors) == 100 - sum(stage <= 2 for stage in when.values())
    assert len(parties.drawn) == 100 - sum(stage == 1 for stage in when.values())
    assert len(parties.gone) == 10


def test_hub_refuses_what_is_no_answer():
    parties = Parties(4, 1)
    requests = parties.hub.requests()
    reply = parties.answer("site-000", requests["site-000"])
    with pytest.raises(MessageError, match="not asked"):
        parties.hub.take("somebody", reply)
    with pytest.raises(MessageError, match="not signed by it"):
        parties.hub.take("site-001", reply)
    with pytest.raises(MessageError, match="not an FCAC file"):
        parties.hub.take("site-001", b"nothing")
    parties.hub.take("site-000", reply)
    assert parties.hub.waiting() == ["site-001", "site-002", "site-003"]


def test_wrong_shares_are_noticed():
    parties = Parties(4, 1)
    parties.setup()
    parties.stage()
    parties.stage()
    for name, request in parties.hub.requests().items():
        parties.hub.take(name, parties.answer(name, request))
    reply = parties.hub._answers[0]
    reply.arrays["shares"] = reply.arrays["shares"] ^ 1
    with pytest.raises(TooFewSites, match="do not fit together"):
        parties.hub.close_stage()


def test_same_closed_stages_give_the_same_total_after_a_restart():
    parties = Parties(4, 1)
    kept = []
    for _ in range(5):
        if parties.hub.stage == "mask":
            parties.hub.begin_step(b"task 1")
        answers = {name: parties.answer(name, request) for name, request in parties.hub.requests().items()}
        kept.append(answers)
        for name, reply in answers.items():
            parties.hub.take(name, reply)
        parties.hub.close_stage()
    total = parties.hub.total
    again = Parties(4, 1)
    again.hub = type(parties.hub)(parties.roster, 1, 1, 2, b"terms of the study")
    for answers in kept:
        if again.hub.stage == "mask":
            again.hub.begin_step(b"task 1")
        for name, reply in answers.items():
            again.hub.take(name, reply)
        again.hub.close_stage()
    assert np.array_equal(again.hub.total, total)
