"""The notebooks beside the examples: they agree with the scripts, are small, and run."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TOOL = runpy.run_path(str(EXAMPLES / "make_notebooks.py"))
NAMES = TOOL["NAMES"]


def cells_in(name: str) -> list[tuple[str, str]]:
    stored = json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    return [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]


def test_every_example_has_a_notebook_but_the_one_that_starts_processes() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"make_notebooks", "federation_on_loopback"}
    assert scripts == set(NAMES) == {path.stem for path in EXAMPLES.glob("*.ipynb")}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script_in_cells(name: str) -> None:
    assert cells_in(name) == TOOL["cells_of"](EXAMPLES / f"{name}.py"), f"run python examples/make_notebooks.py {name}"


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_there_and_small(name: str) -> None:
    text = (EXAMPLES / f"{name}.ipynb").read_text("utf-8")
    assert len(text) < 60_000
    outputs = [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]
    assert any(output["output_type"] == "stream" for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_ends_in_a_picture(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    for file in (*EXAMPLES.glob("*.sql"), *EXAMPLES.glob("*.toml")):
        shutil.copy(file, tmp_path)
    outputs = TOOL["run_cells"](cells_in(name))
    assert any(found for found in outputs), "it prints something"
    pictures = [path for path in (tmp_path / "out").iterdir() if path.suffix in (".png", ".html")]
    assert pictures
    assert all(path.stat().st_size > 5_000 for path in pictures)
