"""The commands on models, through the same entry as the program, in this process."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq
import pytest

from fcac import CAEFC, FCAC, load, save
from fcac.cli import run
from testing.commands import fcac
from testing.data import blocks


@pytest.fixture
def clinics(tmp_path):
    """Three sites with three blobs each, and the same rows in one table."""
    rng = np.random.default_rng(0)
    (tmp_path / "clinics").mkdir()
    parts = []
    for site in ("east", "north", "south"):
        rows = blocks(rng, 150)
        rng.shuffle(rows)
        table = pa.table({"age": rows[:, 0], "dose": rows[:, 1]})
        pa_csv.write_csv(table, tmp_path / "clinics" / f"{site}.csv")
        ids = pa.array([f"{site}-{i}" for i in range(len(rows))])
        parts.append(table.append_column("clinic", pa.array([site] * len(rows))).append_column("person", ids))
    pq.write_table(pa.concat_tables(parts), tmp_path / "all.parquet")
    return tmp_path


@pytest.fixture
def model(clinics, capfd):
    fcac(capfd, "fit", clinics / "clinics", "--out", clinics / "model.fcac")
    return clinics / "model.fcac"


@pytest.mark.slow
def test_files_and_a_site_column_make_the_same_model(clinics, model, capfd):
    said = fcac(
        capfd, "fit", clinics / "all.parquet", "--site-column", "clinic", "--drop", "person", "-o", clinics / "m.fcac"
    )
    assert "learned 1,350 rows of 2 columns at 3 sites" in said
    assert f"Model: {clinics / 'm.fcac'}" in said
    first, second = load(model), load(clinics / "m.fcac")
    assert list(first.sites_) == ["east", "north", "south"]
    assert first.feature_names_in_.tolist() == ["age", "dose"]
    np.testing.assert_allclose(first.server_.nodes, second.server_.nodes)


@pytest.mark.slow
def test_the_command_makes_the_model_that_python_makes(clinics, model):
    rows = {
        site: np.column_stack([c.to_numpy() for c in pa_csv.read_csv(clinics / "clinics" / f"{site}.csv").columns])
        for site in ("east", "north", "south")
    }
    again = FCAC(server="communities", random_state=0).fit(rows)
    np.testing.assert_array_equal(load(model).server_.nodes, again.server_.nodes)
    np.testing.assert_array_equal(load(model).server_.node_labels, again.server_.node_labels)


@pytest.mark.slow
def test_update_plays_the_next_round_in_place(clinics, model, capfd):
    said = fcac(capfd, "update", model, clinics / "clinics")
    assert "Round 2: learned 1,350 rows" in said
    again = load(model)
    assert again.n_rounds_ == 2
    assert {name: site.round for name, site in again.sites_.items()} == {"east": 2, "north": 2, "south": 2}


@pytest.mark.slow
def test_update_elsewhere_and_with_a_new_site(clinics, model, capfd):
    before = model.read_bytes()
    assert (
        run(["update", str(model), str(clinics / "clinics" / "north.csv"), "--site", "west", "-o", str(clinics / "n")])
        == 0
    )
    out, err = capfd.readouterr()
    assert "new site west" in err
    assert "Round 2" in out
    assert model.read_bytes() == before
    assert sorted(load(clinics / "n").sites_) == ["east", "north", "south", "west"]


@pytest.mark.slow
def test_update_needs_the_columns_of_the_model_in_any_order(clinics, model, capfd):
    (clinics / "north.csv").write_text("name,dose,age\nx,1,2\ny,8,8\n")
    fcac(capfd, "update", model, clinics / "north.csv", "-o", clinics / "n.fcac")
    (clinics / "north.csv").write_text("dose\n1\n")
    assert "has no column age" in fcac(capfd, "update", model, clinics / "north.csv", code=1)


@pytest.mark.slow
def test_forget_is_exact(clinics, model, capfd):
    said = fcac(capfd, "forget", model, "north", "--out", clinics / "without.fcac")
    assert "Forgot site north" in said
    fcac(
        capfd, "fit", clinics / "clinics" / "east.csv", clinics / "clinics" / "south.csv", "-o", clinics / "never.fcac"
    )  # fmt: skip
    forgot, never = load(clinics / "without.fcac"), load(clinics / "never.fcac")
    np.testing.assert_array_equal(forgot.server_.nodes, never.server_.nodes)
    assert "its sites are east, north, south" in fcac(capfd, "forget", model, "nowhere", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_predict_labels_every_row_in_order(clinics, model, capfd, ending):
    out = clinics / f"labels.{ending}"
    said = fcac(capfd, "predict", model, clinics / "clinics" / "north.csv", "-o", out)
    assert "Labelled 450 rows" in said
    read = {"parquet": pq.read_table, "csv": pa_csv.read_csv, "feather": pa_feather.read_table}[ending]
    labels = read(out)
    assert labels.column_names == ["label", "distance", "novel"]
    known = load(model)
    rows = np.column_stack([c.to_numpy() for c in pa_csv.read_csv(clinics / "clinics" / "north.csv").columns])
    table = pa.table({"age": rows[:, 0], "dose": rows[:, 1]}).to_pandas()
    assert labels["label"].to_pylist() == known.predict(table).tolist()
    np.testing.assert_allclose(labels["distance"].to_numpy(), -known.score_samples(table), rtol=1e-12)
    assert labels["novel"].to_pylist() == known.is_novel(table).tolist()


@pytest.mark.slow
def test_predict_with_a_codebook_of_the_papers_server_gives_the_same_labels(clinics, capfd):
    model = clinics / "paper.fcac"
    fcac(capfd, "fit", clinics / "clinics", "--server", "cae-fc", "-o", model)
    said = fcac(capfd, "export", model, "-o", clinics / "book.fcac")
    assert "no site states, no contributions" in said
    assert (clinics / "book.fcac").stat().st_size < model.stat().st_size / 2
    for name, source in (("a", model), ("b", clinics / "book.fcac")):
        fcac(capfd, "predict", source, clinics / "clinics", "-o", clinics / f"{name}.parquet")
    one, other = pq.read_table(clinics / "a.parquet"), pq.read_table(clinics / "b.parquet")
    assert one.column_names == ["site", "label", "distance", "novel"]
    for column in ("site", "label", "novel"):
        assert one[column].equals(other[column])
    np.testing.assert_allclose(one["distance"].to_numpy(), other["distance"].to_numpy(), atol=1e-9)


@pytest.mark.slow
def test_predict_keeps_columns_and_leaves_dropped_rows_empty(clinics, capfd):
    (clinics / "schema.toml").write_text('fcac_schema = 1\nmissing = "drop"\n[columns]\nage = {}\ndose = {}\n')
    fcac(capfd, "fit", clinics / "clinics", "--schema", clinics / "schema.toml", "-o", clinics / "m.fcac")
    (clinics / "new.csv").write_text("person,dose,age\np1,0,0\np2,,4\np3,8,8\n")
    said = fcac(capfd, "predict", clinics / "m.fcac", clinics / "new.csv", "-o", clinics / "l.csv", "--keep", "person")
    assert "1 row with missing values have an empty label" in said
    table = pa_csv.read_csv(clinics / "l.csv")
    assert table["person"].to_pylist() == ["p1", "p2", "p3"]
    assert [label is None for label in table["label"].to_pylist()] == [False, True, False]


@pytest.mark.slow
def test_the_schema_travels_with_the_model_and_its_export(clinics, capfd):
    text = 'fcac_schema = 1\nscaling = "range"\nmin = -2\nmax = 10\n[columns]\ndose = {}\nage = {}\n'
    (clinics / "schema.toml").write_text(text)
    fcac(capfd, "fit", clinics / "clinics", "--schema", clinics / "schema.toml", "-o", clinics / "m.fcac")
    nodes = load(clinics / "m.fcac").server_.nodes
    assert nodes.min() >= 0
    assert nodes.max() <= 1
    fcac(capfd, "export", clinics / "m.fcac", "-o", clinics / "book.fcac")
    for source in ("m.fcac", "book.fcac"):
        fcac(capfd, "predict", clinics / source, clinics / "clinics", "-o", clinics / f"{source}.parquet")
    one, other = (pq.read_table(clinics / f"{source}.parquet") for source in ("m.fcac", "book.fcac"))
    assert one["label"].equals(other["label"])
    assert len(set(one["label"].to_pylist())) > 1
    fcac(capfd, "update", clinics / "m.fcac", clinics / "clinics")
    assert load(clinics / "m.fcac").server_.nodes.max() <= 1
    assert json.loads(fcac(capfd, "inspect", clinics / "m.fcac", "--json"))["schema"]["columns"]["age"]["max"] == 10


@pytest.mark.slow
def test_columns_keep_the_order_of_the_schema_in_the_file(tmp_path, capfd):
    rng = np.random.default_rng(0)
    narrow, wide = rng.normal(size=900), np.repeat([0.0, 500.0, 1000.0], 300) + rng.normal(size=900)
    (tmp_path / "rows.csv").write_text(
        "a,z\n" + "\n".join(f"{a},{z}" for a, z in zip(narrow, wide, strict=True)) + "\n"
    )
    (tmp_path / "schema.toml").write_text("fcac_schema = 1\n[columns]\nz = {}\na = {}\n")
    for command in (
        [
            "fit",
            tmp_path / "rows.csv",
            "--server",
            "cae-fc",
            "--schema",
            tmp_path / "schema.toml",
            "-o",
            tmp_path / "m.fcac",
        ],
        ["export", tmp_path / "m.fcac", "-o", tmp_path / "book.fcac"],
        ["predict", tmp_path / "m.fcac", tmp_path / "rows.csv", "-o", tmp_path / "labels.parquet"],
        ["predict", tmp_path / "book.fcac", tmp_path / "rows.csv", "-o", tmp_path / "labels2.parquet"],
    ):
        fcac(capfd, *command)
    known = load(tmp_path / "m.fcac")
    expected = known.server_.predict(np.stack([wide, narrow], axis=1))
    for name in ("labels.parquet", "labels2.parquet"):
        assert pq.read_table(tmp_path / name)["label"].to_pylist() == expected.tolist()
    fcac(capfd, "update", tmp_path / "m.fcac", tmp_path / "rows.csv")
    assert load(tmp_path / "m.fcac").server_.nodes[:, 0].std() > 100


@pytest.mark.slow
def test_inspect_says_what_a_file_holds(clinics, model, capfd):
    said = fcac(capfd, "inspect", model)
    assert "states of all sites and 3 contributions" in said
    assert "do not share this file" in said
    assert "north" in said
    verdict = load(model).verdict_
    assert f"  {verdict.headline}\n" in said
    facts = json.loads(fcac(capfd, "inspect", model, "--json"))
    assert facts["site_states"] is True
    assert facts["contributions"] == 3
    assert [site["records"] for site in facts["sites"]] == [450, 450, 450]
    assert facts["verdict"]["headline"] == verdict.headline
    assert [caution["kind"] for caution in facts["verdict"]["cautions"]] == [c.kind for c in verdict.cautions]
    fcac(capfd, "export", model, "-o", clinics / "book.fcac")
    facts = json.loads(fcac(capfd, "inspect", clinics / "book.fcac", "--json"))
    assert (facts["holds"], facts["site_states"], facts["contributions"]) == ("Codebook", False, 0)
    assert "no site states, no contributions" in fcac(capfd, "inspect", clinics / "book.fcac")


@pytest.mark.slow
def test_single_clusterers_can_be_inspected_and_predict(clinics, capfd):
    save(CAEFC().fit(np.random.default_rng(0).normal(size=(300, 2))), clinics / "single.fcac")
    assert "a CAEFC model" in fcac(capfd, "inspect", clinics / "single.fcac")
    fcac(capfd, "predict", clinics / "single.fcac", clinics / "clinics" / "east.csv", "-o", clinics / "l.csv")
    for command in (["update", clinics / "single.fcac", clinics / "clinics"], ["forget", clinics / "single.fcac", "x"],
                    ["report", clinics / "single.fcac", "-o", clinics / "r.html"]):  # fmt: skip
        assert "CAEFC" in fcac(capfd, *command, code=2)


@pytest.mark.slow
def test_report_and_fit_with_report(clinics, model, capfd):
    said = fcac(capfd, "report", model, "-o", clinics / "r.html", "--title", "Three clinics")
    assert said.splitlines()[-1] == f"Report: {clinics / 'r.html'}"
    assert "Three clinics" in (clinics / "r.html").read_text()
    fcac(capfd, "report", model, "-o", clinics / "rows.html", "--data", clinics / "clinics")
    fcac(capfd, "fit", clinics / "clinics", "-o", clinics / "m.fcac", "--report", clinics / "fit.html")
    for name in ("rows.html", "fit.html"):
        assert (clinics / name).read_text().lower().startswith("<!doctype html>")


@pytest.mark.slow
def test_schema_prints_or_writes_a_draft(clinics, capfd):
    said = fcac(capfd, "schema", clinics / "all.parquet", "--site-column", "clinic")
    assert "bounds_are_public = false" in said
    assert 'person = { kind = "id" }' in said
    fcac(capfd, "schema", clinics / "clinics", "-o", clinics / "schema.toml", "--no-suggestions")
    assert "seen" not in (clinics / "schema.toml").read_text()
    fcac(capfd, "fit", clinics / "clinics", "--schema", clinics / "schema.toml", "-o", clinics / "m.fcac")
    said = fcac(capfd, "schema", clinics / "clinics", "--check", clinics / "schema.toml")
    assert said.splitlines()[-1] == "The data fit the schema."


@pytest.mark.slow
def test_the_communities_server(clinics, capfd):
    fcac(capfd, "fit", clinics / "clinics", "--server", "communities", "-o", clinics / "c.fcac")
    known = load(clinics / "c.fcac")
    assert known.server_.kind == "communities"
    assert known.n_clusters_ == 3
    fcac(capfd, "export", clinics / "c.fcac", "-o", clinics / "book.fcac")
    fcac(capfd, "export", clinics / "c.fcac", "-o", clinics / "nodes.fcac", "--share-nodes")
    assert len(load(clinics / "nodes.fcac").nodes) == len(known.server_.nodes)
    assert len(load(clinics / "book.fcac").nodes) < len(known.server_.nodes)


@pytest.mark.slow
def test_demo_ends_with_the_path_of_its_report(tmp_path, capfd):
    lines = fcac(capfd, "demo", "--out", tmp_path / "demo").splitlines()
    assert lines[-1] == str(tmp_path / "demo" / "report.html")
    assert (tmp_path / "demo" / "report.html").is_file()
    model = load(tmp_path / "demo" / "model.fcac")
    assert model.n_clusters_ == 3
    assert f"  {model.verdict_.headline}" in lines
    doubt = lines[lines.index("40 rows of noise in four columns: is there anything?") + 1]
    assert doubt.startswith(("  No clusters found", "  Uncertain"))
    assert (tmp_path / "demo" / "clinics.html").is_file()


@pytest.mark.slow
def test_three_commands_cluster_a_hospitals_table_with_gaps(tmp_path, capfd):
    import pandas as pd
    from sklearn.metrics import adjusted_mutual_info_score

    from testing.tables import hospital

    table, group = hospital(5, n=1500)
    table["group"] = group
    for name, rows in table.groupby("hospital"):
        rows.drop(columns="hospital").to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / f"{name}.csv" for name in ("north", "south", "west")]
    fcac(capfd, "schema", *files, "--drop", "group", "--out", tmp_path / "schema.toml")
    fcac(capfd, "fit", *files, "--schema", tmp_path / "schema.toml", "--out", tmp_path / "m.fcac")
    keep = ("--keep", "group", "--out", tmp_path / "labels.csv")
    fcac(capfd, "predict", tmp_path / "m.fcac", *files, *keep)
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert len(labels) == len(table)
    assert adjusted_mutual_info_score(labels["group"], labels["label"]) > 0.85
