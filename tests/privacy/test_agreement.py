"""Agreement on bounds, centre, spread and levels: near the true ones, charged, and of bounded sensitivity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fcac.exceptions import BudgetExceeded, SchemaError
from fcac.privacy import Ledger
from fcac.privacy.agreement import agree, agreed_schema, check_agreed, fine_edges, open_columns, prices
from fcac.privacy.agreement_counts import NoisedCounts
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import epsilon_from_rho
from fcac.tables.column import Column
from fcac.tables.schema import Schema


def site(seed: int, n: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    height = np.where(rng.random(n) < 0.2, np.nan, rng.normal(170, 10, n))
    return pd.DataFrame({"height": height, "income": rng.lognormal(10, 0.5, n), "ward": rng.choice(["a", "b"], n)})


SCHEMA = Schema(
    [Column("height", missing="native"), Column("income", scaling="log"), Column("ward", kind="category")],
    bounds_are_public=True,
)


def test_what_is_agreed_is_near_the_truth_and_public():
    tables = {name: site(seed) for seed, name in enumerate("abc")}
    agreed = agree(SCHEMA, tables, 1.0, sampler=InsecureTestSampler(0))
    height, income, ward = agreed.fields
    everybody = pd.concat(tables.values())
    assert abs(height.center - everybody["height"].mean()) < 2
    assert height.spread == pytest.approx(everybody["height"].std(), rel=0.3)
    assert height.min < everybody["height"].quantile(0.05)
    assert height.max > everybody["height"].quantile(0.95)
    assert income.min < everybody["income"].median() < income.max
    assert ward.categories == ("a", "b")
    assert agreed.require_bounds().shape[1] == 2
    assert agreed.apply(tables["a"]).shape == (3000, 4)


def test_levels_can_be_left_alone_and_scaling_set():
    tables = {name: site(seed) for seed, name in enumerate("ab")}
    agreed = agree(SCHEMA, tables, 2.0, sampler=InsecureTestSampler(0), levels=False, scaling="standard")
    height, income, ward = agreed.fields
    assert ward == SCHEMA.fields[2]
    assert (height.scaling, income.scaling) == ("standard", "log")
    assert abs(np.nanmean(agreed.apply(tables["a"])[:, 0])) < 0.3


def test_rare_levels_are_not_named_and_a_category_of_nothing_but_rare_ones_stays():
    rng = np.random.default_rng(0)
    n = 2000
    table = pd.DataFrame({"code": rng.choice(["x", "y"], n), "name": [f"person {i}" for i in range(n)]})
    table.loc[:5, "code"] = "rare"
    schema = Schema([Column("code", kind="category"), Column("name", kind="category")], bounds_are_public=True)
    code, name = agree(schema, {"a": table}, 1.0, sampler=InsecureTestSampler(1)).fields
    assert code.categories == ("x", "y")
    assert name == schema.fields[1]


def test_a_schema_without_any_stated_constant_becomes_public_and_another_one_does_not():
    table = site(0)
    drafted = Schema([Column("height", missing="native"), Column("income")])
    assert agree(drafted, {"a": table}, 2.0, sampler=InsecureTestSampler(0)).bounds_are_public
    stated = Schema([Column("height", missing="native"), Column("income", min=0, max=1e6)])
    assert not agree(stated, {"a": table}, 2.0, sampler=InsecureTestSampler(0)).bounds_are_public


def test_every_site_pays_before_noise_is_drawn(tmp_path):
    ledgers = {name: Ledger(tmp_path / f"{name}.db", budget=1.2, delta=1e-6) for name in "ab"}
    tables = {name: site(seed) for seed, name in enumerate("ab")}
    agree(SCHEMA, tables, 1.0, ledgers=ledgers, sampler=InsecureTestSampler(0))
    assert 0.99 < ledgers["a"].spent() <= 1.0
    with pytest.raises(BudgetExceeded, match="site a"):
        agree(SCHEMA, tables, 1.0, ledgers=ledgers, sampler=InsecureTestSampler(0))


def test_people_pay_once_and_those_over_budget_are_left_out(tmp_path):
    table = site(0).assign(patient=[str(i // 3) for i in range(3000)])
    ledger = Ledger(tmp_path / "a.db", budget=1.2, delta=1e-6)
    ledger.charge("a", ledger.rho_of(1.0), record_ids=["0", "1"])
    agree(SCHEMA, {"a": table}, 1.0, ledgers={"a": ledger}, sampler=InsecureTestSampler(0), record_id="patient")
    assert ledger.unit() == "person"
    assert len(ledger.people()) == 1000
    assert max(ledger.people()) <= 1.2
    with pytest.raises(SchemaError, match="no column 'who'"):
        agree(SCHEMA, {"a": table}, 1.0, sampler=InsecureTestSampler(0), record_id="who")


def test_the_prices_add_up_to_the_epsilon_at_the_delta():
    price = prices(1.0, 1e-6, 3, 2)
    assert epsilon_from_rho(price.coarse + price.fine, 1e-6 - price.slack) <= 1.0
    assert prices(1.0, 1e-6, 3, 0).slack == 0.0
    assert prices(1.0, 1e-6, 0, 2).fine == 0.0


def test_nothing_to_agree_on_and_too_few_records():
    with pytest.raises(SchemaError, match="nothing to agree on"):
        agree(Schema([Column("x", min=0, max=1)]), {"a": pd.DataFrame({"x": [0.5]})}, 1.0)
    with pytest.raises(SchemaError, match="too few records"):
        agree(Schema(["x"]), {"a": pd.DataFrame({"x": [0.5]})}, 0.1, sampler=InsecureTestSampler(0))


def test_an_agreed_schema_may_only_settle_what_was_open():
    agreed = agree(SCHEMA, {"a": site(0)}, 4.0, sampler=InsecureTestSampler(0), scaling="range")
    check_agreed(SCHEMA, agreed)
    settled = Schema([Column("height", min=0, max=250), *SCHEMA.fields[1:]], bounds_are_public=True)
    with pytest.raises(SchemaError, match="'height': the agreed schema changes"):
        check_agreed(settled, agreed)
    with pytest.raises(SchemaError, match="'income': the agreed schema changes"):
        check_agreed(SCHEMA, Schema([agreed.fields[0], replace(agreed.fields[1], weight=9.0), agreed.fields[2]]))
    with pytest.raises(SchemaError, match="other columns"):
        check_agreed(SCHEMA, Schema(agreed.fields[:2]))


def test_sites_with_different_noise_are_added_up():
    numbers, categories = open_columns(Schema(["x"]))
    loud, soft = (NoisedCounts([np.zeros(122, np.int64)], [], scale) for scale in (1024 * 30.0, 1024 * 40.0))
    loud.bins[0][100:102] = 1024 * 300
    edges = fine_edges([loud, soft], numbers)  # 300 records stand out of a deviation of 50
    assert len(edges[0]) == 9
    fine = NoisedCounts([np.full(8, 1024 * 100)], [], 1024.0)
    (column,) = agreed_schema(Schema(["x"]), numbers, categories, [loud, soft], edges, [fine]).fields
    assert (column.min, column.max) == (edges[0][0], edges[0][-1])


def test_the_spread_of_a_long_tail_is_that_of_its_middle_part():
    rng = np.random.default_rng(0)
    tables = {name: pd.DataFrame({"crp": rng.lognormal(1.5, 1.2, 10_000)}) for name in "abc"}
    everybody = pd.concat(tables.values())["crp"]
    for seed in range(3):
        (crp,) = agree(Schema([Column("crp")]), tables, 1.0, sampler=InsecureTestSampler(seed)).fields
        usual = (everybody.quantile(0.84134) - everybody.quantile(0.15866)) / 2
        assert crp.spread == pytest.approx(usual, rel=0.25)
