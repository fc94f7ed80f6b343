"""The attacks on the paper's noise still work, and find nothing where there is nothing to find."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fcac.paper.attacks import (
    attack_figures,
    float_attack,
    nearest_record_match,
    neighbour_test,
    shared_stream_attack,
    single_record_nodes,
)

RNG = np.random.default_rng(0)


@pytest.mark.slow
def test_figures_are_those_in_the_documentation() -> None:
    figures = json.loads(json.dumps(attack_figures()))
    assert figures["total_epsilon"]["15"] == 960
    assert figures["nearest_record_match"]["15"] > 0.99
    assert figures["neighbour_test"] == {"epsilon": 15.0, "true_alarms": 1.0, "false_alarms": 0.0}
    assert figures["float_attack"]["ruled_out"] > 10
    assert figures["float_attack"]["truth_ruled_out"] == 0
    assert figures["shared_stream"]["recovered"] > 0.9
    assert 0.3 < figures["single_record_nodes"]["single"] < 0.9
    assert figures["single_record_nodes"]["counts_minus_records"] == 0


def test_matching_fails_where_noise_is_large() -> None:
    rows = RNG.uniform(size=(300, 2))
    assert nearest_record_match(rows, 0.01) < 0.1
    assert nearest_record_match(rows, 1e6) > 0.99


@pytest.mark.slow
def test_the_float_attack_never_rules_out_the_truth() -> None:
    values = RNG.integers(0, 100, size=400).astype(float)
    found = float_attack(values, np.arange(100.0), epsilon=50, random_state=3)
    assert found["truth_ruled_out"] == 0
    assert found["ruled_out"] > 50


def test_independent_streams_cannot_be_cancelled() -> None:
    mine, theirs = RNG.integers(0, 17, size=(2, 50, 8)).astype(float)
    assert shared_stream_attack(mine, theirs, 15, random_state=1) == 1.0


def test_nodes_of_a_small_site_are_its_records() -> None:
    found = single_record_nodes([RNG.uniform(size=(9, 3))], 15)
    assert found == {"single": 1.0, "counts_minus_records": 0.0}


def test_the_neighbour_test_needs_a_constant_column() -> None:
    with pytest.raises(ValueError, match="constant column"):
        neighbour_test(RNG.uniform(size=(9, 3)), 15)
