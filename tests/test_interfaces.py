"""Adding a server, a mechanism, a kind of column or a command means adding one file: CONTRIBUTING.md keeps its word."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fcac
from testing.waiting import PATIENCE

CONTRIBUTING = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
# Where the first code block of a section goes; the second one is its test.
FILES = {
    "Add a server": "federation/readouts/one_each.py",
    "Add a privacy mechanism": "privacy/mechanisms/unprotected_rows.py",
    "Add a kind of column": "tables/kinds/angle.py",
    "Add a command": "cli/commands/hello.py",
}

# What the tests in CONTRIBUTING.md leave out: other users of a new server, mechanism, kind and command.
TEST_OF_ALL = """
import json

import numpy as np
import pandas as pd

from fcac import FCAC, load, save
from fcac.cli import run
from fcac.federation import readouts
from fcac.privacy import mechanisms
from fcac.privacy.mechanisms.unprotected_rows import UnprotectedRows
from fcac.tables import Schema
from fcac.tables.column import Column

rows = np.random.default_rng(0).normal(size=(400, 2)) * 5


def test_a_model_with_a_new_server_and_a_new_mechanism(tmp_path, capfd):
    assert "one-each" in readouts.names()
    assert "UnprotectedRows" in mechanisms.names()
    model = FCAC(server="one-each", privacy=UnprotectedRows(), random_state=0).fit(rows, groups=np.arange(400) % 2)
    assert model.n_clusters_ == len(model.server_.nodes)
    model.partial_fit({2: rows}).forget(2)
    path = tmp_path / "m.fcac"
    save(model, path)
    again = load(path)
    assert (again.predict(rows) == model.predict(rows)).all()
    assert run(["inspect", str(path)]) == 0
    assert "rows as they are: no guarantee" in capfd.readouterr().out
    assert run(["inspect", str(path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["privacy"] == {"mechanism": "UnprotectedRows", "rounds": 1}
    assert run(["report", str(path), "--out", str(tmp_path / "r.html")]) == 0
    report = (tmp_path / "r.html").read_text("utf-8")
    assert "No privacy guarantee: rows as they are." in report
    assert "Laplace" not in report


def test_commands_know_the_new_server(tmp_path):
    table = tmp_path / "x.csv"
    table.write_text("a,b\\n" + "\\n".join(f"{a},{b}" for a, b in rows))
    fit = ["fit", str(table), "--server", "one-each", "--out", str(tmp_path / "n.fcac")]
    assert run(fit) == 0
    assert run([*fit, "--clusters", "3", "--force"]) == 2


def test_a_schema_and_a_report_know_the_new_kind(tmp_path):
    schema = Schema([Column("wind", kind="angle"), "speed"])
    schema.save(tmp_path / "s.toml")
    assert Schema.load(tmp_path / "s.toml") == schema
    frame = pd.DataFrame({"wind": np.where(rows[:, 0] > 0, 90, 270) + rows[:, 1], "speed": rows[:, 1]})
    model = FCAC(random_state=0).fit(frame, schema=schema)
    save(model, tmp_path / "m.fcac")
    assert run(["report", str(tmp_path / "m.fcac"), "--out", str(tmp_path / "r.html")]) == 0
    assert "wind.sin" in (tmp_path / "r.html").read_text("utf-8")


def test_help_lists_the_new_command(capfd):
    assert run(["--help"]) == 0
    assert "hello" in capfd.readouterr().out
"""


@pytest.mark.slow
def test_what_contributing_adds_is_one_file_each(tmp_path: Path) -> None:
    package, tests = tmp_path / "lib" / "fcac", tmp_path / "tests"
    shutil.copytree(Path(fcac.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    tests.mkdir()
    text = CONTRIBUTING.read_text("utf-8")
    for section, file in FILES.items():
        found = re.search(rf"^## {section}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
        assert found is not None, section
        assert f"`{Path(file).name}`" in found[1], f"{section}: say that the file is {Path(file).name}"
        source, test = re.findall(r"^```python\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)
        (package / file).write_text(source, "utf-8")
        (tests / f"test_{Path(file).name}").write_text(test, "utf-8")
    (tests / "test_all.py").write_text(TEST_OF_ALL, "utf-8")
    (tests / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, tests],
        env={"PYTHONPATH": str(tmp_path / "lib"), "PATH": "", "HOME": str(tmp_path)},
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
