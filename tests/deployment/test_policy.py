"""What a site's operator allows, and that no request exceeds it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from fcac.cli.consent import consent
from fcac.deployment import wire
from fcac.deployment.answers import answer
from fcac.deployment.audit_log import AuditLog, verify
from fcac.deployment.policy import Policy, PolicyRefusal, described, seconds_since, steady_clock
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import SiteAgent
from fcac.deployment.wire import Reply, Request
from fcac.federation import Contribution
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from fcac.tables.schema import Column, Schema
from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA


def agent_of(folder: Path, **settings: Any) -> SiteAgent:
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "state").mkdir(exist_ok=True)
    given = SiteSettings("a", str(folder / "data"), str(folder / "state"), str(folder / "schema.toml"), **settings)
    mechanism = None
    if given.private:
        ledger = Ledger(folder / "state" / "ledger.db", given.budget or 9.0)
        mechanism = NodeRelease(given.epsilon, [[-8, 8], [-8, 8]], ledger=ledger, sampler=InsecureTestSampler(0))
    return SiteAgent(given, mechanism)


def test_the_file_says_what_was_set(tmp_path: Path) -> None:
    policy = Policy(3600.0, 3, 2.0, 50, 7, "required", ("x from 0 to 1",), True, True)
    policy.save(tmp_path)
    assert Policy.load(tmp_path) == policy
    assert Policy.load(tmp_path / "elsewhere") == Policy()
    assert (tmp_path / "policy.toml").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rounds]\nleast_intervall = '1h'\n", "no setting 'least_intervall'"),
        ("[rounds]\nleast_interval = 'soon'\n", "as in 6h"),
        ("[rounds]\nrounds_per_day = -1\n", "rounds_per_day"),
        ("[release]\nleast_count = 0\n", "least_count"),
        ("[release]\nsecure_aggregation = 'maybe'\n", "secure_aggregation"),
        ("rounds_per_day = 1\n", "belongs in a section"),
        ("[rounds\n", "cannot be read"),
    ],
)
def test_a_policy_that_would_not_hold_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        Policy.load(tmp_path)


@pytest.mark.parametrize(
    ("policy", "ago", "code"),
    [
        (Policy(), [1, 2, 3], ""),
        (Policy(least_interval=60), [61], ""),
        (Policy(least_interval=60), [59], "pace"),
        (Policy(rounds_per_day=2), [10, 20], "pace"),
        (Policy(rounds_per_day=2), [10, 90_000], ""),
        (Policy(epsilon_per_day=2.5), [10, 20], "budget"),
        (Policy(epsilon_per_day=3.0), [10, 20], ""),
    ],
)
def test_pace(policy: Policy, ago: list[float], code: str) -> None:
    now = datetime.now(UTC)
    past = [
        {"event": "contributed", "time": (now - timedelta(seconds=age)).isoformat(), "epsilon": 1.0}
        for age in sorted(ago, reverse=True)
    ]
    if not code:
        policy.check_request(4, 4, past, 1.0, now)
        return
    with pytest.raises(PolicyRefusal) as refusal:
        policy.check_request(4, 4, past, 1.0, now)
    assert refusal.value.code == code


def test_why_a_site_refuses_and_what_it_has_left_is_told_only_if_the_policy_says_so(tmp_path: Path) -> None:
    settings = agent_of(tmp_path, epsilon=1.0, budget=4.0).settings
    settings.save(tmp_path / "settings.json")
    write_csv(tmp_path / "data" / "rows.csv", blobs(200, 1), header=True)
    first, second = (Request(wire.CONTRIBUTE, number, number - 1).to_bytes() for number in (1, 2))
    for told in (False, True):
        policy = Policy(rounds_per_day=1)
        (replace(policy, tell_reasons=True, tell_budget=True) if told else policy).save(tmp_path / "state")
        sent, refused = (Reply.from_bytes(answer(tmp_path / "settings.json", data)) for data in (first, second))
        assert sent.code == wire.CONTRIBUTION
        assert (sent.left is not None) == told
        assert refused.code == (wire.REFUSALS["pace"] if told else wire.UNAVAILABLE)


def test_a_hub_cannot_wedge_a_site(tmp_path: Path) -> None:
    agent = agent_of(tmp_path)
    write_csv(tmp_path / "data" / "rows.csv", blobs(50, 1), header=True)
    with pytest.raises(PolicyRefusal, match="the next would be 1"):
        agent.contribute(10**9, 0)
    assert Contribution.from_bytes(agent.contribute(1, 0)).round == 1


def test_twenty_rounds_in_a_row_cost_what_the_policy_allows(tmp_path: Path) -> None:
    agent_of(tmp_path)
    Policy(rounds_per_day=2).save(tmp_path / "state")
    write_csv(tmp_path / "data" / "rows.csv", blobs(200, 1), header=True)
    agent = agent_of(tmp_path, epsilon=1.0)
    answered: list[int] = []
    for number in range(1, 21):
        try:
            agent.contribute(number, answered[-1] if answered else 0)
            answered.append(number)
        except PolicyRefusal:
            continue
    assert answered == [1, 2]
    assert len(Ledger.open(tmp_path / "state" / "ledger.db").entries()) == 2
    events = [entry["event"] for entry in AuditLog(tmp_path / "state").entries()]
    assert events.count("contributed") == 2
    assert verify(tmp_path / "state" / "audit.jsonl").problem == ""


def test_a_draw_that_never_arrived_is_offered_once_before_a_new_one_is_paid_for(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, epsilon=1.0)
    write_csv(tmp_path / "data" / "rows.csv", blobs(200, 1), header=True)
    first = agent.contribute(1, 0)
    # the reply was lost: the hub closed round 1 without it and asks for round 2
    assert agent.contribute(2, 0) == first
    assert len(Ledger.open(tmp_path / "state" / "ledger.db").entries()) == 1
    # the hub did not take it: it is not offered for ever
    third = Contribution.from_bytes(agent.contribute(3, 0))
    assert third.round == 3
    assert len(Ledger.open(tmp_path / "state" / "ledger.db").entries()) == 2
    # what has arrived is not offered
    assert Contribution.from_bytes(agent.contribute(4, 3)).round == 4


def test_a_draw_stored_before_a_kill_is_offered_in_a_later_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(tmp_path, epsilon=1.0)
    write_csv(tmp_path / "data" / "rows.csv", blobs(200, 1), header=True)
    from fcac.federation import Site

    def killed(self: Site, *ignored: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Site, "_store", killed)
        with pytest.raises(KeyboardInterrupt):
            agent.contribute(1, 0)
    assert list((tmp_path / "state").glob("release-*.fcac"))
    offered = Contribution.from_bytes(agent_of(tmp_path, epsilon=1.0).contribute(2, 0))
    assert offered.round == 1
    assert len(Ledger.open(tmp_path / "state" / "ledger.db").entries()) == 1


def test_what_the_study_asks_for_must_be_what_was_agreed_to(tmp_path: Path) -> None:
    agent = agent_of(tmp_path)
    Policy(columns=tuple(described(agent.schema))).save(tmp_path / "state")
    write_csv(tmp_path / "data" / "rows.csv", blobs(50, 1), header=True)
    agent_of(tmp_path).contribute(1, 0)
    Policy(columns=("x from -8 to 8",)).save(tmp_path / "state")
    with pytest.raises(PolicyRefusal, match="other columns or bounds"):
        agent_of(tmp_path).contribute(2, 1)
    assert described(Schema(["x", "y"])) == ["x (any value)", "y (any value)"]


@pytest.mark.parametrize(("condenser", "max_nodes"), [("reservoir", 50), ("ca-plus", None)])
def test_no_node_stands_for_fewer_rows_than_allowed(tmp_path: Path, condenser: str, max_nodes: int | None) -> None:
    agent_of(tmp_path)
    Policy(least_count=5).save(tmp_path / "state")
    write_csv(tmp_path / "data" / "rows.csv", blobs(300, 1), header=True)
    sent = Contribution.from_bytes(agent_of(tmp_path, condenser=condenser, max_nodes=max_nodes).contribute(1, 0))
    assert len(sent.nodes) > 1
    assert sent.counts.min() >= 5


def test_a_site_that_demands_secure_aggregation_sends_nothing_else(tmp_path: Path) -> None:
    agent_of(tmp_path)
    Policy(secure_aggregation="required", new_rows=10).save(tmp_path / "state")
    write_csv(tmp_path / "data" / "rows.csv", blobs(5, 1), header=True)
    with pytest.raises(PolicyRefusal, match="secure aggregation"):
        agent_of(tmp_path).contribute(1, 0)
    Policy(new_rows=10).save(tmp_path / "state")
    with pytest.raises(PolicyRefusal, match="5 rows are new"):
        agent_of(tmp_path).contribute(1, 0)


def test_with_privacy_a_least_number_of_rows_is_refused_whatever_the_rows(tmp_path: Path) -> None:
    agent_of(tmp_path)
    Policy(new_rows=10).save(tmp_path / "state")
    private = {"epsilon": 1.0, "budget": 4.0}
    for n in (5, 500):
        write_csv(tmp_path / "data" / "rows.csv", blobs(n, 1), header=True)
        with pytest.raises(PolicyRefusal, match="Write new_rows = 0"):
            agent_of(tmp_path, **private).contribute(1, 0)
    assert not (tmp_path / "state" / "ledger.db").exists()
    with pytest.raises(click.ClickException, match="Write new_rows = 0"):
        consent(agent_of(tmp_path, **private).settings, yes=True)


def test_a_site_begins_with_an_hour_between_rounds_that_cost_something() -> None:
    private, plain = Policy.cautious(private=True), Policy.cautious(private=False)
    assert (private.least_interval, private.rounds_per_day, private.least_count) == (3600.0, 48, 5)
    assert plain == replace(private, least_interval=0.0)


def test_what_is_agreed_to_are_the_schemas_numbers_whatever_the_scaling() -> None:
    scaled = Schema([Column("age", min=0, max=110, scaling="range")], bounds_are_public=True)
    assert described(scaled) == ["age from 0 to 110"]
    narrow = Schema([Column("age", min=40, max=41, scaling="range")], bounds_are_public=True)
    with pytest.raises(PolicyRefusal, match="other columns or bounds"):
        Policy(columns=tuple(described(scaled))).check_schema(narrow)
    levels = [Schema([Column("ward", categories=list(of))], bounds_are_public=True) for of in ("ab", "abc")]
    assert described(levels[0]) == ["ward: a, b"]
    assert described(levels[1]) != described(levels[0])
    many = [Schema([Column("ward", categories=[f"{i:04d}" for i in range(first, first + 200)])]) for first in (0, 1)]
    assert described(many[0]) != described(many[1])
    assert len(described(many[0])[0]) < 200


def test_another_cost_or_unit_is_not_what_was_agreed_to() -> None:
    policy = Policy(terms=("epsilon = 1 for each round, at delta = 1e-06", "for one row"))
    policy.check_terms(policy.terms)
    with pytest.raises(PolicyRefusal, match="cost or unit"):
        policy.check_terms(("epsilon = 2 for each round, at delta = 1e-06", "for one row"))
    Policy().check_terms(("anything: nobody was asked yet",))


def test_a_clock_that_was_ahead_locks_nobody_out() -> None:
    policy = Policy(least_interval=3600.0, rounds_per_day=2)
    ahead = {"event": "contributed", "time": (datetime.now(UTC) + timedelta(days=300)).isoformat(), "epsilon": 1.0}
    # stamped before a restart by a clock that was 300 days ahead
    policy.check_request(4, 4, [ahead] * 5, 1.0)
    # without a restart the machine's steady clock knows that it was just now, whatever the stamp says
    for days in (300, -300):
        stamp = (datetime.now(UTC) + timedelta(days=days)).isoformat()
        entry = {**ahead, "time": stamp, "clock": steady_clock()}
        assert 0 <= seconds_since(entry) < 60
        with pytest.raises(PolicyRefusal, match="between two rounds"):
            policy.check_request(4, 4, [entry], 1.0)
