"""Rosters: what a hub offers, what a site's operator agrees to, and hubs that lie about it."""

import stat

import numpy as np
import pytest
from aggregation_parties import TERMS, Parties

from fcac.aggregation import Collector, Member, Roster, RosterFile, SigningKey, fingerprint
from fcac.aggregation.roster import MOST_SITES, fewest_sites
from fcac.exceptions import AggregationRefused

NAME = "site-000"


def asked(parties, roster, **terms):
    """What a hub asks the first site that plays with this roster."""
    return Collector(roster, terms.get("round", 1), 1, 2, TERMS).requests()[NAME]


def changed(roster, **values):
    return Roster(**{"study": "trial", "keys": roster.keys, "tolerance": 1, "least": 4, **values})


def test_rosters_are_checked():
    keys = {name: SigningKey.new().public for name in "dcba"}
    roster = Roster("trial", keys, 1, 4)
    data = roster.to_bytes()
    assert Roster.from_bytes(data) == roster
    assert roster.names == list("abcd")
    with pytest.raises(AggregationRefused, match="cannot be read"):
        Roster.from_bytes(data[:-3])
    for broken, message in [
        ({"tolerance": 0}, "tolerance must be"),
        ({"least": 3}, "at least 4"),
        ({"least": 5}, "4 sites cannot"),
        ({"keys": dict.fromkeys("abcd", b"short")}, "32 bytes"),
        ({"keys": dict.fromkeys("abcd", bytes(32))}, "the same key"),
        ({"keys": {str(i): i.to_bytes(32, "big") for i in range(101)}}, "up to 100 sites, got 101"),
    ]:
        with pytest.raises(ValueError, match=message):
            changed(roster, **broken)
    assert fewest_sites(10) == 31
    assert MOST_SITES == 100


def test_equal_rosters_and_no_others_have_one_code():
    parties = Parties(5, 1)
    roster, other = parties.roster, SigningKey.new().public
    assert changed(roster).code == roster.code
    different = [
        changed(roster, study="other"),
        changed(roster, least=5),
        changed(roster, keys={**roster.keys, NAME: other}),
        changed(roster, keys={**roster.keys, "site-9": other}),
    ]
    assert len({roster.code, *(one.code for one in different)}) == 5


def test_hub_adds_sybils_swaps_a_key_or_lowers_the_least(tmp_path):
    """Nothing but the roster that was agreed to is played, and no key of the round leaves the site."""
    parties = Parties(5, 1, least=5)
    member, roster = parties.members[NAME], parties.roster
    for lie, reason in [
        ({"keys": {**roster.keys, "sybil": SigningKey.new().public}, "least": 5}, "site sybil is new"),
        ({"keys": {**roster.keys, "site-003": SigningKey.new().public}, "least": 5}, "site-003 has another key"),
        ({"least": 4}, "least is 4, 5 was agreed to"),
        ({"least": 5, "study": "another"}, "study is another, trial was agreed to"),
    ]:
        with pytest.raises(AggregationRefused, match=reason):
            member.answer(asked(parties, changed(roster, **lie)))
    assert (member.round, member.n_steps) == (0, 0)
    member.answer(asked(parties, roster))
    assert member.round == 1


def test_hub_has_its_own_key_under_the_sites_name():
    parties = Parties(4, 1)
    own = {**parties.roster.keys, NAME: SigningKey.new().public}
    with pytest.raises(AggregationRefused, match="site-000 has another key"):
        parties.members[NAME].answer(asked(parties, changed(parties.roster, keys=own)))


def test_a_site_that_has_left_needs_no_consent_but_too_few_are_refused():
    parties = Parties(6, 1, least=5)
    fewer = {name: key for name, key in parties.roster.keys.items() if name != "site-005"}
    parties.members[NAME].answer(asked(parties, changed(parties.roster, keys=fewer, least=5)))
    assert parties.members[NAME].round == 1


def test_sybils_do_not_count_as_known_sites():
    """A hub that revokes all others and puts sybils in their place gets no answer from the one that is left."""
    parties = Parties(5, 1, least=5)
    sybils = {f"site-{i:03d}": SigningKey.new().public for i in range(1, 5)}
    roster = changed(parties.roster, keys={NAME: parties.roster.keys[NAME], **sybils}, least=5)
    with pytest.raises(AggregationRefused, match="site-001 has another key"):
        parties.members[NAME].answer(asked(parties, roster))


def test_split_view_of_those_who_agreed_to_different_rosters():
    """Two halves were shown different rosters when they agreed; no site shares a secret with the other half."""
    parties = Parties(4, 1)
    sybil = SigningKey.new()
    other = changed(parties.roster, keys={**parties.roster.keys, "site-003": sybil.public})
    victim = Member(NAME, parties.keys[NAME], other, TERMS)
    hub = Collector(other, 1, 1, 2, TERMS)
    hub.take(NAME, victim.answer(hub.requests()[NAME]))
    hub.take("site-003", Member("site-003", sybil, other, TERMS).answer(hub.requests()["site-003"]))
    for name in ("site-001", "site-002"):
        with pytest.raises(AggregationRefused, match="site-003 has another key"):
            parties.members[name].answer(hub.requests()[name])
        # what they have signed for the true roster cannot be used under the other one
        reply = parties.members[name].answer(parties.hub.requests()[name])
        with pytest.raises(ValueError, match="not signed by it"):
            hub.take(name, reply)
        hub._answers[hub.roster.names.index(name)] = hub._answers[0]
    hub.close_stage()
    with pytest.raises(AggregationRefused, match="site-001 are not signed by it for this list of sites"):
        victim.answer(hub.requests()[NAME])


class TestConsent:
    def test_a_list_is_pinned_by_its_code_only(self, tmp_path):
        parties = Parties(4, 1)
        roster, own = parties.roster, parties.keys[NAME].public
        file = RosterFile(tmp_path)
        assert file.agreed is None
        assert file.lines() == ["The hub has not offered a list of sites yet."]
        assert file.offer(roster.to_bytes(), NAME, own) == ["no list of sites has been agreed to yet"]
        shown = "\n".join(file.lines())
        assert all(fingerprint(key) in shown for key in roster.keys.values())
        assert shown.endswith(roster.code)
        with pytest.raises(ValueError, match="shows different lists to different sites"):
            file.agree(changed(roster, least=4, study="another").code)
        assert file.agreed is None
        assert file.agree(roster.code.lower().replace("-", " ")) == file.agreed == roster
        assert stat.S_IMODE((tmp_path / "roster.fcac").stat().st_mode) == 0o600
        assert file.offer(roster.to_bytes(), NAME, own) == []
        with pytest.raises(ValueError, match="no list of sites that is still to be agreed to"):
            file.agree(roster.code)

    def test_sybils_added_later_need_consent(self, tmp_path):
        parties = Parties(4, 1)
        roster, own, file = parties.roster, parties.keys[NAME].public, RosterFile(tmp_path)
        file.offer(roster.to_bytes(), NAME, own)
        file.agree(roster.code)
        sybil, other = SigningKey.new().public, SigningKey.new().public
        later = changed(roster, keys={**roster.keys, "sybil": sybil, "site-002": other})
        found = file.offer(later.to_bytes(), NAME, own)
        assert [line.split(" (")[0] for line in found] == ["site site-002 has another key", "site sybil is new"]
        shown = file.lines()
        assert [line.split()[-1] for line in shown if "NEW" in line] == ["KEY", "NEW"]
        assert file.agreed == roster
        with pytest.raises(AggregationRefused, match="sybil is new"):
            Member(NAME, parties.keys[NAME], file.agreed, TERMS).answer(asked(parties, later))
        file.agree(later.code)
        assert Member(NAME, parties.keys[NAME], file.agreed, TERMS).answer(asked(parties, later))

    def test_a_list_without_the_sites_own_key(self, tmp_path):
        parties = Parties(4, 1)
        with pytest.raises(AggregationRefused, match="does not have this site's key"):
            RosterFile(tmp_path).offer(parties.roster.to_bytes(), NAME, SigningKey.new().public)
        unreadable = Parties(4, 1).roster.to_bytes().replace(b"site-001", b"site\\u0007")
        with pytest.raises(AggregationRefused, match="cannot be read"):
            RosterFile(tmp_path).offer(unreadable, NAME, parties.keys[NAME].public)

    def test_keys_are_made_at_the_site_and_kept(self, tmp_path):
        key = SigningKey.at(tmp_path / "summing.key")
        assert SigningKey.at(tmp_path / "summing.key").public == key.public
        assert stat.S_IMODE((tmp_path / "summing.key").stat().st_mode) == 0o600
        (tmp_path / "summing.key").write_text("nonsense")
        with pytest.raises(ValueError, match="put the right file back"):
            SigningKey.at(tmp_path / "summing.key")


def test_member_checks_every_advert_not_only_those_that_the_hub_picks():
    """The hub cannot choose who sees whose keys: all sites that take part are checked at every site."""
    parties = Parties(40, 4, n_steps=1)
    parties.stage()
    message = parties.hub._ask_share(0)
    assert len(message.arrays["adverts"]) == 40
    for place in (1, 17, 39):
        adverts = message.arrays["adverts"].copy()
        adverts[place, 40] ^= 1
        forged = message._replace(arrays={**message.arrays, "adverts": adverts})
        with pytest.raises(AggregationRefused, match=f"site-{place:03d} are not signed by it"):
            parties.members[NAME].answer(forged.to_bytes("aggregation-request"))
    assert np.array_equal(message.arrays["adverts"][0], parties.hub._ask_share(5).arrays["adverts"][0])
