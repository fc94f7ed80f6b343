"""Agreements inside one process: the real code of the sites, the real files at the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac.deployment import wire
from fcac.deployment.agreement_agent import AgreementAgent
from fcac.deployment.agreement_hub import AgreementHub
from fcac.deployment.answers import answer
from fcac.deployment.policy import Policy, described
from fcac.deployment.settings import SiteSettings, schema_digest
from fcac.deployment.wire import Reply, Request
from fcac.exceptions import SchemaError
from fcac.privacy import Ledger
from fcac.privacy.receipts import receipts_in
from fcac.tables.schema import Schema
from testing.federation_study import SCHEMA, Study

OPEN = """\
fcac_schema = 1
bounds_are_public = false
missing = "native"

[columns]
age = {}
ward = { kind = "category" }
"""
PRIVATE: dict[str, Any] = {"epsilon": 2.0, "budget": 4.0, "agree": 1.0}


def study(folder: Path, n: int = 600, names: str = "ab", **choices: Any) -> Study:
    made = Study(folder, names, schema=OPEN, server="communities", **(PRIVATE | choices))
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        ages, wards = rng.normal(50, 10, n), rng.choice(["x", "y"], n)
        lines = [f"{age:.1f},{ward},{i // 2}" for i, (age, ward) in enumerate(zip(ages, wards, strict=True))]
        (made.data(name) / "rows.csv").write_text("\n".join(["age,ward,patient", *lines]) + "\n")
    return made


def agreement(made: Study, **named: Any) -> AgreementHub:
    return AgreementHub(made.root, made.hub, **named)


def play(made: Study) -> list[str]:
    return made.conversation().agree(agreement(made))


def ledger(made: Study, name: str) -> Ledger:
    return Ledger.open(made.state(name) / "ledger.db")


@pytest.mark.slow
def test_sites_agree_pay_and_then_play_rounds_with_the_agreed_schema(tmp_path: Path) -> None:
    made = study(tmp_path)
    assert play(made) == ["a", "b"]
    agreed = made.settings.schema
    age, ward = agreed.fields
    assert float(str(age.min)) < 40 < 60 < float(str(age.max))
    assert abs(float(str(age.center)) - 50) < 4
    assert (age.scaling, ward.categories) == ("standard", ("x", "y"))
    assert agreed.bounds_are_public
    for name in "ab":
        assert Schema.load(made.root.parent / "bundles" / name / "schema.toml") == agreed
        assert ledger(made, name).spent() == pytest.approx(1.0, abs=1e-6)
        assert [entry["what"] for entry in ledger(made, name).entries()] == [
            "agreement: coarse counts of 2 columns",
            "agreement: fine counts of 2 columns",
        ]
    made.play()
    assert made.hub.snapshot().closed == 1
    assert 1.0 < ledger(made, "a").spent() < 3.0


@pytest.mark.slow
def test_asked_again_nobody_pays_again(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    lost: list[str] = []

    def lose_fine(site: str, request: Request, reply: bytes) -> list[bytes | None]:
        stage = json.loads(request.data)["stage"]
        lost.append(stage)
        return [] if stage == "fine" and lost.count("fine") == 1 else [reply]

    made.fault = lose_fine
    with pytest.raises(ValueError, match="no site sent its fine counts"):
        play(made)
    assert play(made) == ["a"]
    assert lost == ["coarse", "fine", "fine", "schema"]
    assert len(ledger(made, "a").entries()) == 2
    assert play(made) == ["a"]  # hands out what is agreed on, once more
    assert len(ledger(made, "a").entries()) == 2


def ask(made: Study, name: str, request: dict[str, Any]) -> Reply:
    """Send one request to a site, as a hub that writes its own requests would."""
    asked = Request(wire.AGREE, data=json.dumps(request).encode())
    return Reply.from_bytes(answer(made.sites[name], asked.to_bytes()))


def test_a_site_answers_each_question_about_its_own_schema_once(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    own = schema_digest(Schema.from_toml(OPEN))
    unavailable = Reply(wire.UNAVAILABLE, "a")
    first = ask(made, "a", {"stage": "coarse", "of": own, "levels": True})
    assert first.code == wire.COUNTS
    assert ask(made, "a", {"stage": "coarse", "of": own, "levels": True}) == first
    assert ask(made, "a", {"stage": "coarse", "of": own, "levels": False}) == unavailable
    assert ask(made, "a", {"stage": "coarse", "of": "0" * 64}) == unavailable
    assert ask(made, "a", {"stage": "fine", "of": own, "edges": [[0, 1, 8], [0, 1, 8]]}) == unavailable
    assert ask(made, "a", {"stage": "fine", "of": own, "edges": [[0, float("inf"), 8]]}) == unavailable
    assert ask(made, "a", {"stage": "every row, please", "of": own}) == unavailable
    assert ask(made, "a", {"stage": "fine", "of": own, "edges": [[0, 100, 8]]}).code == wire.COUNTS
    assert ask(made, "a", {"stage": "fine", "of": own, "edges": [[0, 99, 8]]}) == unavailable
    assert len(ledger(made, "a").entries()) == 2


def test_a_site_that_was_not_told_to_takes_no_part(tmp_path: Path) -> None:
    made = study(tmp_path, names="a", agree=None, epsilon=None, budget=None)
    with pytest.raises(ValueError, match="no site sent its coarse counts"):
        play(made)
    assert not (made.state("a") / "ledger.db").exists()
    assert "without --agree" in (made.state("a") / "site.log").read_text()


@pytest.mark.slow
def test_a_site_without_privacy_pays_for_the_agreement_alone(tmp_path: Path) -> None:
    made = study(tmp_path, names="a", epsilon=None, budget=1.0)
    play(made)
    made.play()
    assert made.hub.snapshot().closed == 1
    assert len(ledger(made, "a").entries()) == 2


def test_a_budget_that_does_not_suffice_is_not_touched(tmp_path: Path) -> None:
    made = study(tmp_path, names="a", budget=0.3, agree=1.0)
    with pytest.raises(ValueError, match="no site sent"):
        play(made)
    assert not ledger_entries(made)


def ledger_entries(made: Study) -> list[Any]:
    path = made.state("a") / "ledger.db"
    return Ledger.open(path).entries() if path.exists() and path.stat().st_size else []


def test_people_are_the_unit_where_ids_are_named(tmp_path: Path) -> None:
    made = study(tmp_path, names="a", record_id="patient")
    play(made)
    assert ledger(made, "a").unit() == "person"
    assert len(ledger(made, "a").people()) == 300


def test_consent_covers_the_outcome_and_nothing_else(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    Policy(columns=tuple(described(Schema.from_toml(OPEN)))).save(made.state("a"))
    play(made)
    assert Policy.load(made.state("a")).columns == tuple(described(made.settings.schema))
    assert "standard" in (made.root.parent / "bundles" / "a" / "schema.toml").read_text()


def test_a_schema_that_changes_what_was_settled_is_not_taken(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    evil = OPEN.replace("age = {}", "age = { min = 0, max = 9, weight = 7 }").replace("= false", "= true")
    reply = ask(made, "a", {"stage": "schema", "of": schema_digest(Schema.from_toml(OPEN)), "schema": evil})
    assert reply.code == wire.UNAVAILABLE
    settings = SiteSettings.load(made.state("a") / "settings.json")
    assert Schema.load(settings.schema) == Schema.from_toml(OPEN)
    asked = {"stage": "schema", "of": schema_digest(Schema.from_toml(OPEN)), "schema": evil}
    with pytest.raises(SchemaError, match="changes what was settled"):
        AgreementAgent(settings).answer(json.dumps(asked).encode())


@pytest.mark.slow
def test_an_older_ledger_is_noticed_and_can_be_mended(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    Ledger(made.state("a") / "ledger.db", 4.0).charge("a", 1e-6)
    shutil.copy(made.state("a") / "ledger.db", tmp_path / "old.db")
    play(made)
    spent = ledger(made, "a").spent()
    shutil.copy(tmp_path / "old.db", made.state("a") / "ledger.db")
    made.play()
    assert made.hub.snapshot().closed == 0
    assert "does not know of an agreement" in (made.state("a") / "site.log").read_text()
    for site, receipts in receipts_in(made.state("a")).items():
        ledger(made, "a").recover(site, receipts)
    assert ledger(made, "a").spent() == pytest.approx(spent)
    made.play()
    assert made.hub.snapshot().closed == 1


def test_answers_of_another_form_are_rejected(tmp_path: Path) -> None:
    made = study(tmp_path, names="a")
    begun = agreement(made)
    for data in (b"", b"x" * 3_000_000, SCHEMA.encode()):
        with pytest.raises(ValueError, match=r"accepted|FCAC"):
            begun.take("a", data)
    assert begun.missing() == ["a"]


@pytest.mark.slow
def test_what_cannot_be_agreed_on_is_said_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "settled").mkdir()
    settled = Study(tmp_path / "settled", "a")
    with pytest.raises(SchemaError, match="nothing to agree on"):
        agreement(settled)
    made = study(tmp_path, names="a", epsilon=None, budget=1.0)
    with pytest.raises(ValueError, match="--scaling must be"):
        agreement(made, scaling="log")
    made.play()
    with pytest.raises(ValueError, match="rounds were played"):
        agreement(made)


@pytest.mark.slow
def test_a_late_site_makes_the_run_wait_for_it(tmp_path: Path) -> None:
    made = study(tmp_path)

    def lose_fine_of_b(site: str, request: Request, reply: bytes) -> list[bytes | None]:
        return [] if b'"fine"' in request.data and site == "b" else [reply]

    made.fault = lose_fine_of_b
    with pytest.raises(ValueError, match="no fine counts came from b"):
        play(made)
    made.fault = None
    assert play(made) == ["a", "b"]
    assert len(ledger(made, "b").entries()) == 2
