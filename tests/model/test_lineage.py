"""What happened to clusters, as a table, in the shell and for schedulers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fcac import FCAC, load, save
from fcac.cli import run
from fcac.clusters.tracking import Extent
from fcac.model.lineage import as_table, lines_of, rows_of


def day(number: int, third: bool = False) -> np.ndarray:
    """A cluster that drifts, one that stays, and perhaps a third."""
    rng = np.random.default_rng(number)
    parts = [rng.normal([number * 0.9, 0], 1, size=(800, 2)), rng.normal([30, 30], 1, size=(400, 2))]
    return np.concatenate(parts + ([rng.normal([-30, 30], 1, size=(300, 2))] if third else []))


@pytest.fixture
def model() -> FCAC:
    model = FCAC(n_clusters=2)
    for number in range(4):
        model.partial_fit({"a": day(number)})
    return model


@pytest.mark.slow
def test_the_table_has_every_event(model: FCAC) -> None:
    table = model.lineage_.to_frame()
    assert list(table.columns) == ["round", "event", "cluster", "others", "rows_before", "rows_after", "moved"]
    assert list(table["event"][table["round"] == 1]) == ["born", "born"]
    born = table[table["event"] == "born"]
    assert sorted(born["rows_after"]) == [400.0, 800.0]
    assert born["moved"].isna().all()
    told = [(c.round, c.kind, c.cluster) for c in model.lineage_]
    known = table[table["event"] != "moved"]
    assert list(zip(known["round"], known["event"], known["cluster"], strict=True)) == told
    drifting, staying = model.predict(np.array([[3.0, 0.0], [30.0, 30.0]]))
    moved = table[table["event"] == "moved"]
    assert set(moved["cluster"]) == {drifting}
    assert (moved["moved"] > 0.25).all()
    assert (table["moved"][table["cluster"] == staying].dropna() < 0.25).all()


def test_a_move_is_measured_in_spreads() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2))
    labels, counts = np.zeros(5000, np.int64), np.ones(5000)
    before = Extent.of(X, counts, labels, np.array([1.0, 2.0]))
    after = Extent.of(X + [np.sqrt(5.0), 0.0], counts, labels, np.array([1.0, 2.0]))
    (move,) = before.moves(after, 7)
    assert move.round == 7
    assert move.moved == pytest.approx(1.0, abs=0.02)
    point = Extent.of(X[:1], counts[:1], labels[:1], np.ones(2))
    assert point.moves(point, 1)[0].moved == 0.0
    assert point.moves(Extent.of(X[1:2], counts[:1], labels[:1], np.ones(2)), 1)[0].moved == np.inf


@pytest.mark.slow
def test_without_pandas_it_is_a_list(model: FCAC, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = model.lineage_.to_frame()
    assert isinstance(table, list)
    assert table[0]["event"] == "born"
    assert as_table([]) == []


@pytest.mark.slow
def test_the_lineage_shows_itself_as_a_table_and_is_still_a_list(model: FCAC) -> None:
    head, first, *rest = str(model.lineage_).splitlines()
    assert head.split() == ["round", "event", "cluster", "others", "rows", "before", "rows", "after", "moved"]
    assert first.split() == ["1", "born", "0", "0", "800"]
    assert len(rest) == len(model.lineage_.to_frame()) - 1
    assert repr(model.lineage_) == str(model.lineage_)
    assert model.lineage_._repr_html_().count("<tr>") == 1 + len(model.lineage_.to_frame())
    assert model.lineage_ == model.server_.readout.lineage
    assert model.lineage_[0].kind == "born"
    assert str(FCAC(server="cae-fc").fit(day(0)).lineage_) == "no changes of clusters"


@pytest.mark.slow
def test_saved_and_loaded_it_is_the_same(model: FCAC, tmp_path: Path) -> None:
    save(model, tmp_path / "m.fcac")
    again = load(tmp_path / "m.fcac")
    assert again.lineage_.to_frame().equals(model.lineage_.to_frame())
    assert again.changed() == model.changed()
    assert str(again.events_of_latest()) == str(model.events_of_latest())


@pytest.mark.slow
def test_changed_tells_of_the_latest_call() -> None:
    model = FCAC(random_state=0).fit({"a": day(0)})
    assert [change.kind for change in model.changed()] == ["born", "born"]
    model.partial_fit({"a": day(0)})
    assert model.changed() == []
    model.partial_fit({"b": day(0, third=True)[-300:]})
    assert "born" in [change.kind for change in model.changed()]
    model.forget("b")
    assert "died" in [change.kind for change in model.changed()]
    paper = FCAC(server="cae-fc").fit({"a": day(0)})
    assert paper.changed() == []
    assert len(paper.lineage_.to_frame()) == 0


@pytest.mark.slow
def test_a_window_of_equal_rounds_tells_of_moves_alone() -> None:
    model = FCAC(forgetting="window=1", n_clusters=1)
    for number in range(3):
        model.partial_fit({"a": np.random.default_rng(1).normal(size=(1500, 2)) + 0.5 * number})
    assert [row["event"] for row in model.events_of_latest()] == ["moved"]
    assert model.events_of_latest()[0]["moved"] == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_the_command_prints_it_and_schedulers_can_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rows in (("one", day(0)), ("two", day(0)), ("three", day(2, third=True))):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="x,y", comments="")
    path = str(tmp_path / "m.fcac")

    def update(name: str, *words: str) -> int:
        return run(["update", path, str(tmp_path / f"{name}.csv"), "--site", "a", *words])

    assert run(["fit", str(tmp_path / "one.csv"), "--site", "a", "--out", path]) == 0
    assert update("two", "--exit-code") == 0
    capsys.readouterr()
    assert update("three", "--exit-code") == 3
    said = capsys.readouterr().out
    assert "born" in said
    assert "grew" in said
    assert update("three") == 0


def test_long_tables_are_cut() -> None:
    model = FCAC().fit(day(0))
    rows = rows_of(model.lineage_ * 20, [])
    lines = lines_of(rows, most=5)
    assert len(lines) == 7
    assert lines[-1] == "and 35 more"
