"""What an operator installs: units for systemd, settings of a proxy, an entry point of the image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import click
import pytest

from fcac._version import __version__
from fcac.tables.schema import Schema

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = ROOT / "packaging"
_STREAM = Path("/usr/lib/nginx/modules/ngx_stream_module.so")


def run(*command, **settings):
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=600, **settings
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
@pytest.mark.parametrize("unit", ["fcac-hub.service", "fcac-rounds.service", "fcac-site@.service"])
def test_units(unit, tmp_path):
    for path in (PACKAGING / "systemd").iterdir():  # all, since they name each other
        # the program is not installed where the unit says
        text = path.read_text().replace("/opt/fcac/bin/fcac", sys.executable)
        (tmp_path / path.name.replace("@.", "@north.")).write_text(text)
    place = tmp_path / unit.replace("@.", "@north.")
    done = run("systemd-analyze", "verify", place)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if place.stem in line or unit in line]
    assert mine == []


@pytest.mark.skipif(not _STREAM.exists(), reason="no nginx with its stream module on this machine")
def test_proxy(tmp_path):
    text = (PACKAGING / "nginx" / "fcac-hub.conf").read_text()
    text = f"load_module {_STREAM};\n" + text  # Debian has it as a module of its own
    place = tmp_path / "nginx.conf"
    place.write_text(text)
    done = run(shutil.which("nginx") or "/usr/sbin/nginx", "-t", "-p", tmp_path, "-c", place, "-e", "stderr")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_entry_point(tmp_path):
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "fcac").write_text(f'#!/bin/sh\nexec {sys.executable} -m fcac "$@"\n')
    (shim / "fcac").chmod(0o755)
    env = os.environ | {"PATH": f"{shim}:{os.environ['PATH']}"}
    program = PACKAGING / "entrypoint.sh"
    for role, missing in (("hub", "FCAC_STUDY"), ("site", "FCAC_BUNDLE"), ("healthy", "FCAC_STUDY")):
        done = run("sh", program, role, cwd=tmp_path, env=env)
        assert done.returncode == 2
        assert missing in done.stderr
    assert run("sh", program, "nonsense", cwd=tmp_path, env=env).returncode == 2
    (tmp_path / "schema.toml").write_text(Schema(["x"]).to_toml())
    made = run(
        "sh", program, "fcac", "federation", "init", "study", "--schema", "schema.toml",
        "--address", "127.0.0.1:9", cwd=tmp_path, env=env,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert run("sh", program, "healthy", cwd=tmp_path, env=env).returncode == 0


def make_wheel(folder):
    """Return a wheel of this source, made without anything that would have to be fetched."""
    about = f"fcac-{__version__}.dist-info"
    path = folder / f"fcac-{__version__}-py3-none-any.whl"
    texts = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: fcac\nVersion: {__version__}\n"
        "Provides-Extra: federation\nProvides-Extra: privacy\nProvides-Extra: sql\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\nfcac = fcac.cli:main\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((ROOT / "src" / "fcac").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT / "src"))
        for name, text in texts.items():
            archive.writestr(name, text)
        archive.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*archive.namelist(), f"{about}/RECORD"]))
    return path


@pytest.mark.slow
def test_the_images_steps_without_docker(tmp_path):
    """The script that builds the image, and the entry point it installs, with the libraries that are here already."""
    wheel = make_wheel(tmp_path)
    libraries = Path(click.__file__).parents[1]
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(libraries),
        "FCAC_PIP_OPTIONS": "--no-index --no-deps --quiet",
    }
    prefix, copied = tmp_path / "opt", tmp_path / "packaging"
    shutil.copytree(PACKAGING, copied)
    # of what the image installs, that which is here; with its hash
    names = [
        (re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one) for one in distributions(path=[str(libraries)])
    ]
    here = {f"{name}=={one.version}" for name, one in names}
    wanted = (PACKAGING / "requirements.txt").read_text().splitlines()[1:]
    kept = [one for one in wanted if one.partition(" ")[0] in here and not one.startswith(("setuptools", "wheel"))]
    assert len(kept) > 10
    (copied / "requirements.txt").write_text("\n".join(kept))
    done = run("sh", copied / "install.sh", wheel, prefix, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1].startswith("fcac ")
    bill = json.loads((prefix / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    assert {"aiohttp", "cryptography", "opendp", "numpy"} <= {part["name"] for part in bill["components"]}
    (tmp_path / "schema.toml").write_text(Schema(["x"]).to_toml())
    env["PATH"] = f"{prefix}/bin:{env['PATH']}"
    entry = prefix / "bin" / "fcac-entrypoint"
    init = ["fcac", "federation", "init", "study", "--schema", "schema.toml"]
    made = run(entry, *init, "--address", "127.0.0.1:9", cwd=tmp_path, env=env)
    assert made.returncode == 0, made.stderr
    assert run(entry, "healthy", cwd=tmp_path, env=env).returncode == 0


def test_every_archive_of_the_image_has_a_hash_and_the_versions_of_the_constraints():
    lines = (PACKAGING / "requirements.txt").read_text().splitlines()[1:]
    found = [re.fullmatch(r"([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert len(found) > 30
    lines = (ROOT / "constraints.txt").read_text().split()
    held = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower(): line.partition("==")[2] for line in lines}
    for match in found:
        assert held.get(match[1], match[2]) == match[2], match[1]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *known["dependencies"],
        *(one for extra in ("federation", "privacy", "sql") for one in known["optional-dependencies"][extra]),
    ]
    assert {re.match(r"[A-Za-z0-9-]+", one)[0] for one in wanted} <= {match[1] for match in found}


def test_image_and_compose_name_what_there_is():
    image = (PACKAGING / "Dockerfile").read_text()
    assert "packaging/install.sh" in image
    assert re.findall(r"^FROM (?!base)(\S+)", image, re.MULTILINE) == re.findall(
        r"python:3.11-slim@sha256:[0-9a-f]{64}", image
    )
    extras = re.search(r"source\[(.*?)\]", (PACKAGING / "install.sh").read_text())[1].split(",")
    assert f"[{','.join(extras)}]" in (PACKAGING / "lock.py").read_text()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    for source in re.findall(r"^COPY (?!--from)(\S+) ", image, re.MULTILINE):
        assert (ROOT / source).exists()
    assert "USER fcac" in image
    compose = (PACKAGING / "compose.yaml").read_text()
    assert "packaging/Dockerfile" in compose
    assert compose.count("read_only: true") == 1
