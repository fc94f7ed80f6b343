"""A model's own pictures: Matplotlib, and what a notebook displays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fcac import FCAC
from fcac.report.page import asset, style_sheet
from testing.data import blobs

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def model():
    rows = blobs(900, 0, np.array([[0.0, 0, 0], [5, 5, 5], [0, 5, 0]]), 0.3)
    return FCAC(random_state=0).fit(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["map", "pca", "tree", "profiles"])
def test_every_kind_of_picture_is_drawn(model, kind):
    from matplotlib import pyplot

    ax = model.plot(kind)
    ax.figure.canvas.draw()
    assert ax.get_title()
    texts = {text.get_text().split(" ")[0] for text in ax.texts} | {t.get_text()[:1] for t in ax.get_yticklabels()}
    assert {str(k) for k in model.cluster_ids_} <= texts
    assert model.plot(kind, ax=ax) is ax
    pyplot.close(ax.figure)


@pytest.mark.slow
def test_an_unknown_kind_is_named(model):
    with pytest.raises(ValueError, match="kind must be one of map, pca, tree, profiles; it is 'pie'"):
        model.plot("pie")


@pytest.mark.slow
def test_a_notebook_shows_clusters_once_there_are_some(model):
    shown = model._repr_mimebundle_()["text/html"]
    assert shown.startswith('<div class="fcac-shown">')
    assert shown.count("<tr>") == 1 + model.n_clusters_
    assert shown == model._repr_html_()
    assert "fcac-shown" not in FCAC()._repr_mimebundle_()["text/html"]


@pytest.mark.slow
def test_assets_pass_their_check():
    checker = Path(__file__).parents[2] / ".ci" / "check_assets.py"
    done = subprocess.run([sys.executable, checker], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_assets_are_written_without_comments():
    assert "/*" not in style_sheet()
    assert ".c0{--c:#" in style_sheet()
    assert not any(line.startswith("//") for line in asset("report.js").splitlines())


def test_paper_is_white_whatever_the_screen():
    sheet = style_sheet()
    assert sheet.count("prefers-color-scheme") == sheet.count("screen and (prefers-color-scheme") > 0
