"""What a model does with columns in different units, and that it says so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from fcac import FCAC, load, save


def people(n: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Age and income of three groups that only age tells apart from one another."""
    rng = np.random.default_rng(3)
    group = rng.integers(3, size=n)
    age = np.array([20.0, 45.0, 70.0])[group] + 2.5 * rng.normal(size=n)
    return np.column_stack([age, 30_000 + 8000 * rng.normal(size=n)]), group


def found(rows: np.ndarray, truth: np.ndarray, **settings: str) -> float:
    return float(adjusted_rand_score(truth, FCAC(**settings).fit(rows).labels_))


def test_age_and_income_are_compared_by_their_spreads():
    rows, group = people()
    assert found(rows, group) > 0.95
    assert found(rows, group, scale="robust") > 0.95
    assert found(rows, group, scale="none") < 0.5


def test_units_of_some_columns_do_not_change_the_answer():
    rng = np.random.default_rng(5)
    group = rng.integers(4, size=600)
    rows = 4.0 * np.eye(4)[group] + rng.normal(size=(600, 4)) / 2
    plain = FCAC().fit(rows)
    other = FCAC().fit(rows * [1, 1, 1000, 1000])
    assert plain.scaling_.kind == "none"
    assert other.scaling_.kind == "standard"
    assert adjusted_rand_score(group, plain.labels_) > 0.99
    assert adjusted_rand_score(group, other.labels_) > 0.99


def test_the_columns_of_all_sites_decide_however_rows_arrive():
    rows, _ = people()
    here = FCAC(scale="standard").fit(rows)
    at_sites = FCAC(scale="standard").fit(rows, groups=np.arange(len(rows)) % 10)
    assert np.array_equal(here.scaling_.factors, at_sites.scaling_.factors)
    assert np.array_equal(here.labels_, at_sites.labels_)
    blocks = FCAC(scale="standard")
    blocks.play_stream(((0, rows[start : start + 100]) for start in range(0, 900, 100)), 2)
    assert np.array_equal(blocks.predict(rows), here.labels_)


def test_sites_condense_by_the_same_rule():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, 2)) * [1, 9]
    # of the same spread, columns are blurred alike; as they are, the narrow one is blurred more
    blur = {
        scale: np.sqrt(FCAC(scale=scale, max_nodes=100).fit(rows).sites_[0].model.variances.mean(axis=0)) / [1, 9]
        for scale in ("none", "standard")
    }
    assert blur["none"][0] > 2 * blur["none"][1]
    assert blur["standard"][0] < 1.5 * blur["standard"][1]


@pytest.mark.parametrize("forgetting", ["none", "half-life=3"])
def test_the_setting_is_kept_in_files(tmp_path, forgetting):
    rows, _ = people()
    model = FCAC(scale="robust", forgetting=forgetting).fit(rows)
    save(model, tmp_path / "model.fcac")
    again = load(tmp_path / "model.fcac")
    assert again.scale == "robust"
    assert str(again.scaling_) == str(model.scaling_)
    assert np.array_equal(again.predict(rows), model.predict(rows))
    for one in (model, again):
        one.partial_fit(rows + 1)
    assert np.array_equal(again.scaling_.factors, model.scaling_.factors)
    assert np.array_equal(again.predict(rows), model.predict(rows))


def test_what_was_done_is_said():
    rows, _ = people()
    model = FCAC(random_state=0)
    assert repr(model) == "FCAC(random_state=0)"
    model.fit(rows)
    said = "columns divided by their spread, because their units differ: spreads differ 400-fold"
    assert str(model.scaling_) == said
    assert repr(model) == f"FCAC(random_state=0)  # {said}"
    assert f"\nC{said[1:]}." in str(model.summary())
    assert repr(clone(model)) == "FCAC(random_state=0)"


def test_the_papers_server_rescales_nothing():
    rows, _ = people(300)
    assert FCAC(server="cae-fc").fit(rows).scaling_.kind == "none"
    with pytest.raises(ValueError, match='scale: server="cae-fc" compares columns as they are'):
        FCAC(server="cae-fc", scale="standard").fit(rows)
    with pytest.raises(ValueError, match="The 'scale' parameter of FCAC must be a str among"):
        FCAC(scale="minmax").fit(rows)
