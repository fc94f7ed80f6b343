"""Sites, server, rounds: the federation core."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from fcac import FCAC, CAPlus
from fcac._sites import site_order
from fcac.federation import Contribution, Server, Site, play_round
from fcac.federation.condenser import CA_PLUS
from fcac.federation.readouts.cae_fc import hand_over
from testing.compare import assert_same_server
from testing.data import diagonal_blobs


def rows(seed: int, n: int = 300, d: int = 3) -> np.ndarray:
    return diagonal_blobs(n, seed, d=d)


def contributions(n_sites: int = 4, n_rounds: int = 3) -> list[list[Contribution]]:
    sites = [Site(name, condenser=CA_PLUS) for name in range(n_sites)]
    return [[site.contribute(rows(100 * r + s), round=r + 1) for s, site in enumerate(sites)] for r in range(n_rounds)]


def absorbed(batches: list[list[Contribution]]) -> Server:
    server = Server("cae-fc")
    for batch in batches:
        server.absorb(batch)
    return server


def test_order_of_arrival_does_not_matter() -> None:
    batches = contributions()
    assert_same_server(absorbed(batches), absorbed([batch[::-1] for batch in batches]))


def test_repeats_are_ignored_and_contradictions_rejected() -> None:
    batches = contributions(2, 1)
    server, once = absorbed(batches), absorbed(batches)
    assert server.absorb(batches[0]) == []
    assert server.absorb([Contribution.from_bytes(batches[0][0].to_bytes())]) == []
    assert_same_server(server, once)
    assert server.n_rounds == 1
    first = batches[0][0]
    other = Contribution(first.site, first.round, first.nodes + 1, first.counts)
    with pytest.raises(ValueError, match="twice with different content"):
        server.absorb([other, Contribution("new", 2, first.nodes, first.counts)])
    assert_same_server(server, once)


def test_one_bad_contribution_changes_nothing() -> None:
    batches = contributions(2, 2)
    server, before = absorbed(batches[:1]), absorbed(batches[:1])
    with pytest.raises(ValueError, match="features"):
        server.absorb([batches[1][0], Contribution("x", 2, np.zeros((3, 7)), [1, 1, 1])])
    assert_same_server(server, before)


def test_late_contribution_joins_the_next_round() -> None:
    batches = contributions(3, 2)
    late = batches[0].pop()
    server = absorbed([batches[0], [*batches[1], late]])
    assert server.n_rounds == 2
    assert [item.key for item in server.log[1]] == [(0, 2), (1, 2), (2, 1), (2, 2)]


def test_missing_site_changes_nothing_but_its_absence() -> None:
    batches = contributions(3, 2)
    without = [batches[0], batches[1][:2]]
    server = absorbed(without)
    assert {item.site for item in server.log[1]} == {0, 1}
    assert 2 in server.sites


@pytest.mark.parametrize("gone", [0, 2, 3])
def test_forget_equals_never_having_had_the_site(gone: int) -> None:
    batches = contributions()
    server = absorbed(batches)
    server.forget(gone)
    never = absorbed([[item for item in batch if item.site != gone] for batch in batches])
    assert_same_server(server, never)
    # and both go on alike
    more = [Contribution(9, 4, rows(5), np.ones(300, int))]
    server.absorb(more)
    never.absorb(more)
    assert_same_server(server, never)


def test_forget_a_site_that_alone_made_a_round() -> None:
    batches = contributions(2, 3)
    batches[1] = batches[1][:1]
    server = absorbed(batches)
    server.forget(0)
    never = absorbed([batches[0][1:], batches[2][1:]])
    assert_same_server(server, never)
    with pytest.raises(ValueError, match="no contribution of site 0"):
        server.forget(0)


def test_server_survives_storage() -> None:
    batches = contributions(3, 3)
    server = absorbed(batches[:2])
    again = Server.from_parts(*server.to_parts())
    assert_same_server(server, again)
    server.absorb(batches[2])
    again.absorb(batches[2])
    assert_same_server(server, again)
    X = rows(7)
    assert np.array_equal(server.predict(X), again.predict(X))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": [[np.nan, 1.0]]}, "NaN"),
        ({"nodes": [[np.inf, 1.0]]}, "infinite"),
        ({"nodes": [1.0, 2.0]}, "two dimensions"),
        ({"counts": [0]}, "at least 1"),
        ({"counts": [-3]}, "at least 1"),
        ({"counts": [-1.5]}, "whole numbers"),
        ({"counts": [1, 2]}, "one value per node"),
        ({"round": 0}, "round"),
        ({"round": 1.5}, "round"),
        ({"round": True}, "round"),
        ({"site": ""}, "site"),
        ({"site": 1.5}, "site"),
        ({"site": None}, "site"),
    ],
)
def test_bad_contributions_are_refused(changes: dict, words: str) -> None:
    good = {"site": "a", "round": 1, "nodes": [[0.0, 1.0]], "counts": [1]}
    with pytest.raises(ValueError, match=words):
        Contribution(**{**good, **changes})


def test_contribution_bytes() -> None:
    sent = Contribution("a", 2, np.arange(6.0).reshape(2, 3), [4, 5], {"mechanism": "none"})
    data = sent.to_bytes()
    assert data == Contribution("a", 2, np.arange(6.0).reshape(2, 3), [4, 5], {"mechanism": "none"}).to_bytes()
    assert Contribution.from_bytes(data) == sent
    assert len(data) < 2 * 4 * 8 + 2000
    for damaged in (b"", b"hello", data[:-1], data[:40], data[:100] + b"x" + data[101:]):
        with pytest.raises(ValueError, match=r"FCAC|contribution|damaged"):
            Contribution.from_bytes(damaged)


def test_site_is_continual_and_order_of_pieces_is_that_of_rows() -> None:
    X = rows(1, 500)
    whole, pieces, two_rounds = Site("a"), Site("a"), Site("a")
    expected = whole.contribute(X)
    for part in np.array_split(X, 7):
        pieces.observe(part)
    assert pieces.contribute() == expected
    two_rounds.contribute(X[:100])
    second = two_rounds.contribute(X[100:])
    assert second.round == 2
    assert np.array_equal(second.nodes, expected.nodes)


def test_site_answers_the_same_round_with_the_same_bytes() -> None:
    site = Site("a")
    first = site.contribute(rows(1), round=1)
    assert site.contribute(rows(2), round=1).to_bytes() == first.to_bytes()
    site.contribute(rows(2), round=4)
    with pytest.raises(ValueError, match="round 3 is over"):
        site.contribute(rows(3), round=3)


def test_site_with_few_rows_sends_them_and_goes_on() -> None:
    X = rows(3, 25)
    site = Site("small")
    assert len(site.contribute(X[:4]).nodes) == 4
    site.contribute(X[4:])
    assert np.array_equal(site.contribute(round=2).nodes, Site("x").contribute(X).nodes)


def test_site_keeps_its_state_on_disk(tmp_path) -> None:
    memory, disk = Site("a"), Site("a", state_dir=tmp_path / "a")
    for seed in range(3):
        expected = memory.contribute(rows(seed))
        disk = Site("a", state_dir=tmp_path / "a")
        assert disk.contribute(rows(seed)) == expected
    assert Site("a", state_dir=tmp_path / "a").contribute(round=3) == expected
    with pytest.raises(ValueError, match="belongs to site 'a'"):
        Site("b", state_dir=tmp_path / "a")


def test_site_refuses_bad_rows_and_stays_as_it_was() -> None:
    site = Site("a")
    before = site.contribute(rows(1))
    for bad in (rows(1, d=4), np.array([[np.inf, 0, 0]]), [["x", "y", "z"]]):
        with pytest.raises(ValueError):  # noqa: PT011 - any of three messages
            site.contribute(bad)
    assert site.round == 1
    assert site.contribute(round=1) == before
    with pytest.raises(ValueError, match="no rows yet"):
        Site("b").contribute()
    with pytest.raises(TypeError, match="mechanism"):
        Site("c", privacy="lots")


@pytest.mark.slow
def test_round_with_a_failing_site_leaves_all_as_before() -> None:
    server, sites = Server(), {name: Site(name) for name in "ab"}
    play_round(server, sites, {"a": rows(1), "b": rows(2)})
    reference = Server()
    play_round(reference, {name: Site(name) for name in "ab"}, {"a": rows(1), "b": rows(2)})
    with pytest.raises(ValueError, match="features"):
        play_round(server, sites, {"a": rows(3), "b": rows(4, d=5)})
    assert_same_server(server, reference)
    assert [site.round for site in sites.values()] == [1, 1]
    play_round(server, sites, [("b", rows(4)[:50]), ("a", rows(3)), ("b", rows(4)[50:])])
    assert server.n_rounds == 2


def test_site_order_takes_numbers_as_numbers() -> None:
    assert site_order(["b", 10, 9, "a"]) == [9, 10, "a", "b"]


def test_unknown_kind() -> None:
    with pytest.raises(ValueError, match="server must be one of"):
        Server("k-means")
    with pytest.raises(ValueError, match="n_clusters"):
        Server("cae-fc", n_clusters=3)


def test_a_site_that_rests_after_every_few_rows_learns_as_one_that_never_does() -> None:
    data = rows(5, 400)
    site, model = Site("a", condenser=CA_PLUS), CAPlus()
    for start in range(0, 400, 3):  # held-back rows, the initial phase and the rest of it
        sent = site.contribute(data[start : start + 3])
        model.partial_fit(data[start : start + 3])
        assert np.array_equal(sent.nodes, model.nodes_)
        assert np.array_equal(sent.counts, model.counts_)
    assert np.array_equal(site.model.bandwidths_, model.bandwidths_)
    assert site.model.threshold_ == model.threshold_


def test_what_a_site_sent_cannot_be_changed_behind_its_back() -> None:
    sent = Site("a").contribute(rows(6))
    with pytest.raises(ValueError, match="read-only"):
        sent.nodes[0, 0] = 7.0
    with pytest.raises(ValueError, match="read-only"):
        sent.counts[0] = 7


def test_sites_and_contributions_can_be_pickled_and_copied() -> None:
    site = Site("a")
    sent = site.contribute(rows(7))
    for again in (copy.deepcopy(site), pickle.loads(pickle.dumps(site))):
        assert again.contribute(round=1) == sent
        assert again.contribute(rows(8)) == copy.deepcopy(site).contribute(rows(8))
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_hand_over_is_two_shuffled_groups() -> None:
    rng = np.random.default_rng(0)
    batch = [
        Contribution(site, 1, rng.normal(size=(n, 2)), rng.integers(1, 6, size=n))
        for site, n in enumerate([1, 2, 0, 7, 40])
    ]
    often = [item.counts >= np.percentile(item.counts, 75) if len(item.counts) else item.counts > 0 for item in batch]
    shuffler, expected = np.random.RandomState(3), []
    for group in (often, [~mask for mask in often]):
        nodes = np.concatenate([item.nodes[mask] for item, mask in zip(batch, group, strict=True)])
        order = np.arange(len(nodes))
        shuffler.shuffle(order)
        expected.append(nodes[order])
    assert np.array_equal(hand_over(batch, np.random.RandomState(3)), np.concatenate(expected))
    assert hand_over([batch[2]], np.random.RandomState(0)).shape == (0, 2)


def test_sites_are_listed_as_people_read_them():
    from fcac._sites import in_reading_order
    from fcac.report.report_data import gather

    rng = np.random.default_rng(0)
    model = FCAC().fit({f"Site {number}": rng.normal(size=(20, 2)) for number in (10, 2, 1)})
    assert [site.name for site in gather(model).history.sites] == ["Site 1", "Site 2", "Site 10"]
    assert in_reading_order(["b", "a01", "a1", 7, "A2", "a10"]) == [7, "a01", "a1", "A2", "a10", "b"]


def test_a_server_beyond_its_budget_reads_no_more_and_forgets_exactly():
    rng = np.random.default_rng(4)
    data = {name: rng.normal(rng.choice([-6.0, 0.0, 6.0], size=(400, 1)), 1.0, size=(400, 2)) for name in "abcde"}
    sent = [Site(name).contribute(rows) for name, rows in data.items()]
    server = Server(max_nodes=500)
    server.absorb(sent)
    assert len(server.nodes) == 500
    assert sum(len(item.nodes) for item in server.log[0]) == 2000
    assert server.n_clusters == 3
    again = Server.from_parts(*server.to_parts())
    again.absorb([Contribution("f", 2, [[0.0, 1.0]], [3])])
    again.forget("f")
    assert np.array_equal(again.nodes, server.nodes)
    server.forget("b")
    without = Server(max_nodes=500)
    without.absorb([item for item in sent if item.site != "b"])
    assert np.array_equal(server.nodes, without.nodes)
    assert np.array_equal(server.counts, without.counts)
    assert server.blank().readout.settings.max_nodes == 500
