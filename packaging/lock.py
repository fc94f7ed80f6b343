"""Writes packaging/requirements.txt: what the image installs, each archive with its hash, for Linux on x86-64.

Run ``python packaging/lock.py`` with Python 3.11 on such a machine after constraints.txt has changed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The extras that hub and sites need, and what builds the package itself.
WANTED = [f"{HERE.parent}[federation,privacy,sql]", "setuptools>=77", "wheel"]


def resolved() -> list[tuple[str, str, str]]:
    """Return name, version and hash of every archive that would be installed."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    done = subprocess.run(
        [*pip, "--constraint", str(HERE.parent / "constraints.txt"), *WANTED],
        check=True,
        capture_output=True,
        text=True,
    )
    found = []
    for item in json.loads(done.stdout)["install"]:
        archive = item["download_info"].get("archive_info")
        if archive is not None:  # the package itself has none
            name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
            found.append((name, item["metadata"]["version"], archive["hashes"]["sha256"]))
    return sorted(found)


def main() -> None:
    """Write the file."""
    lines = ["# Made by packaging/lock.py, for Python 3.11 on Linux and x86-64."]
    lines += [f"{name}=={version} --hash=sha256:{digest}" for name, version, digest in resolved()]
    (HERE / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
