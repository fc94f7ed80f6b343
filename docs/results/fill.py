"""Put stored results into the pages of results and into the README, so that nobody copies numbers by hand.

``python docs/results/fill.py OUT/tables.json`` stores a run of ``fcac reproduce quality`` as ``quality.json.gz`` beside
this file and fills the page's table from it; without an argument all tables are filled from what is stored. A test
compares pages and README with what this program would write.
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
ONE_TABLE = HERE / "one-table.md"
HOW_GOOD = HERE / "how-good.md"
JUDGE = HERE.parents[1] / "benchmarks" / "results" / "judge.json"
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
# Ours, and what is only compared with ourselves.
OURS = ("fcac", "fcac (k given)", "communities")
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


# ------------------------------------------------------------ tables between marks that name them


def readme(text: str) -> str:
    """Return the README with its tables replaced."""
    for name, rows in (("one table", _families()), ("federated", _federated()), ("private", _private())):
        text = _between_marks(text, name, rows)
    return text


def one_table(text: str) -> str:
    """Return the page about one table with the figures of its fit replaced."""
    return _between_marks(text, "families", _families() + _fit())


def _between_marks(text: str, name: str, rows: list[list[str]]) -> str:
    begin, end = f"<!-- {name}: begin (written by docs/results/fill.py) -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    shown = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{before}{begin}\n{shown}\n{end}{rest.split(end)[1]}"


def _families() -> list[list[str]]:
    """What the judge reaches on families of tables that were left out of its fit."""
    found = json.loads(JUDGE.read_text("utf-8"))
    several, error = found["several"], found["calibration error"]
    return [
        ["families that were left out of the fit", ""],
        ["several clusters, told nothing: mean ARI", _short(several["ari"])],
        ["the same: number of clusters right", _percent(several["right"])],
        ["the same: answered by one cluster", _percent(several["one"])],
        ["several clusters, told the number: mean ARI", _short(several["told"])],
        ["a single cluster stays one", _percent(found["single stays whole"])],
        ["calibration error of borders", _short(error["border"], 3)],
        ['calibration error of "the number is right"', _short(error["number"], 3)],
    ]


def _fit() -> list[list[str]]:
    """How large the fit was, and where the judge is worst."""
    found = json.loads(JUDGE.read_text("utf-8"))
    groups = {name: one for name, one in found["groups"].items() if one["n"] >= 20}  # fewer say little
    worst = sorted(groups, key=lambda name: groups[name]["ari"])[:4]
    return [
        ["worst groups: mean ARI", ", ".join(f"{n.replace('_', ' ')} {_short(groups[n]['ari'])}" for n in worst)],
        ["tables, families, groups", f"{found['tables']:,}, {found['families']}, {len(found['groups'])}"],
    ]


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


# ------------------------------------------------------------ the page "How good is it?"


def how_good(text: str) -> str:
    """Return the page "How good is it?" with its two tables replaced."""
    return _between_marks(_between_marks(text, "five figures", _five_figures()), "others are better", _others())


def _run(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    return found


def _mean(run: dict[str, Any], method: str, measure: str) -> float:
    """Mean of a measure over the sets of a run on which the method was measured."""
    return float(np.mean([own[method][measure][0] for own in run["means"].values() if measure in own.get(method, {})]))


def _five_figures() -> list[list[str]]:
    judge = json.loads(JUDGE.read_text("utf-8"))
    table, private = _run("one-table-peers"), _run("private")
    ranks = table["ranks"]["ARI"]["average_ranks"]
    rival = min((name for name in ranks if name != "fcac" and "k given" not in name), key=ranks.__getitem__)
    dp = min((m for m in private["ranks"]["AMI"]["average_ranks"] if not m.startswith("NodeRelease")),
             key=private["ranks"]["AMI"]["average_ranks"].__getitem__)  # fmt: skip
    seconds = {name: _mean(table, name, "CPU s") for name in ("fcac", "HDBSCAN", "k-means (k given)")}
    return [
        ["question", "answer"],
        ["Does it find the clusters of a table of a kind it has not seen?",
         f"mean ARI {_short(judge['several']['ari'])}; the number is right in {_percent(judge['several']['right'])}"],
        ["Does it leave one cluster alone?", f"{_percent(judge['single stays whole'])} of single clusters stay one"],
        ["Is it better than others that are told nothing?",
         f"average rank {ranks['fcac']:.1f} of {len(ranks)} by ARI; the next of them {rival}, {ranks[rival]:.1f}"],
        ["And under privacy?",
         f"mean AMI {_short(_mean(private, 'NodeRelease, summed', 'AMI'))} summed over sites, eps .5 to 8; "
         f"the best other method, {dp}: {_short(_mean(private, dp, 'AMI'))}"],
        ["What does it cost?", "; ".join(f"{name} {s:.2f} s" for name, s in seconds.items()) + " of CPU a table"],
    ]  # fmt: skip


def _others() -> list[list[str]]:
    """Where another method is ahead by most: on one table told nothing, told the number, and at sites that differ."""
    means = _run("one-table-peers")["means"]
    table = {name: {m: found["ARI"][0] for m, found in own.items() if "ARI" in found} for name, own in means.items()}
    sites: dict[str, dict[str, float]] = {}
    for e in json.loads(gzip.decompress(SOURCE.read_bytes()))["entries"]:
        if (e["measure"], e["scenario"], e["epsilon"]) == ("AMI", "non-iid", "inf"):
            sites.setdefault(f"{e['dataset']}, 5 to 100 sites", {})[e["method"]] = e["mean"]
    rows = [["where", "another tool", "fcac"]]
    for scores, own, told, measure in (
        (table, "fcac", False, "ARI"),
        (table, "fcac (k given)", True, "ARI"),
        (sites, "communities", None, "AMI"),
    ):
        _, name, method = max(
            (found[m] - found[own], name, m)
            for name, found in scores.items()
            for m in found
            if own in found and m not in OURS and told in (None, "k given" in m)
        )
        theirs, mine = scores[name][method], scores[name][own]
        rows.append([name, f"{METHODS.get(method, method)}: {measure} {_short(theirs)}", _short(mine)])
    return rows


def _short(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


if __name__ == "__main__":
    for run in sys.argv[1:]:
        # no time in the file, so that the same results give the same bytes
        SOURCE.write_bytes(gzip.compress(Path(run).read_bytes(), 9, mtime=0))
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
    for file, made in ((README, readme), (ONE_TABLE, one_table), (HOW_GOOD, how_good)):
        file.write_text(made(file.read_text("utf-8")), "utf-8")
