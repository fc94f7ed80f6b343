"""Privacy on the command line: release with a schema and a ledger, the ledger, the audit."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.csv as pa_csv
import pytest

from fcac import FCAC, load, save
from fcac.cli import run
from fcac.deployment.audit_log import AuditLog
from fcac.privacy import Ledger, NodeRelease, PaperLaplace, auditing
from testing.commands import fcac
from testing.data import blocks

pytest.importorskip("opendp")

SCHEMA = """
fcac_schema = 1
bounds_are_public = {public}
min = -4
max = 12
[columns]
a = {{}}
b = {{}}
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for day in (1, 2):
        rows = blocks(rng, 200)
        lines = [f"{p},{q},person{day}-{i}" for i, (p, q) in enumerate(rows)]
        (tmp_path / f"day{day}.csv").write_text("a,b,id\n" + "\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA.format(public="true"))
    return tmp_path


def private_fit(capfd, folder, *more, code=0, epsilon=2):
    return fcac(
        capfd, "fit", folder / "day1.csv", "--site", "north", "--schema", folder / "schema.toml", "--epsilon", epsilon,
        "-o", folder / "m.fcac", "--force", *more, code=code,
    )  # fmt: skip


@pytest.mark.slow
def test_a_private_fit_charges_its_ledger_and_update_goes_on(folder, capfd):
    said = private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 3)
    assert "site north: eps = 2.00" in said
    model = load(folder / "m.fcac")
    assert isinstance(model.privacy, NodeRelease)
    assert model.server_.log[0][0].privacy["mechanism"] == "NodeRelease"
    said = fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north")
    assert "Round 2" in said
    assert Ledger.open(folder / "n.db").spent("north") == pytest.approx(2.88, abs=0.05)
    before = (folder / "m.fcac").read_bytes()
    (folder / "day3.csv").write_text("a,b\n1,1\n")
    refused = fcac(capfd, "update", folder / "m.fcac", folder / "day3.csv", "--site", "north", code=1)
    assert "budget is 3" in refused
    assert (folder / "m.fcac").read_bytes() == before
    fcac(capfd, "ledger", folder / "n.db", "--set-budget", 8)
    assert "Round 3" in fcac(capfd, "update", folder / "m.fcac", folder / "day3.csv", "--site", "north")


@pytest.mark.slow
def test_costs_of_disjoint_people_do_not_add_up(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "ids.db", "--budget", 2.1, "--record-id", "id")
    fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north", "--record-id", "id")
    assert Ledger.open(folder / "ids.db").spent("north") == pytest.approx(2.0, abs=0.01)
    entries = json.loads(fcac(capfd, "ledger", folder / "ids.db", "--json"))["entries"]
    assert [entry["counted"] for entry in entries] == ["ids", "ids"]


@pytest.mark.slow
def test_the_same_rows_under_other_names_are_refused_at_the_second_release(folder, capfd):
    rows = (folder / "day1.csv").read_text()
    for day in ("mon", "tue", "wed"):
        (folder / f"{day}.csv").write_text(rows)
    fcac(
        capfd, "fit", folder / "mon.csv", "--schema", folder / "schema.toml", "--epsilon", 4, "--ledger",
        folder / "n.db", "--budget", 4, "-o", folder / "m.fcac",
    )  # fmt: skip
    for day in ("tue", "wed"):
        refused = fcac(capfd, "update", folder / "m.fcac", folder / f"{day}.csv", code=1)
        assert "all releases of this ledger count together" in refused
    assert Ledger.open(folder / "n.db").spent() <= 4
    said = fcac(capfd, "inspect", folder / "m.fcac")
    assert "eps = 4.00 at delta = 1e-06 per row over 1 round" in said
    # with ids the same people are left out, and what leaves tells nobody so
    fcac(
        capfd, "fit", folder / "mon.csv", "--schema", folder / "schema.toml", "--epsilon", 4, "--ledger",
        folder / "p.db", "--budget", 4, "--record-id", "id", "-o", folder / "p.fcac",
    )  # fmt: skip
    fcac(capfd, "update", folder / "p.fcac", folder / "tue.csv", "--record-id", "id")
    book = Ledger.open(folder / "p.db")
    assert (len(book.entries()), book.unit()) == (2, "person")
    assert book.spent() <= 4
    assert load(folder / "p.fcac").server_.latest()["tue"].privacy["spent"] == 4


@pytest.mark.slow
def test_distances_are_released_for_more_and_predict_goes_by_them(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 9)
    model, rows = folder / "m.fcac", folder / "day1.csv"
    missing = fcac(capfd, "calibrate", model, rows, "--site", "north", code=2)
    assert "--epsilon is missing" in missing
    guess = ["predict", model, rows, "--out", folder / "l.csv", "--force", "--alpha", 0.05]
    assert run([str(word) for word in guess]) == 0
    assert "fcac calibrate" in capfd.readouterr().err
    said = fcac(capfd, "calibrate", model, rows, "--site", "north", "--epsilon", 6)
    assert "Measured the distances of 600 rows at 1 site, with noise, eps = 6." in said
    assert "Ledger, site north" in said
    entries = json.loads(fcac(capfd, "ledger", folder / "n.db", "--json"))["entries"]
    assert entries[-1]["what"] == "distances for novelty, eps = 6 at delta = 1e-6"
    assert "released by 1 site for eps = 6 more" in fcac(capfd, "inspect", model)
    assert json.loads(fcac(capfd, "inspect", model, "--json"))["novelty"]["epsilon"] == 6
    known = load(model)
    assert run([str(word) for word in guess]) == 0
    assert "guess" not in capfd.readouterr().err
    labels = (folder / "l.csv").read_text().splitlines()[1:]
    told = [line.split(",")[-1] == "true" for line in labels]
    assert told == known.is_novel(pa_csv.read_csv(rows).select(["a", "b"]), alpha=0.05).tolist()
    # the budget is used up: the model and the ledger stay as they are
    before = model.read_bytes()
    assert "nothing was charged" in fcac(capfd, "calibrate", model, rows, "--epsilon", 6, code=1)
    assert model.read_bytes() == before
    assert len(Ledger.open(folder / "n.db").entries()) == 2
    # what was measured goes with what is exported, and is dropped by the next round
    fcac(capfd, "export", model, "--out", folder / "book.fcac")
    assert load(folder / "book.fcac").calibration.distances.tolist() == known._measured.nodes.distances.tolist()
    fcac(capfd, "ledger", folder / "n.db", "--set-budget", 30)
    fcac(capfd, "update", model, folder / "day2.csv", "--site", "north")
    assert load(model)._measured is None


@pytest.mark.slow
def test_distances_by_person_and_without_privacy(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "ids.db", "--budget", 9, "--record-id", "id")
    fcac(
        capfd, "calibrate", folder / "m.fcac", folder / "day1.csv", "--site", "north", "--epsilon", 6,
        "--record-id", "id", "-o", folder / "new.fcac",
    )  # fmt: skip
    assert load(folder / "m.fcac")._measured is None
    assert load(folder / "new.fcac")._measured.epsilon == 6
    assert [entry["counted"] for entry in Ledger.open(folder / "ids.db").entries()] == ["ids", "ids"]
    fcac(capfd, "fit", folder / "day1.csv", "--schema", folder / "schema.toml", "-o", folder / "plain.fcac")
    refused = fcac(capfd, "calibrate", folder / "plain.fcac", folder / "day2.csv", "--epsilon", 1, code=2)
    assert "leave it out" in refused
    assert "as they are" in fcac(capfd, "calibrate", folder / "plain.fcac", folder / "day2.csv")
    assert "rows given for it" in fcac(capfd, "inspect", folder / "plain.fcac")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_the_worst_site_is_shown_and_nothing_is_multiplied(folder, capfd):
    # the review's case: eps 8 at one site and .5 at another
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 20, epsilon=8)
    model = load(folder / "m.fcac")
    model.privacy.epsilon = 0.5
    model.partial_fit({"north": np.ones((5, 2)), "south": np.ones((4, 2))})
    latest = model.server_.latest()
    book = Ledger.open(folder / "n.db")
    assert book.spent("north") > 8
    assert all(item.privacy["spent"] == pytest.approx(book.spent(), abs=0.05) for item in latest.values())


@pytest.mark.slow
def test_a_model_and_an_older_ledger_are_not_put_together(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 20)
    backup = (folder / "n.db").read_bytes()
    fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north")
    (folder / "n.db").write_bytes(backup)
    (folder / "day3.csv").write_text("a,b\n1,1\n")
    before = (folder / "m.fcac").read_bytes()
    refused = fcac(capfd, "update", folder / "m.fcac", folder / "day3.csv", "--site", "north", code=1)
    assert "older copy" in refused
    assert "--recover" in refused
    assert ((folder / "m.fcac").read_bytes(), len(Ledger.open(folder / "n.db").entries())) == (before, 1)
    assert "1 release" in fcac(capfd, "ledger", folder / "n.db", "--recover", folder / "m.fcac")
    fcac(capfd, "update", folder / "m.fcac", folder / "day3.csv", "--site", "north")
    assert len(Ledger.open(folder / "n.db").entries()) == 3


@pytest.mark.slow
def test_a_ledger_that_is_gone_comes_back_from_the_model(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 20)
    fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north")
    spent = Ledger.open(folder / "n.db").spent_at_most()
    for lost in (["n.db"], ["n.db", "n.db.key"], ["n.db", "n.db.key", "n.db.last"]):
        for name in lost:
            (folder / name).unlink()
        assert "no ledger" in fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north", code=2)
        assert "2 releases" in fcac(capfd, "ledger", folder / "n.db", "--recover", folder / "m.fcac")
        book = Ledger.open(folder / "n.db")
        assert (book.budget, book.spent_at_most()) == (20, pytest.approx(spent))
        assert "Nothing" in fcac(capfd, "ledger", folder / "n.db", "--recover", folder / "m.fcac")


def test_every_round_that_the_hub_has_is_charged(tmp_path, capfd):
    ledger = Ledger(tmp_path / "n.db", 9.0)
    ledger.complete(ledger.charge("north", ledger.rho_of(1.0), round=2))
    ledger.complete(ledger.charge("north", ledger.rho_of(0.5), round=3))  # it broke off after some steps
    ledger.charge("north", ledger.rho_of(1.0), round=4)  # and this was never sent: what was, is missing
    named = ["--recover-round", 4, "--site", "north", "--epsilon", 1]
    assert "missing in 3 rounds" in fcac(capfd, "ledger", tmp_path / "n.db", *named)
    assert ledger.spent_rho() == pytest.approx(5 * ledger.rho_of(1.0))
    assert "already" in fcac(capfd, "ledger", tmp_path / "n.db", *named, code=2)


def test_the_log_of_a_site_tells_what_its_ledger_has_lost(tmp_path, capfd):
    """Three rounds and an attempt that was broken off; the ledger is an older copy, and no release was kept."""
    log = AuditLog(tmp_path / "state")
    for number in (1, 2, 2, 3):
        log.add("contributed", round=number, epsilon=0.5, summed=True)
    ledger = Ledger(tmp_path / "state" / "ledger.db", 9.0)
    ledger.complete(ledger.charge("north", ledger.rho_of(0.5), round=1))
    recover = ["ledger", ledger.path, "--recover", tmp_path / "state"]
    assert "--site" in fcac(capfd, *recover, code=1)
    assert "2 releases" in fcac(capfd, *recover, "--site", "north")
    assert ledger.spent_rho() == pytest.approx(4 * ledger.rho_of(0.5))


def test_a_model_of_sums_tells_what_a_site_has_lost(tmp_path, capfd):
    rng = np.random.default_rng(0)
    model = FCAC(privacy=NodeRelease(1.0, [[0, 1]] * 2), aggregation="secure")
    model.fit({name: rng.random((20, 2)) for name in "abcde"})
    save(model, tmp_path / "m.fcac")
    book = tmp_path / "a.db"
    fcac(capfd, "ledger", book, "--recover", tmp_path / "m.fcac", "--site", "a", "--set-budget", 4)
    assert Ledger.open(book).spent("a") == pytest.approx(1.0)
    assert "Nothing" in fcac(capfd, "ledger", book, "--recover", tmp_path / "m.fcac", "--site", "a")


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_pickles_carry_nothing_that_was_not_released(folder, capfd):
    import pickle

    private_fit(capfd, folder)
    model = load(folder / "m.fcac")
    rows = np.random.default_rng(1).uniform(0, 1, size=(237, 2))
    model.partial_fit({"north": rows})
    assert len(model.labels_) == 237
    for copied in (pickle.loads(pickle.dumps(model)),):
        with pytest.raises(AttributeError, match="labels_ is not kept"):
            _ = copied.labels_
    assert rows.tobytes()[:64] not in pickle.dumps(model)


def test_bounds_must_be_public(folder, capfd):
    (folder / "schema.toml").write_text(SCHEMA.format(public="false"))
    assert "bounds_are_public = true" in private_fit(capfd, folder, code=1)
    (folder / "schema.toml").write_text(
        "fcac_schema = 1\nbounds_are_public = true\n[columns]\na = {}\nb = {min=0,max=1}\n"
    )
    assert "no bounds for a" in private_fit(capfd, folder, code=1)
    assert not (folder / "m.fcac").exists()


@pytest.mark.slow
def test_ledger_and_budget_go_together(folder, capfd):
    assert "a new ledger needs --budget" in private_fit(capfd, folder, "--ledger", folder / "n.db", code=2)
    assert "--budget needs --ledger" in private_fit(capfd, folder, "--budget", 3, code=2)
    assert not (folder / "n.db").exists()
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 3)
    other = private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 9, code=2)
    assert "--set-budget 9" in other
    fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north", "--record-id", "no", code=2)


@pytest.mark.slow
def test_a_moved_ledger_is_found_where_it_is_said_to_be(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 8)
    for name in ("n.db", "n.db.key"):
        (folder / name).rename(folder / name.replace("n.db", "moved.db"))
    assert str(folder).encode() not in (folder / "m.fcac").read_bytes()  # the model names no directory
    assert "no ledger" in fcac(capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north", code=2)
    fcac(
        capfd, "update", folder / "m.fcac", folder / "day2.csv", "--site", "north", "--ledger", folder / "moved.db"
    )  # fmt: skip
    assert len(Ledger.open(folder / "moved.db").entries()) == 2


@pytest.mark.slow
def test_a_missing_value_is_refused_before_anything_is_charged(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 8)
    (folder / "day3.csv").write_text("a,b\n1,\n")
    assert "b (1)" in fcac(capfd, "update", folder / "m.fcac", folder / "day3.csv", "--site", "north", code=1)
    assert len(Ledger.open(folder / "n.db").entries()) == 1


def test_without_a_ledger_there_is_a_note(folder, capfd):
    assert run(
        ["fit", str(folder / "day1.csv"), "--schema", str(folder / "schema.toml"), "--epsilon", "2", "-o",
         str(folder / "m.fcac")]
    ) == 0  # fmt: skip
    assert "without --ledger" in capfd.readouterr().err


@pytest.mark.slow
def test_the_ledger_is_shown_to_people_and_programs(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 3)
    said = fcac(capfd, "ledger", folder / "n.db")
    assert "NodeRelease" in said
    assert "site north: eps = 2.00" in said
    assert "one more release may cost" in said
    facts = json.loads(fcac(capfd, "ledger", folder / "n.db", "--json", "--site", "north"))
    assert facts["budget"] == 3
    assert facts["sites"][0]["spent"] == pytest.approx(2.0, abs=0.01)
    assert "its sites are north" in fcac(capfd, "ledger", folder / "n.db", "--site", "south", code=2)
    assert "not a privacy ledger" in fcac(capfd, "ledger", folder / "day1.csv", code=1)


@pytest.mark.slow
def test_the_papers_noise_warns_and_local_noise_needs_bounds(folder, capfd):
    paper = ["--epsilon", "15", "--mechanism", "paper"]
    assert run(["fit", str(folder / "day1.csv"), "--drop", "id", *paper, "-o", str(folder / "p.fcac")]) == 0
    err = capfd.readouterr().err
    assert err.startswith("note: ")
    assert "not a privacy guarantee" in err
    assert isinstance(load(folder / "p.fcac").privacy, PaperLaplace)
    assert "no guarantee" in fcac(capfd, "inspect", folder / "p.fcac")
    local = ["fit", folder / "day1.csv", "--epsilon", 200, "--mechanism", "local", "-o", folder / "l.fcac"]
    fcac(capfd, *local, "--drop", "id", code=2)
    fcac(capfd, *local, "--schema", folder / "schema.toml")
    assert "local noise on every record, eps = 200" in fcac(capfd, "inspect", folder / "l.fcac")


@pytest.mark.slow
def test_a_report_of_a_private_model_uses_no_rows(folder, capfd):
    private_fit(capfd, folder, "--ledger", folder / "n.db", "--budget", 3)
    args = ["report", folder / "m.fcac", "-o", folder / "r.html", "--data", folder / "day1.csv"]
    assert run([str(arg) for arg in args]) == 0
    assert "--data is not used" in capfd.readouterr().err
    assert (folder / "r.html").is_file()


@pytest.mark.slow
def test_an_audit_has_a_verdict_and_an_exit_code(capfd, monkeypatch):
    monkeypatch.setattr(auditing, "_FALSE_ALARM", 1e-10)  # this noise has no seed
    views = auditing._release_views
    monkeypatch.setattr(auditing, "_release_views", lambda mechanism: dict(list(views(mechanism).items())[1:2]))
    said = fcac(capfd, "audit", "--epsilon", 4, "--runs", 100)
    assert "no loss beyond the promise" in said
    assert "It covers:" in said
    assert "It cannot see:" in said
    assert run(["audit", "--epsilon", "15", "--mechanism", "paper", "--runs", "200", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["holds"] is False
