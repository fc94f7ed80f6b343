"""Private clustering side by side: equal epsilon, equal seeds, what is left out, and the picture."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fcac.paper import private
from fcac.paper.config import read_config
from testing.commands import fcac
from testing.data import labelled_blobs


@pytest.fixture
def own_set(tmp_path):
    X, y = labelled_blobs(600, 0, [[0.25, 0.25], [0.75, 0.25], [0.5, 0.8]], 0.04)
    np.savez(tmp_path / "mine.npz", X=np.clip(X, 0, 1), y=y, bounds=[[0, 1], [0, 1]], n_sites=6)
    return tmp_path


def test_config_names_what_there_is():
    for quick in (False, True):
        config = read_config("private", quick=quick)
        assert set(config.methods) == {*private.METHODS, private.DIFFPRIVLIB, private.NO_NOISE}
        assert {name.removesuffix(private.PER_PERSON) for name in config.sets} <= set(private.MADE)
        assert config.reference in config.ranked_methods
        assert private.NO_NOISE not in config.ranked_methods
        assert len(config.epsilons) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("method", [*private.METHODS, private.NO_NOISE])
def test_equal_seeds_equal_figures(method, own_set):
    trial = private.trial_with()
    first = trial("mine, eps 8", method, 0, own_set)
    assert first == trial("mine, eps 8", method, 0, own_set)
    assert set(first) == {"ARI", "AMI", "NMI", "clusters"}
    if method.startswith(("NodeRelease", "no noise", "DP-Lloyd", "FedDP-KMeans (100", "summed Lloyd")):
        assert first["AMI"] > 0.8
    if method != private.NO_NOISE:
        assert first != trial("mine, eps 0.01", method, 0, own_set)


def test_a_set_of_ones_own_needs_bounds(own_set, tmp_path):
    table = private.load("mine", own_set)
    assert table.n_sites == 6
    np.savez(tmp_path / "bare.npz", X=np.zeros((4, 2)), y=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="no array bounds"):
        private.load("bare", tmp_path)
    with pytest.raises(ValueError, match="--data-dir"):
        private.load("mine", None)


def test_people_are_whole_at_one_site_and_have_at_most_five_rows(own_set):
    table = private.load("mine, per person", own_set)
    people, rows = np.unique(table.people, return_counts=True)
    assert rows.max() == 5
    assert len(people) == sum(-(-count // 5) for count in np.bincount(table.y))
    assert all(len(set(table.y[table.people == person])) == 1 for person in people)
    parts = private.sites_of(table, 0)
    assert len(parts) == 6
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    at = [set(table.people[part]) for part in parts]
    assert sum(map(len, at)) == len(people)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["NodeRelease, one site", "NodeRelease, per site", "NodeRelease, summed", "summed Lloyd (k given)"]
)
def test_protecting_people_leaves_less(method, own_set):
    """Five rows a person are protected with as much noise for a fifth as many."""
    trial = private.trial_with()
    scores = [
        np.mean([trial(f"mine{unit}, eps 1", method, i, own_set)["AMI"] for i in range(3)])
        for unit in ("", private.PER_PERSON)
    ]
    assert scores[0] > scores[1]


def test_what_cannot_run_is_named(tmp_path):
    absent = private.left_out([private.DIFFPRIVLIB], str(tmp_path / "no-python"))
    assert "--diffprivlib" in absent[private.DIFFPRIVLIB]
    assert private.left_out(["LocalNoise"]) == {}


@pytest.mark.slow
def test_diffprivlib_is_called_in_its_own_python(tmp_path, monkeypatch):
    """A package of the same interface stands in: the real one cannot be imported beside this scikit-learn."""
    package = tmp_path / "diffprivlib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(
        "class KMeans:\n"
        "    def __init__(self, n_clusters, *, epsilon, bounds, random_state):\n"
        "        assert (n_clusters, epsilon, random_state) == (3, 2.0, 0)\n"
        "        self.low, self.high = bounds\n"
        "    def fit(self, X):\n"
        "        return self\n"
        "    def predict(self, X):\n"
        "        middle = (self.low + self.high) / 2\n"
        "        return (X[:, 0] > middle[0]) * (X[:, 1] < middle[1]) + 2 * (X[:, 1] > middle[1])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    X, y = labelled_blobs(300, 0, [[0.25, 0.25], [0.75, 0.25], [0.5, 0.8]], 0.04)
    np.savez(tmp_path / "mine.npz", X=X, y=y, bounds=[[0, 1], [0, 1]])
    figures = private.trial_with(sys.executable)("mine, eps 2", private.DIFFPRIVLIB, 0, tmp_path)
    assert figures["AMI"] > 0.95


@pytest.mark.slow
def test_command(own_set, tmp_path, capfd):
    out = tmp_path / "out"
    chosen = "NodeRelease, per site;NodeRelease, summed;DP-Lloyd (central, k given);no noise"
    given = ("--data-dir", own_set, "--sets", "mine", "--methods", chosen, "--trials", "1", "--out", out)
    said = fcac(capfd, "reproduce", "private", "--epsilons", "1,2,4,8", *given)
    assert "picture" in said
    assert (out / "epsilon.png").stat().st_size > 5000
    text = (out / "results.md").read_text()
    assert "| mine, eps 4 |" in text
    assert "Nemenyi" in text
    assert "no noise 1" not in text  # it is shown, not ranked
