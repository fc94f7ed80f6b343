"""The commands of ``fcac federation`` that need no running server."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from fcac.cli import run
from fcac.cli.consent import OPEN, consent
from fcac.cli.terminal import BadUse
from fcac.deployment import study as study_directory
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.rehearsal import join_here
from fcac.deployment.settings import FederationSettings, Limits, SiteSettings
from fcac.deployment.site_setup import remember_state, site_settings, state_of, store_settings
from fcac.model import storage
from testing.data import blobs, write_csv
from testing.federation_study import SCHEMA, Study, make_study


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


def test_init_makes_everything(tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "study"
    arguments = ["--schema", str(schema), "--address", "hub.example:8443"]
    assert run(["federation", "init", str(root), *arguments]) == 0
    assert "fcac federation server" in capsys.readouterr().out
    settings = FederationSettings.load(root)
    assert settings.active == []
    assert settings.address == "hub.example:8443"
    assert settings.limits == Limits()
    # the hub's own keys, and no site's
    assert {path.name for path in root.rglob("*.key")} == {"audit.key", "ca.key", "server.key"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in root.rglob("*.key"))
    assert run(["federation", "init", str(root), *arguments]) == 1
    assert "already contains a federation" in capsys.readouterr().err


def test_init_of_a_summed_study(tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "study"
    arguments = ["--schema", str(schema), "--aggregation", "secure", "--epsilon", "2"]
    assert run(["federation", "init", str(root), *arguments]) == 0
    told = capsys.readouterr()
    assert "fcac federation sites NAME" in told.out
    summing = FederationSettings.load(root).summing
    assert summing is not None
    assert (summing.epsilon, summing.tolerance, summing.least) == (2.0, 1, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sites", "a,b"], "No such option"),  # nobody makes keys for another
        (["--address", "nowhere"], "host:port"),
        (["--server", "magic"], "server must be one of"),
        (["--aggregation", "secure"], "needs --epsilon"),
        (["--aggregation", "secure", "--epsilon", "1", "--tolerance", "2", "--least", "4"], "needs at least 7"),
        (["--aggregation", "safe"], "plain or secure"),
        (["--epsilon", "1"], "belong to --aggregation secure"),
    ],
)
def test_init_says_what_is_wrong(
    tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["federation", "init", str(tmp_path / "study"), "--schema", str(schema), *arguments]) != 0
    assert words in capsys.readouterr().err
    assert not (tmp_path / "study" / "federation.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--epsilon"),
        (["--epsilon", "1", "--no-privacy"], "not both"),
        (["--no-privacy", "--budget", "3"], "--budget needs"),
        (["--epsilon", "-1"], "epsilon"),
    ],
)
def test_a_site_does_not_start_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    study = Study(tmp_path, names="a")
    command = ["federation", "site", str(study.root.parent / "bundles" / "a"), "--data", str(study.data("a"))]
    assert run([*command, "--state", str(tmp_path / "fresh"), *arguments]) != 0
    assert words in capsys.readouterr().err


def test_a_site_does_not_start_with_epsilon_and_no_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.toml").write_text("fcac_schema = 1\n[columns]\nx = {}\ny = {}\n")
    root = make_study(tmp_path, ["a"], tmp_path / "plain.toml")
    command = [
        "federation",
        "site",
        str(root.parent / "bundles" / "a"),
        "--data",
        str(tmp_path),
        "--epsilon",
        "1",
        "--budget",
        "5",
    ]
    assert run(command) == 1
    assert "bounds" in capsys.readouterr().err


@pytest.mark.slow
def test_a_state_made_without_privacy_cannot_go_on_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path, names="a")
    study.play({"a": blobs(50, 1)})
    command = ["federation", "site", str(study.root.parent / "bundles" / "a"), "--data", str(study.data("a"))]
    assert run([*command, "--state", str(study.state("a")), "--epsilon", "1", "--budget", "5"]) == 1
    assert "give it an empty state" in capsys.readouterr().err


@pytest.mark.slow
def test_status_label_forget_add_revoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path)
    study.give({name: blobs(300, i) for i, name in enumerate("abc")})
    root = str(study.root)
    assert run(["federation", "status", root]) == 0
    assert "none yet" in capsys.readouterr().out
    study.play()
    assert run(["federation", "status", root, "--rejected"]) == 0
    shown = capsys.readouterr().out
    assert "rounds closed: 1" in shown
    assert shown.count("UNPROTECTED") == 3

    rows = tmp_path / "fresh.csv"
    write_csv(rows, blobs(40, 9))
    out = tmp_path / "labels.parquet"
    label = ["federation", "label", str(study.root.parent / "bundles" / "a"), "--data", str(rows), "--out", str(out)]
    assert run([*label, "--state", str(study.state("a"))]) == 0
    labels = pyarrow.parquet.read_table(out)["label"].to_pylist()
    book = storage.load(study.state("a") / "model.fcac")
    assert labels == book.predict(blobs(40, 9)).tolist()
    write_csv(tmp_path / "usual.csv", blobs(500, 10, spread=3.0))
    more = ["--state", str(study.state("a")), "--force", "--usual", str(tmp_path / "usual.csv"), "--alpha", "0.1"]
    assert run([*label, *more]) == 0
    novel = pyarrow.parquet.read_table(out)["novel"].to_pylist()
    assert novel == book.calibrated(blobs(500, 10, spread=3.0)).is_novel(blobs(40, 9), alpha=0.1).tolist()

    for command, words in (("forget", "is forgotten"), ("add", "takes part again"), ("revoke", "is revoked")):
        assert run(["federation", command, root, "b"]) == 0
        assert words in capsys.readouterr().out
    assert study.settings.members["b"].status == "revoked"
    assert run(["federation", "forget", root, "nobody"]) == 1
    assert "the sites are a, b, c" in capsys.readouterr().err
    for site, why in (("a", "already takes part"), ("b", "was revoked: invite it"), ("d", "is new here: invite it")):
        assert run(["federation", "add", root, site]) == 1
        assert why in capsys.readouterr().err
    assert study.settings.active == ["a", "c"]
    join_here(study.root, "b", tmp_path / "again")
    assert study.settings.active == ["a", "b", "c"]


def test_labels_need_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path, names="a")
    study.give({"a": blobs(10, 1)})
    label = ["federation", "label", str(study.root.parent / "bundles" / "a"), "--data", str(study.data("a"))]
    assert run([*label, "--out", str(tmp_path / "labels.csv")]) == 1
    assert "no model has arrived yet" in capsys.readouterr().err


def test_hand_made_changes_survive_add_and_revoke(tmp_path: Path) -> None:
    study = Study(tmp_path)
    path = study.root / "federation.toml"
    path.write_text(path.read_text().replace("max_node_share = 1.0", "max_node_share = 0.4  # agreed in May\n# "))
    study_directory.revoke(study.root, "a")
    join_here(study.root, "d", tmp_path / "bundles" / "d")
    assert "# agreed in May" in path.read_text()
    assert study.settings.limits.max_node_share == 0.4
    assert study.settings.active == ["b", "c", "d"]


@pytest.mark.slow
def test_run_without_a_server_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path, names="a")
    assert run(["federation", "run", str(study.root), "--rounds", "1"]) == 1
    assert "no hub serves" in capsys.readouterr().err
    assert run(["federation", "run", str(study.root)]) == 2
    assert run(["federation", "run", str(study.root), "--every", "soon"]) == 2


@pytest.mark.slow
def test_status_counts_nothing_from_before_a_site_was_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study(tmp_path, names="ab", epsilon=2.0, budget=9.0)
    study.play({name: blobs(200, i) for i, name in enumerate("ab")})
    study.play()
    study_directory.forget(study.root, "b")
    assert run(["federation", "status", str(study.root)]) == 0
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line[:2] in ("a ", "b ")}
    assert "twice" in lines["a"]
    assert "never" in lines["b"]
    assert "eps" not in lines["b"]
    assert "Each site sets its own budget." in shown


@pytest.mark.slow
def test_a_site_says_what_is_wrong_before_it_starts(
    tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    root = make_study(tmp_path, ["a"], schema)
    bundle, data = root.parent / "bundles" / "a", tmp_path / "rows.csv"
    data.write_text("x,y,who\n1,2,me\n")
    site = ["federation", "site", str(bundle), "--data", str(data), "--state", str(tmp_path / "state")]
    for extra, code, words in (
        (["--no-privacy"], 2, "the sentence was not typed"),
        (["--no-privacy", "--yes"], 2, "single rows and differences of totals may leave"),
        (
            ["--epsilon", "1", "--budget", "5", "--record-id", "nobody", "--yes"],
            2,
            "no column nobody, which was named for the ledger",
        ),
        (["--no-privacy", "--record-id", "who"], 2, "it needs --epsilon"),
    ):
        assert run([*site, *extra]) == code
        assert words in capsys.readouterr().err
    (bundle / "node.key").unlink()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{OPEN}\n"))
    assert run([*site, "--no-privacy"]) == 1
    said = capsys.readouterr()
    assert "has no node.key: has the site been revoked?" in said.err
    assert "privacy" not in (said.out + said.err).lower()


def test_what_leaves_without_noise_has_to_be_typed(
    tmp_path: Path, schema: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    settings = SiteSettings("a", str(tmp_path), str(tmp_path / "state"), str(schema))
    for typed in ("", "yes\n", "single rows may leave\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(BadUse, match="not typed"):
            consent(settings, yes=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{OPEN}.\n"))
    assert consent(settings, yes=False).columns
    assert [entry["typed"] for entry in AuditLog(tmp_path / "state").entries()] == [OPEN]
    said = capsys.readouterr()
    assert "protects nobody" in said.out
    assert "privacy" not in (said.out + said.err).lower()
    consent(settings, yes=True)  # what was agreed to is not asked again


def test_a_bundle_is_not_trusted(tmp_path: Path, schema: Path) -> None:
    root = make_study(tmp_path, ["a"], schema)
    bundle = root.parent / "bundles" / "a"
    good = (bundle / "bundle.toml").read_text()
    for old, new, words in (
        ('site = "a"', 'site = "../../a"', "site name"),
        ('site = "a"', 'site = "\\u001b[31m"', "site name"),
        ("join_port = 18001", 'join_port = "no"', "not the hub's to make"),
        ('condenser = "reservoir"', 'condenser = "reservoir"\nstate = "/etc"', "not the hub's to make"),
    ):
        assert old in good
        (bundle / "bundle.toml").write_text(good.replace(old, new))
        with pytest.raises(ValueError, match=words) as error:
            study_directory.read_bundle(bundle)
        assert str(error.value).isprintable()
    (bundle / "bundle.toml").write_text(good)
    # where a site keeps its state is not the hub's to say
    (tmp_path / "elsewhere").mkdir()
    (bundle / "state-directory").write_text(str(tmp_path / "elsewhere"))
    assert state_of(bundle, None) == bundle / "state"
    (tmp_path / "data").mkdir()
    settings = site_settings(bundle, tmp_path / "data", tmp_path / "elsewhere")
    store_settings(settings)
    remember_state(bundle, tmp_path / "elsewhere")
    assert state_of(bundle, None) == (tmp_path / "elsewhere").resolve()
    assert (tmp_path / "elsewhere").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_log_of_a_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(tmp_path, names="a")
    study.give({"a": blobs(50, 1)})
    assert run(["federation", "log", str(study.state("a"))]) == 1
    capsys.readouterr()
    study.play()
    assert run(["federation", "log", str(study.state("a"))]) == 0
    assert "contributed: round 1" in capsys.readouterr().out
    assert run(["federation", "log", str(study.state("a")), "--json", "--last", "1"]) == 0
    assert '"event": "model received"' in capsys.readouterr().out
    assert run(["federation", "log", str(study.state("a")), "--verify"]) == 0
    assert "3 entries, none changed" in capsys.readouterr().out
    path = study.state("a") / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"new_rows": 50', b'"new_rows": 51'))
    assert run(["federation", "log", str(study.state("a")), "--verify"]) == 1
    assert "line 2 was changed" in capsys.readouterr().err
