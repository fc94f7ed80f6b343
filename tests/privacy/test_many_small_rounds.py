"""Many small rounds are pooled with what is known of their noise, and read as one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from fcac import FCAC
from fcac.privacy import NodeRelease
from fcac.privacy.released_state import ReleasedState, accumulate
from fcac.privacy.samplers import InsecureTestSampler

SIX = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.5], [0.2, 0.8], [0.8, 0.8], [0.5, 0.1]])


class Certified(InsecureTestSampler):
    """Repeatable noise that is read as released nodes are."""

    secure = True


@pytest.mark.slow
def test_six_groups_in_25_rounds_of_50_rows() -> None:
    scores = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        model = FCAC(privacy=NodeRelease(1.0, [[0, 1]] * 2, sampler=Certified(seed)), random_state=0)
        groups = rng.integers(0, 6, (25, 50))
        rows = (SIX[groups] + rng.normal(0, 0.03, (25, 50, 2))).clip(0, 1)
        for block in rows:
            model.partial_fit({"a": block})
        assert len(model.sites_["a"].model.counts) <= 16
        scores.append(adjusted_mutual_info_score(groups.ravel(), model.predict(rows.reshape(-1, 2))))
    assert np.mean(scores) > 0.75
    assert min(scores) > 0.6


def test_the_likeliest_twin_is_not_the_one_with_most_noise() -> None:
    def state(nodes: list[list[float]], noise: list[float]) -> ReleasedState:
        n = len(nodes)
        return ReleasedState(
            np.array(nodes), np.full(n, 100.0), np.array(noise), np.array([[0.0, 1.0]] * 2), 1, np.full(n, 25.0)
        )

    before = state([[0.2, 0.2], [0.7, 0.7]], [1e-4, 4e-2])
    after = accumulate(before, state([[0.22, 0.2]], [1e-4]), 0.05)
    assert len(after.counts) == 2
    assert after.counts.tolist() == [200.0, 100.0]
    np.testing.assert_allclose(after.unit_nodes[0], [0.21, 0.2])
    # what has little noise decides
    after = accumulate(before, state([[0.6, 0.7]], [1e-4]), 0.05)
    assert after.counts.tolist() == [100.0, 200.0]
    assert abs(after.unit_nodes[1] - [0.6, 0.7]).max() < 0.01
