"""Make the notebooks beside the examples: the same code in cells, run once, with what it prints and draws.

Run ``python examples/make_notebooks.py [NAME ...]`` after changing an example. The scripts are the source: the module's
opening text becomes the first cell, each function a cell, and ``main`` is unfolded, one cell for each paragraph; a
comment above a paragraph becomes text. The tests check that notebooks and scripts agree, and run the notebooks.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMES = ("hospitals", "phones", "drifting_stream", "omop_hospitals", "short_texts")
_SCRIPT_ONLY = (
    "from __future__ import annotations",
    "import sys",
    "import matplotlib",
    'matplotlib.use("Agg")',
    "plt.close(figure)",
)


def cells_of(script: Path) -> list[tuple[str, str]]:
    """Return the cells of an example's notebook: (markdown or code, text)."""
    source = script.read_text("utf-8")
    tree = ast.parse(source)
    lines = source.splitlines()
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    main = functions.pop("main")
    begin, end = tree.body[0].end_lineno or 0, min(node.lineno for node in (*functions.values(), main))
    setting_up = "\n".join(lines[begin : end - 1]).replace("Path(__file__).parent", "Path.cwd()")
    cells = [("markdown", _first_cell(script.stem, ast.get_docstring(tree) or ""))]
    cells.append(("code", f'{_plain(setting_up)}\n\nfolder = Path("out")\nfolder.mkdir(exist_ok=True)'))
    cells += [("code", _plain("\n".join(lines[node.lineno - 1 : node.end_lineno]))) for node in functions.values()]
    opening = main.body[0].end_lineno or 0  # the docstring of main
    body = textwrap.dedent("\n".join(lines[opening : main.end_lineno]))
    for paragraph in re.split(r"\n\s*\n", body.strip("\n")):
        said = re.match(r"(?:# .*\n)+", paragraph)
        if said:
            cells.append(("markdown", said[0].replace("# ", "").strip()))
        cells.append(("code", _plain(paragraph[said.end() if said else 0 :])))
    return cells


def _first_cell(name: str, opening: str) -> str:
    """The opening of a script as text, without how to run the script."""
    title, *rest = re.split(r"\n\s*\n", opening)
    kept = [part for part in rest if not part.startswith("Run ``")]
    # a command that follows a double colon is indented
    kept = [f"```\n{part.strip()}\n```" if part.startswith("    ") else part.replace("``", "`") for part in kept]
    kept = [part.removesuffix(":") if part.endswith("::") else part for part in kept]
    return "\n\n".join([f"# {title.rstrip('.')}", *kept, f"*Made from `{name}.py` by `make_notebooks.py`.*"])


def _plain(text: str) -> str:
    """Return code without what makes sense in a script only: a notebook shows figures that are left open."""
    kept = [line for line in text.splitlines() if line.strip() not in _SCRIPT_ONLY]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")


def run_cells(cells: list[tuple[str, str]], show: bool = True) -> list[list[dict[str, Any]]]:
    """Run the code of a notebook in the current directory; return the outputs of each cell, as Jupyter stores them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs: list[list[dict[str, Any]]] = []
    for kind, text in cells:
        found: list[dict[str, Any]] = []
        if kind == "code":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, "<cell>", "exec"), names)
            if out.getvalue():
                found.append({"output_type": "stream", "name": "stdout", "text": out.getvalue().splitlines(True)})
            if show:
                found += [
                    {"output_type": "display_data", "data": {"image/png": figure}, "metadata": {}}
                    for figure in _figures()
                ]
        outputs.append(found)
    return outputs


def _figures() -> list[str]:
    """The open figures as PNG, closed afterwards: what Jupyter shows below a cell."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    drawn = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=60)
        drawn.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return drawn


def notebook(cells: list[tuple[str, str]], outputs: list[list[dict[str, Any]]]) -> str:
    """Return the text of a notebook file, format 4.5."""
    listed = []
    for number, ((kind, text), found) in enumerate(zip(cells, outputs, strict=True)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": found}
        listed.append(cell | {"source": text.splitlines(True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": listed, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def main() -> None:
    """Make the notebooks that are named, or all."""
    os.environ["MPLBACKEND"] = "Agg"
    for name in sys.argv[1:] or NAMES:
        cells = cells_of(HERE / f"{name}.py")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for beside in HERE.glob("*.sql"), HERE.glob("*.toml"):
                for file in beside:
                    Path(file.name).write_bytes(file.read_bytes())
            outputs = run_cells(cells)
        (HERE / f"{name}.ipynb").write_text(notebook(cells, outputs), "utf-8")
        print(f"{name}.ipynb: {len(cells)} cells, {(HERE / f'{name}.ipynb').stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
