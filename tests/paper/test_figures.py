"""The paper's figures: every file is written, and the numbers resemble the paper's."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import numpy as np
import pytest

from fcac.paper.figures import PAPER_WASSERSTEIN, reproduce_figures

image = pytest.importorskip("matplotlib.image", reason="the pictures need the extra 'experiments'")

pytestmark = pytest.mark.slow  # drawing them takes ten seconds


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    told: list[str] = []
    folder = tmp_path_factory.mktemp("figures") / "new"
    return folder, reproduce_figures(folder, seed=0, progress=told.append), told


def test_every_picture_is_there_as_pdf_and_png(drawn):
    folder, figures, told = drawn
    assert {name.rpartition(".")[0] for name in figures["files"]} == {
        "gaussian",
        "noise",
        "continual-data",
        "continual-rounds",
    }
    for name in figures["files"]:
        data = (folder / name).read_bytes()
        assert data.startswith(b"%PDF" if name.endswith("pdf") else b"\x89PNG")
        assert len(data) < 2_000_000
    assert len(told) == 3


def test_pictures_are_not_blank_and_fit_print(drawn):
    folder, figures, _ = drawn
    for name in figures["files"]:
        if name.endswith("png"):
            pixels = image.imread(folder / name)[..., :3]
            assert pixels.shape[1] >= 2000, "7 inches at 300 dots"
            assert pixels.std() > 0.05
            # margins are white: nothing is cut off at the edge
            assert (pixels[0] == 1).all()
            assert (pixels[:, 0] == 1).all()
            assert (pixels[:, -1] == 1).all()


def test_numbers_are_written_beside(drawn):
    folder, figures, _ = drawn
    assert json.loads((folder / "figures.json").read_text()) == figures
    tables = (folder / "figures.md").read_text()
    assert "| CAEFC | 80 |" in tables
    assert "0.0793" in tables


def test_clusterers_compare_as_in_the_paper(drawn):
    rows = {row["algorithm"]: row for row in drawn[1]["gaussian"]}
    # the paper: CAE makes many nodes and leaves some alone; CAE_FC few; CA+ reaches the outer edge too
    assert rows["CAE"]["nodes"] > 2 * rows["CAEFC"]["nodes"]
    assert rows["CAE"]["isolated_nodes"] > 0
    assert rows["CAEFC"]["isolated_nodes"] == 0
    assert rows["CAPlus"]["nodes"] > rows["CAEFC"]["nodes"]
    assert rows["CAPlus"]["edges"] == 0


def test_noise_moves_the_data_as_far_as_in_the_paper(drawn):
    rows = drawn[1]["noise"]
    assert [row["epsilon"] for row in rows] == list(PAPER_WASSERSTEIN)
    for row in rows:
        assert abs(row["wasserstein_mean"] - row["wasserstein_paper"]) <= 0.004
        assert row["transport_2d"] > row["wasserstein"], "moving points in the plane costs more than moving coordinates"
    assert np.all(np.diff([row["wasserstein"] for row in rows]) < 0)


def test_rounds_of_continual_learning(drawn):
    rows = drawn[1]["continual"]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert rows[0]["homogeneity"] == 1.0
    for earlier, later in pairwise(rows):
        assert all(later["site_nodes"][site] >= n for site, n in earlier["site_nodes"].items()), "CA+ forgets nothing"


def test_missing_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'fcac\[experiments\]'"):
        reproduce_figures(tmp_path)
