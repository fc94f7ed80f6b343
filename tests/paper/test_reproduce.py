"""The reproduction: resumable cells, agreement to the printed digit, tables."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from fcac.cli.reproduce import app
from fcac.paper import beside_paper, grid_results
from fcac.paper.grid import Cell, cells_of, read_cell, run, stream_after_split, write_cell


def test_half_up_is_what_the_paper_prints() -> None:
    assert beside_paper.half_up(69.25, 1) == "69.3"
    assert beside_paper.half_up(19.85, 1) == "19.9"
    assert beside_paper.half_up(-0.0245, 3) == "-0.025"
    assert beside_paper.half_up(0.0, 4) == "0.0000"


def entry(**changes) -> beside_paper.Entry:
    base = {
        "dataset": "optdigits",
        "scenario": "iid",
        "epsilon": "inf",
        "method": "FCAC",
        "measure": "ARI",
        "n_trials": 20,
        "mean": 0.44249,
        "std": 0.06251,
        "paper_mean": 0.4425,
        "paper_std": 0.0625,
    }
    return beside_paper.Entry(**{**base, **changes})


def test_agreement_is_by_printed_digits() -> None:
    assert entry().agrees
    assert not entry(mean=0.4426).agrees
    assert not entry(std=0.0627).agrees
    assert entry(paper_mean=None, paper_std=None).agrees is None
    assert entry(mean=0.4426).z == 0.0
    assert entry(mean=0.5, std=0.05).z == pytest.approx(0.0575 / np.sqrt(0.05**2 / 20 + 0.0625**2 / 20))


def test_every_disagreement_of_fcac_is_listed_with_a_reason() -> None:
    rows = [entry(), entry(dataset="ozone-level-8hr", mean=-0.0245, paper_mean=-0.0246)]
    listed = beside_paper.disagreements(rows)
    assert [d["dataset"] for d in listed] == ["ozone-level-8hr"]
    assert "tie" in listed[0]["reason"]
    assert beside_paper.agreement(rows)["FCAC"] == {"compared": 2, "equal_digits": 1, "beyond_2_standard_errors": 0}


def test_a_method_is_ranked_once_and_only_on_complete_blocks() -> None:
    rows = [entry(method=m, mean=0.1 * i) for i, m in enumerate(["FCAC", "communities", "communities (k given)"])]
    rows.append(entry(dataset="pendigits", method="FCAC"))
    blocks = grid_results.rounded_blocks(rows, ("iid",), "inf")
    assert [set(scores) for scores in blocks.values()] == [{"FCAC", "communities"}]


@pytest.fixture
def digits_dir(tmp_path, monkeypatch):
    """A small set in the place of a paper's one: scikit-learn's digits under a name of our own."""
    from sklearn.datasets import load_digits

    from fcac.paper import datasets

    X, y = (part[:600] for part in load_digits(return_X_y=True))
    counts = {str(k): int(n) for k, n in enumerate(np.bincount(y))}
    spec = datasets.Spec("toy-digits", 0, 64, counts, 5, "ToyDigits")
    monkeypatch.setattr(datasets, "_ALL", (*datasets._ALL, spec))
    monkeypatch.setitem(datasets.SPECS, spec.name, spec)
    np.savez(tmp_path / "toy-digits.npz", X=X, y=y)
    return tmp_path


@pytest.mark.slow
def test_runs_are_resumable_and_repeatable(digits_dir, tmp_path) -> None:
    cells = cells_of(["toy-digits"], ["iid", "non-iid"], [np.inf, 50.0], ["FCAC", "k-means"])
    steps = []

    def stop_early(done, total, cell) -> None:
        steps.append(done)
        if done == 5:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(cells, out, n_trials=2, data_dir=str(digits_dir), n_jobs=1, progress=stop_early)
    kept = sum(len(read_cell(out, cell)) for cell in cells)
    assert kept == 5
    run(cells, out, n_trials=2, data_dir=str(digits_dir), n_jobs=1, progress=lambda d, t, c: steps.append(d))
    assert steps == [1, 2, 3, 4, 5, *range(6, 17)]
    again = tmp_path / "again"
    run(cells[:1], again, n_trials=2, data_dir=str(digits_dir), n_jobs=1)
    for number, figures in read_cell(again, cells[0]).items():
        first = read_cell(out, cells[0])[number]
        assert {k: v for k, v in figures.items() if k != "seconds"} == {
            k: v for k, v in first.items() if k != "seconds"
        }


@pytest.mark.slow
def test_tables_are_written(digits_dir, tmp_path) -> None:
    out = tmp_path / "out"
    summary = grid_results.reproduce_tables(
        out, datasets=["toy-digits"], n_trials=1, data_dir=str(digits_dir), n_jobs=1, methods=("k-means", "FCAC")
    )
    assert {e["method"] for e in summary["entries"]} == {"k-means", "FCAC"}
    assert json.loads((out / "tables.json").read_text()) == summary
    text = (out / "tables.md").read_text()
    assert "toy-digits" in text
    assert "[n=1]" in text
    assert r"\begin{tabular}" in (out / "tables.tex").read_text()


@pytest.mark.slow
def test_federated_trials_count_what_sites_send(digits_dir) -> None:
    """Five sites of 120 rows: ten centres of 64 features each, all rows, the root of 120 micro-clusters, nodes."""
    from fcac.paper import federated

    told = {"k-FED (k given)": 5 * 10 * 64, "MUFC (k given)": 5 * 10 * 65, "k-means of all rows (k given)": 600 * 64}
    for method, numbers in (told | {"merged micro-clusters": 5 * 10 * 64}).items():
        figures = federated.trial("toy-digits, iid", method, 0, digits_dir)
        assert figures["MB sent"] == pytest.approx(8 * numbers / 1e6, rel=0.06 if method.startswith("MUFC") else 0.02)
        assert set(figures) >= {"ARI", "AMI", "clusters", "CPU s"}
        assert figures["clusters"] == 10 or method not in told
    ours = federated.trial("toy-digits, non-iid", "FCAC of the paper", 0, digits_dir)
    assert ours["MB sent"] > 0


def test_paper_cells_come_out_to_the_digit_from_stored_trials(tmp_path) -> None:
    """A cell whose trials average to the paper's figures is counted as equal."""
    paper = beside_paper.paper_tables()["non-iid"]["phoneme"]
    cell = Cell("phoneme", "non-iid", np.inf, "FCAC")
    (tmp_path / "cells").mkdir()
    names = {"ARI": "ARI", "AMI": "AMI", "NMI": "NMI", "nodes": "#Nodes", "clusters": "#Clusters"}
    low, high = ({k: paper[v]["FCAC"][0] + sign * paper[v]["FCAC"][1] for k, v in names.items()} for sign in (-1, 1))
    write_cell(tmp_path, cell, {0: low, 1: high})
    assert beside_paper.agreement(beside_paper.entries([cell], tmp_path))["FCAC"]["equal_digits"] == 5


def test_first_centres_come_from_where_the_split_left_numpys_generator() -> None:
    y = np.random.default_rng(0).integers(2, size=5404)
    draws = {
        (scenario, number): stream_after_split("phoneme", scenario, number, y).random_sample(3).tolist()
        for scenario in ("iid", "non-iid")
        for number in (0, 1)
    }
    state = np.random.RandomState(1)
    state.permutation(5404)
    assert draws["iid", 1] == state.random_sample(3).tolist()
    assert draws["iid", 0] != draws["iid", 1]
    assert draws["non-iid", 0] == draws["non-iid", 1]  # the paper's split begins with the same seed in every trial


REAL_DATA = os.environ.get("FCAC_DATA", "")


@pytest.mark.slow
def test_quick_run_of_the_command(digits_dir, tmp_path) -> None:
    """The whole command on stand-in sets: every method, both scenarios, three trials, tables and ranks."""
    result = CliRunner().invoke(
        app,
        ["tables", "--quick", "--datasets", "toy-digits", "--data-dir", str(digits_dir), "--out", str(tmp_path / "o")]
        + ["--jobs", "1"],
    )
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "o" / "tables.json").read_text())
    assert {e["n_trials"] for e in summary["entries"]} == {3}
    assert len(summary["entries"]) == 5 * 2 * 5
    ranks = summary["comparisons"]["overall, eps = inf"]["all"]["average_ranks"]
    assert sum(ranks.values()) == pytest.approx(15.0)
    assert "average ranks" in (tmp_path / "o" / "tables.md").read_text()


if REAL_DATA:

    def test_paper_to_the_digit(tmp_path) -> None:
        """With the real sets at hand (FCAC_DATA=DIR): twenty trials of two small sets equal the paper's tables."""
        sets, methods = ["hill-valley", "phoneme"], ("FCAC", "FedFCM")
        summary = grid_results.reproduce_tables(tmp_path, datasets=sets, methods=methods, data_dir=REAL_DATA, n_jobs=1)
        assert summary["agreement"]["FCAC"] == {"compared": 20, "equal_digits": 20, "beyond_2_standard_errors": 0}
        assert summary["agreement"]["FedFCM"] == {"compared": 16, "equal_digits": 16, "beyond_2_standard_errors": 0}
