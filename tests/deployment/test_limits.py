"""What one poisoned site of ten can and cannot do, and the caps that limit it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_mutual_info_score

from fcac.deployment.limits import Amount, cap_round, largest_allowed, unusual
from fcac.deployment.settings import Limits
from fcac.federation import Contribution, Server, Site
from fcac.federation.condenser import CA_PLUS

Digits = tuple[np.ndarray, np.ndarray, list[np.ndarray], list[Contribution]]
NO_CAPS = Limits(max_node_share=1.0, max_count_share=1.0)
CAPS = Limits(max_node_share=0.2, max_count_share=0.2, min_spacing=0.25)


@pytest.mark.parametrize(
    ("amounts", "share", "expected"),
    [
        ([10, 10, 10, 1000], 0.4, 20),
        ([10, 10, 10, 10], 0.4, 16),
        ([10, 10], 0.25, 10),
        ([5, 1000, 1000, 1000, 1000], 0.22, 55 / 6),
        ([0, 0, 7], 0.5, 0),
        ([], 0.5, 0),
    ],
)
def test_largest_allowed(amounts: list[int], share: float, expected: float) -> None:
    assert largest_allowed(amounts, share) == pytest.approx(expected)


def test_no_site_exceeds_its_share() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        amounts = rng.integers(0, 10_000, size=rng.integers(5, 20)).tolist()
        cap = largest_allowed(amounts, 0.3)
        kept = [min(amount, cap) for amount in amounts]
        assert max(kept) <= 0.3 * sum(kept) + 1e-9


def test_caps_that_do_not_bite_change_nothing() -> None:
    rng = np.random.default_rng(1)
    batch = [Site(name, condenser=CA_PLUS).contribute(rng.normal(size=(300, 3))) for name in "abcdefghij"]
    assert cap_round(batch, Limits()) == batch
    assert cap_round(batch, CAPS) == batch


def test_counts_are_scaled_and_stay_whole() -> None:
    batch = [Contribution(name, 1, [[0.0], [1.0]], [10, 30]) for name in "abc"]
    batch.append(Contribution("x", 1, [[5.0], [6.0]], [2**50, 1]))
    capped = cap_round(batch, Limits(max_count_share=0.4))
    assert [item.counts.sum() for item in capped[:3]] == [40, 40, 40]
    assert capped[3].counts.tolist() == [79, 1]


# ------------------------------------------------------------ on data: digits, ten sites, the tenth is hostile


@pytest.fixture(scope="module")
def digits() -> Digits:
    X, y = load_digits(return_X_y=True)
    parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 10)
    sites = [Site(f"s{i}", condenser=CA_PLUS) for i in range(10)]
    honest = [site.contribute(X[part] / 16, round=1) for site, part in zip(sites, parts, strict=True)]
    return X / 16, y, parts, honest


def quality(digits: Digits, tenth: Contribution | None, limits: Limits) -> float:
    """Agreement of the clusters with the truth on the rows of the nine honest sites, over three shuffles."""
    X, y, parts, honest = digits
    rows = np.concatenate(parts[:9])
    found = []
    for seed in range(3):
        server = Server("cae-fc", seed)
        server.absorb(cap_round([*honest[:9], honest[9] if tenth is None else tenth], limits))
        found.append(adjusted_mutual_info_score(y[rows], server.predict(X[rows])))
    return float(np.mean(found))


def crowd(n: int = 200) -> Contribution:
    """Nodes that all lie in one spot, to shrink the scale of the server."""
    return Contribution("s9", 1, 0.5 + np.random.default_rng(2).normal(0, 1e-3, (n, 64)), np.ones(n, np.int64))


def flood(n: int = 5000) -> Contribution:
    """Nodes all over the place."""
    return Contribution("s9", 1, np.random.default_rng(3).uniform(0, 1, (n, 64)), np.ones(n, np.int64))


@pytest.mark.slow
def test_a_crowd_in_one_spot_does_harm_unless_capped(digits: Digits) -> None:
    clean = quality(digits, None, Limits())
    assert quality(digits, crowd(), Limits()) < clean - 0.15
    assert quality(digits, crowd(), CAPS) > clean - 0.05


@pytest.mark.slow
def test_a_flood_does_harm_unless_capped(digits: Digits) -> None:
    clean = quality(digits, None, Limits())
    assert quality(digits, flood(), NO_CAPS) < clean - 0.08
    assert quality(digits, flood(), CAPS) > clean - 0.06


def test_by_default_no_site_has_more_than_twice_its_share() -> None:
    honest = [Contribution(str(i), 1, np.arange(20.0).reshape(-1, 2) + i, np.full(10, 5)) for i in range(9)]
    flood = Contribution("x", 1, np.random.default_rng(0).random((5000, 2)), np.full(5000, 10**6))
    capped = cap_round([*honest, flood], Limits())
    assert [item is sent for item, sent in zip(capped[:9], honest, strict=True)] == [True] * 9
    assert len(capped[9].nodes) <= 0.2 * sum(len(item.nodes) for item in capped) + 1
    assert capped[9].counts.sum() <= 0.2 * sum(item.counts.sum() for item in capped) + len(capped[9].nodes)
    assert cap_round([*honest, flood], Limits(max_node_share=1.0, max_count_share=1.0))[9] is flood


def test_a_site_alone_in_a_round_is_held_to_its_share_of_everything() -> None:
    flood = Contribution("x", 2, np.random.default_rng(0).random((5000, 2)), np.full(5000, 10**6))
    (capped,) = cap_round([flood], Limits(), [Amount(10, 50)] * 9)
    assert len(capped.nodes) <= 23
    assert capped.counts.sum() <= 0.2 * (capped.counts.sum() + 450) + len(capped.nodes)


@pytest.mark.parametrize(
    ("now", "before", "others", "words"),
    [
        (Amount(5, 100), None, [], ""),
        (Amount(5, 100), Amount(5, 90), [Amount(5, 80)] * 9, ""),
        (Amount(5, 2000), Amount(5, 90), [Amount(5, 80)] * 9, "its last contribution"),
        (Amount(5, 10**6), None, [Amount(5, 80)] * 9, "as is usual here"),
        (Amount(5, 10**6), None, [Amount(5, 80)], ""),  # one other site says nothing about what is usual
    ],
)
def test_what_is_unusual(now: Amount, before: Amount | None, others: list[Amount], words: str) -> None:
    found = unusual(now, before, others)
    assert words in found
    assert bool(found) == bool(words)
