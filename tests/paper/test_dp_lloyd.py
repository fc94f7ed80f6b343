"""DP-Lloyd: what its noise and its first centres must be."""

from __future__ import annotations

import numpy as np
import pytest

from fcac.paper.rivals import DPLloyd
from fcac.paper.rivals.dp_lloyd import packed_centers


def blobs(seed: int, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]])
    truth = rng.integers(0, 3, n)
    return centres[truth] + 0.03 * rng.normal(size=(n, 2)), truth


def test_first_centres_keep_apart_and_do_not_see_rows() -> None:
    centres = packed_centers(5, 2, np.random.default_rng(0))
    apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    apart[np.diag_indices(5)] = np.inf
    assert apart.min() > 0.3
    np.testing.assert_array_equal(centres, packed_centers(5, 2, np.random.default_rng(0)))


@pytest.mark.slow
@pytest.mark.parametrize("n_sites", [1, 3])
def test_clusters_are_found_with_a_large_epsilon_and_lost_with_a_tiny_one(n_sites: int) -> None:
    from sklearn.metrics import adjusted_mutual_info_score

    rows, truth = blobs(1)
    groups = np.arange(len(rows)) % n_sites
    found = [
        adjusted_mutual_info_score(
            truth,
            DPLloyd(3, epsilon=epsilon, bounds=[[0, 1], [0, 1]], random_state=0).fit(rows, groups=groups).labels_,
        )
        for epsilon in (8.0, 0.001)
    ]
    assert found[0] > 0.9
    assert found[1] < found[0] - 0.1


def test_centres_come_back_in_the_units_of_the_rows() -> None:
    rows, _ = blobs(2)
    bounds = [[-10.0, 90.0], [0.0, 5.0]]
    scaled = rows * [100.0, 5.0] + [-10.0, 0.0]
    plain = DPLloyd(3, epsilon=4.0, bounds=[[0, 1], [0, 1]], random_state=3).fit(rows)
    other = DPLloyd(3, epsilon=4.0, bounds=bounds, random_state=3).fit(scaled)
    np.testing.assert_allclose(other.cluster_centers_, plain.cluster_centers_ * [100.0, 5.0] + [-10.0, 0.0], rtol=1e-6)
