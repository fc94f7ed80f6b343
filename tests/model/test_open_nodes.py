"""Several sites without a mechanism: a word of warning, once for a model. With one: names of sites must be public."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest

from fcac import FCAC
from fcac.exceptions import OpenNodes, PrivacyError
from fcac.privacy import Ledger, LocalNoise, NodeRelease

X = np.random.default_rng(0).normal(size=(60, 2))


def test_nodes_of_several_sites_can_be_rows() -> None:
    model = FCAC(random_state=0)
    with pytest.warns(OpenNodes, match="a node can be a row"):
        model.fit({"a": X[:30], "b": X[30:]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit({"a": X[:30], "b": X[30:]})
        FCAC(random_state=0).fit(X)
        later = FCAC(random_state=0).fit(X[:30])
    with pytest.warns(OpenNodes):
        later.partial_fit(X, groups=np.arange(60) % 2 + 5)


@pytest.mark.parametrize("form", ["column", "name"])
def test_names_of_sites_come_from_rows_and_must_be_declared_public(tmp_path: Path, form: str) -> None:
    ledger = Ledger(tmp_path / "ledger.db", budget=9.0)
    model = FCAC(privacy=NodeRelease(1.0, [[-5.0, 5.0]] * 2, ledger=ledger), random_state=0)
    sites = np.arange(60) % 2
    rows = X if form == "column" else pandas.DataFrame({"x": X[:, 0], "y": X[:, 1], "ward": sites})
    groups = sites if form == "column" else "ward"
    for learn in (model.fit, model.partial_fit, model.fit_predict):
        with pytest.raises(PrivacyError, match="public_groups=True"):
            learn(rows, groups=groups)
    assert not (tmp_path / "ledger.db").exists()
    model.fit(rows, groups=groups, public_groups=True)
    charged, rows = len(ledger.entries()), rows[:50]
    with pytest.raises(PrivacyError, match="public_groups=True"):
        model.partial_fit(rows, groups=groups[:50] if form == "column" else groups)
    with pytest.raises(PrivacyError, match="public_groups=True"):
        model.calibrate_novelty(rows, sites[:50], epsilon=1.0)
    assert len(ledger.entries()) == charged == 2
    with pytest.raises(PrivacyError, match="public_groups=True"):
        FCAC(privacy=LocalNoise(8.0, [[-5.0, 5.0]] * 2)).fit(X, groups=sites)
    # a dict of sites says that they are public; one site has no name in its rows
    FCAC(privacy=model.privacy, random_state=0).fit({0: X[:20], 1: X[20:]})
    FCAC(privacy=NodeRelease(1.0, [[-5.0, 5.0]] * 2), random_state=0).fit(X)
