"""Record ids and fixed parts reach the ledger through the site, the round and the estimator; errors charge nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import FCAC
from fcac.federation import Server, Site, play_round
from fcac.privacy import Ledger, LocalNoise, NodeRelease
from fcac.privacy.samplers import InsecureTestSampler

BOUNDS = [[0.0, 1.0], [0.0, 1.0]]
PEOPLE = [f"person-{i}" for i in range(40)]


def rows(seed: int, n: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(n, 2))


def mechanism(folder: Path, epsilon: float = 1.0, budget: float = 20.0) -> NodeRelease:
    return NodeRelease(epsilon, BOUNDS, ledger=Ledger(folder / "site.db", budget), sampler=InsecureTestSampler(0))


def charges(privacy: NodeRelease) -> list[str]:
    assert privacy.ledger is not None
    return [entry["counted"] for entry in privacy.ledger.entries()]


@pytest.mark.parametrize("with_state", [False, True])
def test_a_site_names_people(tmp_path: Path, with_state: bool) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy, tmp_path / "state" if with_state else None)
    site.contribute(rows(1), record_ids=PEOPLE)
    site.contribute(rows(2), record_ids=np.arange(40))
    site.contribute(rows(3), record_ids=PEOPLE)  # the same people again
    assert charges(privacy) == ["ids"] * 3
    # the dearest person
    assert privacy.ledger.spent_rho("A") == pytest.approx(2 * privacy.rho)


def test_ids_may_come_in_pieces_or_all_at_the_end(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy)
    site.observe(rows(1)[:15], record_ids=PEOPLE[:15])
    site.observe(rows(1)[15:], record_ids=PEOPLE[15:])
    site.contribute()
    site.observe(rows(2))
    site.contribute(record_ids=["p", *PEOPLE[1:]])
    assert charges(privacy) == ["ids"] * 2
    assert privacy.ledger.spent_rho("A") == pytest.approx(2 * privacy.rho)


def test_an_empty_round_named_by_ids_costs_nobody_anything(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy)
    assert len(site.contribute(np.empty((0, 2)), record_ids=[]).nodes)
    assert len(site.contribute(record_ids=[]).nodes)
    assert charges(privacy) == ["ids"] * 2
    assert privacy.ledger.spent("A") == 0.0


def test_a_person_with_many_rows_pays_once_and_weighs_as_one(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy)
    crowd = np.vstack([np.full((300, 2), 0.2), np.full((4000, 2), 0.9)])
    sent = site.contribute(crowd, record_ids=[*range(300), *["one of them"] * 4000])
    assert privacy.ledger.spent_rho() == privacy.rho
    assert abs(sent.counts.sum() - 301) < 150  # people, not rows, up to noise


def test_people_over_budget_are_left_out_and_nobody_outside_can_tell(tmp_path: Path) -> None:
    told = {}
    for case in ("rich", "poor"):
        (tmp_path / case).mkdir()
        privacy = mechanism(tmp_path / case, epsilon=1.0, budget=1.5)
        site = Site("A", privacy)
        regulars = ["ann" if case == "poor" else "zoe"]
        told[case] = [site.contribute(rows(1, 1), record_ids=regulars)]
        told[case] += [site.contribute(rows(2 + i, 1), record_ids=["ann" if i < 1 else f"new{i}"]) for i in range(2)]
        assert privacy.ledger.spent() <= 1.5
        charged = [entry["counted"] for entry in privacy.ledger.entries()]
        assert charged == ["ids"] * 3
    said = [[sent.privacy for sent in told[case]] for case in told]
    assert said[0] == said[1]  # the same statements, whoever was there


def test_a_round_asked_again_is_not_charged_again(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    first = Site("A", privacy, tmp_path / "state").contribute(rows(1), 1, record_ids=PEOPLE)
    (tmp_path / "state" / "site.fcac").unlink()  # as after a crash between the draw and the state
    again = Site("A", privacy, tmp_path / "state").contribute(rows(1), 1, record_ids=PEOPLE)
    assert again == first
    assert len(charges(privacy)) == 1


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"record_ids": PEOPLE[:3]}, "3 entries for 40 rows"),
        ({"record_ids": [*PEOPLE[:39], None]}, "empty id"),
        ({"record_ids": [*PEOPLE[:39], ("a", "b")]}, "numbers or texts"),
        ({"record_ids": "x" * 40}, "sequence"),
    ],
)
def test_bad_names_are_refused_before_anything_is_charged(tmp_path: Path, kwargs: dict[str, Any], words: str) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy)
    with pytest.raises(ValueError, match=words):
        site.contribute(rows(1), **kwargs)
    assert charges(privacy) == []
    assert site.round == 0
    site.contribute(rows(1), record_ids=PEOPLE)  # nothing of the refused call is left over
    assert len(charges(privacy)) == 1


def test_rows_with_and_without_ids_do_not_mix(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    site = Site("A", privacy)
    site.observe(rows(1), record_ids=PEOPLE)
    site.observe(rows(2))
    with pytest.raises(ValueError, match="40 ids for this round's 80 rows"):
        site.contribute()
    assert charges(privacy) == []


def test_ids_need_no_ledger() -> None:
    privacy = NodeRelease(1, BOUNDS, sampler=InsecureTestSampler(0))
    assert Site("A", privacy).contribute(rows(1), record_ids=PEOPLE).round == 1


@pytest.mark.parametrize("privacy", [None, LocalNoise(64, BOUNDS)])
def test_ids_need_a_release(privacy: Any) -> None:
    with pytest.raises(ValueError, match="ledger="):
        Site("A", privacy).contribute(rows(1), record_ids=PEOPLE)


def test_a_round_checks_all_ids_before_the_first_site_is_charged(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    sites: dict[Any, Site] = {name: Site(name, privacy) for name in ("A", "B")}
    data = {"A": rows(1), "B": rows(2)}
    with pytest.raises(ValueError, match="empty id"):
        play_round(Server(), sites, data, record_ids={"A": PEOPLE, "B": [*PEOPLE[:39], ""]})
    with pytest.raises(ValueError, match="same sites"):
        play_round(Server(), sites, data, record_ids={"A": PEOPLE})
    assert charges(privacy) == []
    play_round(Server(), sites, data, record_ids={"A": PEOPLE, "B": PEOPLE}, n_jobs=1)
    assert [privacy.ledger.spent_rho(site) for site in "AB"] == pytest.approx([privacy.rho] * 2)


def test_the_estimator_passes_ids_on(tmp_path: Path) -> None:
    privacy = mechanism(tmp_path)
    model = FCAC(privacy=privacy, random_state=0, n_jobs=1)
    groups = np.arange(40) % 2
    model.fit(rows(1), groups=groups, record_ids=PEOPLE, public_groups=True)
    model.partial_fit({0: rows(2, 3), 1: rows(3, 2)}, record_ids={0: ["p", "q", PEOPLE[0]], 1: ["p", PEOPLE[0]]})
    # person 0 was at site 0 only, so at site 1 that name is new there
    assert [privacy.ledger.spent_rho(site) for site in "01"] == pytest.approx([2 * privacy.rho, privacy.rho])
    model.play_stream(iter([(0, rows(6), PEOPLE)]), 2)
    model.play_stream(iter([(0, rows(7))]), 2)
    assert charges(privacy) == ["ids"] * 5 + ["all"]


@pytest.mark.parametrize(
    ("X", "ids", "words"),
    [
        (rows(1), PEOPLE[:5], "5 entries for 40 rows"),
        ({"A": rows(1)}, PEOPLE, "dict like X"),
        ({"A": rows(1)}, {"B": PEOPLE}, "same sites"),
        ({"A": rows(1), "B": rows(2)}, {"A": PEOPLE, "B": PEOPLE[:3]}, "site B has 3 entries for 40"),
    ],
)
def test_the_estimator_refuses_ids_that_do_not_fit(tmp_path: Path, X: Any, ids: Any, words: str) -> None:
    privacy = mechanism(tmp_path)
    with pytest.raises(ValueError, match=words):
        FCAC(privacy=privacy).fit(X, record_ids=ids)
    assert charges(privacy) == []
