"""What is left of the clusters: the bars on digits, and the shape of the result."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fcac.paper.utility import digits_utility, utility_curve
from fcac.privacy.samplers import InsecureTestSampler
from testing.data import labelled_blobs


@pytest.mark.slow
def test_digits_reach_the_bars_with_the_papers_server() -> None:
    # seeded noise of the same distribution, so that the test cannot fail by bad luck; the benchmark uses the real one
    result = digits_utility(n_seeds=4, epsilons=(4.0, 8.0), mechanisms=["NodeRelease"], sampler=InsecureTestSampler(0))
    at_4, at_8 = result["curves"]["NodeRelease"]["cae-fc"]["mean"]
    assert at_4 >= 0.44
    assert at_8 >= 0.48
    at_4, at_8 = result["curves"]["NodeRelease"]["k-means"]["mean"]
    assert at_4 >= 0.60
    assert at_8 >= 0.68


@pytest.mark.soak
def test_digits_reach_the_bars_with_the_real_noise() -> None:
    pytest.importorskip("opendp", reason="needs the extra 'privacy'")
    result = digits_utility(n_seeds=24, epsilons=(4.0, 8.0), mechanisms=["NodeRelease"])
    at_4, at_8 = result["curves"]["NodeRelease"]["cae-fc"]["mean"]
    assert at_4 >= 0.44
    assert at_8 >= 0.48


@pytest.mark.slow
def test_every_mechanism_is_measured_and_the_result_is_json() -> None:
    X, y = labelled_blobs(400, 0, [[0.25, 0.25], [0.75, 0.75]], 0.05)
    said: list[str] = []
    result = utility_curve(
        X, y, [[0, 1], [0, 1]], epsilons=(1.0, 16.0), n_sites=3, n_seeds=2, sampler=InsecureTestSampler(0),
        progress=said.append,
    )  # fmt: skip
    assert json.loads(json.dumps(result)) == result
    assert set(result["curves"]) == {"NodeRelease", "LocalNoise", "PaperLaplace"}
    for curve in result["curves"].values():
        assert set(curve) == {"nodes", "cae-fc", "communities", "k-means"}
        assert len(curve["cae-fc"]["mean"]) == 2
    assert result["curves"]["NodeRelease"]["k-means"]["mean"][1] > 0.8
    assert result["no_noise"]["k-means"]["mean"] > 0.9
    assert len(said) == 6


def test_unknown_mechanism() -> None:
    with pytest.raises(ValueError, match="mechanism"):
        utility_curve(np.zeros((40, 1)), np.zeros(40), [[0, 1]], mechanisms=["magic"], n_sites=2, n_seeds=1)
