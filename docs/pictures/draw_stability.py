"""Draw how stability, which needs no labels, goes with the quality of clusters, which does.

    python docs/pictures/draw_stability.py [--data DIR]

Tables are scikit-learn's toy sets, Gaussians at several distances, single clusters and, if DIR holds ``shapes/*.npz``,
shape sets. Every table is clustered by `FCAC()`; a dot is one table. Writes stability.svg and stability.json beside
this file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn import datasets
from sklearn.metrics import adjusted_mutual_info_score as ami

from fcac import FCAC

HERE = Path(__file__).parent
COLOURS = {"toy sets": "#0072B2", "Gaussians": "#009E73", "one cluster": "#D55E00", "shapes": "#CC79A7"}


def tables(data: Path | None) -> Iterator[tuple[str, str, Any, list[Any]]]:
    """Yield a group, a name, rows and reference labels (0: noise, left out)."""
    for name, load in (("digits", datasets.load_digits), ("wine", datasets.load_wine), ("iris", datasets.load_iris),
                       ("breast cancer", datasets.load_breast_cancer)):  # fmt: skip
        X, y = load(return_X_y=True)
        yield "toy sets", name, X, [y + 1]
    for n in (300, 1000, 3000):
        for noise in (0.05, 0.1, 0.15):
            X, y = datasets.make_moons(n, noise=noise, random_state=0)
            yield "toy sets", f"moons {n} {noise}", X, [y + 1]
        X, y = datasets.make_circles(n, factor=0.5, noise=0.06, random_state=0)
        yield "toy sets", f"circles {n}", X, [y + 1]
    for k in (3, 10):
        for distance in (2.5, 3.0, 3.5, 4.0, 5.0, 7.0):
            rng = np.random.default_rng(k)
            y = rng.integers(k, size=1500)
            X = rng.normal(size=(1500, 2)) + distance * np.stack([y % 4, y // 4], axis=1)
            yield "Gaussians", f"{k} at {distance}", X, [y + 1]
    for d in (1, 2, 10, 30):
        for n in (300, 3000):
            rng = np.random.default_rng(d)
            for kind, X in (("normal", rng.normal(size=(n, d))), ("lognormal", np.exp(rng.normal(size=(n, d))))):
                yield "one cluster", f"{kind} {n} x {d}", X, [np.ones(n, np.int64)]
    for path in sorted((data / "shapes").glob("*.npz")) if data else []:
        with np.load(path) as held:
            if len(held["X"]) <= 12_000:
                yield "shapes", path.stem, held["X"].astype(float), [held[y] for y in sorted(held.files) if y != "X"]


def main() -> None:
    """Cluster all tables and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    found = []
    for group, name, X, truths in tables(parser.parse_args().data):
        model = FCAC(random_state=0).fit(X)
        label = model.labels_
        quality = max(
            float(label.max() == label.min()) if len(np.unique(y)) == 1 else float(ami(y[y > 0], label[y > 0]))
            for y in truths
        )
        found.append({"group": group, "table": name, "clusters": int(model.n_clusters_), "ami": round(quality, 3),
                      "stability": round(model.stability_, 3)})  # fmt: skip
        print(found[-1], flush=True)
    numbers = {
        which: {
            "tables": len(some),
            "spearman": round(float(spearmanr([f["stability"] for f in some], [f["ami"] for f in some])[0]), 2),
        }
        for which, some in (
            ("all", found),
            ("more than one cluster found", [f for f in found if f["clusters"] > 1]),
        )
    }
    (HERE / "stability.json").write_text(json.dumps({"correlation": numbers, "tables": found}, indent=1) + "\n")
    (HERE / "stability.svg").write_text(drawn(found, numbers))
    print(numbers)


def drawn(found: list[dict[str, Any]], numbers: dict[str, Any]) -> str:
    """Return the picture."""
    left, top, size = 60, 30, 340

    def x(value: float) -> float:
        return left + size * value

    def y(value: float) -> float:
        return top + size * (1 - max(value, 0.0))

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 430" font-family="sans-serif" font-size="13">',
        '<rect width="600" height="430" fill="white"/>',
        f'<rect x="{left}" y="{top}" width="{size * 0.6:.0f}" height="{size}" fill="#eee"/>',
        f'<text x="{x(0.02):.0f}" y="{y(0.03):.0f}" fill="#555">below 0.6: not stable</text>',
    ]
    for value in (0, 0.25, 0.5, 0.75, 1):
        out.append(f'<line x1="{left}" x2="{left + size}" y1="{y(value)}" y2="{y(value)}" stroke="#ccc"/>')
        out.append(f'<text x="{left - 8}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>')
        out.append(f'<text x="{x(value)}" y="{top + size + 18}" text-anchor="middle">{value:g}</text>')
    for f in found:
        shape = f'cx="{x(f["stability"]):.1f}" cy="{y(f["ami"]):.1f}" r="4.5" fill="{COLOURS[f["group"]]}"'
        hollow = ' fill-opacity="0.15"' if f["clusters"] == 1 else ' fill-opacity="0.75"'
        out.append(f'<circle {shape}{hollow} stroke="{COLOURS[f["group"]]}"><title>{f["table"]}</title></circle>')
    out.append(f'<text x="{left + size / 2}" y="{top + size + 40}" text-anchor="middle">stability (no labels)</text>')
    out.append(f'<text transform="translate(18 {top + size / 2}) rotate(-90)" text-anchor="middle">AMI</text>')
    present = [group for group in COLOURS if any(f["group"] == group for f in found)]
    for i, group in enumerate(present):
        out.append(f'<circle cx="425" cy="{top + 10 + 22 * i}" r="5" fill="{COLOURS[group]}"/>')
        out.append(f'<text x="436" y="{top + 15 + 22 * i}">{group}</text>')
    below = top + 30 + 22 * len(present)
    out.append(f'<text x="420" y="{below}" fill="#555">pale: one cluster found</text>')
    out.append(f'<text x="420" y="{below + 30}">rank correlation</text>')
    out.append(f'<text x="420" y="{below + 48}">{numbers["all"]["spearman"]:.2f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
