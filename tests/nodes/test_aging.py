"""Rows that age: half-lives and windows, in one process and at sites that go on from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import FCAC, load, save
from fcac.federation import Server, Site
from fcac.federation.condenser import condenser_for
from fcac.nodes.aging import Forgetting, combined
from fcac.nodes.reservoir import Reservoir
from fcac.privacy import NodeRelease


def rows(place: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + int(abs(place) * 7)).normal(place, 1.0, size=(n, 3))


def total(model: FCAC) -> float:
    return float(model.server_.readout.model.counts.sum())


def test_rules_are_read_and_refused() -> None:
    assert Forgetting.parse("none") is None
    assert str(Forgetting.parse("half-life=2.5")) == "half-life=2.5"
    assert str(Forgetting.parse("window=4")) == "window=4"
    for text in ("half-life", "half-life=0", "half-life=inf", "window=0", "window=1.5", "halflife=3", "", None, 5):
        with pytest.raises(ValueError, match="forgetting must be"):
            Forgetting.parse(text)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_half_life_halves_what_rows_count() -> None:
    model = FCAC(forgetting="half-life=2")
    expected = 0.0
    for number in range(6):
        model.partial_fit({"a": rows(number * 20)})
        expected = expected * 2**-0.5 + 400
        assert total(model) == pytest.approx(expected)
    # nodes weigh about the same, whatever their age
    counts = model.server_.readout.model.counts
    places = model.server_.nodes.mean(axis=1)
    old, new = counts[np.abs(places) < 10].mean(), counts[np.abs(places - 100) < 10].mean()
    assert 0.7 < old / new < 1.4


@pytest.mark.slow
def test_rows_are_forgotten_after_seven_half_lives() -> None:
    model = FCAC(forgetting="half-life=1").fit({"a": rows(0)})
    for number in range(1, 8):
        model.partial_fit({"a": rows(50, seed=number)})
        assert (len(np.unique(model.predict(np.array([[0.0] * 3, [50.0] * 3])))) == 2) == (number < 8)
    model.partial_fit({"a": rows(50, seed=9)})
    assert model.n_clusters_ == 1
    assert model.is_novel(rows(0)).all()


@pytest.mark.slow
def test_a_window_is_what_its_rounds_alone_would_have_given() -> None:
    model = FCAC(forgetting="window=2")
    for number in range(5):
        model.partial_fit({"a": rows(number * 20), "b": rows(number * 20, seed=1)})
    alone = FCAC(forgetting="window=2")
    for number in (3, 4):
        alone.partial_fit({"a": rows(number * 20), "b": rows(number * 20, seed=1)})
    np.testing.assert_array_equal(model.server_.nodes, alone.server_.nodes)
    np.testing.assert_array_equal(model.server_.counts, alone.server_.counts)
    assert total(model) == 4 * 400


@pytest.mark.slow
def test_a_site_without_rows_grows_old_and_disappears() -> None:
    model = FCAC(forgetting="window=2").fit({"a": rows(0), "b": rows(50)})
    model.partial_fit({"a": rows(0, seed=1)})
    assert model.n_clusters_ == 2
    model.partial_fit({"a": rows(0, seed=2)})
    assert model.n_clusters_ == 1
    assert model.lineage_[-1].kind == "died" or any(c.kind == "died" for c in model.lineage_ if c.round == 3)
    # it may come back
    model.partial_fit({"b": rows(50, seed=3)})
    assert model.n_clusters_ == 2
    halved = FCAC(forgetting="half-life=1").fit({"a": rows(0), "b": rows(50)})
    halved.partial_fit({"a": rows(0, seed=1)})
    assert total(halved) == pytest.approx(200 + 400 + 200)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["half-life=2", "window=3"])
def test_chunks_within_a_round_do_not_matter(rule: str) -> None:
    whole, streamed = FCAC(forgetting=rule, max_nodes=200), FCAC(forgetting=rule, max_nodes=200)
    for number in range(4):
        block = rows(number, 3000)
        whole.partial_fit({"a": block})
        streamed.play_stream(iter([("a", block[:10]), ("a", block[10:2500]), ("a", block[2500:])]), 3)
    np.testing.assert_array_equal(whole.server_.nodes, streamed.server_.nodes)
    assert whole.novelty_reach() == streamed.novelty_reach()
    assert len(whole.server_.nodes) <= 200


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["half-life=2", "window=3"])
def test_a_loaded_model_ages_on_as_the_saved_one(rule: str, tmp_path: Path) -> None:
    model = FCAC(forgetting=rule, max_nodes=150)
    for number in range(4):
        model.partial_fit({"a": rows(number, 1000), **({"b": rows(9, 50)} if number % 2 else {})})
    save(model, tmp_path / "m.fcac")
    again = load(tmp_path / "m.fcac")
    assert again.forgetting == rule
    for one in (model, again):
        one.partial_fit({"b": rows(5), "c": rows(30)})
    np.testing.assert_array_equal(model.server_.nodes, again.server_.nodes)
    np.testing.assert_array_equal(model.is_novel(rows(7)), again.is_novel(rows(7)))
    assert again.novelty_reach() == model.novelty_reach()


def test_a_site_on_disk_grows_old_by_the_rounds_that_passed(tmp_path: Path) -> None:
    condenser = condenser_for("reservoir", forgetting="half-life=1")
    Site("a", state_dir=tmp_path, condenser=condenser).contribute(rows(0), round=1)
    # whatever it is told now, it goes on as it began
    sent = Site("a", state_dir=tmp_path).contribute(rows(30), round=4)
    assert sent.counts.sum() == pytest.approx(400 / 8 + 400)
    server = Server()
    server.absorb([sent])
    assert Site("a", state_dir=tmp_path).contribute(round=4) == sent


@pytest.mark.slow
def test_the_false_alarm_rate_follows_what_still_counts() -> None:
    model = FCAC(forgetting="half-life=1", max_nodes=500)
    for number in range(6):
        model.partial_fit({"a": rows(3 * number, 4000)})
    # rows as they still count: half of them from the latest round, a quarter from the one before
    fresh = np.concatenate([rows(3 * number, 8000 >> (5 - number), seed=99) for number in range(6)])
    assert 0.003 < model.is_novel(fresh).mean() < 0.03


@pytest.mark.slow
def test_sites_may_be_forgotten_too() -> None:
    model = FCAC(forgetting="window=3").fit({"a": rows(0), "b": rows(50)})
    model.partial_fit({"a": rows(0, seed=1)})
    model.forget("b")
    assert total(model) == 800


def test_who_cannot_forget_says_so() -> None:
    with pytest.raises(ValueError, match="forgetting: the paper's server"):
        FCAC(server="cae-fc", forgetting="window=3").fit(rows(0))
    with pytest.raises(ValueError, match="forgetting: what NodeRelease"):
        FCAC(privacy=NodeRelease(2.0, [[-9, 9]] * 3), forgetting="window=3").fit(rows(0))
    with pytest.raises(ValueError, match="forgetting must be"):
        FCAC(forgetting="soon").fit(rows(0))


def test_states_combine_to_all_their_rows() -> None:
    states: list[tuple[Any, float]] = [(Reservoir(3, 100).learn(rows(p, 900)), f) for p, f in ((0, 1.0), (9, 0.25))]
    both = combined(states, 3, 100)
    assert both.n_nodes <= 100
    assert both.counts.sum() == pytest.approx(900 * 1.25)
    mean = (rows(0, 900).sum(axis=0) + 0.25 * rows(9, 900).sum(axis=0)) / (900 * 1.25)
    np.testing.assert_allclose(both.counts @ both.nodes / both.counts.sum(), mean)
    assert combined(states[:1], 3, 100) is states[0][0]
    assert combined([], 3, 100).n_nodes == 0
