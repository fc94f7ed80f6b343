"""Prints a bill of materials (CycloneDX 1.5, JSON) of the environment whose Python runs it: what is installed, by whom
licensed, and by which hash it was asked for. ``packaging/install.sh`` keeps it as PREFIX/sbom.json.
"""

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

LOCK = Path(__file__).resolve().parent / "requirements.txt"


def component(found: Distribution, hashes: dict[str, str]) -> dict[str, object]:
    """Return what is known of one distribution."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    known: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": found.version,
        "purl": f"pkg:pypi/{name}@{found.version}",
    }
    licence = found.metadata["License-Expression"] or found.metadata["License"] or ""
    if licence:
        known["licenses"] = [{"license": {"name": licence.splitlines()[0][:100]}}]
    if f"{name}=={found.version}" in hashes:
        known["hashes"] = [{"alg": "SHA-256", "content": hashes[f"{name}=={found.version}"]}]
    return known


def main() -> None:
    """Print the bill of materials."""
    lines = LOCK.read_text().splitlines() if LOCK.exists() else []
    hashes = dict(re.findall(r"^(\S+) --hash=sha256:([0-9a-f]{64})$", "\n".join(lines), re.MULTILINE))
    here = {found.metadata["Name"].lower(): found for found in distributions()}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "fcac", "version": here["fcac"].version}},
        "components": [component(here[name], hashes) for name in sorted(here) if name != "fcac"],
    }
    json.dump(bill, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
