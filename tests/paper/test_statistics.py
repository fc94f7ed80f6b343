"""Ranks and significance tests, against hand-worked cases and against what the paper prints."""

import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fcac.paper.statistics import _draw as draw
from fcac.paper.statistics import (
    average_ranks,
    cd_diagram,
    compare,
    compare_by_metric,
    critical_difference,
    friedman,
    nemenyi,
    paper_scores,
    score_matrix,
    surviving_differences,
)

PRINTED = {
    "iid": {"k-means": 2.700, "k-FED": 3.533, "FedFCM": 3.633, "MUFC": 2.900, "FCAC": 2.233},
    "non-iid": {"k-means": 2.833, "k-FED": 3.400, "FedFCM": 4.200, "MUFC": 2.333, "FCAC": 2.233},
}


def random_scores(n_methods=5, n_blocks=30, gap=0.3, seed=0):
    generator = np.random.default_rng(seed)
    return {
        block: {f"m{i}": float(generator.normal() + gap * i) for i in range(n_methods)} for block in range(n_blocks)
    }


# the parts


def test_average_ranks_by_hand():
    scores = {1: {"a": 3, "b": 2, "c": 1}, 2: {"a": 1, "b": 1, "c": 0}, 3: {"a": 0.1, "b": 0.3, "c": 0.2}}
    assert average_ranks(scores) == pytest.approx(
        {"a": (1 + 1.5 + 3) / 3, "b": (2 + 1.5 + 1) / 3, "c": (3 + 3 + 2) / 3}
    )


def test_both_forms_of_input_say_the_same():
    nested = random_scores()
    long = [(method, block, score) for block, row in nested.items() for method, score in row.items()]
    assert average_ranks(nested) == average_ranks(long)
    assert average_ranks(iter(long)) == average_ranks(long)


def test_friedman_by_the_textbook_formula():
    _, _, matrix = score_matrix(random_scores())
    n, k = matrix.shape
    ranks = stats.rankdata(-matrix, axis=1).mean(axis=0)
    chi2 = 12 * n / (k * (k + 1)) * (np.sum(ranks**2) - k * (k + 1) ** 2 / 4)
    statistic, p = friedman(matrix)
    assert statistic == pytest.approx(chi2)
    assert p == pytest.approx(stats.chi2.sf(chi2, k - 1))


def test_friedman_when_all_methods_tie_everywhere():
    assert friedman(np.ones((4, 3))) == (0.0, 1.0)
    assert compare({b: {"a": 1, "b": 1, "c": 1} for b in range(5)}).groups == [("a", "b", "c")]


@pytest.mark.parametrize(
    ("k", "q05", "q10"),
    [(2, 1.960, 1.645), (3, 2.343, 2.052), (5, 2.728, 2.459), (10, 3.164, 2.920)],
)
def test_critical_difference_has_the_published_quantiles(k, q05, q10):
    scale = np.sqrt(k * (k + 1) / (6 * 25))
    assert critical_difference(k, 25) / scale == pytest.approx(q05, abs=1e-3)
    assert critical_difference(k, 25, alpha=0.10) / scale == pytest.approx(q10, abs=1e-3)


@pytest.mark.slow
@given(st.integers(3, 7), st.integers(5, 60), st.integers(0, 1000))
def test_p_values_and_critical_difference_agree(k, n, seed):
    scores = random_scores(k, n, seed=seed)
    found = compare(scores)
    for i, j in itertools.combinations(range(k), 2):
        beyond = abs(found.ranks[i] - found.ranks[j]) > found.critical_difference
        assert (found.p_values[i, j] < 0.05) == beyond


@pytest.mark.slow
@given(st.integers(3, 8), st.integers(5, 60), st.floats(0, 1), st.integers(0, 1000))
def test_groups_are_the_maximal_runs_without_a_difference(k, n, gap, seed):
    found = compare(random_scores(k, n, gap, seed))
    runs = [found.methods[i:j] for i in range(k) for j in range(i + 2, k + 1)]
    alike = [run for run in runs if not any(found.differ(a, b) for a, b in itertools.combinations(run, 2))]
    maximal = [run for run in alike if not any(set(run) < set(other) for other in alike)]
    assert found.groups == maximal


def test_no_pair_differs_when_friedman_finds_nothing():
    found = compare(random_scores(gap=0.0, seed=3))
    assert found.friedman_p > 0.05
    assert found.differences == []
    assert found.groups == [found.methods]


def test_nemenyi_p_values_by_the_studentized_range():
    _, _, matrix = score_matrix(random_scores())
    n, k = matrix.shape
    ranks = stats.rankdata(-matrix, axis=1).mean(axis=0)
    q = abs(ranks[0] - ranks[3]) / np.sqrt(k * (k + 1) / (6 * n)) * np.sqrt(2)
    assert nemenyi(matrix)[0, 3] == pytest.approx(stats.studentized_range.sf(q, k, np.inf))


def test_as_dict_is_json():
    found = compare(random_scores())
    back = json.loads(json.dumps(found.as_dict()))
    assert back["average_ranks"] == dict(zip(found.methods, found.ranks, strict=True))
    assert len(back["nemenyi_p"]) == 10
    assert [tuple(pair) for pair in back["differences"]] == found.differences


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({1: {"a": 1, "b": 2}, 2: {"a": 1, "b": 2}}, "at least 3 methods and 2 blocks; there are 2 methods"),
        ({1: {"a": 1, "b": 2, "c": 3}}, "there are 3 methods and 1 blocks"),
        ({1: {"a": 1, "b": 2, "c": 3}, "x": {"a": 1, "b": 2}}, "block 'x' has no score for c"),
        ({1: {"a": 1, "b": 2, "c": float("nan")}, 2: {"a": 1, "b": 2, "c": 3}}, "block 1 has no score for c"),
        ([("a", 1, 0.5), ("a", 1, 0.6)], "method 'a' has two scores in block 1"),
    ],
)
def test_incomplete_tables_are_named(scores, message):
    with pytest.raises(ValueError, match=message):
        compare(scores)


def test_bad_alpha_and_sizes():
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1"):
        compare(random_scores(), alpha=5)
    with pytest.raises(ValueError, match="2 methods and 1 block"):
        critical_difference(1, 5)


COMPARED = compare(random_scores())


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("scikit_posthocs", lambda: nemenyi(np.eye(3))),
        ("matplotlib", lambda: cd_diagram("nowhere", COMPARED)),
    ],
)
def test_a_missing_extra_says_what_to_install(monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'fcac\[experiments\]'"):
        call()


# the paper's own tables


@pytest.mark.parametrize("scenario", ["iid", "non-iid"])
def test_the_papers_printed_ranks_average_to_its_printed_averages(scenario):
    ranks = average_ranks(paper_scores([scenario], from_ranks=True))
    assert {method: round(rank, 3) for method, rank in ranks.items()} == PRINTED[scenario]


@pytest.mark.parametrize("scenario", ["iid", "non-iid"])
def test_ranks_from_the_papers_printed_scores(scenario):
    """Rounding makes ties among the rivals, so only FCAC's rank must be exact; the others are near."""
    ranks = average_ranks(paper_scores([scenario]))
    assert round(ranks["FCAC"], 3) == 2.233
    for method, rank in ranks.items():
        assert rank == pytest.approx(PRINTED[scenario][method], abs=0.09)


def test_the_papers_text_on_its_diagrams():
    """Its claim for all results together: FCAC is best, and significantly better than k-FED and FedFCM."""
    found = compare(paper_scores(from_ranks=True))
    assert found.n_blocks == 60
    assert found.methods[0] == "FCAC"
    assert [worse for better, worse in found.differences if better == "FCAC"] == ["k-FED", "FedFCM"]
    assert found.groups == [("FCAC", "MUFC", "k-means"), ("k-means", "k-FED"), ("k-FED", "FedFCM")]
    # "The ranks of MUFC and FedFCM differ depending on the scenario": MUFC moves from third to second
    orders = {s: compare(paper_scores([s], from_ranks=True)).methods for s in PRINTED}
    assert orders["iid"] == ("FCAC", "k-means", "MUFC", "k-FED", "FedFCM")
    assert orders["non-iid"] == ("FCAC", "MUFC", "k-means", "k-FED", "FedFCM")


def test_what_of_it_survives_one_metric_at_a_time():
    by_metric = compare_by_metric(paper_scores(from_ranks=True))
    assert list(by_metric) == ["all", "ARI", "AMI", "NMI"]
    assert [found.n_blocks for found in by_metric.values()] == [60, 20, 20, 20]
    assert not by_metric["ARI"].any_difference
    assert by_metric["ARI"].methods[0] == "MUFC"
    assert surviving_differences(by_metric) == {
        ("FCAC", "k-FED"): ["AMI", "NMI"],
        ("FCAC", "FedFCM"): ["AMI", "NMI"],
        ("MUFC", "k-FED"): [],
        ("MUFC", "FedFCM"): ["AMI", "NMI"],
        ("k-means", "FedFCM"): ["AMI", "NMI"],
    }


def test_metric_of_a_block_by_text_or_by_rule():
    texts = {"/".join(block): row for block, row in paper_scores().items()}
    assert list(compare_by_metric(texts)) == ["all", "ARI", "AMI", "NMI"]
    by_scenario = compare_by_metric(paper_scores(), metric_of=lambda block: block[0])
    assert list(by_scenario) == ["all", "iid", "non-iid"]


# the diagram


@pytest.mark.slow
def test_diagram_files(tmp_path):
    found = compare(paper_scores(from_ranks=True))
    written = cd_diagram(tmp_path / "overall.inf", found, title="Overall")
    assert [path.name for path in written] == ["overall.inf.pdf", "overall.inf.png"]
    assert written[0].read_bytes().startswith(b"%PDF")
    assert written[1].read_bytes().startswith(b"\x89PNG")
    again = cd_diagram(tmp_path / "again", found, title="Overall")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]


@pytest.mark.parametrize(
    "scores",
    [
        paper_scores(from_ranks=True),
        paper_scores(["iid"], ["ARI"], from_ranks=True),
        random_scores(n_methods=3),
        random_scores(n_methods=12, n_blocks=8),
        {b: {"same": 1, "same too": 1, "a rather long name of a method": 1} for b in range(3)},
    ],
    ids=["overall", "one metric", "three", "twelve", "all tied"],
)
def test_diagram_texts_do_not_overlap_and_name_everything(scores):
    found = compare(scores)
    figure = draw(found, "A title")
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else figure._get_renderer()
    texts = figure.axes[0].texts
    boxes = [text.get_window_extent(renderer) for text in texts]
    for (a, box_a), (b, box_b) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        assert not box_a.overlaps(box_b), (a.get_text(), b.get_text())
    shown = " ".join(text.get_text() for text in texts)
    assert all(method in shown for method in found.methods)
    bars = [line for line in figure.axes[0].lines if line.get_color() == "#0072B2"]
    assert len(bars) == len(found.groups)
    for bar, group in zip(bars, found.groups, strict=True):
        ranks = [found.ranks[found.methods.index(method)] for method in group]
        left, right = min(bar.get_xdata()), max(bar.get_xdata())
        assert left <= min(ranks) <= max(ranks) <= right
