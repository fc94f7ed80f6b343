"""Comparisons side by side: they resume, rank, test, and write one page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fcac.paper import continual, one_table
from fcac.paper.config import read_config, read_grid, with_files
from fcac.paper.datasets import SPECS
from fcac.paper.grid import EPSILONS, INSIDE, METHODS, MIXTURE, N_TRIALS
from fcac.paper.peers import PEERS, labels_of, missing
from fcac.paper.runs import run
from fcac.paper.statistics import holm
from testing.commands import fcac


def test_every_published_run_of_the_grid_has_a_file_of_settings():
    known = {*METHODS, MIXTURE, *INSIDE, "communities", "communities (k given)"}
    for name in ("tables", "privacy", "quality", "networks"):
        config, quick = read_grid(name), read_grid(name, quick=True)
        assert set(config.methods) <= known
        assert set(config.epsilons) <= set(EPSILONS)
        assert (config.sets, config.trials) == ((), N_TRIALS)
        assert set(quick.sets) <= set(SPECS)
        assert quick.trials < config.trials


def test_configs_name_what_there_is():
    for quick in (False, True):
        config = read_config("one-table", quick=quick)
        assert set(config.methods) <= set(PEERS)
        assert set(config.sets) <= set(one_table.MADE)
        assert config.reference in config.methods
        config = read_config("continual", quick=quick)
        for method in config.methods:
            assert hasattr(continual.clusterer(method, 3, 0, 1.0), "partial_fit")
        for name in config.sets:
            assert len(continual.stream(name, 0, None)) >= 2


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(tmp_path):
    config = read_config("one-table", quick=True).narrowed(
        ["compositions", "shells"], ["fcac", "HDBSCAN", "k-means (k given)"], 2
    )
    called = []

    def trial(name, method, number, data_dir):
        called.append((name, method, number))
        return {"ARI": 0.1 * len(method), "AMI": 0.05 * number + 0.1 * len(method), "CPU s": 1.0}

    first = run(config, trial, tmp_path)
    assert len(called) == 2 * 3 * 2
    again = run(config, trial, tmp_path)
    assert len(called) == 2 * 3 * 2
    assert first == again == json.loads((tmp_path / "results.json").read_text())
    assert list(first["ranks"]["ARI"]["average_ranks"]) == ["k-means (k given)", "HDBSCAN", "fcac"]
    assert (tmp_path / "cd_AMI.png").exists()
    text = (tmp_path / "results.md").read_text()
    assert "| shells |" in text
    for stated in (
        "Holm",
        "Nemenyi",
        "Friedman",
        "cores",
        "`fcac reproduce one-table`",
        "scikit-learn",
        "(cd_AMI.png)",
    ):
        assert stated in text
    assert "## Where fcac is behind\n\nOn 2 of 2 sets" in text


def test_a_method_that_fails_is_named_and_the_rest_goes_on(tmp_path):
    config = read_config("one-table", quick=True).narrowed(["iris"], ["fcac", "HDBSCAN", "k-means (k given)"], 1)

    def trial(name, method, number, data_dir):
        if method == "HDBSCAN":
            raise MemoryError("no room")
        return {"ARI": 1.0, "AMI": 1.0}

    found = run(config, trial, tmp_path, left_out={"PLSCAN": "it needs fast-hdbscan"})
    assert found["failed"] == {"HDBSCAN on iris": "MemoryError: no room"}
    assert found["means"]["iris"]["HDBSCAN"] == {}
    text = (tmp_path / "results.md").read_text()
    assert "- HDBSCAN on iris: MemoryError: no room" in text
    assert "Left out: **PLSCAN**. It needs fast-hdbscan." in text


def test_a_page_can_be_written_from_what_there_is(tmp_path):
    config = read_config("one-table", quick=True).narrowed(["iris"], ["fcac", "HDBSCAN"], 1)
    run(config, lambda *_: {"ARI": 0.5, "AMI": 0.5}, tmp_path)
    wider = read_config("one-table", quick=True).narrowed(["iris"], ["fcac", "HDBSCAN", "GNG"], 2)

    def never(*_):
        raise AssertionError("no trial may run")

    found = run(wider, never, tmp_path, only_write=True)
    assert found["failed"] == {}
    assert found["fewer_trials"] == {"fcac on iris": 1, "HDBSCAN on iris": 1, "GNG on iris": 0}
    assert "Fewer trials: fcac on iris: 1; HDBSCAN on iris: 1; GNG on iris: 0." in (tmp_path / "results.md").read_text()


def test_sets_of_the_comparison_run_if_their_files_are_there(tmp_path):
    np.savez(tmp_path / "text-snippets.npz", X=np.zeros((4, 2)), y=[0, 0, 1, 1])
    config = with_files(read_config("one-table"), tmp_path)
    assert "text-snippets" in config.sets
    assert "sipu-a1" not in config.sets


def test_best_of_several_references_counts_and_noise_is_left_out(tmp_path):
    X = np.concatenate([np.random.default_rng(0).normal(c, 0.1, size=(30, 2)) for c in (0, 4, 8)])
    coarse, fine = np.repeat([1, 2, 2], 30), np.repeat([1, 2, 3], 30)
    coarse[:2] = 0
    np.savez(tmp_path / "rings.npz", X=X, y0=coarse, y1=fine)
    rows, references = one_table.load_with_references("rings", 0, tmp_path)
    assert rows.shape == (90, 2)
    assert [one_table.n_classes(y) for y in references] == [2, 3]
    found = one_table.trial("rings", "HDBSCAN", 0, tmp_path)
    assert found["ARI"] > 0.95
    assert found["right number"] == 1.0


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="method: DBSCAN is not one of"):
        read_config("one-table").narrowed([], ["DBSCAN"], None)


def test_sets_from_files(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.zeros((4, 2)), y=np.array(["a", "a", "b", "b"]))
    config = with_files(read_config("one-table"), tmp_path)
    assert config.narrowed(["mine"], [], None).sets == ("mine",)
    X, y = one_table.load("mine", 0, tmp_path)
    assert X.shape == (4, 2)
    assert y.tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="--data-dir"):
        one_table.load("mine", 0, None)


@pytest.mark.parametrize(
    "method",
    [
        "HDBSCAN",
        pytest.param("PLSCAN", marks=pytest.mark.soak),
        "Leiden",
        "Genie (k given)",
        "Ward (k given)",
        "BIRCH (k given)",
    ],
)
def test_peers_cluster_two_far_gaussians(method):
    if missing((method,)):
        pytest.skip(f"{method} needs the extra peers")
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), 30 + rng.normal(size=(100, 2))])
    labels = labels_of(method, X, 2, 0)
    assert not set(labels[:100]) & set(labels[100:]) - {-1}


@pytest.mark.slow
def test_backward_transfer_tells_who_forgets():
    kept = continual.trial("recurring Gaussians", "communities", 0, None)
    for measure in ("ARI", "AMI"):
        assert kept[f"average incremental {measure}"] > 0.95
        assert abs(kept[f"backward transfer {measure}"]) < 0.05
    assert {f"seen {i}" for i in range(1, 7)} <= set(kept)


def test_holm_corrects_for_the_number_of_methods():
    rng = np.random.default_rng(0)
    blocks = {i: {"a": 1 + rng.normal(), "b": rng.normal(), "c": 0.9 + rng.normal()} for i in range(30)}
    found = holm(blocks, "a")
    assert found["b"] < 0.05 < found["c"]
    with pytest.raises(ValueError, match="reference"):
        holm(blocks, "d")


def test_seen_and_unseen_sets_stand_apart_and_only_the_latter_are_ranked(tmp_path):
    methods = ["fcac", "HDBSCAN", "k-means (k given)"]
    config = read_config("one-table", quick=True).narrowed(["iris", "wine", "compositions", "shells"], methods, 1)

    def trial(name, method, number, data_dir):
        score = 0.9 if (method == "fcac") == (name in ("iris", "wine")) else 0.2
        return {"ARI": score, "AMI": score}

    found = run(config, trial, tmp_path)
    assert found["ranks"]["AMI"]["n_blocks"] == 2
    assert found["ranks"]["AMI"]["average_ranks"]["fcac"] == 3.0
    text = (tmp_path / "results.md").read_text()
    assert "| **mean, unseen** | 0.200 | 0.900 | 0.900 |" in text
    assert "| **mean, seen** | 0.900 | 0.200 | 0.200 |" in text
    seen_only = run(config.narrowed(["iris", "wine"], methods, 1), trial, tmp_path)
    assert seen_only["ranks"] == {}


@pytest.mark.slow
def test_commands(tmp_path, capfd):
    few = ("--trials", "1", "--out", tmp_path)
    said = fcac(capfd, "reproduce", "one-table", "--sets", "iris;wine", "--methods", "fcac,HDBSCAN,GNG", *few)
    assert "results.md" in said
    assert (tmp_path / "results.json").exists()
    chosen = ("--sets", "recurring Gaussians", "--methods", "GNG,ASOINN,communities")
    fcac(capfd, "reproduce", "continual", *chosen, "--trials", "1", "--out", tmp_path / "c")
    assert (tmp_path / "c" / "forgetting.png").exists()
