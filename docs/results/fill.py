"""Put stored results into the page of results and into the README, so that nobody copies numbers by hand.

``python docs/results/fill.py OUT/tables.json`` stores a run of ``fcac reproduce quality`` as ``quality.json.gz`` beside
this file and fills the page's table from it; without an argument all tables are filled from what is stored. A test
compares page and README with what this program would write.
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
README = HERE.parents[1] / "README.md"
PEERS = HERE / "one-table-peers.json.gz"
NOISY = HERE.parents[1] / "benchmarks" / "results" / "noisy_readout.json"
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


# ------------------------------------------------------------ the tables of the README


def readme(text: str) -> str:
    """Return the README with its tables replaced; each stands between marks that name it."""
    for name, rows in (("one table", _one_table()), ("federated", _federated()), ("private", _private())):
        begin, end = f"<!-- {name}: begin (written by docs/results/fill.py) -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        head, *body = rows
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
        shown = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        text = f"{before}{begin}\n{shown}\n{end}{rest.split(end)[1]}"
    return text


def _one_table() -> list[list[str]]:
    means = json.loads(gzip.decompress(PEERS.read_bytes()))["means"].values()
    methods = ("fcac", "HDBSCAN", "PLSCAN", "Genie (k given)", "k-means (k given)")
    found = {
        m: [float(np.mean([one[m][x][0] for one in means])) for x in ("ARI", "AMI", "right number")] for m in methods
    }
    rows = []
    for method, (ari, ami, right) in found.items():
        told = "(k given)" in method
        name = method.replace(" (k given)", ", told k") if told else f"{method}, told nothing"
        rows.append([name, _short(ari), _short(ami), "told" if told else f"{100 * right:.0f} %"])
    return [["", "ARI", "AMI", "right number"], *rows]


def _federated() -> list[list[str]]:
    entries = json.loads(gzip.decompress(SOURCE.read_bytes()))["entries"]
    found = {
        (e["method"], e["dataset"]): e["mean"]
        for e in entries
        if (e["measure"], e["scenario"], e["epsilon"]) == ("AMI", "non-iid", "inf")
    }
    names = {
        "communities": "fcac, told nothing",
        "FCAC": "the paper's FCAC, told nothing",
        "MUFC": "MUFC, told k",
        "k-FED": "k-FED, told k",
        "k-means": "k-means on all rows in one place, told k",
    }
    sets = ("optdigits", "pendigits")
    return [["", *sets], *([name, *(_short(found[method, s]) for s in sets)] for method, name in names.items())]


def _private() -> list[list[str]]:
    scores = json.loads(NOISY.read_text("utf-8"))["digits"]["scores"]
    names = {
        "communities": "fcac, told nothing",
        "DP-Lloyd, sites": "DP-Lloyd at every site, told k",
        "DP-Lloyd, central": "DP-Lloyd, all rows in one place, told k",
        "diffprivlib, central": "diffprivlib's k-means, all rows in one place, told k",
    }
    # epsilon 0.5, 1, 2, 4 and 8
    rows = [[name, *(_short(float(np.mean(scores[m][place]))) for place in (1, 2, 3))] for m, name in names.items()]
    return [["", "eps = 1", "eps = 2", "eps = 4"], *rows]


def _short(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


if __name__ == "__main__":
    for run in sys.argv[1:]:
        # no time in the file, so that the same results give the same bytes
        SOURCE.write_bytes(gzip.compress(Path(run).read_bytes(), 9, mtime=0))
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
    README.write_text(readme(README.read_text("utf-8")), "utf-8")
