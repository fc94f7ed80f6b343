"""What was read and left out is stored with a model, and told by its report; equal runs give equal files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcac import FCAC, load, save
from fcac.cli import run
from fcac.model.storage import Run, to_bytes
from fcac.report.report_data import gather

SCHEMA = """\
fcac_schema = 1
bounds_are_public = true

[columns]
age = { min = 0, max = 100, scaling = "range", missing = "drop" }
dose = { min = 0, max = 10, scaling = "range", missing = "drop" }
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal(30 + 40 * (i % 2), 3):.1f},{rng.normal(2 + 5 * (i % 2), 0.4):.2f}" for i in range(300)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,dose", *lines, ",5", ",", "40,"]) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


@pytest.mark.slow
def test_a_later_report_knows_what_was_read_and_why_rows_were_left_out(table: Path) -> None:
    schema, rows, out = table / "schema.toml", table / "rows.csv", table / "m.fcac"
    assert run(["fit", str(rows), "--schema", str(schema), "--out", str(out)]) == 0
    assert run(["update", str(out), str(rows), "--site", "late"]) == 0
    model = load(out)
    assert [(one.round, one.rows_read, one.rows_dropped) for one in model.runs_] == [(1, 303, 3), (2, 303, 3)]
    data = gather(model)
    told = dict(data.provenance.rows)
    assert told["Rows read"] == "606 in 2 rounds (303, 303)"
    assert told["Rows left out"] == "6: a value was missing in age (4), dose (4), which the schema drops"
    assert any("6 rows of 606 had missing values" in caution.text for caution in data.verdict.cautions)
    assert model.forget("late").runs_ == (), "the counts include the rows of the site"


def test_a_private_model_and_its_report_hold_no_exact_counts(table: Path) -> None:
    pytest.importorskip("opendp")
    out, page = table / "m.fcac", table / "report.html"
    words = ["fit", str(table / "rows.csv"), "--schema", str(table / "schema.toml"), "--epsilon", "4"]
    assert run([*words, "--out", str(out), "--report", str(page)]) == 0
    assert b'"runs"' not in out.read_bytes()
    html = page.read_text("utf-8")
    assert "under privacy, exact counts stay at the sites" in html
    assert "Rows left out" not in html
    assert "Time to learn" not in html


def test_models_without_it_are_stored_as_before_and_fit_starts_anew(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 2))
    model = FCAC(random_state=0).fit(rows)
    before = to_bytes(model)
    assert b'"runs"' not in before
    model.runs_ = (Run(1, 90, 10, {"age": 10}),)
    save(model, tmp_path / "m.fcac")
    assert load(tmp_path / "m.fcac").runs_ == model.runs_
    assert to_bytes(model.fit(rows)) == before


@pytest.mark.slow
def test_equal_commands_write_equal_files(table: Path) -> None:
    written = []
    for name in ("a", "b"):
        out, page = table / f"{name}.fcac", table / f"{name}.html"
        words = ["--schema", str(table / "schema.toml")]
        assert run(["fit", str(table / "rows.csv"), *words, "--out", str(out), "--report", str(page)]) == 0
        assert run(["update", str(out), str(table / "rows.csv"), "--site", "late"]) == 0
        written.append((out.read_bytes(), page.read_text("utf-8").replace(str(out), "")))
    assert written[0] == written[1]


@pytest.mark.parametrize("wrong", [{"rows_read": -1}, {"rows_dropped": 1.5}])
def test_counts_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not counts"):
        Run.from_json(Run(1, 2).to_json() | wrong)
