"""From data to the paper's tables in one call: run the missing trials, then write tables and diagrams."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fcac.paper import beside_paper, check_extra
from fcac.paper.datasets import SPECS, find
from fcac.paper.grid import METHODS, N_TRIALS, SCENARIOS, Cell, cells_of, epsilon_name, run
from fcac.paper.statistics import cd_diagram, compare, compare_by_metric, holm
from fcac.persistence import write_atomic

#: The paper's own conclusions, to be checked against our numbers: FCAC is best, and significantly better than these.
PAPER_BEATS = ("k-FED", "FedFCM")
PAPER_RANK = 2.233

#: The method that the others are tested against, one by one: the first that is there.
REFERENCES = ("communities", "FCAC")

Progress = Callable[[int, int, Cell], None]


def reproduce_tables(
    out: Path,
    *,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] = METHODS,
    epsilons: Sequence[float] = (np.inf,),
    n_trials: int = N_TRIALS,
    data_dir: str | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    only_write: bool = False,
    title: str = "The paper's tables, run again",
) -> dict[str, Any]:
    """Repeat the paper's quantitative evaluation and say, cell by cell, whether it agrees.

    Parameters
    ----------
    out : Path
        Directory of the results: ``cells/`` (one file per cell, so that a stopped run can continue), ``tables.md``,
        ``tables.tex``, ``tables.json`` and the critical-difference diagrams.
    datasets : sequence of str, optional
        Names of sets; all ten by default.
    methods, epsilons : sequences
    n_trials : int
    data_dir : str, optional
        Directory of NAME.npz files; by default the sets are downloaded from OpenML.
    n_jobs : int, optional
    progress : callable, optional
    only_write : bool
        Run no trials; write the tables from those already finished.
    title : str
        Heading of the page.

    Returns
    -------
    dict
        What ``tables.json`` holds.

    Raises
    ------
    ImportError
        If the extra `experiments` is missing; it says what to install.
    """
    check_extra()
    names = [find(name).name for name in datasets] if datasets else list(SPECS)
    cells = cells_of(names, SCENARIOS, epsilons, methods)
    start = time.perf_counter()
    if not only_write:
        run(cells, out, n_trials=n_trials, data_dir=data_dir, n_jobs=n_jobs, progress=progress)
    seconds = time.perf_counter() - start
    rows = beside_paper.entries(cells, out)
    summary = summarise(rows, methods, epsilons)
    summary["run"] = {
        "command": "fcac " + shlex.join(sys.argv[1:]),
        "seconds_of_this_run": round(seconds, 1),
        "seconds_of_fitting": fitting_seconds(cells, out),
        "versions": versions(),
        "machine": {"processor": platform.machine(), "python": platform.python_version()},
        "trials": n_trials,
    }
    write_atomic(out / "tables.json", (json.dumps(summary, indent=1) + "\n").encode())
    write_atomic(out / "tables.md", page(rows, summary, methods, title).encode())
    write_atomic(out / "tables.tex", beside_paper.as_latex(rows, methods).encode())
    draw_diagrams(rows, epsilons, out)
    return summary


def summarise(rows: Sequence[beside_paper.Entry], methods: Sequence[str], epsilons: Sequence[float]) -> dict[str, Any]:
    """Return agreement with the paper, ranks and significance, from the entries alone."""
    return {
        "agreement": beside_paper.agreement(rows),
        "disagreements": beside_paper.disagreements(rows),
        "comparisons": comparisons(rows, epsilons),
        "entries": [
            {
                "dataset": r.dataset,
                "scenario": r.scenario,
                "epsilon": r.epsilon,
                "method": r.method,
                "measure": r.measure,
                "n_trials": r.n_trials,
                "mean": round(r.mean, 8),
                "std": round(r.std, 8),
                "paper": None if r.paper_mean is None else [r.paper_mean, r.paper_std],
                "agrees": r.agrees,
            }
            for r in rows
        ],
    }


def comparisons(rows: Sequence[beside_paper.Entry], epsilons: Sequence[float]) -> dict[str, Any]:
    """Return ranks and rank tests overall, by scenario and by epsilon; with the paper's blocks and for each metric."""
    result: dict[str, Any] = {}
    for name, scenarios, epsilon in comparison_names(epsilons):
        blocks = rounded_blocks(rows, scenarios, epsilon)
        if not enough(blocks):
            continue
        found = compare_by_metric(blocks)
        reference = next((m for m in REFERENCES if m in found["all"].methods), None)
        result[name] = {}
        for metric, comparison in found.items():
            own = {block: s for block, s in blocks.items() if metric == "all" or block.rpartition("/")[2] == metric}
            against = {} if reference is None else holm(own, reference)
            result[name][metric] = comparison.as_dict() | {"reference": reference, "holm": against}
    return result


def comparison_names(epsilons: Sequence[float]) -> list[tuple[str, tuple[str, ...], str]]:
    """Return the name, scenarios and epsilon of every comparison."""
    listed: list[tuple[str, tuple[str, ...], str]] = []
    for epsilon in epsilons:
        shown = epsilon_name(epsilon)
        listed.append((f"overall, eps = {shown}", SCENARIOS, shown))
        listed += [(f"{scenario}, eps = {shown}", (scenario,), shown) for scenario in SCENARIOS]
    return listed


def rounded_blocks(
    rows: Sequence[beside_paper.Entry], scenarios: Sequence[str], epsilon: str
) -> dict[str, dict[str, float]]:
    """Return scores rounded to the four digits the paper prints, so that scores printed alike are ranked alike.

    Blocks in which a method has not been run yet are left out. So is the second variant of one method, `(k given)`:
    two entries for one method would distort the ranks of the others.
    """
    ranked = [row for row in rows if not row.method.endswith("(k given)")]
    blocks = beside_paper.score_table(ranked, scenarios, epsilon)
    methods = set().union(*blocks.values())
    return {
        block: {method: float(beside_paper.half_up(score, 4)) for method, score in scores.items()}
        for block, scores in blocks.items()
        if set(scores) == methods
    }


def enough(blocks: dict[str, dict[str, float]]) -> bool:
    """Return whether the ranks of these blocks can be tested at all: at least four blocks and three methods."""
    return len(blocks) >= 4 and min(len(scores) for scores in blocks.values()) >= 3


def diagram_name(comparison: str) -> str:
    """Return the name of a comparison's diagram, without ending."""
    return "cd_" + comparison.replace(", eps = ", "_")


def draw_diagrams(rows: Sequence[beside_paper.Entry], epsilons: Sequence[float], out: Path) -> list[Path]:
    """Draw a critical-difference diagram for every comparison that has enough blocks."""
    drawn = []
    for name, scenarios, epsilon in comparison_names(epsilons):
        blocks = rounded_blocks(rows, scenarios, epsilon)
        if not enough(blocks):
            continue
        path = out / diagram_name(name)
        cd_diagram(path, compare(blocks), title=name)
        drawn.append(path)
    return drawn


def page(
    rows: Sequence[beside_paper.Entry],
    summary: dict[str, Any],
    methods: Sequence[str],
    title: str = "The paper's tables, run again",
) -> str:
    """Return the whole result as one Markdown page."""
    lines = [f"# {title}", "", "## Agreement with the paper", ""]
    lines += [
        "| method | figures compared | equal to the printed digit | beyond 2 standard errors |",
        "|---|---|---|---|",
    ]
    for method, counts in summary["agreement"].items():
        lines.append(
            f"| {method} | {counts['compared']} | {counts['equal_digits']} | {counts['beyond_2_standard_errors']} |"
        )
    lines += [
        "",
        "`=` equal to the printed digit, `~` within two standard errors, `≠` beyond. Mean (population standard",
    ]
    lines += ["deviation) over the trials; [n=..] where there are not twenty.", ""]
    if summary["disagreements"]:
        lines += ["## What differs, and why", ""]
        lines += [
            "| set | scenario | method | measure | ours | paper | s.e. | reason |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for d in summary["disagreements"]:
            digits = beside_paper.MEASURES[d["measure"]]
            ours, theirs = ([beside_paper.half_up(value, digits) for value in d[side]] for side in ("ours", "paper"))
            lines.append(
                f"| {d['dataset']} | {d['scenario']} | {d['method']} | {d['measure']} | {ours[0]} ({ours[1]}) | "
                f"{theirs[0]} ({theirs[1]}) | {d['standard_errors']:.1f} | {d['reason']} |"
            )
        lines.append("")
    lines += ["## Ranks and significance", "", *_rank_lines(summary["comparisons"]), ""]
    lines += ["## All figures", "", beside_paper.as_markdown(rows, methods)]
    made = summary.get("run")
    if made:
        lines += ["", "## How this was made", "", f"`{made['command']}`", ""]
        lines += [f"- {name} {number}" for name, number in made["versions"].items()]
        lines += [f"- seconds of fitting, {name}: {value}" for name, value in made["seconds_of_fitting"].items()]
    return "\n".join(lines) + "\n"


def _rank_lines(found: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, by_metric in found.items():
        reference = by_metric["all"].get("reference")
        lines += [f"### {name}", ""]
        lines += [
            "| blocks | average ranks, best first | Friedman p | Nemenyi: different at .05 | "
            f"Holm: p against {reference} |",
            "|---|---|---|---|---|",
        ]
        for metric, c in by_metric.items():
            ranks = ", ".join(f"{method} {rank:.3f}" for method, rank in c["average_ranks"].items())
            apart = [f"{better} / {worse}" for better, worse in c["differences"]]
            blocks = "metric x set (the paper's)" if metric == "all" else f"{metric} alone"
            lines.append(
                f"| {blocks} | {ranks} | {c['friedman']['p']:.2g} | {'; '.join(apart) or 'none'} | "
                + ", ".join(f"{method} {p:.2g}" for method, p in c.get("holm", {}).items())
                + " |"
            )
        order = ", ".join(f"{method} {rank:.2f}" for method, rank in by_metric["all"]["average_ranks"].items())
        said = f"Critical-difference diagram, {name}: {order}".replace("[", "(").replace("]", ")")
        lines += ["", f"![{said}]({diagram_name(name)}.png)", ""]
    return lines


def fitting_seconds(cells: Sequence[Cell], out: Path) -> dict[str, float]:
    """Return the total time spent in fitting, by method."""
    from fcac.paper.grid import read_cell

    total: dict[str, float] = {}
    for cell in cells:
        seconds = sum(figures.get("seconds", 0.0) for figures in read_cell(out, cell).values())
        total[cell.method] = round(total.get(cell.method, 0.0) + seconds, 1)
    return total


def versions() -> dict[str, str]:
    """Return the versions of the packages that the numbers depend on."""
    return {name: version(name) for name in ("fcac", "numpy", "scipy", "scikit-learn", "numba")}
