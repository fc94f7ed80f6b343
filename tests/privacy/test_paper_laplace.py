"""PaperLaplace: the paper's streams bit for bit, independent streams otherwise, and a warning with figures."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from fcac.privacy import PaperLaplace, PrivacyWarning
from testing.holder import Holder

ROWS = np.random.default_rng(5).normal(size=(40, 6)) * [1, 2, 3, 0, 5, 6]


def quiet(mechanism: PaperLaplace, rows: np.ndarray = ROWS, **arguments: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return mechanism.perturb(rows, **arguments)


@pytest.mark.parametrize("epsilon", [10, 15, 75])
@pytest.mark.parametrize("seed", [0, 19])
def test_the_papers_stream_bit_for_bit(epsilon: float, seed: int) -> None:
    scale = (ROWS.max(axis=0) - ROWS.min(axis=0)) / epsilon
    expected = ROWS + np.random.default_rng(seed).laplace(scale=scale, size=ROWS.shape)
    mechanism = PaperLaplace(epsilon, random_state=seed, paper_streams=True)
    for site in ("A", "B", None):
        assert np.array_equal(quiet(mechanism, site=site, round=3), expected)


def test_other_streams_are_independent_and_repeatable() -> None:
    mechanism = PaperLaplace(15, random_state=0)
    a, b = quiet(mechanism, site="A"), quiet(mechanism, site="B")
    assert np.array_equal(a, quiet(mechanism, site="A"))
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, quiet(mechanism, site="A", round=2))
    assert abs(np.corrcoef((a - ROWS)[:, 0], (b - ROWS)[:, 0])[0, 1]) < 0.5
    fresh = PaperLaplace(15)
    assert not np.array_equal(quiet(fresh, site="A"), quiet(fresh, site="A"))


def test_it_warns_once_with_the_figures_of_the_data() -> None:
    mechanism = PaperLaplace(15, random_state=0)
    with pytest.warns(PrivacyWarning, match=r"90 in total per record; 1 constant column") as caught:
        mechanism.perturb(ROWS)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.perturb(ROWS)


def test_constant_columns_go_out_exactly() -> None:
    assert np.array_equal(quiet(PaperLaplace(15, random_state=0))[:, 3], ROWS[:, 3])


def test_statement_has_a_warning_with_figures() -> None:
    statement = PaperLaplace(15).describe(n_features=64, counts=[1, 1, 5, 1])
    assert statement["total_epsilon"] == 960
    assert "960 per record" in statement["warning"]
    assert "3 of the 4 nodes" in statement["warning"]
    assert "not a privacy guarantee" in PaperLaplace(15).describe()["warning"]
    shared = PaperLaplace(15, 0, paper_streams=True).describe()
    assert any("each other's noise" in line for line in shared["not_promised"])


def test_plain_object() -> None:
    assert clone(Holder(PaperLaplace(15, 1))).privacy == PaperLaplace(15, 1)
    assert PaperLaplace(15, 1) != PaperLaplace(15, 2)
    assert repr(PaperLaplace(15, 1)) == "PaperLaplace(epsilon=15.0, random_state=1, paper_streams=False)"


def test_an_empty_batch_stays_empty() -> None:
    assert PaperLaplace(15).perturb(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 15, "random_state": -1}, "random_state"),
        ({"epsilon": 15, "random_state": "x"}, "random_state"),
        ({"epsilon": 15, "paper_streams": True}, "random_state"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PaperLaplace(**settings)


@pytest.mark.parametrize(("rows", "words"), [(np.zeros(3), "shape"), (np.array([[np.nan]]), "NaN")])
def test_wrong_rows(rows: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PaperLaplace(15).perturb(rows)
