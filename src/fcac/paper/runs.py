"""Comparisons over sets, methods and trials: resumable runs, a page with tables and rank tests, a diagram.

A comparison is described by a file in ``fcac/paper/configs``: its sets, methods, number of trials and what `--quick`
runs. Every pair of set and method has one small file of results, rewritten after each trial, so that a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from fcac._parallel import n_cores
from fcac.paper.config import Config
from fcac.paper.pages import page
from fcac.paper.statistics import cd_diagram, compare_by_metric, holm
from fcac.persistence import write_atomic

#: Runs one trial: set, method, number of the trial, directory of data; returns figures by name.
Trial = Callable[[str, str, int, Path | None], dict[str, float]]
#: Called after each trial with trials done, their total, and what was run.
Progress = Callable[[int, int, str], None]


def stored_trials(out: Path, name: str, method: str) -> list[dict[str, float]]:
    """Return the finished trials of a set and a method, in order."""
    found = _read(out / "cells", (name, method))
    return [found[number] for number in sorted(found)]


def run(
    config: Config,
    trial: Trial,
    out: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    command: str = "",
    left_out: dict[str, str] | None = None,
    pictures: Sequence[str] = (),
    only_write: bool = False,
) -> dict[str, Any]:
    """Run the missing trials one after the other, so that their times can be compared, and write the page.

    Parameters
    ----------
    config : Config
    trial : callable
        Runs one trial.
    out : Path
        Directory of the results.
    data_dir : Path, optional
        Directory of sets that come from files.
    progress : callable, optional
    command : str
        What was typed, for the page.
    left_out : dict of str to str, optional
        Methods that could not run, with the reason.
    pictures : sequence of str
        Names of further pictures in `out` that the page shows.
    only_write : bool
        Run no trials; write the page from those already finished.

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
    failed: dict[str, str] = {}
    for name, method in () if only_write else pairs:
        found = known[name, method]
        for number in range(config.trials):
            if number in found:
                continue
            try:
                found[number] = trial(name, method, number, data_dir)
            except Exception as error:
                # a method that fails on one set must not end a run of hours
                failed[f"{method} on {name}"] = f"{type(error).__name__}: {error}"
                break  # it is tried again when the run goes on
            content = {"set": name, "method": method, "trials": {str(n): found[n] for n in sorted(found)}}
            write_atomic(_path(cells, (name, method)), (json.dumps(content, indent=0) + "\n").encode())
            done += 1
            if progress is not None:
                progress(done, total, f"{name}: {method}")
    results = summarise(
        config, {pair: [found[n] for n in range(config.trials) if n in found] for pair, found in known.items()}
    )
    results |= {"command": command or f"fcac reproduce {config.name}", "left_out": left_out or {}, "failed": failed}
    write_atomic(out / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    drawn = _draw(config, results, out) if results["ranks"] else []
    write_atomic(out / "results.md", page(config, results, [*pictures, *drawn]).encode())
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
    if len(config.ranked_methods) >= 3 and len(blocks) >= 4:
        for metric, found in compare_by_metric(blocks).items():
            own = {b: s for b, s in blocks.items() if metric == "all" or b.rsplit("/", 1)[1] == metric}
            against = holm(own, config.reference) if config.reference in config.ranked_methods else {}
            ranks[metric] = found.as_dict() | {"holm": against}
    fewer = {
        f"{method} on {name}": len(found) for (name, method), found in trials.items() if len(found) < config.trials
    }
    return {
        "title": config.title,
        "trials": config.trials,
        "fewer_trials": fewer,
        "means": means,
        "ranks": ranks,
        "versions": {name: _version(name) for name in ("fcac", "numpy", "scikit-learn", *config.packages)},
        "machine": {
            "processor": _processor(),
            "cores": n_cores(),
            "python": platform.python_version(),
        },
    }


def _blocks(config: Config, means: dict[str, dict[str, dict[str, list[float]]]]) -> dict[str, dict[str, float]]:
    """Scores by set and measure, rounded as they are printed; a block that lacks a method is left out."""
    blocks = {}
    for name, by_method in means.items():
        if config.unseen and name not in config.unseen:
            continue
        for measure in config.ranked:
            scores = {m: round(by_method[m][measure][0], 3) for m in config.ranked_methods if measure in by_method[m]}
            if len(scores) == len(config.ranked_methods):
                blocks[f"{name}/{measure}"] = scores
    return blocks


def _draw(config: Config, results: dict[str, Any], out: Path) -> list[str]:
    """Draw the diagrams, and return the names of those for the page."""
    blocks, drawn = _blocks(config, results["means"]), []
    for metric, found in compare_by_metric(blocks).items():
        shown = "all measures" if metric == "all" else metric
        name = f"cd_{metric.replace(' ', '-')}"
        cd_diagram(out / name, found, title=f"{config.title}: {shown}")
        if metric != "all":  # measures of one set are not independent; the page shows them one at a time
            drawn.append(f"{name}.png")
    return drawn


def _path(cells: Path, pair: tuple[str, str]) -> Path:
    return cells / ("__".join(part.replace("/", "-").replace(" ", "-") for part in pair) + ".json")


def _read(cells: Path, pair: tuple[str, str]) -> dict[int, dict[str, float]]:
    path = _path(cells, pair)
    if not path.exists():
        return {}
    return {int(number): figures for number, figures in json.loads(path.read_text())["trials"].items()}


def _processor() -> str:
    """Return the name of the processor where Linux tells it, else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
