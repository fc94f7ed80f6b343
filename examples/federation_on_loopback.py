"""A federation on one machine: a hub and three sites as real processes, with keys and encryption.

Run ``python examples/federation_on_loopback.py [FOLDER]``; it needs ``pip install 'fcac[federation]'``. It writes
``report.html`` and ``labels.csv``. ``fcac federation rehearse`` does the same from the command line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fcac.deployment.rehearsal import rehearse


def main(folder: Path) -> None:
    """Set up, play two rounds, label rows at a site, and keep the report."""
    with tempfile.TemporaryDirectory() as place:
        root = rehearse(Path(place), n_sites=3, rounds=2, say=print)
        words = "federation label bundles/site-1 --data site-1-tables --state site-1-state --out labels.csv"
        print(f"$ fcac {words}", flush=True)
        subprocess.run([sys.executable, "-m", "fcac", *words.split()], cwd=place, check=True, timeout=600)
        shutil.copy(root / "state" / "report.html", folder / "report.html")
        shutil.copy(Path(place) / "labels.csv", folder / "labels.csv")
    print(f"Report: {folder / 'report.html'}; labels of one site: {folder / 'labels.csv'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
