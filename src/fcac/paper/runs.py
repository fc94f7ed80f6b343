"""Comparisons over sets, methods and trials: resumable runs, a page with tables and rank tests, a diagram.

A comparison is described by a file in ``fcac/paper/configs``: its sets, methods, number of trials and what `--quick`
runs. Every pair of set and method has one small file of results, rewritten after each trial, so that a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fcac._parallel import n_cores
from fcac.paper.statistics import cd_diagram, compare_by_metric, holm
from fcac.persistence import write_atomic

#: Runs one trial: set, method, number of the trial, directory of data; returns figures by name.
Trial = Callable[[str, str, int, Path | None], dict[str, float]]
#: Called after each trial with trials done, their total, and what was run.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Config:
    """What a comparison runs.

    Attributes
    ----------
    name, title : str
    reference : str
        The method that the others are tested against.
    measures : tuple of str
        Figures in the tables; those in `ranked` are compared by rank, higher is better.
    ranked : tuple of str
    sets, methods : tuple of str
    trials : int
    packages : tuple of str
        Packages whose versions the page states.
    further_sets : tuple of str
        Sets that run only if they are asked for.
    """

    name: str
    title: str
    reference: str
    measures: tuple[str, ...]
    ranked: tuple[str, ...]
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    trials: int
    packages: tuple[str, ...]
    further_sets: tuple[str, ...] = ()

    def narrowed(self, sets: Sequence[str], methods: Sequence[str], trials: int | None) -> Config:
        """Return the same comparison with fewer sets, methods or trials; a name that is not there is an error."""
        for wanted, known, what in ((sets, (*self.sets, *self.further_sets), "set"), (methods, self.methods, "method")):
            unknown = [name for name in wanted if name not in known]
            if unknown:
                raise ValueError(f"{what}: {', '.join(unknown)} is not one of {', '.join(known)}")
        return replace(
            self,
            sets=tuple(sets) or self.sets,
            methods=tuple(methods) or self.methods,
            trials=self.trials if trials is None else trials,
        )


def read_config(name: str, *, quick: bool = False) -> Config:
    """Read the description of a comparison.

    Parameters
    ----------
    name : str
        Name of a file in ``fcac/paper/configs``, without ``.toml``.
    quick : bool, default=False
        Take the smaller lists under ``[quick]``.
    """
    content = tomllib.loads(files("fcac.paper").joinpath(f"configs/{name}.toml").read_text("utf-8"))
    chosen = content | (content["quick"] if quick else {})
    return Config(
        name=name,
        title=chosen["title"],
        reference=chosen["reference"],
        measures=tuple(chosen["measures"]),
        ranked=tuple(chosen["ranked"]),
        sets=tuple(chosen["sets"]),
        methods=tuple(chosen["methods"]),
        trials=int(chosen["trials"]),
        packages=tuple(chosen["packages"]),
    )


def with_files(config: Config, data_dir: Path | None) -> Config:
    """Add the sets that lie in a directory as NAME.npz, so that they can be asked for by name."""
    if data_dir is None:
        return config
    found = {path.stem for folder in (data_dir, data_dir / "shapes") for path in folder.glob("*.npz")}
    return replace(config, further_sets=tuple(sorted(found - set(config.sets))))


def stored_trials(out: Path, name: str, method: str) -> list[dict[str, float]]:
    """Return the finished trials of a set and a method, in order."""
    found = _read(out / "cells", (name, method))
    return [found[number] for number in sorted(found)]


def run(
    config: Config, trial: Trial, out: Path, *, data_dir: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the missing trials one after the other, so that their times can be compared, and write the page.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    cells = out / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    pairs = [(name, method) for name in config.sets for method in config.methods]
    known = {pair: _read(cells, pair) for pair in pairs}
    total = len(pairs) * config.trials
    done = sum(min(len(found), config.trials) for found in known.values())
    for name, method in pairs:
        found = known[name, method]
        for number in range(config.trials):
            if number in found:
                continue
            found[number] = trial(name, method, number, data_dir)
            content = {"set": name, "method": method, "trials": {str(n): found[n] for n in sorted(found)}}
            write_atomic(_path(cells, (name, method)), (json.dumps(content, indent=0) + "\n").encode())
            done += 1
            if progress is not None:
                progress(done, total, f"{name}: {method}")
    results = summarise(config, {pair: [found[n] for n in range(config.trials)] for pair, found in known.items()})
    write_atomic(out / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    write_atomic(out / "results.md", page(config, results).encode())
    if results["ranks"]:
        _draw(config, results, out)
    return results


def summarise(config: Config, trials: dict[tuple[str, str], list[dict[str, float]]]) -> dict[str, Any]:
    """Return means and deviations by set and method, ranks and tests."""
    means: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (name, method), figures in trials.items():
        means.setdefault(name, {})[method] = {
            measure: [float(np.mean(values)), float(np.std(values))]
            for measure in config.measures
            if (values := [one[measure] for one in figures if measure in one])
        }
    blocks = _blocks(config, means)
    ranks: dict[str, Any] = {}
    if len(config.methods) >= 3 and len(blocks) >= 4:
        for metric, found in compare_by_metric(blocks).items():
            own = {b: s for b, s in blocks.items() if metric == "all" or b.rsplit("/", 1)[1] == metric}
            against = holm(own, config.reference) if config.reference in config.methods else {}
            ranks[metric] = found.as_dict() | {"holm": against}
    return {
        "title": config.title,
        "trials": config.trials,
        "means": means,
        "ranks": ranks,
        "versions": {name: _version(name) for name in ("fcac", "numpy", "scikit-learn", *config.packages)},
        "machine": {
            "processor": platform.machine(),
            "cores": n_cores(),
            "python": platform.python_version(),
        },
    }


def page(config: Config, results: dict[str, Any]) -> str:
    """Return the results as one Markdown page."""
    means = results["means"]
    lines = [f"# {results['title']}", ""]
    machine = results["machine"]
    lines += [f"Means of {results['trials']} trials on {machine['cores']} cores ({machine['processor']}).", ""]
    for measure in config.measures:
        lines += [
            f"## {measure}",
            "",
            f"| set | {' | '.join(config.methods)} |",
            "|---" * (1 + len(config.methods)) + "|",
        ]
        for name, by_method in means.items():
            shown = [_shown(by_method[method].get(measure)) for method in config.methods]
            lines.append(f"| {name} | {' | '.join(shown)} |")
        overall = [
            _shown(
                [float(np.mean([m[method][measure][0] for m in means.values() if measure in m[method]] or [np.nan]))]
            )
            for method in config.methods
        ]
        lines += [f"| **mean** | {' | '.join(overall)} |", ""]
    if results["ranks"]:
        lines += ["## Ranks and tests", ""]
        lines += [
            f"| blocks | average ranks, best first | Friedman p | Holm: p against {config.reference} |",
            "|---|---|---|---|",
        ]
        for metric, found in results["ranks"].items():
            ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in found["average_ranks"].items())
            against = ", ".join(f"{method} {p:.2g}" for method, p in found["holm"].items())
            blocks = "all measures" if metric == "all" else metric
            lines.append(f"| {blocks} | {ranks} | {found['friedman']['p']:.2g} | {against} |")
        lines.append("")
    lines += ["## How this was made", "", f"`fcac reproduce {config.name}`, Python {machine['python']}", ""]
    lines += [f"- {name} {number}" for name, number in results["versions"].items()]
    return "\n".join(lines) + "\n"


def _blocks(config: Config, means: dict[str, dict[str, dict[str, list[float]]]]) -> dict[str, dict[str, float]]:
    """Scores by set and measure, rounded as they are printed; a block that lacks a method is left out."""
    blocks = {}
    for name, by_method in means.items():
        for measure in config.ranked:
            scores = {m: round(figures[measure][0], 3) for m, figures in by_method.items() if measure in figures}
            if len(scores) == len(config.methods):
                blocks[f"{name}/{measure}"] = scores
    return blocks


def _draw(config: Config, results: dict[str, Any], out: Path) -> None:
    blocks = _blocks(config, results["means"])
    for metric, found in compare_by_metric(blocks).items():
        cd_diagram(out / f"cd_{metric}", found, title=f"{config.title}: {metric}")


def _shown(value: list[float] | None) -> str:
    if value is None or not np.isfinite(value[0]):
        return ""
    digits = 3 if abs(value[0]) < 10 else 0
    return f"{value[0]:.{digits}f}"


def _path(cells: Path, pair: tuple[str, str]) -> Path:
    return cells / ("__".join(part.replace("/", "-").replace(" ", "-") for part in pair) + ".json")


def _read(cells: Path, pair: tuple[str, str]) -> dict[int, dict[str, float]]:
    path = _path(cells, pair)
    if not path.exists():
        return {}
    return {int(number): figures for number, figures in json.loads(path.read_text())["trials"].items()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
