"""One `Round` plays what every engine brings: rows at once or in pieces, sites closed elsewhere, an inbox, a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from fcac.aggregation.pooled import POOLED
from fcac.exceptions import TooFewSites
from fcac.federation import Contribution, Server, Site
from fcac.federation.in_process import InProcess
from fcac.federation.rounds import Engine, Received, Round, closed_sites, first_server
from fcac.federation.summed_round import Summed
from fcac.privacy import NodeRelease
from fcac.privacy.samplers import InsecureTestSampler
from testing.compare import assert_same_server

CENTRES = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
Rows = dict[str, np.ndarray]
Bring = Callable[[dict[str, Site], Rows, int], Engine]


def rows_of(number: int) -> Rows:
    """Rows of three sites; a third cluster comes with the second round, and site c has no rows in it."""
    rng = np.random.default_rng(number)
    found = {}
    for site in "abc" if number == 1 else "ab":
        centres = CENTRES[rng.integers(2 if number == 1 else 3, size=300)]
        found[site] = centres + rng.normal(0, 0.4, (300, 2))
    return found


def at_once(sites: dict[str, Site], rows: Rows, number: int) -> Engine:
    return InProcess(sites, rows, new_site=Site, n_jobs=2)


def in_pieces(sites: dict[str, Site], rows: Rows, number: int) -> Engine:
    cut = [(site, part) for site in sorted(rows, reverse=True) for part in np.array_split(rows[site], 7)]
    return InProcess(sites, iter(cut), new_site=Site)


def elsewhere(sites: dict[str, Site], rows: Rows, number: int) -> Engine:
    """Sites close their round where their rows are, as Spark's do, and only their states come here."""
    fresh = {}
    for site, block in rows.items():
        fresh[site] = Site(site) if site not in sites else Site.from_parts(*sites[site].to_parts())
        fresh[site].contribute(block, number)
    return closed_sites(sites, fresh)


def from_an_inbox(sites: dict[str, Site], rows: Rows, number: int) -> Engine:
    """Bytes lie in an inbox, in the order in which they arrived, as at a hub."""
    sent = []
    for site in sorted(rows, reverse=True):
        sites.setdefault(site, Site(site))
        sent.append(sites[site].contribute(rows[site], number).to_bytes())
    return Received(map(Contribution.from_bytes, sent))


class ByPost(Engine):
    """What another way of running has to say: where contributions come from, and nothing of clusters."""

    def __init__(self, sites: dict[str, Site], rows: Rows, number: int) -> None:
        self.sites, self.rows, self.number, self.calls = sites, rows, number, []

    @property
    def newest_round(self) -> int:
        return self.number - 1

    def contribute(self, number: int) -> Iterable[Contribution]:
        for site, block in self.rows.items():
            yield self.sites.setdefault(site, Site(site)).contribute(block, number)

    def take_back(self) -> None:
        self.calls.append("take back")

    def close(self) -> None:
        self.calls.append("close")


ENGINES: dict[str, Bring] = {
    "at once": at_once, "in pieces": in_pieces, "elsewhere": elsewhere, "inbox": from_an_inbox, "a new one": ByPost,
}  # fmt: skip


def played(bring: Bring) -> tuple[Server, list[Round]]:
    server, sites = first_server("communities", 0, None), {}
    return server, [Round.play(server, bring(sites, rows_of(n), n)) for n in (1, 2)]


@pytest.mark.slow
def test_every_engine_gives_the_same_rounds_and_the_same_server() -> None:
    reference, expected = played(at_once)
    assert [[item.site for item in one.accepted] for one in expected] == [["a", "b", "c"], ["a", "b"]]
    assert [change.kind for change in expected[0].changes] == ["born", "born"]
    assert "born" in [change.kind for change in expected[1].changes]
    for name, bring in ENGINES.items():
        server, rounds = played(bring)
        assert rounds == expected, name
        assert_same_server(server, reference)


@pytest.mark.parametrize("name", ENGINES)
def test_a_round_that_the_server_refuses_leaves_it_as_it_was(name: str) -> None:
    server, sites = first_server("communities", 0, None), {}
    Round.play(server, ENGINES[name](sites, rows_of(1), 1))
    before = server.node_labels.copy()
    wide = {site: np.hstack([block, block]) for site, block in rows_of(2).items()}
    with pytest.raises(ValueError, match="features"):
        Round.play(server, ENGINES[name]({}, wide, 2), 2)
    assert server.n_rounds == 1
    np.testing.assert_array_equal(server.node_labels, before)


def test_an_engine_is_told_to_take_back_only_if_the_round_failed_and_always_to_close() -> None:
    server = first_server("communities", 0, None)
    good = ByPost({}, rows_of(1), 1)
    Round.play(server, good)
    assert good.calls == ["close"]
    bad = ByPost({"a": Site("a")}, {"a": np.zeros((3, 5))}, 2)
    with pytest.raises(ValueError, match="features"):
        Round.play(server, bad)
    assert bad.calls == ["take back", "close"]


@pytest.mark.slow
def test_a_sum_is_one_more_engine() -> None:
    """Nobody sees a single site: one contribution comes of all, and it is absorbed like any other."""
    mechanism = NodeRelease(8.0, [[-8, 8], [-8, 8]], sampler=InsecureTestSampler(0))
    rng = np.random.default_rng(0)
    data = {f"s{k}": CENTRES[:2][rng.integers(2, size=400)] + rng.normal(0, 0.4, (400, 2)) for k in range(5)}
    server, sites = first_server("communities", 0, None), {}
    first = Round.play(server, Summed(sites, data, mechanism))
    assert [(item.site, item.round) for item in first.accepted] == [(POOLED, 1)]
    assert {change.kind for change in first.changes} == {"born"}
    labels = server.node_labels.copy()

    def lose(site: str, stage: str, step: int, answer: bytes) -> bytes | None:
        return answer if site in ("s0", "s1") else None

    failing: Any = Summed(sites, data, mechanism, fault=lose)
    with pytest.raises(TooFewSites):
        Round.play(server, failing)
    assert server.n_rounds == 1
    np.testing.assert_array_equal(server.node_labels, labels)
    assert Round.play(server, Summed(sites, data, mechanism)).number == 2
