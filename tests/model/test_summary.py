"""What a fitted model tells about itself: summary, centres, score, reprs."""

from __future__ import annotations

import datetime
import html

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fcac import FCAC
from fcac.codebook import Codebook
from fcac.federation import Contribution, Server, Site
from fcac.federation.readouts.communities import CommunityReadOut
from fcac.federation.replay import stability_of
from fcac.privacy import NodeRelease
from fcac.tables.schema import Column, Schema

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 100.0, 5.0], [9.0, 100.0, 5.0], [0.0, 700.0, 5.0]])
SIZES = (600, 300, 100)
ROWS = np.concatenate([RNG.normal(c, [0.1, 5.0, 0.2], size=(n, 3)) for c, n in zip(CENTRES, SIZES, strict=True)])
FRAME = pd.DataFrame(RNG.permutation(ROWS), columns=["width", "height", "depth"])


@pytest.fixture(scope="module")
def model() -> FCAC:
    return FCAC(n_clusters=3).fit(FRAME, groups=np.arange(len(FRAME)) % 2)


@pytest.mark.slow
def test_centres_are_the_means_of_the_clusters_rows(model: FCAC) -> None:
    assert model.cluster_ids_.tolist() == sorted(set(model.labels_.tolist()))
    assert model.cluster_centers_.shape == (3, 3)
    means = [FRAME[model.labels_ == k].mean() for k in model.cluster_ids_]
    np.testing.assert_allclose(model.cluster_centers_, means)


@pytest.mark.slow
def test_summary_counts_rows_and_says_what_sets_clusters_apart(model: FCAC) -> None:
    summary = model.summary()
    assert [c.cluster for c in summary] == model.cluster_ids_.tolist()
    assert len(summary) == 3
    assert sorted(c.rows for c in summary) == sorted(SIZES)
    assert sum(c.share for c in summary) == pytest.approx(1)
    by_rows = {c.rows: c for c in summary}
    wide, high = by_rows[300], by_rows[100]
    assert next(iter(wide.differences)) == "width"
    assert wide.differences["width"] > 1
    assert next(iter(high.differences)) == "height"
    assert high.differences["height"] == pytest.approx((700 - FRAME.height.mean()) / FRAME.height.std(), rel=0.02)
    assert high.centre["height"] == pytest.approx(700, rel=0.01)


@pytest.mark.slow
def test_summary_prints_a_table(model: FCAC) -> None:
    lines = str(model.summary()).splitlines()
    assert lines[0].startswith("3 clusters in 1,000 rows, as asked")
    assert lines[1].split() == ["cluster", "rows", "share", "sure", "centre", "what", "sets", "it", "apart"]
    largest = next(line for line in lines if " 600 " in line)
    assert "60.0 %" in largest
    assert "height 1" in largest
    assert repr(model.summary()) == str(model.summary())
    assert lines[-1].startswith("Columns divided by their spread")
    as_they_are = str(FCAC(n_clusters=3, scale="none").fit(FRAME).summary()).splitlines()
    assert as_they_are[1].startswith("- height makes up more than 80%")
    table = model.summary().to_frame()
    assert table.index.tolist() == model.cluster_ids_.tolist()
    np.testing.assert_allclose(table[["width", "height", "depth"]], model.cluster_centers_)


@pytest.mark.slow
def test_features_without_names_and_many_clusters_stay_readable() -> None:
    X = np.random.default_rng(1).normal(size=(400, 12))
    text = str(FCAC().fit(X).summary())
    assert "x0 " in text
    assert "x5 " in text
    assert ", ..." in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("-")) < 160


@pytest.mark.slow
def test_centres_are_told_in_the_units_of_the_table() -> None:
    schema = Schema(
        [Column("age", min=0, max=100, scaling="range"), Column("bmi", scaling="standard", center=20, spread=5)]
    )
    rng = np.random.default_rng(2)
    told = np.concatenate([rng.normal([a, b], [1, 0.5], size=(200, 2)) for a, b in ((30, 20), (60, 35))])
    scaled = np.column_stack([told[:, 0] / 100, (told[:, 1] - 20) / 5])
    np.testing.assert_allclose(schema.unscaled(scaled), told)
    model = FCAC(n_clusters=2).play_stream(iter([("a", scaled)]), 2, schema.feature_names, schema=schema)
    ages = sorted(c.centre["age"] for c in model.summary())
    np.testing.assert_allclose(ages, [30, 60], atol=0.5)
    assert sorted(c.centre["bmi"] for c in model.summary()) == pytest.approx([20, 35], abs=0.5)


def test_categories_stay_shares() -> None:
    schema = Schema([Column("sex", categories=("f", "m")), Column("age", min=0, max=50, scaling="range")])
    rows = schema.apply(pd.DataFrame({"sex": ["f"], "age": [25.0]}))
    assert schema.unscaled(rows).tolist() == [[1.0, 0.0, 25.0]]


def test_the_papers_server_and_private_releases_are_summarised() -> None:
    paper = FCAC(server="cae-fc", random_state=0).fit(FRAME)
    assert sum(c.rows for c in paper.summary()) == 1000
    assert len(paper.summary()) == paper.n_clusters_ == len(paper.cluster_centers_)
    private = FCAC(privacy=NodeRelease(8.0, bounds=[[-5, 15], [0, 900], [0, 10]])).fit(FRAME)
    assert sum(c.rows for c in private.summary()) == pytest.approx(1000, rel=0.2)


@pytest.mark.slow
def test_how_sure_clusters_are_is_shown_and_is_the_score(model: FCAC, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {k: 0.1 * k + 0.5 for k in model.cluster_ids_.tolist()}
    monkeypatch.setattr(CommunityReadOut, "stability", told)
    monkeypatch.setattr(CommunityReadOut, "stability_score", 0.75)
    assert {c.cluster: c.sure for c in model.summary()} == pytest.approx(told)
    assert "50 %" in str(model.summary())
    assert model.score() == model.score(FRAME) == model.score(FRAME, None) == 0.75


def test_the_papers_server_has_no_score() -> None:
    model = FCAC(server="cae-fc")
    assert not hasattr(model, "score")
    with pytest.raises(AttributeError, match='score: server="cae-fc" does not tell'):
        _ = model.score


def test_reprs_say_what_is_there(model: FCAC) -> None:
    assert repr(model.sites_[1]) == "Site(1, round 1, 500 nodes, 500 rows)"
    assert repr(Site("a")) == "Site('a', round 0)"
    private = Site("b", NodeRelease(8.0, bounds=[[0, 1]]))
    private.contribute(np.full((40, 1), 0.5))
    assert repr(private).startswith("Site('b', round 1, ")
    assert repr(private).endswith(" rows, NodeRelease)")
    assert " about " in repr(private)
    assert repr(model.server_) == "Server('communities', 1 round, 2 sites, 1,000 nodes, 3 clusters)"
    assert repr(Server("cae-fc")) == "Server('cae-fc', 0 rounds, 0 sites)"
    sent = Contribution("a", 3, [[0.0], [1.0]], [1, 1200], {"mechanism": "NodeRelease"})
    assert repr(sent) == "Contribution('a', round 3, 2 nodes, 1,201 rows, NodeRelease)"
    assert repr(Codebook([[0.0, 1.0]], [4])) == "Codebook(1 node, 1 cluster, 2 features)"
    assert repr(FCAC(max_nodes=50)) == "FCAC(max_nodes=50)"


@pytest.mark.slow
def test_clusters_that_are_there_are_stable_and_forced_ones_are_not(model: FCAC) -> None:
    assert model.stability_ == model.score() > 0.9
    assert sorted(model.cluster_stability_) == model.cluster_ids_.tolist()
    assert model.verdict_.certain
    forced = FCAC(n_clusters=8).fit(FRAME)
    assert forced.stability_ < model.stability_
    assert "unstable" in [caution.kind for caution in forced.verdict_.cautions]
    assert str(forced.summary()).startswith(str(forced.verdict_))


def test_servers_that_cannot_tell_have_no_stability() -> None:
    paper = FCAC(server="cae-fc").fit(FRAME)
    assert not hasattr(paper, "stability_")
    assert not hasattr(paper, "cluster_stability_")
    assert stability_of(paper.server_) is None


@pytest.mark.slow
def test_stability_of_a_server_is_that_of_its_read_out(model: FCAC) -> None:
    found = stability_of(model.server_)
    assert found is not None
    assert found.overall == model.stability_
    assert found.of_cluster == model.cluster_stability_
    assert stability_of(Server()) is None


@pytest.mark.slow
def test_in_a_notebook_the_summary_is_a_table():
    X = np.concatenate([np.random.default_rng(0).normal(place, 1, size=(200, 2)) for place in (0, 20)])
    found = FCAC(n_clusters=4).fit(X).summary()
    shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + len(found)
    assert found.headline in shown
    assert found.headline == found.verdict.lines()[0]
    for line in found.verdict.lines():
        assert html.escape(line) in shown


@pytest.mark.slow
def test_the_summary_speaks_the_words_of_the_table() -> None:
    rng = np.random.default_rng(3)
    n = 300
    kind = np.repeat([0, 1], n // 2)
    table = pa.table(
        {
            "length": rng.normal(10.0 * kind, 1.0),
            "colour": np.array(["red", "blue"])[kind],
            "fresh": np.array(["yes", "no"])[kind],
            "picked": np.datetime64("2024-05-01") + (100 * kind + rng.integers(5, size=n)).astype("timedelta64[D]"),
            "always": np.full(n, 7.3),
        }
    )
    schema = Schema(
        [
            "length",
            Column("colour", kind="category", categories=("red", "blue")),
            Column("fresh", kind="boolean"),
            Column("picked", kind="date"),
            "always",
        ]
    )
    found = FCAC(n_clusters=2).fit(table, schema=schema).summary()
    first = next(c for c in found if c.centre["colour"] == "red")
    assert first.centre["fresh"] == 1.0
    assert datetime.date(2024, 5, 1) <= first.centre["picked"] <= datetime.date(2024, 5, 5)
    assert first.differences["always"] == 0.0
    assert "colour red 100 % (of all 50 %)" in first.apart or "colour blue 0 % (of all 50 %)" in first.apart
    text = str(found)
    assert "=" not in text
    assert "~" not in text
    assert found.to_frame().columns.tolist()[4:] == ["length", "colour", "fresh", "picked", "always"]
    assert "always has one value only and cannot tell clusters apart." in text
