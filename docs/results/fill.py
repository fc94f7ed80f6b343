"""Put the results of ``fcac reproduce quality`` into the page of results, so that nobody copies numbers by hand.

``python docs/results/fill.py OUT/tables.json`` stores a run's results as ``quality.json.gz`` beside this file and fills
the page's table from them; without an argument it fills the table from the stored results. A test compares the page
with what this program would write.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

HERE = Path(__file__).parent
SOURCE = HERE / "quality.json.gz"
PAGE = HERE / "index.md"
BEGIN = "<!-- results: begin (written by docs/results/fill.py) -->"
END = "<!-- results: end -->"

# What the run calls a method -> what the table calls it. The first two are ours and are not told how many clusters.
METHODS = {
    "communities": "`communities`",
    "FCAC": "`cae-fc` (the paper's)",
    "MUFC": "MUFC",
    "k-means": "k-means, merged data",
    "FedFCM": "FedFCM",
    "k-FED": "k-FED",
}
EMPTY = """\
No full run is stored yet: `python docs/results/fill.py OUT/tables.json` fills this table."""


def table(source: Path = SOURCE) -> str:
    """Return the table: AMI by data set on sites that differ, without noise, and the average rank."""
    if not source.exists():
        return EMPTY
    found = json.loads(gzip.decompress(source.read_bytes()))
    scores = {
        (e["dataset"], e["method"]): e
        for e in found["entries"]
        if e["measure"] == "AMI" and e["scenario"] == "non-iid" and e["epsilon"] == "inf"
    }
    methods = [name for name in METHODS if any(method == name for _, method in scores)]
    lines = [
        "| data set | " + " | ".join(METHODS[name] for name in methods) + " |",
        "|---|" + "---:|" * len(methods),
    ]
    for dataset in dict.fromkeys(name for name, _ in scores):
        row = [scores.get((dataset, name)) for name in methods]
        best = max(e["mean"] for e in row if e is not None)
        lines.append(f"| {dataset} | " + " | ".join(_cell(e, best) for e in row) + " |")
    ranks = _ranks(found, methods)
    if ranks:
        lines.append("| average rank | " + " | ".join(f"{ranks[name]:.2f}" for name in methods) + " |")
    fewer = [(key, e["n_trials"]) for key, e in scores.items() if e["n_trials"] < 20 and key[1] in methods]
    if fewer:
        lines += ["", "Fewer trials: " + "; ".join(f"{d}, {METHODS[m]}: {n}" for (d, m), n in fewer) + "."]
    return "\n".join(lines)


def _cell(entry: dict[str, Any] | None, best: float) -> str:
    if entry is None:
        return "not run"
    text = f"{entry['mean']:.3f}"
    return f"**{text}**" if entry["mean"] == best else text


def _ranks(found: dict[str, Any], methods: list[str]) -> dict[str, float]:
    """Return the methods' average ranks over sets, scenarios and measures, or nothing if a cell is missing."""
    blocks: dict[tuple[str, str, str], dict[str, float]] = {}
    for e in found["entries"]:
        if e["measure"] in ("ARI", "AMI", "NMI") and e["epsilon"] == "inf" and e["method"] in methods:
            blocks.setdefault((e["dataset"], e["scenario"], e["measure"]), {})[e["method"]] = round(e["mean"], 4)
    if any(set(block) != set(methods) for block in blocks.values()):
        return {}
    ranks = np.mean([rankdata([-block[name] for name in methods]) for block in blocks.values()], axis=0)
    return dict(zip(methods, ranks.tolist(), strict=True))


def filled(text: str, source: Path = SOURCE) -> str:
    """Return a text with the table between the marks replaced."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table(source)}\n{END}{after}"


if __name__ == "__main__":
    for run in sys.argv[1:]:
        # no time in the file, so that the same results give the same bytes
        SOURCE.write_bytes(gzip.compress(Path(run).read_bytes(), 9, mtime=0))
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
