"""What a person is told when something is wrong: one line, the right exit code, no row."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fcac import __version__, cli, load
from fcac.cli import run, terminal
from testing.data import write_csv
from testing.waiting import PATIENCE, wait_until

COMMANDS = list(cli._COMMANDS)


@pytest.fixture
def data(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    write_csv(tmp_path / "x.csv", rows, "ab")
    assert run(["fit", str(tmp_path / "x.csv"), "-o", str(tmp_path / "m.fcac")]) == 0
    return tmp_path


def told(capfd, code, *args):
    """Run a command that must fail; return its one line."""
    capfd.readouterr()
    assert run([str(arg) for arg in args]) == code
    out, err = capfd.readouterr()
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    assert out == ""
    return err


@pytest.mark.slow
def test_version_help_and_no_arguments(capfd):
    assert run(["--version"]) == 0
    assert capfd.readouterr().out.strip() == f"fcac {__version__}"
    for args in ([], ["--help"], ["-h"]):
        assert run(args) == 0
        said = capfd.readouterr().out
        assert all(name in said for name in [*COMMANDS, "reproduce", "federation"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capfd):
    assert run([command, "--help"]) == 0
    said = capfd.readouterr().out
    assert "Example" in said
    assert "DATA..." not in said or "or directories" in said
    assert f"fcac {command}" in said


@pytest.mark.slow
def test_bad_use_is_exit_code_2_and_says_where_to_look(data, capfd):
    x, m = data / "x.csv", data / "m.fcac"
    cases = [
        (["fi"], "Did you mean 'fit'"),
        (["fit", x], "Missing option '--out'"),
        (["fit", "-o", data / "n.fcac"], "Missing argument"),
        (["fit", x, "-o", m], "--force"),
        (["fit", x, "-o", data], "is a directory"),
        (["fit", x, "-o", data / "no" / "n.fcac"], "does not exist"),
        (["fit", data / "none.csv", "-o", data / "n.fcac"], "no file or directory"),
        (["fit", x, "-o", data / "n.fcac", "--server", "best"], "--server must be one of"),
        (["fit", x, "-o", data / "n.fcac", "--server", "cae-fc", "--clusters", "3"], "--server communities"),
        (["fit", x, "-o", data / "n.fcac", "--site-column", "ward"], "no column 'ward'"),
        (["fit", x, "-o", data / "n.fcac", "--site-column", "a", "--site", "s"], "only one of"),
        (["fit", x, "-o", data / "n.fcac", "--sites", "3"], "No such option"),  # a privacy hole: rows dealt by position
        (["fit", x, "-o", data / "n.fcac", "--schema", data / "no.toml"], "no schema"),
        (["fit", x, "-o", data / "n.fcac", "--epsilon", "2"], "needs --schema"),
        (["fit", x, "-o", data / "n.fcac", "--epsilon", "-2"], "positive"),
        (["fit", x, "-o", data / "n.fcac", "--epsilon", "2", "--mechanism", "magic"], "release, local or paper"),
        (["fit", x, "-o", data / "n.fcac", "--mechanism", "paper"], "need --epsilon"),
        (["fit", x, "-o", data / "n.fcac", "--ledger", "l.db"], "need --epsilon"),
        (["fit", x, "-o", data / "n.fcac", "--record-id", "a"], "needs --epsilon and --ledger"),
        (["update", data / "none.fcac", x], "no model file"),
        (["predict", m, x, "-o", data / "l.txt"], "must end in"),
        (["predict", m, x, "-o", data / "l.csv", "--keep", "c"], "no column 'c'"),
        (["ledger", data / "none.db"], "no ledger"),
        (["audit", "--epsilon", "0"], "positive"),
        (["audit", "--epsilon", "1", "--mechanism", "magic"], "release, local or paper"),
    ]
    for args, words in cases:
        assert words in told(capfd, 2, *args), args
    assert not (data / "n.fcac").exists()
    assert not list(data.glob(".*.part"))


@pytest.mark.slow
def test_failures_are_exit_code_1(data, capfd):
    (data / "bad.csv").write_text("a,b\n1,\n2,2\n")
    (data / "strict.toml").write_text("fcac_schema = 1\n[columns]\na = {}\nb = {}\n")
    line = told(capfd, 1, "fit", data / "bad.csv", "--schema", data / "strict.toml", "-o", data / "n.fcac")
    assert "bad.csv: missing or infinite values in column b (1) of 2 rows" in line
    before = (data / "m.fcac").read_bytes()
    assert "b (1)" in told(capfd, 1, "update", data / "m.fcac", data / "bad.csv")
    assert (data / "m.fcac").read_bytes() == before
    (data / "junk.fcac").write_bytes(before[:-20])
    for command in (["inspect"], ["export", "-o", data / "b.fcac"], ["report", "-o", data / "r.html"]):
        assert "junk.fcac" in told(capfd, 1, command[0], data / "junk.fcac", *command[1:])
    assert "not an FCAC file" in told(capfd, 1, "inspect", data / "bad.csv")


@pytest.mark.slow
def test_a_failed_prediction_leaves_no_output(data, capfd):
    (data / "bad.csv").write_text("a,b\n" + "1,2\n" * 10 + "1,\n")
    told(capfd, 1, "predict", data / "m.fcac", data / "bad.csv", "-o", data / "l.parquet")
    assert not (data / "l.parquet").exists()
    assert not list(data.glob(".*.part"))


@pytest.mark.slow
def test_no_value_of_a_row_is_ever_shown(data, capfd):
    secret = "4242.4242"
    for content in (
        f"a,b\n1,{secret}x\n",
        f"a,b\n1,2\n{secret}\n",
        f"a,b\n{secret},\n",
        f"a,b\n{secret},2,3\n",
        "a,b\n" + "1,2\n" * 300_000 + f"1,{secret}x\n",
    ):
        (data / "bad.csv").write_text(content)
        run(["fit", str(data / "bad.csv"), "-o", str(data / "n.fcac"), "--force"])
        said = capfd.readouterr()
        assert "4242" not in said.out + said.err


def test_a_missing_extra_says_what_to_install(data, capfd, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"] + ["opendp"]:
        monkeypatch.setitem(sys.modules, name, None)
    schema = "fcac_schema = 1\nbounds_are_public = true\nmin = -9\nmax = 9\n[columns]\na = {}\nb = {}\n"
    (data / "schema.toml").write_text(schema)
    private = ["fit", data / "x.csv", "--schema", data / "schema.toml", "--epsilon", 2, "-o", data / "n.fcac"]
    assert "pip install 'fcac[privacy]'" in told(capfd, 1, *private)
    monkeypatch.setattr(cli, "_LAZY", {"federation": ("no_such_module", "x")})
    for module, extra in terminal._EXTRAS.items():
        error = ModuleNotFoundError(f"No module named {module!r}", name=f"{module}.sub")
        assert terminal.explain(error, "fcac x") == 1
        assert f"pip install 'fcac[{extra}]'" in capfd.readouterr().err
    assert "no_such_module" in told(capfd, 1, "federation", "status")


def test_an_unforeseen_error_shows_its_place_and_not_its_words(data, capfd, monkeypatch):
    from fcac.model.fcac import FCAC

    def fail(*args, **more):
        raise TypeError("row 4242")

    monkeypatch.setattr(FCAC, "play_stream", fail)
    line = told(capfd, 1, "fit", data / "x.csv", "-o", data / "n.fcac")
    assert "unexpected TypeError" in line
    assert "FCAC_DEBUG=1" in line
    assert "4242" not in line
    monkeypatch.setenv("FCAC_DEBUG", "1")
    assert run(["fit", str(data / "x.csv"), "-o", str(data / "n.fcac")]) == 1
    assert "Traceback" in capfd.readouterr().err


def test_an_interrupt_is_130_and_changes_nothing(data, capfd, monkeypatch):
    from fcac.federation import in_process

    def interrupted(*args, **more):
        raise KeyboardInterrupt

    before = (data / "m.fcac").read_bytes()
    monkeypatch.setattr(in_process, "in_threads", interrupted)
    assert run(["update", str(data / "m.fcac"), str(data / "x.csv")]) == 130
    assert "interrupted" in capfd.readouterr().err
    assert (data / "m.fcac").read_bytes() == before


def test_progress_is_silent_for_two_seconds_and_then_counts(capfd, monkeypatch):
    monkeypatch.setattr(terminal, "_LINE_EVERY_SECONDS", 3600.0)  # ten seconds can pass here on a busy machine
    with terminal.Progress("learning") as progress:
        progress(10, 0.1)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(terminal, "_LINE_EVERY_SECONDS", 0.0)
    with terminal.Progress("learning") as progress:
        time.sleep(0.01)
        progress(1000, 0.25)
    said = capfd.readouterr().err
    assert "learning: 1,000 rows, 25%, about" in said
    assert "left" in said


# ------------------------------------------------------------ as a real program


def program(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "fcac", *map(str, args)], capture_output=True, text=True, check=False, **more
    )


def wait_until_open(process, name):
    """Wait until a process has opened a file, so that it is past its start."""

    def is_open():
        for link in Path(f"/proc/{process.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                if os.readlink(link).endswith(name):
                    return True
        return process.poll() is not None

    wait_until(is_open)


@pytest.mark.slow
def test_the_program_itself(data):
    assert program("--version").stdout == f"fcac {__version__}\n"
    done = program("inspect", data / "m.fcac")
    assert (done.returncode, done.stderr) == (0, "")
    done = program("fit", data / "none.csv", "-o", data / "n.fcac")
    assert done.returncode == 2
    assert done.stderr.startswith("fcac fit: there is no file")


@pytest.mark.slow
def test_help_loads_nothing_heavy():
    code = (
        "import sys; from fcac.cli import run; code = run(['--help']); "
        "heavy = {'numba', 'sklearn', 'scipy', 'pyarrow', 'plotly', 'flwr', 'aiohttp'} & set(sys.modules); "
        "sys.exit(f'loads {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_shell_completion_knows_the_commands():
    shell = {**os.environ, "_FCAC_COMPLETE": "complete_bash", "COMP_WORDS": "fcac pre", "COMP_CWORD": "1"}
    done = program(env=shell)
    assert done.stdout.split() == ["predict"], done.stderr


@pytest.mark.slow
def test_control_c_at_a_real_program(data):
    rng = np.random.default_rng(0)
    np.savez(data / "m.npz", X=rng.normal(size=(3_000_000, 2)), columns=["a", "b"])
    before = (data / "m.fcac").read_bytes()
    with subprocess.Popen(
        [sys.executable, "-m", "fcac", "update", str(data / "m.fcac"), str(data / "m.npz")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_until_open(process, "m.npz")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    if (data / "m.fcac").read_bytes() == before:
        assert process.returncode == 130
        assert "interrupted" in err
    else:  # it was quicker than the signal
        assert process.returncode in (0, 130)
        assert load(data / "m.fcac").n_rounds_ == 2
