"""A site refuses a hub that tampers, and says why."""

import numpy as np
import pytest
from aggregation_parties import TERMS, Parties

from fcac.aggregation import Collector, Member, SigningKey
from fcac.aggregation.messages import REPLY, REQUEST, Message, as_bits
from fcac.exceptions import AggregationRefused

NAME = "site-000"


def changed(request, **values):
    """A request with other arrays or values, as a tampering hub would send it."""
    message = Message.from_bytes(request, REQUEST)
    for name, value in values.items():
        (message.arrays if isinstance(value, np.ndarray) else message.meta)[name] = value
    return message.to_bytes(REQUEST)


def bits(places, parties):
    return as_bits(places, len(parties.roster.names))


def request_at(parties, stages):
    for _ in range(stages):
        parties.stage()
    if parties.hub.stage == "mask":
        parties.hub.begin_step(b"task")
    return parties.hub.requests()[NAME]


def test_other_terms():
    parties = Parties(4, 1)
    hub = Collector(parties.roster, 1, 1, 2, b"a larger epsilon")
    with pytest.raises(AggregationRefused, match="other terms"):
        parties.members[NAME].answer(hub.requests()[NAME])


def test_a_step_with_two_sites():
    parties = Parties(4, 1)
    request = request_at(parties, 1)
    with pytest.raises(AggregationRefused, match="2 sites take part; this study needs at least 4"):
        parties.members[NAME].answer(changed(request, joined=bits([0, 1], parties)))


def test_a_step_of_fewer_than_the_noise_was_made_for():
    parties = Parties(7, 2)
    request = request_at(parties, 2)
    with pytest.raises(AggregationRefused, match="4 of 7 sites; fewer than 5 would have too little noise"):
        parties.answer(NAME, changed(request, active=bits([0, 1, 2, 3], parties)))
    assert parties.drawn == []


def test_keys_of_the_hub_instead_of_a_neighbours():
    parties = Parties(4, 1)
    request = request_at(parties, 1)
    adverts = Message.from_bytes(request, REQUEST).arrays["adverts"].copy()
    adverts[2, :32] ^= 1
    with pytest.raises(AggregationRefused, match="site-002 are not signed by it"):
        parties.members[NAME].answer(changed(request, adverts=adverts))


def test_different_lists_of_sites_to_different_sites():
    parties = Parties(5, 1)
    parties.stage()
    requests = parties.hub.requests()
    other = dict(requests)
    parties.answer(NAME, changed(requests[NAME], joined=bits([0, 1, 2, 3], parties), adverts=_first(requests[NAME], 4)))
    for name in list(other)[1:]:
        parties.hub.take(name, parties.answer(name, other[name]))
    parties.hub.close_stage()
    parties.hub.begin_step(b"task")
    sealed = Message.from_bytes(parties.hub.requests()["site-001"], REQUEST)
    assert sealed.places("active", 5) == [1, 2, 3, 4]
    request = changed(parties.hub._ask_mask(0).to_bytes(REQUEST), active=bits([0, 1, 2, 3], parties))
    rows = Message.from_bytes(request, REQUEST).arrays["sealed"][:3]
    with pytest.raises(AggregationRefused, match="told of another list of sites"):
        parties.answer(NAME, changed(request, sealed=rows))


def _first(request, n):
    return Message.from_bytes(request, REQUEST).arrays["adverts"][:n]


def test_a_changed_share():
    parties = Parties(4, 1)
    request = request_at(parties, 2)
    sealed = Message.from_bytes(request, REQUEST).arrays["sealed"].copy()
    sealed[0, 0] ^= 1
    with pytest.raises(AggregationRefused, match="site-001 sent to this site was changed"):
        parties.answer(NAME, changed(request, sealed=sealed))


def test_a_message_that_the_hub_drops():
    parties = Parties(4, 1)
    request = request_at(parties, 3)
    with pytest.raises(AggregationRefused, match="has not arrived, though it answered"):
        parties.answer(NAME, changed(request, survivors=bits([1, 2, 3], parties)))


def test_different_survivors_to_different_sites():
    parties = Parties(5, 1)
    requests_before = request_at(parties, 3)
    parties.answer(NAME, changed(requests_before, survivors=bits([0, 1, 2, 3], parties)))
    for name, request in list(parties.hub.requests().items())[1:]:
        parties.hub.take(name, parties.answer(name, request))
    parties.hub.close_stage()
    with pytest.raises(AggregationRefused, match=r"has not confirmed this list|must, so that the hub"):
        parties.answer(NAME, parties.hub.requests()[NAME])


def test_too_few_confirmations():
    parties = Parties(7, 2)
    request = request_at(parties, 4)
    rows = Message.from_bytes(request, REQUEST).arrays["signatures"][:4]
    with pytest.raises(AggregationRefused, match=r"4 sites confirm .* 5 of the 7 sites must"):
        parties.answer(NAME, changed(request, signers=bits([0, 1, 2, 3], parties), signatures=rows))


def test_a_confirmation_that_a_site_has_not_signed():
    parties = Parties(7, 2)
    request = request_at(parties, 4)
    signatures = Message.from_bytes(request, REQUEST).arrays["signatures"].copy()
    signatures[3] = signatures[2]
    with pytest.raises(AggregationRefused, match="site-003 has not confirmed this list"):
        parties.answer(NAME, changed(request, signatures=signatures))


def test_a_replayed_round_and_a_replayed_step():
    parties = Parties(4, 1)
    first = parties.hub.requests()[NAME]
    request_at(parties, 2)
    masked = parties.hub.requests()[NAME]
    answer = parties.answer(NAME, masked)
    assert parties.answer(NAME, masked) == answer  # the same request, the same bytes, no second draw
    assert parties.drawn == [(NAME, 1)]
    with pytest.raises(AggregationRefused, match="keys of a step are used once"):
        parties.answer(NAME, changed(masked, task=np.frombuffer(b"another task", np.uint8)))
    later = Collector(parties.roster, 2, 1, 2, TERMS)
    parties.answer(NAME, later.requests()[NAME])
    with pytest.raises(AggregationRefused, match=r"is over .* not played again"):
        parties.answer(NAME, first)
    with pytest.raises(AggregationRefused, match="another session"):
        parties.answer(NAME, masked)


def test_steps_out_of_order():
    parties = Parties(4, 1)
    request = request_at(parties, 2)
    message = Message.from_bytes(request, REQUEST)
    with pytest.raises(AggregationRefused, match="step 2 does not follow step 0"):
        parties.answer(NAME, message._replace(step=2).to_bytes(REQUEST))
    with pytest.raises(AggregationRefused, match="out of order"):
        parties.answer(NAME, message._replace(stage="reveal").to_bytes(REQUEST))
    with pytest.raises(AggregationRefused, match="cannot be used"):
        parties.answer(NAME, b"no message at all")


def test_masked_vectors_do_not_show_the_vector():
    parties = Parties(4, 1, size=4000)
    request = request_at(parties, 2)
    sent = Message.from_bytes(parties.answer(NAME, request), REPLY).arrays["masked"]
    # of 4,000 uniform numbers of 64 bits, about half are negative and hardly any is as small as the vector's
    assert abs((sent < 0).mean() - 0.5) < 0.05
    assert (np.abs(sent) < 2**50).sum() < 5
    assert np.abs(parties.vectors[NAME]).max() < 2**50


def test_member_goes_on_after_its_process_ended():
    parties = Parties(5, 1)
    for _ in range(8):
        parties.stage()
        for name, member in parties.members.items():
            restored = Member(name, parties.keys[name], parties.roster, TERMS)
            restored.restore(member.to_bytes())
            parties.members[name] = restored
        if parties.hub.total is not None:
            assert np.array_equal(parties.hub.total, parties.expected())
    assert parties.hub.total is not None
    with pytest.raises(ValueError, match="belongs to site"):
        Member("other", SigningKey.new(), parties.roster, TERMS).restore(parties.members[NAME].to_bytes())


def test_noise_is_sized_for_those_that_are_certain():
    parties = Parties(7, 2)
    parties.setup()
    parties.stage(lambda name: name == "site-006")
    assert {assigned.certain_shares for assigned in parties.assigned} == {3}


def test_every_step_has_keys_of_its_own():
    """A key used in two steps could be revealed in one and expose the site in the other."""
    parties = Parties(4, 1, n_steps=6)
    parties.setup()
    seeds, public = set(), set()
    for member in parties.members.values():
        session = member._session
        seeds |= {*session.own_seeds, *session.mask_seeds, session.sealing_seed}
        public |= {key for place in session.joined for key in session.advert(place).masking}
    assert len(seeds) == 4 * (6 + 6 + 1)
    assert len(public) == 4 * 6
    marks = [mark for own in parties.hub._marks.values() for mark in own]
    assert len(set(marks)) == 4 * 6


def test_secrets_of_a_step_are_gone_once_it_is_over():
    parties = Parties(4, 1)
    parties.setup()
    before = parties.members[NAME]._session.own_seeds[0]
    for _ in range(3):
        parties.stage()
    assert before.hex() not in str(parties.members[NAME].to_bytes())
    assert parties.members[NAME]._session.mask_seeds[0] == bytes(16)
