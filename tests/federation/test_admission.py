"""What a hub accepts of a private contribution: every field that a hostile site controls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings, Member
from fcac.federation import Contribution, Server, Site
from fcac.federation.admission import admit
from fcac.privacy import NodeRelease
from fcac.privacy.cell_release import ALIVE, COUNT_SHARE, LATER_STEP_SHARES, STEP_SHARES
from fcac.privacy.samplers import InsecureTestSampler
from fcac.privacy.zcdp import rho_from_epsilon
from fcac.tables.schema import Column, Schema

BOUNDS = np.array([[0.0, 1.0], [-5.0, 15.0], [0.0, 100.0]])


def released(
    epsilon: float = 4.0, n_rows: int = 300, n_rounds: int = 1, seed: int = 0, name: str = "a"
) -> Contribution:
    """Return what an honest site sends after some rounds; real draws, from a repeatable generator."""
    rng = np.random.default_rng(seed)
    mechanism = NodeRelease(epsilon, BOUNDS, sampler=InsecureTestSampler(seed))
    site = Site(name, mechanism)
    for _ in range(n_rounds):
        rows = rng.normal(rng.choice([0.3, 0.7], size=(n_rows, 1)), 0.05, size=(n_rows, 3))
        sent = site.contribute(BOUNDS[:, 0] + rows * np.diff(BOUNDS, axis=1)[:, 0])
    return replace(sent, privacy={"mechanism": "NodeRelease", "epsilon": epsilon, "delta": 1e-6})


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("n_rows", [0, 20, 2000])
def test_honest_releases_are_admitted(epsilon: float, n_rows: int) -> None:
    """Whatever epsilon, rows and rounds are: nothing honest is refused, and no node above its noise is left out."""
    for seed in range(10):
        item = released(epsilon, n_rows, 1 + seed % 4, seed)
        admitted, told = admit(item, BOUNDS)
        noise = item.count_deviation
        assert noise is not None
        assert len(admitted.nodes) == int((item.counts >= noise).sum())
        assert bool(told) == (len(admitted.nodes) < len(item.nodes))


@pytest.mark.parametrize("n_rounds", [1, 3])
def test_noise_of_counts_may_be_what_follows_from_epsilon_and_not_a_hundredth_more(n_rounds: int) -> None:
    """An agreement may have taken half of delta; a cell has `ALIVE` times as many rows as its count has noise."""
    item = released(epsilon=2.0, n_rounds=n_rounds)
    item = replace(item, deviation=np.zeros_like(item.deviation))

    def noise(delta: float, share: float) -> float:
        return 1.0 / np.sqrt(2.0 * rho_from_epsilon(2.0, delta) * share * COUNT_SHARE)

    least, first = noise(1e-6, LATER_STEP_SHARES[-1]), noise(5e-7, STEP_SHARES[-1])
    most = float(np.sqrt(n_rounds * first**2 + item.counts[0] * first / ALIVE))
    for allowed in (1.002 * least, 0.998 * most):
        admit(changed(item, "count_deviation", allowed), BOUNDS)
    for refused in (0.99 * least, 1.01 * most):
        with pytest.raises(ValueError, match=f"after {n_rounds} rounds at eps = 2 it lies between"):
            admit(changed(item, "count_deviation", refused), BOUNDS)


def test_exact_nodes_are_none_of_its_business() -> None:
    item = Contribution("a", 1, [[0.5, 0.0, 50.0]], [7])
    assert admit(item, BOUNDS) == (item, "")


def changed(item: Contribution, field: str, value: float, node: int = 0, feature: int | None = None) -> Contribution:
    """Return a contribution with one value of a field replaced."""
    array = np.array(getattr(item, field))
    array[node if feature is None else (node, feature)] = value
    return replace(item, **{field: array})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda item: changed(item, "deviation", 1e30), "the same noise in every feature"),
        (lambda item: replace(item, deviation=np.diff(BOUNDS, axis=1).T * np.full((len(item.nodes), 1), 1e30)), "1e"),
        (lambda item: changed(item, "deviation", 0.0, feature=1), "the same noise in every feature"),
        (lambda item: changed(item, "count_deviation", 1e30), "count_deviation: 1e"),
        (lambda item: changed(item, "count_deviation", 0.0), "count_deviation: 0 for a node"),
        (lambda item: changed(item, "counts", 10**9), "deviation: .* widths of the bounds"),
        (lambda item: changed(item, "nodes", 15.1, feature=1), "nodes: a private release lies within the bounds"),
        (lambda item: replace(item, privacy={"mechanism": "none"}), "the statement does not name it"),
        (lambda item: replace(item, privacy={**item.privacy, "epsilon": 1e-9}), "count_deviation"),
        (lambda item: replace(item, privacy={**item.privacy, "epsilon": 0}), "epsilon must be a number above 0"),
        (lambda item: replace(item, privacy={**item.privacy, "epsilon": float("nan")}), "epsilon must be"),
        (lambda item: replace(item, privacy={**item.privacy, "epsilon": True}), "epsilon must be"),
        (lambda item: replace(item, privacy={**item.privacy, "delta": 0.5}), "delta must be"),
        (lambda item: replace(item, privacy={"mechanism": "NodeRelease"}), "epsilon must be"),
    ],
)
def test_what_no_release_produces_is_refused(change, reason: str) -> None:
    item = released()
    assert admit(item, BOUNDS).told == ""
    with pytest.raises(ValueError, match=reason):
        admit(change(item), BOUNDS)
    # a server that is called directly is no back door
    server = Server(bounds=BOUNDS)
    with pytest.raises(ValueError, match=reason):
        server.absorb([Contribution("other", 1, item.nodes, item.counts), change(item)])
    assert server.n_rounds == 0
    assert server.absorb([item]) == [item]


def test_a_server_without_bounds_takes_no_release() -> None:
    item, server = released(), Server()
    with pytest.raises(ValueError, match="needs public bounds"):
        server.absorb([item])
    assert server.learn([item]) == [item]  # made in this process
    kept = Server(bounds=BOUNDS)
    kept.absorb([item])
    again = Server.from_parts(*kept.to_parts())
    assert np.array_equal(again.bounds, BOUNDS)
    assert np.array_equal(again.blank().bounds, BOUNDS)


def test_private_nodes_need_public_bounds() -> None:
    with pytest.raises(ValueError, match="needs public bounds"):
        admit(released(), None)


def test_nodes_of_nothing_but_noise_are_left_out_and_told() -> None:
    item = released(1.0, 2000)
    assert item.count_deviation is not None
    weak = changed(changed(item, "counts", 1), "deviation", 0.0)
    admitted, told = admit(weak, BOUNDS)
    assert told == "1 node of fewer rows than their noise left out"
    assert np.array_equal(admitted.nodes, weak.nodes[1:])
    assert np.array_equal(admitted.deviation, weak.deviation[1:])


@pytest.mark.slow
def test_one_node_of_a_hostile_site_no_longer_matters_at_the_hub(tmp_path: Path) -> None:
    """A node of a few hundred bytes with a deviation of 1e30 took the others' clusters to nothing."""
    columns = [Column(name, min=low, max=high) for name, (low, high) in zip("xyz", BOUNDS.tolist(), strict=True)]
    schema = Schema(columns, bounds_are_public=True)
    settings = FederationSettings(schema, members={name: Member() for name in "abc"})
    hub = Hub(tmp_path, settings)
    for seed, name in enumerate("ab"):
        assert hub.receive(name, released(8.0, 500, seed=seed, name=name).to_bytes()).outcome == "accepted"
    said = {"mechanism": "NodeRelease", "epsilon": 8.0, "delta": 1e-6}
    widths = np.diff(BOUNDS, axis=1).T
    hostile = Contribution("c", 1, [[0.5, 5.0, 50.0]], [50], said, 1e30 * widths, np.full(1, 3.8))
    assert len(hostile.to_bytes()) < 1000
    verdict = hub.receive("c", hostile.to_bytes())
    assert verdict.outcome == "rejected"
    assert verdict.reason.startswith("deviation: 1e+30 widths of the bounds for a node of 50 rows")
    assert any(entry["event"] == "rejected" and "1e+30" in entry["reason"] for entry in hub.journal())
    # what is left out is told as well
    weak = Contribution("c", 1, [[0.5, 5.0, 50.0], [0.4, 4.0, 40.0]], [2, 50], said, 0 * hostile.deviation.repeat(2, 0),
                        np.full(2, 3.8))  # fmt: skip
    assert hub.receive("c", weak.to_bytes()).outcome == "accepted"
    hub.close_round()
    told = [entry["reason"] for entry in hub.journal() if entry["event"] == "capped"]
    assert "1 node of fewer rows than their noise left out" in told
    page = (tmp_path / "report.html").read_text()
    assert "Contributions not taken as they came" in page
    assert "c: rejected, deviation: 1e+30 widths" in page
    assert "c: capped, 1 node of fewer rows than their noise left out" in page
    server = hub.snapshot().server
    assert server.sites == ["a", "b", "c"]
    assert len(server.latest()["c"].nodes) == 1
    centres = BOUNDS[:, 0] + np.array([[0.3] * 3, [0.7] * 3]) * widths
    first, second = server.predict(centres)
    assert first != second
