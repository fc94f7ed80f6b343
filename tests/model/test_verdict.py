"""The verdict: one line and one ranked list of cautions, the same wherever a model is shown."""

from __future__ import annotations

import numpy as np
import pytest

from fcac import FCAC
from fcac.model.verdict import Alternative, Verdict, _about_certainty, verdict_of

RNG = np.random.default_rng(0)
BLOBS = np.concatenate([RNG.normal(c, 0.2, size=(200, 2)) for c in ([0, 0], [9, 0], [0, 9])])


def kinds(verdict: Verdict) -> list[str]:
    return [caution.kind for caution in verdict.cautions]


@pytest.mark.slow
def test_clear_clusters_get_a_clear_verdict() -> None:
    verdict = FCAC().fit(BLOBS).verdict_
    assert verdict.headline.startswith("3 clusters in 600 rows")
    assert verdict.certain
    assert str(verdict).splitlines()[0] == verdict.headline


@pytest.mark.parametrize("seed", range(5))
def test_forty_rows_of_noise_open_with_doubt(seed: int) -> None:
    verdict = FCAC().fit(np.random.default_rng(seed).normal(size=(40, 4))).verdict_
    assert verdict.headline.startswith(("No clusters found", "Uncertain"))


def test_the_number_is_doubted_by_its_own_probability() -> None:
    rows, of_cluster = {0: 220, 1: 124}, {0: 0.4, 1: 0.9}
    told = {best: _about_certainty(rows, of_cluster, best, []) for best in (0.86, 0.3, None)}
    assert [(one.kind, one.serious) for one in told[0.86]] == [("unstable", False)]
    assert [(one.kind, one.serious) for one in told[0.3]] == [("uncertain", True), ("unstable", False)]
    assert [(one.kind, one.serious) for one in told[None]] == [("unstable", True)]
    assert ["Do not rely" in one.text for best in told for one in told[best]] == [False, False, False, True]


@pytest.mark.slow
def test_a_moved_site_is_told_first() -> None:
    moved = np.concatenate([BLOBS, BLOBS + 40.0])
    site = np.repeat(["a", "b", "c"], [300, 300, 600])
    site[:600] = np.where(np.arange(600) % 2, "a", "b")
    verdict = FCAC().fit(moved, groups=site).verdict_
    assert kinds(verdict)[0] == "displaced-site"
    assert verdict.cautions[0].serious
    assert verdict.cautions[0].text.startswith("Site c keeps mostly to clusters of its own")
    assert verdict.headline.startswith("Uncertain")


@pytest.mark.slow
def test_a_cluster_of_one_site_is_a_caution_but_no_doubt() -> None:
    more = np.concatenate([BLOBS, RNG.normal([30, 30], 0.2, size=(60, 2))])
    site = np.concatenate([np.tile(["a", "b"], 300), np.full(60, "b")])
    verdict = FCAC().fit(more, groups=site).verdict_
    assert "single-site" in kinds(verdict)
    assert verdict.certain


@pytest.mark.slow
def test_columns_that_say_nothing_or_everything_are_named() -> None:
    names = ["a", "b", "same"]
    model = FCAC().fit(np.column_stack([BLOBS, np.full(600, 0.1)]))
    verdict = verdict_of(model.server_, names=names)
    assert "same has one value only and cannot tell clusters apart." in [caution.text for caution in verdict.cautions]


@pytest.mark.slow
def test_rows_left_out_rows_unlike_any_and_noisy_sizes_are_told() -> None:
    server = FCAC().fit(BLOBS).server_
    verdict = verdict_of(server, n_read=700, n_dropped=100, n_judged=600, n_novel=200, noisy=(1,))
    assert kinds(verdict) == ["novel", "left-out", "noisy-sizes"]
    assert not verdict.certain
    assert "100 rows of 700" in verdict.cautions[1].text
    assert "cluster 1" in verdict.cautions[2].text


def test_the_headline_tells_probability_and_the_next_best() -> None:
    assert Verdict(2, 10, 0.6, (Alternative(1, 0.3),)).headline == (
        "2 clusters in 10 rows (probability 60 %; next: 1 cluster, 30 %)"
    )
    assert Verdict(4, 10, asked=True).headline == "4 clusters in 10 rows, as asked"
