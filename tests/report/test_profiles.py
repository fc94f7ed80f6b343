"""What is said of clusters: names, means in the table's units, distributions, errors, warnings, what was done."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from fcac import FCAC
from fcac.federation import Contribution, Server
from fcac.privacy import NodeRelease
from fcac.report import profiles, render_report
from fcac.report.charts import map_chart
from fcac.report.profiles import ColumnProfile, make_profiles
from fcac.report.report_data import gather
from fcac.tables.schema import Column, Schema
from fcac.tables.shown_column import ShownColumn, columns_of

SCHEMA = Schema(
    [
        Column("age", min=0, max=100, scaling="range"),
        Column("creatinine", center=90, spread=40, scaling="standard"),
        Column("code", categories=("E11", "N18", "I10")),
    ],
    bounds_are_public=True,
)


def patients(n: int = 900) -> pa.Table:
    rng = np.random.default_rng(0)
    old = np.arange(n) % 3 == 0
    return pa.table(
        {
            "age": np.clip(np.where(old, rng.normal(78, 4, n), rng.normal(40, 4, n)), 0, 100),
            "creatinine": np.where(old, rng.normal(190, 9, n), rng.normal(80, 9, n)),
            "code": np.where(old, "N18", np.where(np.arange(n) % 2, "I10", "E11")),
        }
    )


@pytest.fixture(scope="module")
def model():
    rows = SCHEMA.apply(patients())
    found = FCAC(n_clusters=2, random_state=0)
    found.play_stream(
        iter([("a", rows[::2]), ("b", rows[1::2])]), SCHEMA.n_features, SCHEMA.feature_names, schema=SCHEMA
    )
    return found


@pytest.mark.slow
def test_names_and_means_are_in_the_users_words_and_units(model):
    data = gather(model)
    small = data.found.clusters[1]
    assert small.rows == 300
    name = data.profiles.name(small.label)
    assert set(name.split(", ")) == {"older", "high creatinine", "all N18"}
    told = {p.column.name: p for p in data.profiles.clusters[small.label].columns}
    assert told["age"].own.mean == pytest.approx(78, abs=1)
    assert told["age"].all.mean == pytest.approx(52.7, abs=1)
    assert told["creatinine"].own.median == pytest.approx(190, abs=3)
    assert told["code"].own.bars == pytest.approx([0, 1, 0], abs=1e-9)
    assert told["code"].all.bars.sum() == pytest.approx(1)
    assert told["age"].own.bars.sum() == pytest.approx(1)
    html = render_report(model)
    assert "Older" in html or "older" in html
    assert "standard units" not in html


@pytest.mark.slow
def test_columns_that_matter_come_first(model):
    importance = gather(model).profiles.importance
    assert {column.name for column, _ in importance[:2]} == {"age", "creatinine"}
    assert all(0 <= share <= 1 for _, share in importance)


def test_dates_are_shown_as_months_and_days():
    rng = np.random.default_rng(0)
    days = np.concatenate([rng.uniform(19_000, 19_090, 300), rng.uniform(19_500, 19_590, 300)])
    column = ShownColumn("admitted", "date", (0,))
    labels = np.repeat([0, 1], 300)
    found = make_profiles([column], days[:, None], np.ones(600), labels, [0, 1], None, 3)
    assert found.clusters[0].name.startswith("admitted around ")
    assert found.clusters[0].name.endswith("2022")
    assert len(found.edges["admitted"]) <= 25
    assert column.shown(19_000.0) == "8 Jan 2022"


def test_every_kind_of_column_is_decoded():
    schema = Schema(
        [
            Column("age", kind="number", min=0, max=100, scaling="range"),
            Column("smoker", kind="boolean"),
            Column("stage", kind="ordinal", order=("mild", "moderate", "severe")),
            Column("admitted", kind="date", since="2020-01-01"),
            Column("seen", kind="date", parts=("month", "weekday")),
            Column("code", kind="category", groups={"diabetes": ["E1"], "kidney": ["N1"]}),
            Column("ward", kind="category"),  # without levels: its code means nothing to a reader
        ]
    )
    day = ["2021-03-01", "2021-08-07"]
    table = pa.table(
        {
            "age": [70.0, 20.0],
            "smoker": ["yes", "no"],
            "stage": ["moderate", "severe"],
            "admitted": day,
            "seen": day,
            "code": ["N18", "E11"],
            "ward": ["a", "b"],
        }
    )
    rows = schema.apply(table)
    columns = {column.name: column for column in columns_of(schema, schema.feature_names)}
    assert list(columns) == ["age", "smoker", "stage", "admitted", "seen (month)", "seen (weekday)", "code"]
    numbers = ("age", "smoker", "stage", "admitted")
    shown = [[columns[name].shown(value) for value in columns[name].values(rows)] for name in numbers]
    assert shown == [["70", "20"], ["100 %", "0 %"], ["moderate", "severe"], ["1 Mar 2021", "7 Aug 2021"]]
    for name, expected in (("seen (month)", ["Mar", "Aug"]), ("seen (weekday)", ["Mon", "Sat"])):
        assert [columns[name].categories[i] for i in columns[name].values(rows).argmax(axis=1)] == expected
    assert columns["code"].values(rows) == pytest.approx(np.array([[0, 1], [1, 0]]))


def test_features_without_a_schema_are_columns():
    columns = columns_of(None, ["a", "b"])
    assert [(c.name, c.kind, c.features) for c in columns] == [("a", "number", (0,)), ("b", "number", (1,))]


@pytest.mark.slow
def test_released_values_come_with_their_errors():
    rows = SCHEMA.apply(patients(3000))
    bounds = [[0, 1], [-3, 4], [0, 1], [0, 1], [0, 1]]
    private = FCAC(privacy=NodeRelease(8, bounds), random_state=0).fit(rows)
    data = gather(private, schema=SCHEMA)
    assert data.released
    for cluster in data.found.clusters:
        assert cluster.rows_error is not None
        assert cluster.rows_error > 0
        for profile in data.profiles.clusters[cluster.label].columns:
            assert profile.error is not None
            assert profile.error > 0
    largest = data.found.clusters[0]
    assert largest.rows_error is not None
    assert largest.rows_error < largest.rows / 3, "in records"
    html = render_report(private, schema=SCHEMA)
    assert "±" in html
    assert "95 of 100 cases" in html
    bounds = dict(data.privacy.facts)["Public bounds"]
    assert bounds == "age 0 to 100, creatinine −30 to 250, code: 3 levels", "in the table's units"
    # the same from the contributions alone, as the server of a federation has them
    assert gather(private.server_, schema=SCHEMA).found.clusters[0].rows_error == data.found.clusters[0].rows_error


@pytest.mark.slow
def test_without_noise_there_are_no_error_bars(model):
    data = gather(model)
    assert all(c.rows_error is None for c in data.found.clusters)
    assert "±" not in render_report(model)


@pytest.mark.slow
def test_warnings_in_plain_words():
    rng = np.random.default_rng(0)
    big, small = rng.normal(0, 1, size=(600, 3)), rng.normal(60, 1, size=(12, 3))
    model = FCAC(n_clusters=2, random_state=0).fit({"a": big[:300], "b": np.concatenate([big[300:], small])})
    verdict = gather(model, facts={"rows_read": 700, "rows_dropped": 88}).verdict
    told = " ".join(caution.text for caution in verdict.cautions)
    assert "88 rows of 700 had missing values" in told
    assert "rests on fewer than" in told
    assert "comes nearly all from one site" in told


def test_a_column_that_rules_is_named():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 3)) * [1, 1, 1]
    rows[:450, 0] += 30
    model = FCAC(server="cae-fc", random_state=0).fit(rows * [50, 1, 1])
    html = render_report(model, feature_names=["pay", "b", "c"])
    assert "<li>pay makes up more than 80%" in html


@pytest.mark.slow
def test_one_cluster_is_said_to_be_one():
    model = FCAC(n_clusters=1, random_state=0).fit(np.random.default_rng(0).normal(size=(300, 3)))
    data = gather(model)
    assert [p.name for p in data.profiles.clusters.values()] == ["all rows alike"]
    assert data.verdict.n_clusters == 1


@pytest.mark.slow
def test_what_was_done_can_be_repeated(model):
    html = render_report(model, facts={"rows_read": 1000, "rows_dropped": 100, "seconds": 61.0})
    assert "What was done" in html
    assert "1 min 1 s" in html
    assert "Seed of the server" in html
    assert "creatinine" in html
    done = gather(model).provenance
    assert dict(done.settings)["Number of clusters"] == "2, as asked"
    assert dict(done.schema)["age"] == "min 0, max 100, scaling range"


def test_a_schema_that_does_not_fit_is_refused(model):
    with pytest.raises(ValueError, match="schema: it has 1 features, the model has 5"):
        gather(model, schema=Schema(["a"]))


@pytest.mark.slow
def test_counts_that_are_sums_of_weights_are_shown_whole():
    server = Server()
    rng = np.random.default_rng(0)
    server.absorb([Contribution("a", 1, rng.normal(size=(60, 2)), np.full(60, 505.05))])
    html = render_report(server)
    assert "30,303 rows" in html
    assert "30,303.0" not in html


@pytest.mark.slow
def test_texts_are_told_by_words_of_a_public_vocabulary():
    pytest.importorskip("wordllama")
    rng = np.random.default_rng(0)
    topics = [
        ["parcel", "courier", "delivery", "shipment", "tracking", "driver"],
        ["tomato", "roses", "soil", "seeds", "compost", "lawn"],
    ]
    which = np.arange(160) % 2
    table = pa.table({"note": [" ".join(rng.choice(topics[k], size=4, replace=False)) for k in which]})
    schema = Schema([Column("note", kind="text", encoder="wordllama:64")])
    fitted = FCAC(n_clusters=2, random_state=0).fit(table, schema=schema)
    data = gather(fitted)
    words = {label: profile.words[0] for label, profile in data.profiles.clusters.items()}
    assert {column for column, _ in words.values()} == {"note"}
    together = [" ".join(found) for _, found in words.values()]
    assert any("ship" in text or "deliver" in text for text in together)
    assert data.profiles.name(0).startswith(", ".join(words[0][1][:3]))
    assert words[0][1][0] in render_report(fitted)


@pytest.mark.slow
def test_numbers_have_the_unit_of_the_schema():
    schema = Schema([Column("sodium", kind="number", min=100, max=180, scaling="range", unit="mmol/l")])
    rows = np.concatenate([np.random.default_rng(0).normal(m, 1, 200) for m in (120.0, 160.0)])
    fitted = FCAC(n_clusters=2, random_state=0).fit(pa.table({"sodium": rows}), schema=schema)
    assert "mmol/l" in render_report(fitted)
    assert Schema.from_toml(schema.to_toml()).fields[0].unit == "mmol/l"


@pytest.mark.slow
def test_the_report_of_one_table_speaks_of_rows_not_of_sites():
    rows = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([[0.0], [9.0]], 150, axis=0)
    html = render_report(FCAC(n_clusters=2, random_state=0).fit(rows))
    assert "<h1>2 clusters in 300 rows, as asked</h1>" in html
    assert 'id="sites"' not in html


def test_rows_with_gaps_and_mixed_columns_are_counted():
    schema = Schema([Column("age", kind="number", min=0, max=100, scaling="range", missing="native"), "dose"])
    table = pa.table({"age": [20.0, None, 22.0] * 30 + [80.0, 81.0, None] * 30, "dose": [1.0] * 90 + [9.0] * 90})
    fitted = FCAC(n_clusters=2, random_state=0).fit(table, schema=schema)
    data = gather(fitted, rows=table)
    assert sorted(c.rows for c in data.found.clusters) == [90, 90]
    assert data.novelty.n_rows == 180


def test_means_next_to_zero_are_shown_as_zero():
    column = ShownColumn("dose", "number", (0,))
    assert column.shown(2.8e-05, 6.0) == "0"
    assert column.shown(-1.1e-16, 6.0) == "0"
    assert column.shown(0.02, 6.0) == "0.02"
    assert column.shown(2.8e-05) == "2.80e-05"


def test_a_level_that_several_columns_have_is_named_with_its_column():
    rng = np.random.default_rng(3)
    group = rng.integers(2, size=400)
    answers = np.where(rng.random((3, 400)) < 0.1, 1 - group, np.array([group, group, 1 - group]))
    words = np.array(["never", "daily"])[answers]
    table = pa.table(dict(zip(("tea", "milk", "wine"), words, strict=True)))
    found = gather(FCAC().fit(table)).profiles
    for k in (0, 1):
        assert {term.split()[1] for term in found.name(k).split(", ")} == {"tea", "milk", "wine"}


def test_clusters_that_would_have_one_name_get_another_term(monkeypatch):
    monkeypatch.setattr(profiles, "name_of", lambda columns, most: " ".join(column.term for column in columns[:most]))
    terms = {0: "old high E11 north", 1: "old high E11 south", 2: "young low I10 north"}
    found = {
        label: profiles.ClusterProfile(label, "", [SimpleNamespace(is_certain=True, term=t) for t in text.split()])
        for label, text in terms.items()
    }
    named = {label: profile.name for label, profile in profiles._named(found, 3).items()}
    assert named[2] == "young low I10"
    assert len(set(named.values())) == 3
    assert profiles._named({0: found[0]}, 1)[0].name == "all rows alike"


def test_axes_of_two_columns_are_in_the_tables_units():
    schema = Schema(
        [
            Column("sodium", kind="number", min=100, max=180, scaling="range", unit="mmol/l"),
            Column("cost", kind="number", min=1, max=10_000, scaling="log"),
        ]
    )
    rng = np.random.default_rng(0)
    table = pa.table({"sodium": rng.uniform(110, 170, 200), "cost": np.exp(rng.uniform(1, 8, 200))})
    data = gather(FCAC(n_clusters=1).fit(table, schema=schema))
    assert data.axis_labels == ("sodium (mmol/l)", "cost")
    encoded = schema.apply(pa.table({"sodium": [140.0], "cost": [100.0]}))[0]
    assert [data.axis_value(axis, encoded[axis]) for axis in (0, 1)] == ["140 mmol/l", "100"]
    ticks = map_chart(data)["views"][0]["ticks"]
    assert {tick["text"].endswith(" mmol/l") for tick in ticks if tick["mid"]} == {True}


def test_leading_categories_are_told_with_their_shares():
    shares = np.array([[0.004, 0.196, 0.0, 0.5, 0.3]])
    column = ShownColumn("ward", "category", tuple(range(5)), tuple("abcde"))
    found = make_profiles([column], np.repeat(shares, 10, axis=0), np.ones(10), np.zeros(10, int), [0], None, 3)
    assert found.overall["ward"].bars == pytest.approx(shares[0])
    told = ColumnProfile(column, found.overall["ward"], found.overall["ward"], 1.0)
    assert [(name, round(own, 3)) for name, own, _ in told.leading] == [("d", 0.5), ("e", 0.3), ("b", 0.196)]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("pressure", "high pressure"),
        ("blood pressure, systolic, sitting", "high blood pressure, systolic…"),
        ("a" * 40, "high " + "a" * 27 + "…"),
    ],
)
def test_long_names_are_shortened_at_the_end_of_a_word(name, shown):
    column = ShownColumn(name, "number", (0,))
    nodes = np.concatenate([np.zeros(50), np.full(50, 9.0)])[:, None]
    found = make_profiles([column], nodes, np.ones(100), np.repeat([0, 1], 50), [0, 1], None, 3)
    assert found.name(1) == shown
