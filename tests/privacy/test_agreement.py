"""Agreement on bounds, centre and spread: near the true ones, charged, and of bounded sensitivity."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcac.exceptions import BudgetExceeded, SchemaError
from fcac.privacy import Ledger
from fcac.privacy.agreement import _EDGES, _histogram, agree
from fcac.privacy.samplers import InsecureTestSampler
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
    assert ward == SCHEMA.fields[2]
    assert agreed.require_bounds().shape[1] == 2
    assert agreed.apply(tables["a"]).shape == (3000, 18)


def test_every_site_pays_before_noise_is_drawn(tmp_path):
    ledgers = {name: Ledger(tmp_path / f"{name}.db", budget=1.2, delta=1e-6) for name in "ab"}
    tables = {name: site(seed) for seed, name in enumerate("ab")}
    agree(SCHEMA, tables, 1.0, ledgers=ledgers, sampler=InsecureTestSampler(0))
    with pytest.raises(BudgetExceeded, match="site a"):
        agree(SCHEMA, tables, 1.0, ledgers=ledgers, sampler=InsecureTestSampler(0))


def test_one_record_changes_one_bin_by_one():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=200), rng.lognormal(5, 4, 200), [np.nan, np.inf, -np.inf, 0.0]])
    whole = _histogram(values, _EDGES)
    assert whole.sum() == len(values) - 1
    for gone in range(len(values)):
        change = whole - _histogram(np.delete(values, gone), _EDGES)
        assert np.abs(change).sum() == (0 if np.isnan(values[gone]) else 1)


def test_nothing_to_agree_on_and_too_few_records():
    with pytest.raises(SchemaError, match="nothing to agree on"):
        agree(Schema([Column("x", min=0, max=1)]), {"a": pd.DataFrame({"x": [0.5]})}, 1.0)
    with pytest.raises(SchemaError, match="too few records"):
        agree(Schema(["x"]), {"a": pd.DataFrame({"x": [0.5]})}, 0.1, sampler=InsecureTestSampler(0))
