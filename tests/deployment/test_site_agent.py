"""What a site does and does not let out: privacy decided at the site, stored replies, codes without words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fcac.deployment import wire
from fcac.deployment.answers import answer
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_setup import budget_of
from fcac.deployment.wire import Reply, Request
from fcac.federation import Contribution
from fcac.privacy import Ledger
from fcac.privacy.zcdp import epsilon_from_rho, rho_from_epsilon
from testing.data import blobs
from testing.federation_study import Study

EPSILON = {"epsilon": 4.0, "budget": 9.0}


def ask(study: Study, site: str, round: int, have: int = 0) -> Reply:
    """Ask one site directly."""
    return Reply.from_bytes(ask_raw(study, site, round, have))


def ask_raw(study: Study, site: str, round: int, have: int = 0) -> bytes:
    return answer(study.sites[site], Request(wire.CONTRIBUTE, round, have).to_bytes())


def ledger(study: Study, site: str) -> Ledger:
    return Ledger.open(study.state(site) / "ledger.db")


@pytest.mark.slow
def test_a_round_asked_again_gets_the_stored_bytes_without_a_new_charge(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(300, 1)})
    first = ask(study, "a", 1)
    assert first.code == wire.CONTRIBUTION
    study.give({"a": blobs(300, 2)})
    assert ask(study, "a", 1) == first
    assert len(ledger(study, "a").entries("a")) == 1
    second = ask(study, "a", 2, have=1)
    assert second.code == wire.CONTRIBUTION
    assert ask(study, "a", 1) == first
    assert len(ledger(study, "a").entries("a")) == 2


def test_an_empty_batch_is_released_like_any_other(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    assert ask(study, "a", 1).code == wire.CONTRIBUTION  # no file at all yet
    study.give({"a": blobs(300, 1)})
    assert ask(study, "a", 2, have=1).code == wire.CONTRIBUTION
    assert ask(study, "a", 3, have=2).code == wire.CONTRIBUTION  # nothing new
    assert [entry["round"] for entry in ledger(study, "a").entries("a")] == [1, 2, 3]


def test_an_exhausted_budget_is_answered_as_unavailable(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", epsilon=4.0, budget=4.5)
    study.give({"a": blobs(300, 1)})
    assert ask(study, "a", 1).code == wire.CONTRIBUTION
    assert ask(study, "a", 2, have=1) == Reply(wire.UNAVAILABLE, "a")
    assert "budget" in (study.state("a") / "site.log").read_text()


def test_a_request_cannot_change_mechanism_or_budget(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(300, 1)})
    more = {"epsilon": 1000.0, "budget": 1e9, "private": 0, "mechanism": "none", "no_privacy": 1}
    header = json.dumps({"kind": wire.CONTRIBUTE, "round": 1, "have": 0, **more}).encode()
    reply = Reply.from_bytes(answer(study.sites["a"], len(header).to_bytes(4, "big") + header))
    sent = Contribution.from_bytes(reply.data)
    assert sent.privacy["mechanism"] == "NodeRelease"
    assert sent.privacy["epsilon"] == 4.0
    assert ledger(study, "a").budget == 9.0


def test_died_between_drawing_and_storing_rows_that_came_later_are_not_lost(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(300, 1)})
    first = ask(study, "a", 1)
    # as after a crash right after the draw: the release is there, the site's state and the bytes are not
    (study.state("a") / "site.fcac").unlink()
    (study.state("a") / "sent" / "000000001.fcac").unlink()
    study.give({"a": blobs(200, 2)})
    assert ask(study, "a", 1) == first
    ask(study, "a", 2, have=1)
    assert "round 2: 200 new rows" in (study.state("a") / "site.log").read_text()


# ------------------------------------------------------------ nothing about rows leaves


BAD_DATA = {
    "text in a cell": "x,y\n1,2\nSECRET,3\n",
    "missing value": "x,y\n1,\n",
    "a column too few": "x\n1\n",
    "too many cells": "x,y\n1,2,3\n",
    "other names": "u,v\n1,2\n",
    "no text": "\x00\xff\n\xff\x00\n",
}


ONE_BAD_CELL = ("text in a cell", "missing value", "too many cells")


@pytest.mark.parametrize("privacy", [{}, EPSILON], ids=["plain", "private"])
def test_every_error_about_data_gives_the_same_reply(tmp_path: Path, privacy: dict[str, float]) -> None:
    study = Study(tmp_path, names="a", **privacy)
    replies = set()
    for name, text in BAD_DATA.items():
        if privacy and name in ONE_BAD_CELL:  # a gap, as below
            continue
        (study.data("a") / "bad.csv").write_bytes(text.encode("latin-1"))
        reply = ask_raw(study, "a", 1)
        assert Reply.from_bytes(reply) == Reply(wire.UNAVAILABLE, "a"), name
        replies.add(reply)
    assert len(replies) == 1
    assert "UNAVAILABLE to the hub" in (study.state("a") / "site.log").read_text()
    if privacy:
        assert not (study.state("a") / "ledger.db").exists() or not ledger(study, "a").entries("a")


def test_broken_settings_give_a_code_and_no_words(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a")
    (study.state("a") / "settings.json").write_text("not json")
    assert Reply.from_bytes(ask_raw(study, "a", 1)) == Reply(wire.UNAVAILABLE)


def test_a_reply_is_the_contribution_and_little_more(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(300, 1)})
    reply = ask_raw(study, "a", 1)
    sent = Reply.from_bytes(reply)
    nodes = Contribution.from_bytes(sent.data).nodes
    assert len(reply) - nodes.shape[0] * (nodes.shape[1] + 1) * 8 < 2000
    assert len(reply) - len(sent.data) < 60
    assert sent.left is None


def test_a_model_that_does_not_fit_is_not_taken(tmp_path: Path) -> None:
    from fcac.codebook import Codebook
    from fcac.model import storage

    study = Study(tmp_path, names="a")
    for data in (b"nonsense", storage.to_bytes(Codebook([[0.0]], [0]))):
        reply = answer(study.sites["a"], Request(wire.TAKE_MODEL, 1, data=data).to_bytes())
        assert Reply.from_bytes(reply).code == wire.UNAVAILABLE
    assert not (study.state("a") / "model.fcac").exists()


def test_a_request_for_another_schema_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(300, 1)})
    request = Request(wire.CONTRIBUTE, 1, schema="0" * 64)
    assert Reply.from_bytes(answer(study.sites["a"], request.to_bytes())) == Reply(wire.UNAVAILABLE, "a")
    assert "schema is not this site's" in (study.state("a") / "site.log").read_text()
    assert not (study.state("a") / "ledger.db").exists() or not ledger(study, "a").entries("a")


def test_state_without_its_cursor_is_refused(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a")
    study.give({"a": blobs(50, 1)})
    assert ask(study, "a", 1).code == wire.CONTRIBUTION
    study.give({"a": blobs(50, 2)})
    (study.state("a") / "cursor.json").unlink()
    assert ask(study, "a", 2, have=1).code == wire.UNAVAILABLE
    (study.state("a") / "cursor.json").write_text(json.dumps({"after_round": {"7": {}}}))
    assert ask(study, "a", 2, have=1).code == wire.UNAVAILABLE


def test_two_sites_cannot_share_a_state(tmp_path: Path) -> None:
    study = Study(tmp_path, names="ab")
    study.give({"a": blobs(50, 1), "b": blobs(50, 2)})
    ask(study, "a", 1)
    mixed = SiteSettings("b", str(study.data("b")), str(study.state("a")), str(tmp_path / "schema.toml"))
    mixed.save(study.state("b") / "settings.json")
    assert ask(study, "b", 2).code == wire.UNAVAILABLE


@pytest.mark.slow
def test_a_private_federation_over_the_grid(tmp_path: Path) -> None:
    study = Study(tmp_path, **EPSILON)
    study.give({name: blobs(400, i) for i, name in enumerate("abc")})
    study.play(rounds=2)
    assert study.hub.snapshot().closed == 2
    statements = {site: item.privacy for site, item in study.server.latest().items()}
    assert {brief["mechanism"] for brief in statements.values()} == {"NodeRelease"}
    assert all(brief["spent"] > 4 for brief in statements.values())
    assert np.isfinite(study.server.nodes).all()


# ------------------------------------------------------------ how charges add up


def give_tagged(study: Study, rows: np.ndarray, tags: list[str], file: str = "rows.csv") -> None:
    path = study.data("a") / file
    new = not path.exists()
    with path.open("a") as stream:
        stream.writelines(["x,y,tag\n"] if new else [])
        stream.writelines(f"{x!r},{y!r},{tag}\n" for (x, y), tag in zip(rows.tolist(), tags, strict=True))


def play_tagged(study: Study, batches: list[list[str]]) -> list[float]:
    """Release one batch per round; return what the ledger says after each."""
    spent = []
    for number, tags in enumerate(batches, 1):
        if tags:
            give_tagged(study, blobs(len(tags), number), tags)
        assert ask(study, "a", number, have=number - 1).code == wire.CONTRIBUTION
        spent.append(round(ledger(study, "a").spent("a"), 6))
    return spent


def test_with_record_ids_the_dearest_person_counts(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", epsilon=2.0, budget=9.0, record_id="tag")
    one = [f"patient-{i:03d}" for i in range(80)]
    two = [f"q{i}" for i in range(80)]
    spent = play_tagged(study, [one, two, [], [*one[:1], *[f"r{i}" for i in range(60)]]])
    assert spent[0] == spent[1] == spent[2] == pytest.approx(2.0, abs=1e-4)  # others, and then nobody
    assert spent[3] > spent[2]  # p0 is in it a second time
    assert [entry["counted"] for entry in ledger(study, "a").entries("a")] == ["ids"] * 4
    assert b"patient-0" not in (study.state("a") / "ledger.db").read_bytes()  # only keyed hashes are kept


def test_without_ids_or_parts_rounds_add_up(tmp_path: Path) -> None:
    study = Study(tmp_path, names="a", epsilon=2.0, budget=9.0)
    spent = play_tagged(study, [["m"] * 80, ["t"] * 80])
    assert spent[1] > spent[0]


def test_the_same_rows_in_another_file_cost_again(tmp_path: Path) -> None:
    """A nightly export of everything, with the date in its name."""
    study = Study(tmp_path, names="a", epsilon=1.0, budget=2.0)
    codes = []
    for number in range(1, 6):
        study.give({"a": blobs(80, 1)}, file=f"day-{number}.csv")
        codes.append(ask(study, "a", number, have=number - 1).code)
    n_sent = codes.count(wire.CONTRIBUTION)
    assert 1 < n_sent < 5
    assert codes[:n_sent] == [wire.CONTRIBUTION] * n_sent
    assert 2.0 >= ledger(study, "a").spent("a") >= epsilon_from_rho(n_sent * rho_from_epsilon(1.0, 1e-6), 1e-6) - 1e-6


def test_what_is_wrong_in_single_rows_is_a_gap_and_no_refusal(tmp_path: Path) -> None:
    """An answer "unavailable" for one bad cell would tell of that cell with certainty."""
    study = Study(tmp_path, names="a", epsilon=1.0, budget=9.0)
    study.give({"a": blobs(60, 1)}, file="day-1.csv")
    for number, line in enumerate(("oops,0.5", "0.5", "0.5,0.5,0.5,0.5", "true,;", ",")):
        path = next(study.data("a").rglob("day-1.csv"))
        width = len(path.read_text().splitlines()[0].split(","))
        cells = (line.split(",") + ["0.5"] * width)[:width] if line != "0.5,0.5,0.5,0.5" else ["1"] * (width + 2)
        with path.open("a") as stream:
            stream.write(",".join(cells if line != "0.5" else ["0.5"] * (width - 1)) + "\n")
        assert ask(study, "a", number + 1, have=number).code == wire.CONTRIBUTION
    assert len(ledger(study, "a").entries("a")) == 5


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ValueError, match="need an epsilon"):
        SiteSettings("a", "data", "state", "schema.toml", record_id="tag")


def test_a_site_keeps_the_budget_of_its_ledger(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--budget is missing"):
        budget_of(tmp_path, 2.0, None)
    assert budget_of(tmp_path, 2.0, 7.0) == (7.0, "as given")
    study = Study(tmp_path, names="a", **EPSILON)
    study.give({"a": blobs(100, 1)})
    ask(study, "a", 1)
    assert budget_of(study.state("a"), 1.0, None) == (9.0, "from its ledger")
    with pytest.raises(ValueError, match="has a budget of 9, not 8: leave out --budget, or change it with"):
        budget_of(study.state("a"), 1.0, 8.0)
