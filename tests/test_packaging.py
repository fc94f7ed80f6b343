"""What is handed out works: wheel and sdist are whole, the core needs no extra, a missing one is named in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

import fcac
from testing.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")
BUILD = """\
import sys
from setuptools import build_meta

out = sys.argv[1]
build_meta.build_wheel(out)
build_meta.build_sdist(out)
"""
# Stands in for an environment without an extra: importing any of these modules fails as if it were not installed.
WITHOUT = """\
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from fcac.cli import run
sys.exit(max(run(command.split()) for command in sys.argv[1:]))
"""


pytestmark = pytest.mark.slow  # builds and starts programs


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"} | environment
    return subprocess.run(
        list(command), check=False, capture_output=True, text=True, cwd=cwd, env=given, timeout=PATIENCE
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel and an sdist, built from a copy of the sources."""
    place = tmp_path_factory.mktemp("build")
    source, out = place / "source", place / "dist"
    out.mkdir()
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.nbi", "*.nbc")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source / name)
    path = ""
    if int(metadata.version("setuptools").partition(".")[0]) < 77:
        # an old setuptools came with the environment: take the one that pyproject.toml asks for
        path = str(place / "setuptools")
        done = run(
            sys.executable, "-m", "pip", "install", "-q", "--target", path, "setuptools>=77", "-c",
            ROOT / "constraints.txt", cwd=place,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    done = run(sys.executable, "-c", BUILD, out, cwd=source, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked, which is all that installing a pure wheel does."""
    place = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return place


def test_wheel_holds_everything_and_nothing_else(unpacked: Path) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "fcac").rglob("*")
        if path.suffix in (".py", ".json", ".typed") and "__pycache__" not in path.parts
    }
    assert {"fcac/py.typed", "fcac/paper/paper_tables.json", "fcac/flower/server_app.py"} <= wanted
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in held if ".dist-info/" not in name} == wanted


def test_wheel_says_what_it_is(unpacked: Path) -> None:
    info = next(unpacked.glob("*.dist-info"))
    about = Parser().parsestr((info / "METADATA").read_text("utf-8"))
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("fcac", fcac.__version__, "MIT")
    assert about["Requires-Python"] == ">=3.11"
    assert set(about.get_all("Provides-Extra", [])) >= {"privacy", "flower", "experiments"}
    assert (info / "licenses" / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
    assert "fcac = fcac.cli:main" in (info / "entry_points.txt").read_text("utf-8")


def test_sdist_can_be_built_from(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/fcac/py.typed"} <= names
    assert "src/fcac/paper/paper_tables.json" in names


def test_unpacked_wheel_imports_and_tells_its_version(unpacked: Path, tmp_path: Path) -> None:
    here = {"PYTHONPATH": str(unpacked)}
    done = run(sys.executable, "-c", "import fcac; print(fcac.__file__); fcac.FCAC", cwd=tmp_path, **here)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(unpacked / "fcac" / "__init__.py")
    done = run(sys.executable, "-m", "fcac", "--version", cwd=tmp_path, **here)
    assert (done.returncode, done.stdout) == (0, f"fcac {fcac.__version__}\n"), done.stderr


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("numba", "sklearn", "scipy", "pyarrow", "plotly", "opendp", "flwr", "matplotlib", "pandas")
    for modules in ("fcac", "fcac.paper", "fcac.cli.commands.reproduce"):
        code = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
        done = run(sys.executable, "-c", code, cwd=tmp_path)
        assert done.stdout == "[]\n", modules + done.stdout + done.stderr


@pytest.mark.parametrize(
    ("blocked", "arguments", "extra"),
    [
        (("opendp",), "fit rows.csv --schema schema.toml --epsilon 2 --out private.fcac", "privacy"),
        (("opendp",), "audit --epsilon 2 --runs 100", "privacy"),
        (("flwr", "cryptography"), "federation init study --sites a,b --schema schema.toml", "flower"),
        (("matplotlib",), "reproduce figures --out figures", "experiments"),
        (("scikit_posthocs",), "reproduce tables --quick --out tables", "experiments"),
        (("pandas",), "reproduce privacy --quick --out privacy", "experiments"),
        (("scikit_posthocs",), "reproduce quality --quick --out quality", "experiments"),
        (("matplotlib", "pandas", "scikit_posthocs"), "reproduce all --quick --out out", "experiments"),
    ],
)
def test_missing_extra_is_named_in_one_line(
    blocked: tuple[str, ...], arguments: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(200)))
    (tmp_path / "schema.toml").write_text(
        "fcac_schema = 1\nbounds_are_public = true\n[columns]\nx = { min = 0, max = 9 }\ny = { min = 0, max = 9 }\n"
    )
    before = sorted(tmp_path.iterdir())
    done = run(sys.executable, "-c", WITHOUT.format(blocked=blocked), arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    if extra == "experiments":
        assert sorted(tmp_path.iterdir()) == before, "nothing is started or written before it says so"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, done.stderr
    assert f"pip install 'fcac[{extra}]'" in lines[0]


def test_core_works_without_any_extra(tmp_path: Path) -> None:
    every = ("opendp", "flwr", "cryptography", "matplotlib", "scikit_posthocs", "pandas", "river", "zensical")
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(200)))
    commands = (
        "fit rows.csv --out model.fcac --report report.html",
        "predict model.fcac rows.csv --out labels.parquet",
        "inspect model.fcac",
    )
    done = run(sys.executable, "-c", WITHOUT.format(blocked=every), *commands, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_installs_and_works_in_an_empty_environment(built: Path, kind: str, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    package = next(built.glob(kind))
    done = run(python, "-m", "pip", "install", "-q", package, "-c", ROOT / "constraints.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "empty" / "bin" / "fcac", "demo", "--out", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[-1]).name == "report.html"
    done = run(python, "-m", "fcac", "federation", "status", "demo", cwd=tmp_path)
    assert "fcac[flower]" in done.stderr or "federation" in done.stderr
    assert done.returncode != 0
