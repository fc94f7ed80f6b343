"""Check what `make dist` has built: install the wheel in a clean environment, away from the sources, and use it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# files that are no Python code and that the installed package needs
DATA = (
    *("fcac/py.typed", "fcac/report/assets/report.css", "fcac/report/assets/report.js", "fcac/report/templates/"),
    *("fcac/deployment/console/assets/", "fcac/paper/configs/"),
)
IN_SOURCE = ("LICENSE", "README.md", "pyproject.toml", "src/fcac/report/assets/report.css")
TRIAL = """
import numpy as np
import fcac
from fcac.report import write_report
rng = np.random.default_rng(0)
rows = np.concatenate([rng.normal(c, 1.0, size=(300, 3)) for c in (0.0, 9.0)])
model = fcac.FCAC(random_state=0).fit(rows)
assert model.n_clusters_ == 2, model.n_clusters_
write_report(model, "report.html", rows)
fcac.save(model, "model.fcac")
print("fcac", fcac.__version__, "from", fcac.__file__)
"""


def missing(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """Return what is wanted and not there; a name that ends with a slash is a folder."""
    return [one for one in wanted if not any(name == one or (one.endswith("/") and one in name) for name in names)]


def main(folder: Path) -> int:
    """Check the one wheel and the one source archive in a folder."""
    wheels, archives = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        print(f"{folder} should hold one wheel and one source archive, it holds {len(wheels)} and {len(archives)}")
        return 1
    lacking = missing(zipfile.ZipFile(wheels[0]).namelist(), DATA)
    with tarfile.open(archives[0]) as archive:
        lacking += missing([name.partition("/")[2] for name in archive.getnames()], IN_SOURCE)
    if lacking:
        print(f"left out: {', '.join(lacking)}")
        return 1
    environment = {name: value for name, value in os.environ.items() if not re.match("PYTHON|VIRTUAL_ENV", name)}
    with tempfile.TemporaryDirectory() as clean:

        def run(*words: str | Path) -> None:
            subprocess.run([str(word) for word in words], check=True, cwd=clean, env=environment)

        run(sys.executable, "-m", "venv", "venv")
        python = Path(clean, "venv", "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheels[0].resolve())
        run(python, "-c", TRIAL)
        run(python.with_name("fcac"), "inspect", "model.fcac")
        run(python.with_name("fcac"), "demo", "--out", "demo")
    print(f"Checked: {wheels[0].name} installs and works in a clean environment; {archives[0].name} is complete.")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
