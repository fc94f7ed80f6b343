"""Rounds inside one process: the code of hub and sites, with every fault that can be played there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fcac import persistence
from fcac.deployment import study as directory
from fcac.deployment import wire
from fcac.deployment.rehearsal import join_here
from fcac.deployment.shared_codebook import for_sites
from fcac.deployment.wire import Reply, Request
from fcac.federation import Contribution, Server
from fcac.model import storage
from testing.compare import assert_same_server
from testing.data import blobs, site_rows
from testing.federation_study import Reference, Study, hostile


@pytest.mark.slow
def test_model_equals_the_run_without_a_wire(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    for number in (1, 2, 3):
        rows = site_rows("abc", number)
        study.play(rows)
        direct = reference.contribute(rows, number)
        assert [study.sent(item.site, number).to_bytes() for item in direct] == [item.to_bytes() for item in direct]
        reference.server.learn(direct)
    assert_same_server(study.server, reference.server)
    assert study.server.n_rounds == 3


@pytest.mark.slow
def test_several_rounds_in_one_run_stop_when_nothing_is_new(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.give(site_rows("abc", 1))
    study.play(rounds=5)
    assert study.hub.snapshot().closed == 1
    assert [event[1] for event in study.events("nothing new")] == ["a", "b", "c"]


@pytest.mark.slow
def test_only_sites_with_new_rows_contribute(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    first, second = site_rows("abc", 1), site_rows("b", 2)
    study.play(first)
    study.play(second)
    reference.play(first, 1)
    reference.play(second, 2)
    assert_same_server(study.server, reference.server)
    assert study.events("nothing new") == [("nothing new", "a", 2), ("nothing new", "c", 2)]


# ------------------------------------------------------------ faults


def only(hit: str, what: Any, kind: str = wire.CONTRIBUTE) -> Any:
    """Make a fault that hits one site's replies of one kind."""

    def fault(site: str, request: Request, reply: bytes) -> list[bytes | None]:
        return what(reply) if (site, request.kind) == (hit, kind) else [reply]

    return fault


def begun(folder: Path) -> tuple[Study, Reference, dict[str, np.ndarray]]:
    """Return a study of three sites with rows for a first round, and what it is held against."""
    study, rows = Study(folder), site_rows("abc", 1)
    study.give(rows)
    return study, Reference(), rows


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["killed", "hanging"])
def test_a_lost_contribution_comes_in_the_next_round(tmp_path: Path, loss: str) -> None:
    study, reference, rows = begun(tmp_path)

    study.fault = only("b", lambda reply: [None] if loss == "killed" else [])
    study.play()
    expected = "failed" if loss == "killed" else "no reply"
    assert study.events(expected) == [(expected, "b", 1)]
    study.fault = None
    study.play()  # nobody has new rows; what b has sent and never arrived is sent again

    contributions = {item.site: item for item in reference.contribute(rows, 1)}
    reference.server.learn([contributions["a"], contributions["c"]])
    reference.server.learn([contributions["b"]])
    assert_same_server(study.server, reference.server)


@pytest.mark.slow
def test_a_lost_contribution_is_part_of_the_next_one(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    first, second = site_rows("abc", 1), site_rows("abc", 2)
    study.give(first)
    study.fault = only("b", lambda reply: [])
    study.play()
    study.fault = None
    study.play(second)

    contributions = {item.site: item for item in reference.contribute(first, 1)}
    reference.server.learn([contributions["a"], contributions["c"]])
    reference.play(second, 2)
    assert_same_server(study.server, reference.server)
    assert study.server.latest()["b"].counts.sum() == 240  # every row once


@pytest.mark.slow
def test_a_contribution_delivered_twice_counts_once(tmp_path: Path) -> None:
    study, reference, rows = begun(tmp_path)
    study.fault = lambda site, request, reply: [reply, reply]
    study.play()
    reference.play(rows, 1)
    assert_same_server(study.server, reference.server)
    assert len(study.events("duplicate")) == 3


@pytest.mark.slow
def test_a_late_joiner_takes_part_from_the_next_round(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    first = site_rows("abc", 1)
    study.play(first)
    join_here(study.root, "d", study.folder / "bundles" / "d")
    study.join("d")
    second = site_rows("abcd", 2)
    study.play(second)
    reference.play(first, 1)
    reference.play(second, 2)
    assert_same_server(study.server, reference.server)


HOSTILE = [
    "nan", "infinite", "wrong d", "million nodes", "too many nodes", "negative counts", "huge counts", "another's name",
    "a number for a name", "future round", "round zero", "far outside", "no contribution", "a model", "empty",
    "cut short", "altered",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_contribution_is_rejected_and_the_round_goes_on(tmp_path: Path, name: str) -> None:
    study, reference = Study(tmp_path), Reference()
    data, words = hostile(name)
    rows = site_rows("abc", 1)
    study.give(rows)
    study.fault = only("b", lambda reply: [Reply(wire.CONTRIBUTION, "b", data).to_bytes()])
    study.play()
    reference.play({site: block for site, block in rows.items() if site != "b"}, 1)
    assert_same_server(study.server, reference.server)
    assert len(study.reasons()) == 1
    assert words in study.reasons()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (Reply(wire.CONTRIBUTION, "a", b"x").to_bytes(), "name of another site"),
        (Reply("something else", "b").to_bytes(), "unknown form"),
        (Reply(wire.CONTRIBUTION, "b", b"x", left=7.0).to_bytes(), "from 0 to 1"),
        (Reply(wire.CONTRIBUTION, "b", b"x", left=float("nan")).to_bytes(), "from 0 to 1"),
        (b"", "unknown form"),
        (b"\xff" * 9, "unknown form"),
        (b"\x00\x00\x00\x02[]", "unknown form"),
        (b"\x00\x00\x00\x7f{}", "unknown form"),
    ],
)
def test_a_reply_of_another_form_is_rejected(tmp_path: Path, sent: bytes, words: str) -> None:
    study, reference, rows = begun(tmp_path)
    study.fault = only("b", lambda reply: [sent])
    study.play()
    reference.play({"a": rows["a"], "c": rows["c"]}, 1)
    assert_same_server(study.server, reference.server)
    assert words in study.reasons()[0]


@pytest.mark.slow
def test_a_second_answer_to_a_round_with_other_content_is_rejected(tmp_path: Path) -> None:
    study, reference, rows = begun(tmp_path)
    other = Contribution("b", 1, np.zeros((2, 2)), [1, 1]).to_bytes()
    study.fault = only("b", lambda reply: [reply, Reply(wire.CONTRIBUTION, "b", other).to_bytes()])
    study.play()
    reference.play(rows, 1)
    assert_same_server(study.server, reference.server)
    assert study.reasons() == ["another contribution of this site has already arrived"]


@pytest.mark.slow
def test_an_old_round_with_other_content_is_rejected(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.play(site_rows("abc", 1))
    before = study.server
    verdict = study.hub.receive("b", Contribution("b", 1, np.zeros((2, 2)), [1, 1]).to_bytes())
    assert verdict.outcome == "rejected"
    assert study.hub.receive("b", study.sent("b", 1).to_bytes()).outcome == "duplicate"
    assert study.hub.close_round() == []
    assert_same_server(study.server, before)


# ------------------------------------------------------------ crashes


@pytest.mark.slow
def test_after_a_crash_only_the_missing_sites_are_asked(tmp_path: Path) -> None:
    study, reference, rows = begun(tmp_path)

    def die(reply: bytes) -> list[bytes]:
        raise ConnectionError("the run was killed")

    study.fault = only("c", die)
    with pytest.raises(ConnectionError):
        study.play()
    study.fault = None
    study.play()
    asked = [entry for entry in study.hub.journal() if entry["event"] == "asking"]
    assert [entry["sites"] for entry in asked] == [["a", "b", "c"], ["c"]]
    reference.play(rows, 1)
    assert_same_server(study.server, reference.server)


class Crash(BaseException):
    """Ends a process as kill -9 would: nothing catches it."""


def crash_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, step: int) -> int:
    """Play two rounds, once for every write at which to crash (before or after it); return how many crashes there were.

    Sites and server write through the same function, so that both sides' writes are hit.
    """
    reference = Reference()
    rounds = [site_rows("ab", 1, 40), site_rows("ab", 2, 40)]
    for number, rows in enumerate(rounds, 1):
        reference.play(rows, number)
    real = persistence.write_atomic
    for n_crashes, when in enumerate(range(start, 10_000, step)):
        folder = tmp_path / str(when)
        folder.mkdir()
        study = Study(folder, names="ab")
        done, crashed = 0, False

        def write(path: Any, data: bytes, fatal: int = when // 2, before: bool = when % 2 == 0) -> None:
            nonlocal done
            done += 1
            if done == fatal and before:
                raise Crash
            real(path, data)
            if done == fatal:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(persistence, "write_atomic", write)
            for number, rows in enumerate(rounds, 1):
                study.give(rows)
                while study.hub.snapshot().closed < number:
                    try:
                        study.play()
                    except Crash:
                        crashed = True
        assert_same_server(study.server, reference.server)
        if not crashed:
            return n_crashes
    raise AssertionError("the runs never ended without a crash")


@pytest.mark.slow
def test_a_crash_at_a_write_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crash_everywhere(tmp_path, monkeypatch, start=3, step=7) >= 5


@pytest.mark.soak
def test_a_crash_at_any_write_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crash_everywhere(tmp_path, monkeypatch, start=2, step=1) >= 40


def test_a_torn_journal_line_is_passed_over(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.hub.note("one")
    with (study.root / "state" / "journal.jsonl").open("a") as stream:
        stream.write('{"event": "ha')
    study.hub.note("two")
    assert [entry["event"] for entry in study.hub.journal()][-2:] == ["one", "two"]


# ------------------------------------------------------------ changes of membership


@pytest.mark.slow
def test_forget_is_exact_and_lasts_until_the_site_is_added_again(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    first, second = site_rows("abc", 1), site_rows("abc", 2)
    study.play(first)
    assert directory.forget(study.root, "b")
    study.play(second)
    without = [{site: block for site, block in rows.items() if site != "b"} for rows in (first, second)]
    reference.play(without[0], 1)
    reference.play(without[1], 2)
    assert_same_server(study.server, reference.server)
    directory.add(study.root, "b")
    study.play()
    assert "b" in study.server.sites
    assert study.server.latest()["b"].counts.sum() == 240


@pytest.mark.slow
def test_a_revoked_site_is_not_asked_and_not_taken(tmp_path: Path) -> None:
    study, reference = Study(tmp_path), Reference()
    first, second = site_rows("abc", 1), site_rows("abc", 2)
    study.play(first)
    directory.revoke(study.root, "b")
    study.play(second)
    reference.play(first, 1)
    reference.play({"a": second["a"], "c": second["c"]}, 2)
    assert_same_server(study.server, reference.server)
    late = study.hub.receive("b", Contribution("b", 2, np.zeros((2, 2)), [1, 1]).to_bytes())
    assert late == ("rejected", "the site does not take part")


@pytest.mark.slow
def test_a_site_revoked_during_the_round_is_left_out(tmp_path: Path) -> None:
    study, reference, rows = begun(tmp_path)

    def revoke(reply: bytes) -> list[bytes]:
        directory.revoke(study.root, "b")
        return [reply]

    study.fault = only("b", revoke)
    study.play()
    reference.play({"a": rows["a"], "c": rows["c"]}, 1)
    assert_same_server(study.server, reference.server)


# ------------------------------------------------------------ what sites get


@pytest.mark.slow
def test_sites_fetch_a_codebook_and_nothing_else(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.play(site_rows("abc", 1, 400))
    data = study.hub.model_bytes()
    assert data is not None
    kept = storage.load(study.state("a") / "model.fcac")
    # a site adds the false-alarm rate of its own rows, which nobody else gets to see
    assert kept.calibration is not None
    assert storage.to_bytes(kept.replace(calibration=None)) == data
    meta, arrays = persistence.unpack(data, kind="model")
    assert meta["estimator"] == "Codebook"
    assert set(arrays) == {"nodes", "labels", "reach"}
    assert b"privacy" not in data
    rows = blobs(500, 999)
    assert (storage.from_bytes(data).predict(rows) == study.server.predict(rows)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cae-fc", "communities"])
def test_what_sites_fetch_holds_no_node_and_no_record(tmp_path: Path, kind: str) -> None:
    study = Study(tmp_path, server=kind)
    rounds = [site_rows("abc", number, 200) for number in (1, 2)]
    for rows in rounds:
        study.play({site: block.round(1) for site, block in rows.items()})
    words = storage.load(study.state("a") / "model.fcac").nodes
    sent = np.concatenate([item.nodes for batch in study.server.log for item in batch])
    records = np.concatenate([block.round(1) for rows in rounds for block in rows.values()])
    assert len(words) >= 3
    for others in (sent, records):
        assert not (words[:, None] == others[None]).all(axis=2).any()
    # each codeword lies between the nodes it stands for, so not at the edge of everything
    assert (words.min(axis=0) > sent.min(axis=0)).all()


def test_too_few_nodes_are_not_handed_out(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.play({"a": np.array([[0.5, 0.5], [4.0, 4.0]])})
    assert study.hub.model_bytes() is None
    assert not (study.state("a") / "model.fcac").exists()
    assert study.events("no model for sites") == [("no model for sites", None, 1)]
    assert study.hub.open_round == 2


def test_released_nodes_are_handed_out_as_they_are() -> None:
    privacy = {"mechanism": "NodeRelease", "epsilon": 1.0, "delta": 1e-6}
    server = Server()
    server.absorb([Contribution(name, 1, blobs(30, i), np.ones(30, np.int64), privacy) for i, name in enumerate("ab")])
    book = for_sites(server, ["x", "y"])
    assert book is not None
    rows = blobs(100, 7)
    assert book.predict(rows).tolist() == server.predict(rows).tolist()
    assert book.feature_names == ["x", "y"]


@pytest.mark.slow
def test_the_report_is_written_after_every_round(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.play(site_rows("abc", 1))
    report = study.root / "state" / "report.html"
    first = report.read_text()
    study.play(site_rows("abc", 2))
    assert "<html" in first
    assert report.read_text() != first
    assert not study.events("no report")
