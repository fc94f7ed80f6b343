"""Scale on paper: unit costs from small runs, what they add up to, and a run that goes on from what is stored."""

from __future__ import annotations

import json

import pytest

from fcac.paper import scale

SIZES = scale.Sizes(((4, 30), (9, 30), (4, 80)), (60, 200), (12, 30))


def invented(sites: int, rows: int) -> dict[str, float]:
    nodes = sites * rows
    spent = {
        "sites": 0.1 * sites,
        "deliveries": 2e-3 * sites + 1e-5 * nodes,
        "closing": 3 + 1e-3 * sites + 1e-4 * nodes,
    }
    return spent | {"bytes": 100.0 * sites, "nodes": float(rows), "hub MB": 80 + 2e-4 * nodes}


def test_costs_are_what_the_units_add_up_to():
    """Ten thousand sites of a million rows, whose nodes and bytes no longer grow while their seconds do."""
    hub = [(s, r, invented(s, r)) for s, r in ((20, 10), (80, 10), (20, 40))]
    site = [
        (10, {"seconds": 0.1, "nodes": 10.0, "bytes": 1000.0}),
        (20, {"seconds": 0.3, "nodes": 40.0, "bytes": 4000.0}),
    ]
    units = scale.units_of(hub, site)
    found = scale.cost(scale.Study("", 10_000, 1_000_000), units)
    assert found["site s"] == pytest.approx(0.3 + 0.02 * (1_000_000 - 20))
    assert found["sites s"] == pytest.approx(10_000 * found["site s"])
    assert (found["site bytes"], found["bytes"], found["nodes"]) == (4000.0, 4e7, 4e5)
    assert found["deliveries s"] == pytest.approx(2e-3 * 10_000 + 1e-5 * 4e5, rel=1e-6)
    assert found["closing s"] == pytest.approx(3 + 1e-3 * 10_000 + 1e-4 * 4e5, rel=1e-6)
    assert found["hub MB"] == pytest.approx(80 + 2e-4 * 4e5, rel=1e-6)
    assert scale.cost(scale.Study("", 7, 15), units)["site s"] == pytest.approx(0.2)


def test_every_round_costs_privacy_once():
    assert scale.budget(1) == pytest.approx(1.0, abs=1e-6)
    assert scale.budget(12) < scale.budget(52) < 52


@pytest.mark.slow
def test_a_run_goes_on_from_what_is_stored(tmp_path):
    """Real sites and a real hub; all but one run are stored beforehand, so that one process of its own is started."""
    cells = tmp_path / "cells"
    cells.mkdir()
    for way in scale.WAYS:
        for sites, rows in (*SIZES.hub, *([SIZES.checked] if way == "release" else [])):
            found = scale.play(sites, rows, way)
            assert found["nodes"] == rows if way == "nodes" else found["nodes"] >= 1
            assert found["bytes"] > sites * found["nodes"] * scale.N_FEATURES * 8
            (cells / f"{way}-{sites}-sites-{rows}-rows.json").write_text(json.dumps(found))
        for rows in SIZES.site:
            (cells / f"{way}-one-site-{rows}-rows.json").write_text(json.dumps(scale.one_site(rows, way)))
    said: list[str] = []
    results = scale.run(tmp_path, SIZES, say=said.append)
    assert said == ["nodes-12-sites-30-rows"]
    computed, played = results["ways"]["nodes"]["check"]["bytes"]
    assert played == pytest.approx(12 * (30 * 17 * 8 + 200), rel=0.1)
    assert computed == pytest.approx(2 * played, rel=0.1)  # of a site of 60 rows: smaller ones are not extrapolated to
    assert results == scale.run(tmp_path, SIZES, say=said.append)
    assert said == ["nodes-12-sites-30-rows"]
    text = (tmp_path / "results.md").read_text()
    assert "| 10^12 rows at 10,000 sites | released, eps = 1 |" in text
    assert "| 12 sites of 30 rows |" in text
