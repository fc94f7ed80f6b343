"""A comparison as one page: what was run, tables, where the reference is beaten, rank tests and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcac.paper.config import Config

# A method within this much of the best counts as level with it.
_LEVEL = 0.02


def page(config: Config, results: dict[str, Any], pictures: Sequence[str] = ()) -> str:
    """Return the results as one Markdown page.

    Parameters
    ----------
    config : Config
    results : dict
        What :func:`fcac.paper.runs.run` returns.
    pictures : sequence of str
        Names of the picture files beside the page.
    """
    machine, n = results["machine"], results["trials"]
    lines = [f"# {results['title']}", ""]
    lines += [f"{_trials(n)} on {machine['processor']} ({machine['cores']} cores), Python {machine['python']}.", ""]
    if config.notes:
        lines += [config.notes, ""]
    for method, reason in results["left_out"].items():
        lines += [f"Left out: **{method}**. {reason[0].upper()}{reason[1:]}.", ""]
    if results["fewer_trials"]:
        listed = "; ".join(f"{what}: {number}" for what, number in results["fewer_trials"].items())
        lines += [f"Fewer trials: {listed}.", ""]
    if results["failed"]:
        lines += ["No result, although it was tried:", ""]
        lines += [f"- {what}: {reason}" for what, reason in results["failed"].items()] + [""]
    for measure in config.measures:
        lines += _table(config, results, measure)
    lines += _beaten(config, results["means"])
    lines += _tests(config, results)
    for name in pictures:
        lines += [f"![{_caption(config, results, name)}]({name})", ""]
    lines += ["## How this was made", "", f"`{results['command']}`", ""]
    lines += [f"- {name} {number}" for name, number in results["versions"].items()]
    return "\n".join(lines) + "\n"


def _table(config: Config, results: dict[str, Any], measure: str) -> list[str]:
    means = results["means"]
    lines = [f"## {measure}", "", f"| set | {' | '.join(config.methods)} |"]
    lines.append("|---|" + "---:|" * len(config.methods))
    for part, names in _parts(config, means).items():
        for name in names:
            values = [means[name][method].get(measure) for method in config.methods]
            ranked = [v[0] for m in config.ranked_methods if (v := means[name][m].get(measure)) is not None]
            best = max(ranked, default=np.nan) if measure in config.ranked else np.nan
            lines.append(f"| {name} | {' | '.join(_shown(value, measure, best) for value in values)} |")
        overall = []
        for method in config.methods:
            found = [means[name][method][measure][0] for name in names if measure in means[name][method]]
            overall.append(_shown([float(np.mean(found))] if found else None, measure, np.nan))
        lines.append(f"| **{part}** | {' | '.join(overall)} |")
    return [*lines, "", f"`{results['command']}`", ""]


def _parts(config: Config, means: dict[str, Any]) -> dict[str, list[str]]:
    """Return the sets by part: what was not at hand while choosing, and what was; or all of them."""
    if not config.unseen:
        return {"mean": list(means)}
    unseen = [name for name in means if name in config.unseen]
    seen = [name for name in means if name not in config.unseen]
    return {part: names for part, names in (("mean, unseen", unseen), ("mean, seen", seen)) if names}


def _shown(value: list[float] | None, measure: str, best: float) -> str:
    if value is None or not np.isfinite(value[0]):
        return ""
    digits = 1 if measure == "clusters" else 3 if abs(value[0]) < 10 else 0
    text = f"{value[0]:.{digits}f}"
    if value[0] == best:
        text = f"**{text}**"
    return f"{text} ({value[1]:.{digits}f})" if len(value) > 1 and value[1] >= 0.5 * 10**-digits else text


def _beaten(config: Config, means: dict[str, Any]) -> list[str]:
    """Say on which sets the reference is behind, by the last ranked measure."""
    own, measure = config.reference, config.ranked[-1]
    if own not in config.methods:
        return []
    behind = []
    for name, by_method in means.items():
        found = {m: by_method[m][measure][0] for m in config.ranked_methods if measure in by_method[m]}
        ahead = {m: value for m, value in found.items() if own in found and value > found[own] + _LEVEL}
        if ahead:
            best = max(ahead, key=lambda m: ahead[m])
            behind.append(f"- {name}: {found[own]:.3f}; {len(ahead)} ahead, best {best} with {ahead[best]:.3f}")
    title = f"## Where {own} is behind"
    if not behind:
        return [title, "", f"Nowhere by more than {_LEVEL} of {measure}.", ""]
    said = f"On {len(behind)} of {len(means)} sets, by more than {_LEVEL} of {measure}:"
    return [title, "", said, "", *behind, ""]


def _tests(config: Config, results: dict[str, Any]) -> list[str]:
    if not results["ranks"]:
        return []
    lines = ["## Ranks and tests", ""]
    lines += [
        f"| blocks | average ranks, best first | Friedman p | Nemenyi: apart from {config.reference} | "
        f"Holm: p against {config.reference} |",
        "|---|---|---|---|---|",
    ]
    for metric, found in results["ranks"].items():
        ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in found["average_ranks"].items())
        apart = [a if b == config.reference else b for a, b in found["differences"] if config.reference in (a, b)]
        against = ", ".join(f"{method} {p:.2g}" for method, p in found["holm"].items())
        blocks = f"{'all measures' if metric == 'all' else metric} ({found['n_blocks']})"
        lines.append(
            f"| {blocks} | {ranks} | {found['friedman']['p']:.2g} | {', '.join(apart) or 'none'} | {against} |"
        )
    lines += ["", "Friedman's test, Nemenyi's at .05, and Wilcoxon's signed-rank test with Holm's correction.", ""]
    return [*lines, f"`{results['command']}`", ""]


def _caption(config: Config, results: dict[str, Any], picture: str) -> str:
    """Say in words what a picture shows, for those who cannot see it."""
    metric = picture.removeprefix("cd_").removesuffix(".png").replace("-", " ")
    found = results["ranks"].get(metric) if picture.startswith("cd_") else None
    if found is None:
        return f"{config.title}: {picture.partition('.')[0]}; the tables hold the same figures"
    order = ", ".join(f"{method} {rank:.2f}" for method, rank in found["average_ranks"].items())
    shown = "all measures" if metric == "all" else metric
    return f"Critical-difference diagram, {shown}: {order}; critical difference {found['critical_difference']:.2f}"


def _trials(n: int) -> str:
    return "One trial" if n == 1 else f"Means of {n} trials (standard deviations in brackets)"
