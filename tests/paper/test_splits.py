"""The paper's splits: every row once, class by class, and equal to the reference to the row."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fcac.paper import splits
from fcac.paper.splits import paper_dirichlet, paper_iid

DATA = Path(__file__).parents[1] / "data"
LABELS = np.repeat([0, 1, 2, 3], [90, 60, 30, 20])


def test_paper_iid_gives_all_remainders_to_the_last_site():
    parts = paper_iid(LABELS, 7)
    table = np.array([np.bincount(LABELS[rows], minlength=4) for rows in parts])
    assert (table[:-1] == np.bincount(LABELS) // 7).all()
    assert (table[-1] == np.bincount(LABELS) - 6 * (np.bincount(LABELS) // 7)).all()
    for rows in parts:
        assert (np.diff(LABELS[rows]) >= 0).all()  # grouped by class


def test_paper_dirichlet_is_grouped_by_class_and_stops_filling_full_sites():
    y = np.random.RandomState(0).permutation(np.repeat(np.arange(10), 100))
    parts = paper_dirichlet(y, 5)
    for rows in parts:
        assert (np.diff(y[rows]) >= 0).all()
        before_last_class = np.searchsorted(y[rows], y[rows][-1])
        assert before_last_class < len(y) / 5  # a site with n / C rows gets no further class
    assert min(map(len, parts)) >= 40


@pytest.mark.parametrize("scenario", ["iid", "niid"])
def test_paper_splits_reproduce_the_reference_rows(scenario):
    """The file holds, for 1,000 digits, each client's rows in the order of the reference run (trial 0)."""
    with np.load(DATA / "partition_digits5c.npz", allow_pickle=False) as reference:
        rows, offsets = reference[f"{scenario}_rows"], reference[f"{scenario}_offsets"]
    labels = load_digits().target[:1000]
    y = labels[np.random.RandomState(0).permutation(1000)]
    parts = paper_iid(y, 5) if scenario == "iid" else paper_dirichlet(y, 5)
    assert [len(part) for part in parts] == np.diff(offsets).tolist()
    assert np.array_equal(np.concatenate(parts), rows)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paper_dirichlet(LABELS, 6), "min_rows=40 for 6 sites needs 240 rows; there are 200"),
        (lambda: paper_dirichlet(LABELS, 40, alpha=0.001, min_rows=5), "raise alpha"),
        (lambda: paper_iid([0, 1, 2], 2), "use fewer sites"),
    ],
)
def test_impossible_splits_are_refused(call, message, monkeypatch):
    monkeypatch.setattr(splits, "MAX_DRAWS", 20)  # a hopeless wish is given up after many draws
    with pytest.raises(ValueError, match=message):
        call()
