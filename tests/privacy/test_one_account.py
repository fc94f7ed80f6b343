"""The ledger alone computes what was spent: after every kind of release, all that speaks of it says the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fcac import FCAC, load, save
from fcac.privacy import Ledger, NodeRelease
from fcac.privacy.agreement import agree
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.statements import at_several_sites, in_a_line
from fcac.privacy.zcdp import up
from fcac.report.page import ledger_statement
from fcac.report.privacy_statement import make_statement
from fcac.tables.schema import Schema
from testing.commands import fcac

BOUNDS = [[0.0, 1.0]] * 2
RNG = np.random.default_rng(0)
SITES = {name: RNG.normal([[0.3, 0.7]], 0.05, (300, 2)).clip(0, 1) for name in "ab"}
PEOPLE = {name: [f"{name}{n % 150}" for n in range(300)] for name in "ab"}
OPEN = """fcac_schema = 1
bounds_are_public = false
[columns]
x = { kind = "number" }
y = { kind = "number" }
"""


class Certified(InsecureTestSampler):
    """Repeatable noise whose statements are those of real noise."""

    secure = True


def plain(model: FCAC, ledger: Ledger) -> None:
    model.fit(SITES)


def people(model: FCAC, ledger: Ledger) -> None:
    model.fit(SITES, record_ids=PEOPLE)


def several_rounds(model: FCAC, ledger: Ledger) -> None:
    model.fit(SITES)
    model.partial_fit({"a": SITES["b"][:100]})


def calibrated(model: FCAC, ledger: Ledger) -> None:
    model.fit(SITES)
    model.calibrate_novelty(SITES, epsilon=0.5)


def calibrated_by_people(model: FCAC, ledger: Ledger) -> None:
    model.fit(SITES, record_ids=PEOPLE)
    model.calibrate_novelty({"a": SITES["a"]}, epsilon=0.5, record_ids={"a": PEOPLE["a"]})


def agreed(model: FCAC, ledger: Ledger) -> None:
    tables = {name: pa.table({"x": own[:, 0], "y": own[:, 1]}) for name, own in SITES.items()}
    agree(Schema.from_toml(OPEN), tables, 1.0, ledgers={"a": ledger, "b": ledger}, sampler=model.privacy.sampler)
    model.fit(SITES)


def interrupted(model: FCAC, ledger: Ledger) -> None:
    ledger.charge("a", ledger.rho_of(0.5), round=1)  # charged, and the power went before anything was drawn
    model.fit(SITES)


def summed(model: FCAC, ledger: Ledger) -> None:
    model.set_params(aggregation="secure")
    model.fit({f"{name}{part}": own[part::5] for name, own in SITES.items() for part in range(5)})


@pytest.mark.filterwarnings("ignore::fcac.exceptions.RepeatedBatch")
@pytest.mark.parametrize(
    "release",
    [plain, people, several_rounds, calibrated, calibrated_by_people, agreed, interrupted, summed],
    ids=lambda release: release.__name__,
)
def test_everything_says_what_the_ledger_says(tmp_path: Path, release: Callable[..., None], capfd: Any) -> None:
    ledger = Ledger(tmp_path / "site.db", 6.0)
    mechanism = NodeRelease(1.0, BOUNDS, ledger=ledger, sampler=Certified(0))
    model = FCAC(privacy=mechanism, random_state=0)
    release(model, ledger)
    spent = ledger.spent_at_most()
    assert spent >= ledger.spent() > 0
    shown = up(spent)
    latest = model.server_.latest()
    for item in latest.values():
        assert item.privacy["spent"] == pytest.approx(spent, abs=1e-6)
        assert item.privacy["budget"] == 6.0
    said = [item.privacy for item in latest.values()]
    assert {f"eps = {shown} " in in_a_line(one) for one in said} == {True}
    assert at_several_sites(said) == []  # they share the ledger, and nothing adds up twice
    model.privacy.sampler = NodeRelease(1.0, BOUNDS).sampler
    save(model, tmp_path / "m.fcac")
    facts = json.loads(fcac(capfd, "inspect", tmp_path / "m.fcac", "--json"))
    assert facts["privacy"]["spent"] == pytest.approx(spent, abs=1e-6)
    again = load(tmp_path / "m.fcac")
    assert {item.privacy["spent"] for item in again.server_.latest().values()} == {round(spent, 6)}
    report = make_statement(model.server_.history, list(latest.values()), model.privacy, federation=False)
    assert shown in [figure for figure, _ in report.figures]
    assert f"ε = {shown} " in ledger_statement(ledger)
    assert shown in ledger.summary_line()
    if ledger.spent() == spent:
        assert f"eps = {shown} " in ledger.summary_line()
    assert json.dumps(said[0])  # plain values
