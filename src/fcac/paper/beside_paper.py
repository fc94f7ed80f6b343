"""Our numbers beside the paper's, cell by cell, in Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fcac.paper.grid import METRICS, Cell, epsilon_name, read_cell

#: The rows of the paper's tables, with the number of decimals it prints.
MEASURES = {"ARI": 4, "AMI": 4, "NMI": 4, "nodes": 1, "clusters": 1}
_PAPER_NAMES = {"nodes": "#Nodes", "clusters": "#Clusters"}

#: Why a cell of FCAC may differ from the paper's although the rules are the same.
REASONS = {
    (
        "ozone-level-8hr",
        "iid",
    ): "one exact tie in trial 5, broken here to the lowest position, in the paper the other way",
    (
        "skin-segmentation",
        "iid",
    ): "integer data full of exact ties, whose order in the paper came from its machine's sort",
    (
        "skin-segmentation",
        "non-iid",
    ): "integer data full of exact ties, whose order in the paper came from its machine's sort",
    ("Fashion-MNIST", "iid"): "the paper computed this set in single precision; here it is double",
    ("Fashion-MNIST", "non-iid"): "the paper computed this set in single precision; here it is double",
}


@dataclass(frozen=True)
class Entry:
    """One number of the tables: ours, and the paper's where it printed one."""

    dataset: str
    scenario: str
    epsilon: str
    method: str
    measure: str
    n_trials: int
    mean: float
    std: float
    paper_mean: float | None
    paper_std: float | None

    @property
    def agrees(self) -> bool | None:
        """Whether mean and spread equal the paper's to the printed digit; None where it printed none."""
        if self.paper_mean is None or self.paper_std is None:
            return None
        digits = MEASURES[self.measure]
        ours = (half_up(self.mean, digits), half_up(self.std, digits))
        return ours == (half_up(self.paper_mean, digits), half_up(self.paper_std, digits))

    @property
    def z(self) -> float | None:
        """Difference of the means in standard errors; None where the paper printed none."""
        if self.paper_mean is None or self.paper_std is None:
            return None
        error = math.sqrt(self.std**2 / self.n_trials + self.paper_std**2 / 20)
        difference = abs(self.mean - self.paper_mean)
        if difference <= 1.5 * 10 ** -MEASURES[self.measure]:
            return 0.0  # within the rounding of what is printed
        return difference / error if error > 0 else math.inf


def half_up(value: float, digits: int) -> str:
    """Round halves up, as the paper does: a mean of 45.25 is printed as 45.3.

    Examples
    --------
    >>> from fcac.paper.beside_paper import half_up
    >>> half_up(45.25, 1), half_up(-0.00004, 4)
    ('45.3', '0.0000')
    """
    # the mean of twenty whole numbers is exact to far more than twelve decimals
    exact = Decimal(repr(round(value, 12)))
    rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    return str(abs(rounded) if rounded == 0 else rounded)


def paper_tables() -> dict[str, Any]:
    """Return the paper's two result tables: scenario -> set -> measure -> method -> [mean, std]."""
    text = (files("fcac.paper") / "paper_tables.json").read_text()
    tables: dict[str, Any] = json.loads(text)
    return tables


def entries(cells: Iterable[Cell], folder: Path) -> list[Entry]:
    """Summarise the finished trials of the given cells."""
    paper = paper_tables()
    result = []
    for cell in cells:
        trials = read_cell(folder, cell)
        if not trials:
            continue
        for measure in MEASURES:
            values = np.array([figures[measure] for figures in trials.values()])
            printed = None
            if np.isinf(cell.epsilon):
                by_method = paper[cell.scenario].get(cell.dataset, {}).get(_PAPER_NAMES.get(measure, measure), {})
                printed = by_method.get(cell.method)
            result.append(
                Entry(
                    cell.dataset,
                    cell.scenario,
                    epsilon_name(cell.epsilon),
                    cell.method,
                    measure,
                    len(values),
                    float(values.mean()),
                    float(values.std()),
                    *(printed or (None, None)),
                )
            )
    return result


def reason(entry: Entry) -> str:
    """Return why a number differs from the paper's."""
    if entry.method == "FCAC":
        return REASONS.get((entry.dataset, entry.scenario), "not explained")
    return "the paper gives no seeds for this rival: compared by standard errors, not digits"


def as_markdown(rows: Sequence[Entry], methods: Sequence[str]) -> str:
    """Return one table per scenario and epsilon: ours above, the paper's below, with a mark of agreement."""
    lines: list[str] = []
    for scenario, epsilon in sorted({(r.scenario, r.epsilon) for r in rows}, key=_grid_order):
        here = [r for r in rows if (r.scenario, r.epsilon) == (scenario, epsilon)]
        lines += [f"### {scenario}, eps = {epsilon}", ""]
        lines += ["| set | measure | " + " | ".join(methods) + " |", "|---|---|" + "---|" * len(methods)]
        for dataset in dict.fromkeys(r.dataset for r in here):
            for measure in MEASURES:
                found = {r.method: r for r in here if (r.dataset, r.measure) == (dataset, measure)}
                lines.append(
                    f"| {dataset} | {measure} | " + " | ".join(_markdown_cell(found.get(m)) for m in methods) + " |"
                )
        lines.append("")
    return "\n".join(lines)


def _markdown_cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    digits = MEASURES[entry.measure]
    text = f"{half_up(entry.mean, digits)} ({half_up(entry.std, digits)})"
    if entry.n_trials != 20:
        text += f" [n={entry.n_trials}]"
    if entry.paper_mean is None or entry.paper_std is None:
        return text
    printed = f"{half_up(entry.paper_mean, digits)} ({half_up(entry.paper_std, digits)})"
    mark = "=" if entry.agrees else ("~" if (entry.z or 0.0) <= 2 else "≠")
    return f"{text}<br>{mark} paper {printed}"


def as_latex(rows: Sequence[Entry], methods: Sequence[str]) -> str:
    """Return the same tables as LaTeX tabulars (needs booktabs)."""
    lines: list[str] = ["% our mean (population std); the paper's figures in italics below"]
    for scenario, epsilon in sorted({(r.scenario, r.epsilon) for r in rows}, key=_grid_order):
        here = [r for r in rows if (r.scenario, r.epsilon) == (scenario, epsilon)]
        shown = r"$\infty$" if epsilon == "inf" else epsilon
        lines += [
            r"\begin{table}\centering",
            rf"\caption{{Clustering performance, {scenario}, $\epsilon$ = {shown}.}}",
            r"\begin{tabular}{ll" + "r" * len(methods) + r"}\toprule",
            "Data set & Measure & " + " & ".join(methods) + r" \\ \midrule",
        ]
        for dataset in dict.fromkeys(r.dataset for r in here):
            for measure, digits in MEASURES.items():
                found = {r.method: r for r in here if (r.dataset, r.measure) == (dataset, measure)}
                ours = [
                    f"{half_up(found[m].mean, digits)} ({half_up(found[m].std, digits)})" if m in found else ""
                    for m in methods
                ]
                lines.append(f"{dataset} & {measure} & " + " & ".join(ours) + r" \\")
                theirs = [
                    rf"\textit{{{half_up(found[m].paper_mean or 0.0, digits)} "
                    rf"({half_up(found[m].paper_std or 0.0, digits)})}}"
                    if m in found and found[m].paper_mean is not None
                    else ""
                    for m in methods
                ]
                if any(theirs):
                    lines.append(" & & " + " & ".join(theirs) + r" \\")
        lines += [r"\bottomrule\end{tabular}\end{table}", ""]
    return "\n".join(lines)


def _grid_order(key: tuple[str, str]) -> tuple[float, str]:
    scenario, epsilon = key
    return (-math.inf if epsilon == "inf" else float(epsilon), scenario)


def disagreements(rows: Sequence[Entry]) -> list[dict[str, Any]]:
    """List, with the reason, the numbers of FCAC that differ in a printed digit and those of rivals beyond 2 s.e."""
    return [
        {
            "dataset": r.dataset,
            "scenario": r.scenario,
            "method": r.method,
            "measure": r.measure,
            "ours": [r.mean, r.std],
            "paper": [r.paper_mean, r.paper_std],
            "standard_errors": r.z,
            "reason": reason(r),
        }
        for r in rows
        if r.agrees is False and (r.method == "FCAC" or (r.z or 0.0) > 2)
    ]


def agreement(rows: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """Count, for every method, the numbers equal to the paper's printed digits and those beyond two standard errors."""
    result: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(r.method for r in rows):
        compared = [r for r in rows if r.method == method and r.agrees is not None]
        if compared:
            result[method] = {
                "compared": len(compared),
                "equal_digits": sum(bool(r.agrees) for r in compared),
                "beyond_2_standard_errors": sum((r.z or 0.0) > 2 for r in compared),
            }
    return result


def score_table(rows: Sequence[Entry], scenarios: Sequence[str], epsilon: str, metrics: Sequence[str] = METRICS) -> Any:
    """Return {block: {method: mean}} with one block per scenario, set and metric, for rank tests."""
    blocks: dict[str, dict[str, float]] = {}
    for r in rows:
        if r.scenario in scenarios and r.epsilon == epsilon and r.measure in metrics:
            blocks.setdefault(f"{r.scenario}/{r.dataset}/{r.measure}", {})[r.method] = r.mean
    return blocks
