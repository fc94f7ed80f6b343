"""Rounds of secure aggregation through the real hub, site agents and files, in one process."""

import shutil

import numpy as np
import pytest

from fcac.aggregation import Roster, SigningKey
from fcac.aggregation.messages import REQUEST, Message, as_bits
from fcac.aggregation.pooled import POOLED
from fcac.deployment import invitations, wire
from fcac.deployment import study as studies
from fcac.deployment.aggregated_study import read_roster, summing_for
from fcac.deployment.conversation import Conversation
from fcac.deployment.hub import Hub
from fcac.deployment.pooled_agent import PooledAgent
from fcac.deployment.pooled_hub import PooledHub
from fcac.deployment.rehearsal import join_here
from fcac.deployment.settings import STATE, FederationSettings, SiteSettings
from fcac.deployment.site_agent import SiteAgent, load_model
from fcac.deployment.site_setup import site_settings
from fcac.deployment.status_lines import describe
from fcac.exceptions import AggregationRefused, TooFewSites
from fcac.privacy import Ledger
from testing.commands import fcac
from testing.data import write_csv
from testing.federation_study import SCHEMA, DirectWire, Study

pytestmark = pytest.mark.slow

NAMES = ["a", "b", "c", "d", "e"]


def _rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice([-4.0, 4.0], size=(n, 1)), 0.5, size=(n, 2))


@pytest.fixture
def summed(tmp_path):
    summing = summing_for(4.0, 1e-6, 1, 4)
    made = Study(tmp_path, NAMES, server="communities", summing=summing, epsilon=4.0, budget=20.0)
    made.give({name: _rows(30, i) for i, name in enumerate(NAMES)})
    return made


def _ledger(study, name):
    path = study.state(name) / "ledger.db"
    return Ledger(path, 20.0, 1e-6)


def _log(study, name):
    path = study.state(name) / "site.log"
    return path.read_text() if path.exists() else ""


def test_two_rounds_and_labels_at_the_sites(summed):
    summed.play()
    server = summed.server
    assert server.sites == [POOLED]
    statement = server.latest()[POOLED].privacy
    assert (statement["aggregation"], statement["sites"], statement["epsilon"]) == ("secure", 5, 4.0)
    entries = _ledger(summed, "a").entries()
    assert len(entries) == 6
    assert all(entry["completed"] for entry in entries)
    assert _ledger(summed, "a").spent("a") <= 4.0
    labels = load_model(summed.state("a")).predict(np.array([[-4.0, -4.0], [4.0, 4.0]]))
    assert labels[0] != labels[1]
    summed.give({"a": _rows(10, 9)}, file="more.csv")
    summed.play()
    assert summed.server.n_rounds == 2
    assert "10 new rows to be summed" in _log(summed, "a")
    assert "0 new rows to be summed" in _log(summed, "b")
    assert len(_ledger(summed, "b").entries()) == 9  # three steps in a later round; an empty batch is answered too
    lines = "\n".join(describe(summed.root))
    assert "all sites are summed" in lines
    assert "sites in the latest total: 5" in lines
    assert not list((summed.root / "state" / "summing").glob("*-*"))
    assert not (summed.state("a") / "summing-rows.fcac").exists()


def test_a_site_vanishes_in_the_middle(summed):
    seen = {"n": 0}

    def fault(site, request, reply):
        if request.kind == wire.SUM and site == "c":
            seen["n"] += 1
            if seen["n"] > 6:  # in the second step
                return []
        return [reply]

    summed.fault = fault
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 4
    assert len(_ledger(summed, "a").entries()) == 6
    assert len(_ledger(summed, "c").entries()) == 2


def test_too_few_and_once_more(summed):
    gone = {"on": True}

    def fault(site, request, reply):
        lost = gone["on"] and site in "abc" and _stage(request) == "mask"
        return [] if lost else [reply]

    summed.fault = fault
    summed.play()
    assert summed.server.n_rounds == 0
    assert summed.events("too few sites")
    assert "broken off: 2 of 5 sites have sent" in "\n".join(describe(summed.root))
    assert len(_ledger(summed, "e").entries()) == 1  # what was drawn, and no more
    gone["on"] = False
    summed.play()
    assert summed.server.n_rounds == 1
    assert [entry["attempt"] for entry in summed.hub.journal() if entry["event"] == "summing"] == [1, 2]
    assert _log(summed, "e").count("30 new rows to be summed") == 2
    assert summed.server.latest()[POOLED].counts.sum() > 75  # the rows of the lost attempt were not lost


def _stage(request):
    return Message.from_bytes(request.data, REQUEST).stage if request.kind == wire.SUM else ""


@pytest.mark.parametrize("stop_after", [1, 3, 4, 5, 9, 17])
def test_hub_dies_and_goes_on(summed, stop_after, monkeypatch):
    """The hub's process ends after a stage, in the middle of the round; the next run finishes it without new draws."""
    closed = {"n": 0}
    close = PooledHub.close_stage

    def dying(self):
        close(self)
        closed["n"] += 1
        if closed["n"] == stop_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(PooledHub, "close_stage", dying)
    with pytest.raises(KeyboardInterrupt):
        summed.play()
    monkeypatch.setattr(PooledHub, "close_stage", close)
    summed.play()
    assert summed.server.n_rounds == 1
    assert summed.server.latest()[POOLED].privacy["sites"] == 5
    assert len(_ledger(summed, "a").entries()) == 6
    assert [entry["attempt"] for entry in summed.hub.journal() if entry["event"] == "summing"] == [1, 1]


def test_hub_dies_between_the_last_step_and_the_close(summed, monkeypatch):
    hub_close = type(summed.hub).close_summed_round

    def dying(self, item):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(summed.hub), "close_summed_round", dying)
    with pytest.raises(KeyboardInterrupt):
        summed.play()
    monkeypatch.setattr(type(summed.hub), "close_summed_round", hub_close)
    summed.play()
    assert summed.server.n_rounds == 1
    assert summed.server.latest()[POOLED].privacy["sites"] == 5


def test_a_reply_that_is_lost_is_sent_again_with_the_same_bytes(summed):
    sent = []

    def fault(site, request, reply):
        if site == "a" and request.kind == wire.SUM:
            sent.append(reply)
        return [reply, reply]

    summed.fault = fault
    summed.play()
    assert summed.server.n_rounds == 1
    assert len(_ledger(summed, "a").entries()) == 6
    assert len(sent) == 2 + 3 * 6


def test_an_answer_that_was_lost_is_asked_for_again(summed):
    """A site that was killed and started again, or whose message was lost, stays in the round."""
    lost = set()

    def fault(site, request, reply):
        stage = _stage(request)
        if site == "c" and stage and stage not in lost:
            lost.add(stage)
            return [None]
        return [reply]

    summed.fault = fault
    summed.play()
    assert lost == {"join", "share", "mask", "confirm", "reveal"}
    assert len(summed.events("failed")) == 5
    assert summed.server.latest()[POOLED].privacy["sites"] == 5
    assert len(_ledger(summed, "c").entries()) == 6


def test_site_refuses_a_roster_that_it_has_not_agreed_to_and_says_why(summed):
    roster = read_roster(summed.root)
    keys = {**roster.keys, "sybil": SigningKey.new().public}
    with_sybil = Roster(roster.study, keys, roster.tolerance, roster.least)
    (summed.root / "server" / "roster.fcac").write_bytes(with_sybil.to_bytes())
    summed.play()
    assert summed.server.n_rounds == 0
    assert "site sybil is new" in _log(summed, "a")
    assert {event[0] for event in summed.events("unavailable")} == {"unavailable"}
    assert _ledger(summed, "a").entries() == []


@pytest.mark.parametrize("attempt", ["two sites", "dropped", "another task"])
def test_site_refuses_a_hub_that_tampers_and_says_why(summed, attempt, monkeypatch):
    """The hub changes what it asks site a in one stage; a says why in its log, and the hub learns nothing from it."""
    stage, step, reason = {
        "two sites": ("share", 0, "2 sites take part; this study needs at least 4"),
        "dropped": ("confirm", 1, "this site's vector has not arrived, though it answered"),
        "another task": ("mask", 2, "stage 'mask 1' was asked twice with different content: keys of a step are used"),
    }[attempt]
    shipped, asked = PooledHub.requests, {}

    def tampering(self):
        wanted = shipped(self)
        if "done" in asked:
            raise KeyboardInterrupt
        collector = self.collector
        if "a" in wanted:
            asked[collector.stage, collector.step] = wanted["a"]
        if (collector.stage, collector.step) == (stage, step):
            message = Message.from_bytes(asked["mask", 1] if attempt == "another task" else wanted["a"], REQUEST)
            if attempt == "another task":
                message.arrays["task"] = Message.from_bytes(wanted["a"], REQUEST).arrays["task"]
            else:
                name, places = ("joined", [0, 1]) if attempt == "two sites" else ("survivors", [1, 2, 3, 4])
                message.arrays[name] = as_bits(places, 5)
            wanted["a"], asked["done"] = message.to_bytes(REQUEST), b""
        return wanted

    monkeypatch.setattr(PooledHub, "requests", tampering)
    with pytest.raises(KeyboardInterrupt):
        summed.play()
    assert reason in _log(summed, "a")
    assert summed.events("unavailable") == [("unavailable", "a", 1)]
    assert len(_ledger(summed, "a").entries()) == (attempt != "two sites")


def test_site_refuses_a_replayed_round(summed):
    studies.revoke(summed.root, "e")
    del summed.sites["e"]
    joins = []

    def fault(site, request, reply):
        if _stage(request) == "join" and site == "a":
            joins.append(request.data)
        return [reply]

    summed.fault = fault
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 4
    summed.play()
    assert summed.server.n_rounds == 2
    agent = PooledAgent(SiteAgent(SiteSettings.load(summed.state("a") / "settings.json")))
    with pytest.raises(AggregationRefused, match=r"round 1, attempt 1 is over .* a step is not played again"):
        agent.answer(joins[0], 0)
    assert len(_ledger(summed, "a").entries()) == 6 + 3


def test_a_site_is_revoked_while_a_round_is_open(summed, monkeypatch):
    """The hub stops in the middle and a site leaves: the round begins anew, and its cost is not forgotten."""
    close = PooledHub.close_stage

    def dying(self):
        close(self)
        if self.collector.step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(PooledHub, "close_stage", dying)
    with pytest.raises(KeyboardInterrupt):
        summed.play()
    monkeypatch.setattr(PooledHub, "close_stage", close)
    studies.revoke(summed.root, "e")
    del summed.sites["e"]
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 4
    assert [entry["attempt"] for entry in summed.hub.journal() if entry["event"] == "summing"] == [1, 2]
    assert len(_ledger(summed, "a").entries()) == 1 + 6
    # the hub does not know how far the sites had come, and says the most it can have cost
    assert summed.server.latest()[POOLED].privacy["spent"] > 5.5


def test_with_record_ids_people_are_counted_and_charged(tmp_path):
    """The unit is a person: four rows of one person count as one, and people who have spent all are left out."""
    made = Study(
        tmp_path, NAMES, server="communities", summing=summing_for(8.0, 1e-6, 1, 4), epsilon=8.0, budget=8.0,
        record_id="who",
    )  # fmt: skip

    def give(name, people, seed):
        path = made.data(name) / "rows.csv"
        fresh = not path.exists()
        with path.open("a") as stream:
            stream.write("x,y,who\n" if fresh else "")
            for (x, y), who in zip(_rows(4 * len(people), seed), np.repeat(people, 4), strict=True):
                stream.write(f"{x},{y},{who}\n")

    for number, name in enumerate(NAMES):
        give(name, [f"{name}{i}" for i in range(20)], number)
    made.play()
    released = made.server.latest()[POOLED]
    # People, not their 400 rows. The noise is real, and cells that it emptied are left out: the sum is 100 roughly.
    assert 0 < released.counts.sum() < 250
    ledger = Ledger(made.state("a") / "ledger.db", 8.0, 1e-6)
    assert [entry["counted"] for entry in ledger.entries()] == ["ids"] * 6
    assert 7.9 < ledger.spent("a") <= 8.0
    give("a", [f"a{i}" for i in range(20)], 7)  # they have nothing left
    give("b", [f"new{i}" for i in range(40)], 8)
    made.play()
    assert made.server.n_rounds == 2
    assert 0 < made.server.latest()[POOLED].counts.sum() < 350  # 140 people, up to noise; not their 560 rows
    assert ledger.spent("a") <= 8.0


def test_no_site_contributes_on_its_own(summed):
    settings = SiteSettings.load(summed.state("a") / "settings.json")
    with pytest.raises(ValueError, match="are summed"):
        SiteAgent(settings).contribute(1, 0)


def test_forget_revoke_and_add(summed):
    summed.play()
    with pytest.raises(ValueError, match="cannot be unsummed"):
        studies.forget(summed.root, "a")
    bundle = join_here(summed.root, "f", summed.folder / "bundles" / "f")
    assert read_roster(summed.root).names == [*NAMES, "f"]
    assert SigningKey.at(bundle / "summing.key").public == read_roster(summed.root).keys["f"]
    summed.play()
    assert "site f is new" in _log(summed, "a")
    studies.revoke(summed.root, "a")
    assert read_roster(summed.root).names == ["b", "c", "d", "e", "f"]
    studies.revoke(summed.root, "b")
    with pytest.raises(ValueError, match="cannot take part in a round of at least 4"):
        studies.revoke(summed.root, "c")


def test_the_sites_must_agree_to_the_studys_epsilon(tmp_path):
    with pytest.raises(ValueError, match="sums its sites at epsilon = 1"):
        Study(tmp_path, NAMES, server="communities", summing=summing_for(1.0, 1e-6, 1, 4), epsilon=2.0)
    with pytest.raises(ValueError, match="needs --epsilon"):
        summing_for(None, 1e-6, None, None)
    with pytest.raises(ValueError, match="needs at least 7"):
        summing_for(1.0, 1e-6, 2, 4)


def test_a_restored_ledger_stops_the_round(summed):
    path = summed.state("a") / "ledger.db"
    summed.play()
    before = path.read_bytes()
    summed.play()
    path.write_bytes(before)
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 4
    assert "older" in _log(summed, "a")
    assert len(_ledger(summed, "a").entries()) == 6


def test_a_state_directory_that_was_put_back_whole_stops_the_round(summed):
    """Ledger, receipts and keys are then of one time; only the hub knows that the site has been summed since."""
    shutil.copytree(summed.state("a"), summed.folder / "before")
    summed.play()
    shutil.rmtree(summed.state("a"))
    shutil.copytree(summed.folder / "before", summed.state("a"))
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 4
    assert "the server has round 1 of this site" in _log(summed, "a")
    assert not _ledger(summed, "a").entries()
    book = _ledger(summed, "a")
    book.recover("a", [], rounds={1: book.rho_of(4.0)})
    summed.play()
    assert summed.server.latest()[POOLED].privacy["sites"] == 5
    assert book.spent() > 5.5


def test_a_ledger_that_is_gone_with_all_beside_it_comes_back(summed, capfd):
    summed.play()
    summed.play()
    path, spent = summed.state("a") / "ledger.db", _ledger(summed, "a").spent()
    for end in ("", ".key", ".last"):
        path.with_name(path.name + end).unlink()
    fcac(capfd, "ledger", path, "--recover-round", 2, "--site", "a", "--epsilon", 4, code=2)
    fcac(capfd, "ledger", path, "--recover-round", 2, "--site", "a", "--epsilon", 4, "--set-budget", 20)
    assert Ledger.open(path).spent() >= spent


def test_the_budget_ends_the_rounds(tmp_path):
    made = Study(tmp_path, NAMES, server="communities", summing=summing_for(4.0, 1e-6, 1, 4), epsilon=4.0, budget=4.0)
    made.give({name: _rows(20, i) for i, name in enumerate(NAMES)})
    made.play()
    made.play()
    assert made.server.n_rounds == 1
    assert "would exceed the budget" in _log(made, "a")
    with pytest.raises(TooFewSites, match="0 sites take part"):
        PooledHub(made.hub, made.root).close_stage()


MIXED = """\
fcac_schema = 1
bounds_are_public = true

[columns]
x = { min = -8, max = 8 }
ward = { kind = "category", categories = ["ear", "medicine", "surgery"] }
"""


def test_a_summed_study_of_mixed_columns_measures_like_a_plain_one(tmp_path):
    """Categories count by what they share with other columns, whether sites are summed or not."""
    wards = np.array(["ear", "medicine", "surgery"])
    for kind in ("plain", "summed"):
        summing = summing_for(8.0, 1e-6, 1, 4) if kind == "summed" else None
        (tmp_path / kind).mkdir()
        made = Study(
            tmp_path / kind, NAMES, server="communities", summing=summing, schema=MIXED, epsilon=8.0, budget=20.0
        )
        for seed, name in enumerate(NAMES):
            rng = np.random.default_rng(seed)
            group = rng.integers(3, size=400)
            lines = [
                f"{4.0 * g - 4 + 0.4 * v:.6f},{wards[g]}" for g, v in zip(group, rng.normal(size=400), strict=True)
            ]
            (made.data(name) / "rows.csv").write_text("\n".join(["x,ward", *lines, ""]))
        made.play()
        readout = made.server.readout
        assert made.server.n_rounds == 1
        assert readout.settings.blocks == made.settings.schema.blocks
        # how many coordinates it has depends on the noise, that there is a map does not
        assert readout.model.feature_map is not None


def test_sites_that_joined_make_their_keys_and_agree_to_the_list(tmp_path, capfd):
    """Nobody makes a key for another, and nothing is summed before every operator has agreed to the same list."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    summing = summing_for(4.0, 1e-6, None, None)
    root = studies.init(tmp_path / "study", tmp_path / "schema.toml", timeout=0.2, wait=0.0, summing=summing)
    codes, settings = set(), {}
    for name in "abcd":
        join_here(root, name, tmp_path / name)
        (tmp_path / f"data-{name}").mkdir()
        write_csv(tmp_path / f"data-{name}" / "rows.csv", _rows(12, ord(name)), header=True)
    assert not list(root.rglob("summing.key"))
    for name in "abcd":
        bundle, state = tmp_path / name, tmp_path / f"state-{name}"
        # as the site's process fetches them when it starts
        invitations.write_bundle(bundle, studies.bundle_files(root, name), name)
        made = site_settings(bundle, tmp_path / f"data-{name}", state, epsilon=4.0, budget=8.0)
        made.save(state / "settings.json")
        settings[name] = state / "settings.json"
        shown = fcac(capfd, "federation", "sites", bundle, "--state", state)
        codes.add(shown.rpartition("Code of this list: ")[2].strip())
    (code,) = codes
    hub = Hub(root / STATE, FederationSettings.load(root))
    assert not Conversation(hub, DirectWire(settings)).play_round()
    assert "has not agreed to a list of sites" in (tmp_path / "state-a" / "site.log").read_text()
    for name in "abcd":
        fcac(capfd, "federation", "sites", tmp_path / name, "--state", tmp_path / f"state-{name}", "--agree", code)
    assert Conversation(hub, DirectWire(settings)).play_round()
    assert hub.snapshot().server.latest()[POOLED].privacy["sites"] == 4
